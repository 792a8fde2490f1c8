"""The geometry of elements: coordinate maps, Jacobians, metric factors."""

from .block_geometry import AFFINE, GENERAL, BlockGeometry, GeometryKind
from .element_map import ElementMap

__all__ = ["AFFINE", "GENERAL", "BlockGeometry", "ElementMap", "GeometryKind"]
