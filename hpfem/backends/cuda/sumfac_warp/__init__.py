"""Sum factorisation with a warp for each element, on tensor cores."""
