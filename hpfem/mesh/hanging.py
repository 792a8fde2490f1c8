"""Hanging vertices: those inside a side, or an edge of a side, of a cell that does not have them as a corner.

The cells there are not joined: the mesh has a crack. Only sides without a neighbour can have hanging vertices. A vertex
at the place of a corner, as along a slit, does not hang.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpfem.shapes import Shape
from hpfem.shapes.arrays import Array, Indices

from ..geometry.element_map import ElementMap, chunks, elevated_nodes
from ..geometry.jacobians import solve
from ..support.communicator import ALONE, Communicator
from ..support.threads import in_parts
from .cells import CellArray, Labels
from .node_order import vertex_positions
from .sorting import unique
from .symmetry import entity_nodes
from .topology import Topology

# How far from a side a vertex may be, relative to the side's size: mesh files carry about 12 digits.
_TOLERANCE = 1e-8
# And relative to how far a curved side is from a straight one: two approximations of one curve differ.
_CURVED = 0.02
_STEPS = 10
_SIDES_AT_A_TIME = 5000
# Cells of grids are 32^k times as long as wide for flat sides, k <= 3: cubes would hold all layers of flat cells.
_STRETCH, _MOST_STRETCHED = 5, 3
# Odd numbers whose multiples, of the cells of a grid, few cells share.
_FACTORS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64).view(np.int64)

# Exponents of 2: the edges of a grid's cells.
_Size = tuple[int, ...]
# Marks of a grid's cells that corners are in, ascending, and these corners.
_Grid = Callable[[_Size], tuple[Indices, Indices]]


@dataclass(frozen=True, eq=False)
class Hanging:
    """Hanging vertices, each with one of the sides that contain it."""

    places: Array  # [n, D]
    cells: Indices  # [n], with these sides
    label: str  # name of the first of these cells in messages

    def __len__(self) -> int:
        return len(self.places)

    def __str__(self) -> str:
        where = ", ".join(f"{c:.6g}" for c in self.places[0])
        others = f", and {len(self) - 1} more" if len(self) > 1 else ""
        return f"a vertex at ({where}) hangs inside a side of {self.label}{others}"


def hanging_vertices(points: Array, topology: Topology, labels: Labels, comm: Communicator = ALONE) -> Hanging:
    """Find the hanging vertices of a mesh; points [n, D]."""
    sides = open_sides(topology)
    corners = unique(np.concatenate([np.empty(0, np.int64), *(own.corners.ravel() for own in sides)]))
    if comm.size > 1:
        others = near(points[corners], [points[corners]], comm)[0][len(corners) :]
        corners = np.append(corners, len(points) + np.arange(len(others)))
        points = np.concatenate([points, others])

    @cache
    def grid(size: _Size) -> tuple[Indices, Indices]:
        """See `_Grid`."""
        marks = _marks(points[corners], size)
        order = np.argsort(marks)
        return marks[order], corners[order]

    found = [(np.empty(0, np.int64), np.empty(0, np.int64))]

    def search(own: CellArray) -> None:
        side, point = _inside(own, points, grid)
        found.append((point, own.indices[side]))

    in_parts(
        search,
        [
            CellArray(same.shape, same.order, same.nodes[rows], same.indices[rows])
            for same in sides
            for rows in chunks(len(same), 1, most=_SIDES_AT_A_TIME)
        ],
    )
    pairs = np.unique(np.concatenate(found, axis=1), axis=1)  # threads find them in any order
    point, first = np.unique(pairs[0], return_index=True)
    cells = pairs[1][first]
    result = Hanging(points[point], cells, labels.cell(topology.cells, int(cells[0])) if len(cells) else "")
    if comm.size == 1:
        return result
    parts = comm.allgather(result)
    places, first = np.unique(np.concatenate([own.places for own in parts]), axis=0, return_index=True)
    label = next((own.label for own in parts if len(own)), "")
    return Hanging(places, np.concatenate([own.cells for own in parts])[first], label)


def near(points: Array, values: Sequence[NDArray[Any]], comm: Communicator) -> list[NDArray[Any]]:
    """Add values of other processes in the box around the points here; collective; points [n, D], values [n, ..]."""
    low, high = points.min(axis=0, initial=np.inf), points.max(axis=0, initial=-np.inf)
    margin = 0.1 * np.maximum(high - low, 0).max()
    boxes = comm.allgather((low - margin, high + margin))
    inside = {rank: ((points >= a) & (points <= b)).all(axis=1) for rank, (a, b) in enumerate(boxes)}
    del inside[comm.rank]
    found = comm.alltoall({rank: [own[rows] for own in values] for rank, rows in inside.items()})
    return [np.concatenate([own, *others]) for own, *others in zip(values, *found.values(), strict=True)]


def open_sides(topology: Topology) -> list[CellArray]:
    """Take the sides without a neighbour as cells, those of one shape and order together."""
    dim, facets = topology.dim - 1, topology.facets
    boundary = facets.boundary
    owner, local = facets.cells[boundary, 0], facets.local[boundary, 0]
    array, row = topology.locations
    sides = defaultdict[tuple[Shape, int], list[tuple[Indices, Indices]]](list)
    for position, number, facet in topology.local_entities(dim):
        cells = topology.cells[position]
        chosen = np.sort(row[owner[(array[owner] == position) & (local == number)]])
        nodes = cells.nodes[chosen][:, entity_nodes(cells.shape, cells.order, dim, number)]
        sides[facet.shape, cells.order].append((nodes, cells.indices[chosen]))
    return [CellArray(*kind, *map(np.concatenate, zip(*own, strict=True))) for kind, own in sides.items()]


def _marks(x: Array, size: _Size) -> Indices:
    """A number for the cell of a grid that a point is in; x [n, D], size [D] -> [n]."""
    return np.floor(np.ldexp(x, np.negative(size))).astype(np.int64) @ _FACTORS[: x.shape[1]]


def _inside(sides: CellArray, points: Array, grid: _Grid) -> tuple[Indices, Indices]:
    """Pairs of a side and of a corner of the mesh that is on it, away from its own corners: (row, point number)."""
    nodes = points[sides.nodes]
    in_order = sides.corners[:, np.argsort(vertex_positions(sides.shape, 1))]
    straight = elevated_nodes(CellArray(sides.shape, 1, in_order, sides.indices), points, sides.order)
    bulge = np.sqrt(((nodes - straight) ** 2).sum(axis=2).max(axis=1))
    low, high = nodes.min(axis=1), nodes.max(axis=1)
    size = np.sqrt(((high - low) ** 2).sum(axis=1))
    tolerance = _TOLERANCE * size + _CURVED * bulge
    margin = tolerance + (bulge if sides.order > 1 else 0)
    low, high = low - margin[:, None], high + margin[:, None]
    # Each reaches into two cells of its grid in each direction at most.
    sizes = np.frexp(np.maximum(high - low, 1e-12 * abs(nodes).max(initial=0)))[1]
    longest = sizes.max(axis=1, keepdims=True)
    sizes = longest - np.minimum((longest - sizes) // _STRETCH, _MOST_STRETCHED) * _STRETCH
    steps = np.array([*product((0, 1), repeat=nodes.shape[2])]) @ _FACTORS[: nodes.shape[2]]
    pairs = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    for size in map(tuple, np.unique(sizes, axis=0).tolist()):
        rows, (marks, there) = np.flatnonzero((sizes == size).all(axis=1)), grid(size)
        wanted = _marks(low[rows], size)[:, None] + steps
        begin, end = (np.searchsorted(marks, wanted, side) for side in ("left", "right"))
        side, counts = np.repeat(rows, (end - begin).sum(axis=1)), (end - begin).ravel()
        point = there[np.arange(len(side)) + np.repeat(begin.ravel() - np.cumsum(counts) + counts, counts)]
        keep = ((points[point] >= low[side]) & (points[point] <= high[side])).all(axis=1)
        pairs.append((side[keep], point[keep]))
    side, point = np.concatenate(pairs, axis=1)
    crowded = np.bincount(side)[side] > sides.shape.n_vertices  # near most sides there are their own corners only
    side, point = side[crowded], point[crowded]
    x = points[point]
    away = (((points[sides.corners[side]] - x[:, None]) ** 2).sum(axis=2) > tolerance[side, None] ** 2).all(axis=1)
    side, point, x = side[away], point[away], x[away]
    if len(side):
        on = _distance(sides, points, side, x) <= tolerance[side]
        side, point = side[on], point[on]
    return side, point


def _distance(sides: CellArray, points: Array, side: Indices, x: Array) -> Array:
    """Distance of points from their sides, by Newton's method; infinite for those beyond a side's end."""
    shape, elements = sides.shape, ElementMap.of(sides, points)
    basis = elements.basis
    xi = np.tile(shape.vertices.mean(axis=0), (len(x), 1))
    # Gradients are not evaluated at collapsed vertices.
    most = np.array([1 - 1e-9 if direction.collapsed else 1.1 for direction in shape.directions])
    for _ in range(_STEPS):
        rest = x.T - elements.paired_positions(basis.evaluate(xi), side)
        step = solve(elements.paired_jacobian(basis.gradient(xi), side), rest).T
        moved = np.clip(xi + step, -1.1, most)
        done = np.abs(moved - xi).max() < 1e-6
        xi = moved
        if done:
            break
    rest = x.T - elements.paired_positions(basis.evaluate(xi), side)
    distance = np.sqrt((rest**2).sum(axis=0))
    return np.where(shape.depth(xi) > -1e-6, distance, np.inf)
