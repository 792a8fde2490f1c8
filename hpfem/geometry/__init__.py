"""The geometry of elements: coordinate maps, Jacobians, metric factors."""

from .block_geometry import AFFINE, GENERAL, MULTILINEAR, QUADRATIC, BlockGeometry, Coefficients, GeometryKind
from .element_map import ElementMap
from .factor_source import FactorSource
from .map_lines import MapLines

__all__ = [
    "AFFINE",
    "GENERAL",
    "MULTILINEAR",
    "QUADRATIC",
    "BlockGeometry",
    "Coefficients",
    "ElementMap",
    "FactorSource",
    "GeometryKind",
    "MapLines",
]
