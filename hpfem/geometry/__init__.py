"""The geometry of elements: coordinate maps, Jacobians, metric factors."""

from .block_geometry import BlockGeometry as BlockGeometry
from .element_map import ElementMap as ElementMap
from .factors import FactorSource as FactorSource
from .kinds import AFFINE as AFFINE
from .kinds import GENERAL as GENERAL
from .kinds import MULTILINEAR as MULTILINEAR
from .kinds import QUADRATIC as QUADRATIC
from .kinds import GeometryKind as GeometryKind
from .map_lines import MapLines as MapLines
