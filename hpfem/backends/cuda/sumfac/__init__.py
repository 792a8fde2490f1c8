"""Sum factorisation with one element per thread."""
