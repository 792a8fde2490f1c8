"""The geometry of elements: coordinate maps, Jacobians, metric factors."""

from .block_geometry import BlockGeometry, determinant, determinant_and_inverse, symmetric_pairs

__all__ = ["BlockGeometry", "determinant", "determinant_and_inverse", "symmetric_pairs"]
