"""Sum factorisation with some elements per block of threads."""
