"""Hanging vertices: those inside a side, or an edge of a side, of a cell that does not have them as a corner.

The cells there are not joined: what looks like one body has a crack. Only sides without a neighbour can have any. A
vertex in the place of a corner, as along a slit, does not hang.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from ..geometry.element_map import ElementMap, chunks, elevated_nodes
from ..geometry.jacobians import solve
from .parts import Part
from .symmetry import Indices, entity_nodes

if TYPE_CHECKING:
    from .mesh import Mesh

Array = NDArray[np.float64]

# How far from a side a vertex may be, relative to the side's size: mesh files carry about 12 digits.
_TOLERANCE = 1e-8
# And relative to how far a curved side is from a straight one: two approximations of one curve differ.
_CURVED = 0.02
_STEPS = 10
_SIDES_AT_A_TIME = 5000


@dataclass(frozen=True, eq=False)
class Hanging:
    """Vertices that hang, each with one of the sides that it is in.

    Attributes
    ----------
    places : ndarray, [n, D]
        Where they are.
    cells : ndarray of int, [n]
        The cells whose sides they are in.
    """

    places: Array
    cells: Indices

    def __len__(self) -> int:
        return len(self.places)

    def described(self, mesh: Mesh) -> str:
        """What messages say: how many there are, and where the first one is."""
        where = ", ".join(f"{c:.6g}" for c in self.places[0])
        others = f", and {len(self) - 1} more" if len(self) > 1 else ""
        return f"a vertex at ({where}) hangs inside a side of {mesh.describe_cell(int(self.cells[0]))}{others}"


def hanging_vertices(mesh: Mesh) -> Hanging:
    """Find the hanging vertices of a mesh.

    Parameters
    ----------
    mesh : Mesh

    Returns
    -------
    Hanging
    """
    sides = _open_sides(mesh)
    corners = np.unique(np.concatenate([np.empty(0, np.int64), *(part.corners.ravel() for part in sides)]))
    tree = cKDTree(mesh.points[corners]) if len(corners) else None
    points, cells = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for part in sides:
        for chunk in chunks(len(part.nodes), 1, most=_SIDES_AT_A_TIME):
            own = Part(part.shape, part.order, part.nodes[chunk], part.indices[chunk])
            side, found = _inside(own, mesh.points, tree, corners)
            points.append(found)
            cells.append(own.indices[side])
    point, first = np.unique(np.concatenate(points), return_index=True)
    return Hanging(mesh.points[point], np.concatenate(cells)[first])


def _open_sides(mesh: Mesh) -> list[Part]:
    """Sides without a neighbour as parts, numbered by their cells."""
    is_open = np.zeros(len(mesh.facets), dtype=bool)
    is_open[mesh.facets.boundary] = True
    parts = []
    for group in mesh.cells:
        for number, facet in enumerate(group.shape.facets):
            chosen = is_open[group.facets[:, number]]
            nodes = group.nodes[chosen][:, entity_nodes(group.shape, group.order, mesh.dim - 1, number)]
            if len(nodes):
                parts.append(Part(facet.shape, group.order, nodes, group.indices[chosen]))
    return parts


def _inside(part: Part, points: Array, tree: cKDTree, corners: Indices) -> tuple[Indices, Indices]:
    """Pairs of a side and of a corner of the mesh that is on it, away from its own corners: (row, point number)."""
    nodes = points[part.nodes]
    straight = elevated_nodes(Part(part.shape, 1, part.corners, part.indices), points, part.order)
    bulge = np.sqrt(((nodes - straight) ** 2).sum(axis=2).max(axis=1))
    low, high = nodes.min(axis=1), nodes.max(axis=1)
    size = np.sqrt(((high - low) ** 2).sum(axis=1))
    tolerance = _TOLERANCE * size + _CURVED * bulge
    margin = tolerance + (bulge if part.order > 1 else 0)
    near = tree.query_ball_point((low + high) / 2, size / 2 + margin)
    side = np.repeat(np.arange(len(near)), [len(found) for found in near])
    point = corners[np.concatenate([np.empty(0, np.int64), *(np.asarray(f, dtype=np.int64) for f in near)])]
    x = points[point]
    apart = margin[side, None]
    keep = ((x >= low[side] - apart) & (x <= high[side] + apart)).all(axis=1)
    side, point, x = side[keep], point[keep], x[keep]
    own = points[part.corners[side]]
    away = (((own - x[:, None]) ** 2).sum(axis=2) > tolerance[side, None] ** 2).all(axis=1)
    side, point, x = side[away], point[away], x[away]
    if len(side):
        on = _distance(part, points, side, x) <= tolerance[side]
        side, point = side[on], point[on]
    return side, point


def _distance(part: Part, points: Array, side: Indices, x: Array) -> Array:
    """Distance of points from their sides, by Newton's method; infinite for those beyond a side's end."""
    shape, elements = part.shape, ElementMap.of(part, points)
    basis = elements.basis
    xi = np.tile(shape.vertices.mean(axis=0), (len(x), 1))
    # Gradients are not evaluated at collapsed vertices.
    most = np.array([1 - 1e-9 if direction.collapsed else 1.1 for direction in shape.directions])
    for _ in range(_STEPS):
        rest = x.T - elements.paired_positions(basis.evaluate(xi), side)
        step = solve(elements.paired_jacobian(basis.gradient(xi), side), rest).T
        moved = np.clip(xi + step, -1.1, most)
        done = np.abs(moved - xi).max() < 1e-12
        xi = moved
        if done:
            break
    rest = x.T - elements.paired_positions(basis.evaluate(xi), side)
    distance = np.sqrt((rest**2).sum(axis=0))
    return np.where(shape.depth(xi) > -1e-6, distance, np.inf)
