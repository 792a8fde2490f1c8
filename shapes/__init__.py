"""Reference elements: shapes, quadrature, bases and their mode trees. NumPy and SciPy only; no mesh or device."""

from __future__ import annotations

from .basis import BASES, Basis, make_basis
from .errors import ArgumentError, HpfemError
from .hex import HEX
from .modes import Mode
from .nodes import equispaced_nodes, interpolation_nodes, lattice, node_entities
from .prism import PRISM
from .pyramid import PYRAMID
from .quad import QUAD
from .quadrature import (
    PointRule,
    Rule,
    ShapeRule,
    TensorRule,
    default_counts,
    make_rule,
    quadrature,
    simplex_quadrature,
)
from .segment import SEGMENT
from .shape import POINT, Direction, Entity, Shape, cone, get_shape, product
from .tabulation import Tabulation
from .tet import TET
from .tree import ModeTree
from .tri import TRI

SHAPES: dict[str, Shape] = {shape.name: shape for shape in (SEGMENT, QUAD, TRI, HEX, PRISM, PYRAMID, TET)}

__all__ = [
    "BASES", "HEX", "POINT", "PRISM", "PYRAMID", "QUAD", "SEGMENT", "SHAPES", "TET", "TRI", "ArgumentError", "Basis",
    "Direction", "Entity", "HpfemError", "Mode", "ModeTree", "PointRule", "Rule", "Shape", "ShapeRule", "Tabulation",
    "TensorRule", "cone", "default_counts",
    "equispaced_nodes", "get_shape", "interpolation_nodes", "lattice", "make_basis", "make_rule", "node_entities",
    "product", "quadrature", "simplex_quadrature",
]  # fmt: skip
