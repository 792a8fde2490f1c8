"""One of our cells in VTK: points of the reference shape, and the VTK cells between them.

A Lagrange cell of VTK if there is one for the shape and order; else linear cells between the points of the
equispaced lattice. A product is cut like its base, times the segments of its last direction. The cones:

- tri: triangles like the whole one, and inverted ones.
- tet: in each small box of the lattice a corner tet, four tets of an octahedron, an inverted tet, where they fit.
- pyramid: pyramids like the whole one, inverted ones between four of them, a tet between each two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np

from hpfem.shapes import SHAPES, Shape, equispaced_nodes
from hpfem.shapes.arrays import Array, Indices

from ..mesh import vtk_nodes
from ..mesh.io.vtk_cells import LAGRANGE_TYPES, LINEAR_TYPES
from ..mesh.node_order import lattice_positions

# Corners as lattice points, one row per cell in VTK's corner order, by the name of the cells' shape.
Cut = dict[str, Indices]

LAGRANGE_LIMIT = 10  # VTK's interpolation tables end there


@dataclass(frozen=True, eq=False)
class Pattern:
    """VTK cells that show one of our cells."""

    nodes: Array  # [n, dim], reference coordinates of the points
    cells: tuple[tuple[int, Indices], ...]  # VTK's type and rows of `nodes`, [n_cells, n_points of the cell]


@cache
def vtk_pattern(shape: Shape, order: int) -> Pattern:
    """One VTK cell of the order if there is one, else linear cells on the lattice of the order."""
    if order > 1 and (shape.name not in LAGRANGE_TYPES or order > LAGRANGE_LIMIT):
        return linear_pattern(shape, order)
    cell_type = (LINEAR_TYPES if order == 1 else LAGRANGE_TYPES)[shape.name]
    nodes = vtk_nodes(shape, order)
    return Pattern(nodes, ((cell_type, np.arange(len(nodes))[None]),))


@cache
def linear_pattern(shape: Shape, count: int) -> Pattern:
    """Linear VTK cells on the equispaced lattice."""
    cut = _cut(shape, count).items()
    cells = [(LINEAR_TYPES[name], lattice_positions(shape, count, corners)) for name, corners in cut if len(corners)]
    return Pattern(equispaced_nodes(shape, count), tuple(cells))


def _cut(shape: Shape, count: int) -> Cut:
    """Cut a shape into linear cells of its lattice, corners [n_cells, n_corners, dim]."""
    base = shape.base
    if base is None or base.dim == 0:
        steps = np.arange(count)
        return {"segment": np.stack([steps, steps + 1], axis=1)[:, :, None]}
    return _CONES[base.name](count) if shape.collapsed else _product(base, count)


def _product(base: Shape, count: int) -> Cut:
    """Cells of the base times segments."""
    result = {}
    for name, corners in _cut(base, count).items():
        flat = np.tile(corners, (count, 1, 1))
        height = np.repeat(np.arange(count), len(corners))
        low, high = (
            np.concatenate([flat, np.broadcast_to((height + up)[:, None, None], (*flat.shape[:2], 1))], axis=2)
            for up in (0, 1)
        )
        # VTK goes around a quad, and lists the other cells' bottom before their top.
        around = corners.shape[1] == 2
        swept = next(shape for shape in SHAPES.values() if shape.base is SHAPES[name] and not shape.collapsed)
        result[swept.name] = np.concatenate([low, high[:, ::-1] if around else high], axis=1)
    return result


def _placed(origins: Indices, offsets: str) -> Indices:
    """Cells with corners at digit offsets from their origins, e.g. "00 10 01", [n_cells, n_corners, dim]."""
    corners = np.array([[int(digit) for digit in word] for word in offsets.split()])
    return origins[:, None, :] + corners[None]


def _cut_tri(count: int) -> Cut:
    origins = np.array(list(product(range(count), repeat=2)))
    alike, inverted = (origins[origins.sum(axis=1) <= count - room] for room in (1, 2))
    return {"tri": np.concatenate([_placed(alike, "00 10 01"), _placed(inverted, "10 11 01")])}


def _cut_tet(count: int) -> Cut:
    origins = np.array(list(product(range(count), repeat=3)))
    alike, middle, inverted = (origins[origins.sum(axis=1) <= count - room] for room in (1, 2, 3))
    octahedron = ("010 001", "001 101", "101 110", "110 010")  # pairs around the diagonal 100 - 011
    pieces = [_placed(alike, "000 100 010 001"), _placed(inverted, "110 101 011 111")]
    pieces += [_placed(middle, f"100 011 {pair}") for pair in octahedron]
    return {"tet": _righted(np.concatenate(pieces))}


def _cut_pyramid(count: int) -> Cut:
    origins = np.array(list(product(range(count), repeat=3)))
    room = count - origins[:, 2]
    i, j = origins[:, 0], origins[:, 1]
    alike = origins[(i < room) & (j < room)]
    inverted = origins[(i < room - 1) & (j < room - 1)]
    along_x, along_y = origins[(i < room - 1) & (j < room)], origins[(i < room) & (j < room - 1)]
    pyramids = [_placed(alike, "000 100 110 010 001"), _placed(inverted, "001 011 111 101 110")]
    tets = [_placed(along_x, "100 110 001 101"), _placed(along_y, "010 110 001 011")]
    return {"pyramid": np.concatenate(pyramids), "tet": _righted(np.concatenate(tets))}


def _righted(tets: Indices) -> Indices:
    """Tets with positive volume."""
    volume = np.linalg.det((tets[:, 1:] - tets[:, :1]).astype(np.float64))
    return np.where((volume < 0)[:, None, None], tets[:, [0, 1, 3, 2]], tets)


# By the base of the cone.
_CONES: dict[str, Callable[[int], Cut]] = {"segment": _cut_tri, "tri": _cut_tet, "quad": _cut_pyramid}
