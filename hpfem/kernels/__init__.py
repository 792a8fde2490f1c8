"""Pointwise expressions and the kernels of the backends."""
