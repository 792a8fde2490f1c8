"""Kronecker products of sparse one-dimensional matrices, for affine hexes and quads."""
