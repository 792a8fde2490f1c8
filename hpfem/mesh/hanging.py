"""Hanging vertices: those inside a side, or an edge of a side, of a cell that does not have them as a corner.

The cells there are not joined: the mesh has a crack. Only sides without a neighbour can have hanging vertices. A vertex
at the place of a corner, as along a slit, does not hang.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpfem.shapes import Shape, equispaced_nodes
from hpfem.shapes.arrays import Array, Indices, Mask

from ..geometry.element_map import ElementMap, chunks, elevated_nodes
from ..geometry.jacobians import determinant, project, solve
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
    grids = Grids(points[corners])
    found = [(np.empty(0, np.int64), np.empty(0, np.int64))]

    def search(own: CellArray) -> None:
        side, point = _inside(own, points, grids, corners)
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


class Grids:
    """Points [n, D] by the cells of grids, made when boxes of a size come: to import SciPy's trees takes longer."""

    def __init__(self, points: Array) -> None:
        self._x, self._made = np.ascontiguousarray(points.T), dict[int, tuple[NDArray[np.uint64], Indices]]()
        self._least = 1e-9 * np.ptp(points, axis=0).max() if len(points) else 1.0

    def within(self, low: Array, high: Array) -> tuple[Indices, Indices]:
        """Pairs of a box and of a point inside: their numbers; low, high [D, m]."""
        found = [(np.empty(0, np.int64), np.empty(0, np.int64))]
        # Of the next power of two, so that a box reaches into two cells in each direction at most.
        sizes = np.frexp(np.maximum((high - low).max(axis=0), self._least))[1]
        for size in np.unique(sizes).tolist():
            rows = np.flatnonzero(sizes == size)
            first, last = (np.floor(np.ldexp(own[:, rows], -size)) for own in (low, high))
            if size not in self._made:
                marks = _marks(np.floor(np.ldexp(self._x, -size)))
                order = np.argsort(marks)
                self._made[size] = marks[order], order
            marks, order = self._made[size]
            for step in product((0, 1), repeat=len(low)):
                cells = first + np.array(step)[:, None]
                here = np.flatnonzero(np.logical_and.reduce(cells <= last))
                wanted = _marks(cells[:, here])
                begin = np.searchsorted(marks, wanted)
                counts = np.searchsorted(marks, wanted, "right") - begin
                box = np.repeat(rows[here], counts)
                point = order[np.arange(len(box)) + np.repeat(begin - (np.cumsum(counts) - counts), counts)]
                inside = np.flatnonzero(
                    np.logical_and.reduce(
                        [
                            (x[point] >= a[box]) & (x[point] <= b[box])
                            for x, a, b in zip(self._x, low, high, strict=True)
                        ]
                    )
                )
                found.append((box[inside], point[inside]))
        box, point = np.concatenate(found, axis=1)
        return box, point


def _marks(cells: Array) -> NDArray[np.uint64]:
    """A number for each cell of a grid, which few others have; cells [D, n] -> [n]."""
    factors = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)
    mark: NDArray[np.uint64] = factors[: len(cells)] @ cells.astype(np.int64).view(np.uint64)
    return mark


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
    sides = dict[tuple[Shape, int], list[tuple[Indices, Indices]]]()
    for position, number, facet in topology.local_entities(dim):
        cells = topology.cells[position]
        chosen = np.sort(row[owner[(array[owner] == position) & (local == number)]])
        nodes = cells.nodes[chosen][:, entity_nodes(cells.shape, cells.order, dim, number)]
        sides.setdefault((facet.shape, cells.order), []).append((nodes, cells.indices[chosen]))
    return [CellArray(*kind, *map(np.concatenate, zip(*own, strict=True))) for kind, own in sides.items()]


def _inside(sides: CellArray, points: Array, grids: Grids, corners: Indices) -> tuple[Indices, Indices]:
    """Pairs of a side and of a corner of the mesh that is on it, away from its own corners: (row, point number)."""
    nodes = points[sides.nodes]
    in_order = sides.corners[:, np.argsort(vertex_positions(sides.shape, 1))]
    straight = elevated_nodes(CellArray(sides.shape, 1, in_order, sides.indices), points, sides.order)
    bulge = _farthest(nodes - straight)
    low, high = nodes.min(axis=1), nodes.max(axis=1)
    size = np.sqrt(((high - low) ** 2).sum(axis=1))
    tolerance = _TOLERANCE * size + _CURVED * bulge
    margin = tolerance + (bulge if sides.order > 1 else 0)
    side, near = grids.within(low.T - margin, high.T + margin)
    # Around most sides there are their own corners only; in a ball are fewer others than in a box.
    crowded = np.bincount(side)[side] > sides.shape.n_vertices
    side, near = side[crowded], near[crowded]
    middle, x = nodes.mean(axis=1), points[corners[near]]
    radius = _farthest(nodes - middle[:, None]) + margin
    close = _squares(x - middle[side]) <= radius[side] ** 2
    side, point, x = side[close], corners[near[close]], x[close]
    away = (_squares(points[sides.corners[side]] - x[:, None]) > tolerance[side, None] ** 2).all(axis=1)
    side, point, x = side[away], point[away], x[away]
    if len(side):
        close = _perhaps_inside(sides, points, margin, side, x)
        side, point, x = side[close], point[close], x[close]
    if len(side):
        on = _distance(sides, points, side, x) <= tolerance[side]
        side, point = side[on], point[on]
    return side, point


def _squares(x: Array) -> Array:
    """Squared lengths; [.., D] -> [..]."""
    return np.asarray(np.einsum("...i,...i->...", x, x))


def _farthest(x: Array) -> Array:
    """The greatest length of each row; [n, m, D] -> [n]."""
    return np.asarray(np.sqrt(_squares(x).max(axis=1)))


def _perhaps_inside(sides: CellArray, points: Array, margin: Array, side: Indices, x: Array) -> Mask:
    """Whether points may be on their sides, by the sides' tangent planes and how far the sides are from these."""
    shape, elements = sides.shape, ElementMap.of(sides, points)
    nodes = equispaced_nodes(shape, sides.order)
    middle = shape.vertices.mean(axis=0, keepdims=True)
    centre = elements.positions(elements.basis.evaluate(middle))[:, :, 0].T
    J = elements.jacobian(elements.basis.gradient(middle))[..., 0]
    # A bound of the least stretch of the tangent map.
    stretch = determinant(J) / np.sqrt((J**2).sum(axis=(0, 1)) ** (shape.dim - 1))
    flat = centre[:, None] + (nodes - middle) @ J.transpose(2, 1, 0)
    apart = margin + 2 * _farthest(points[sides.nodes] - flat)
    local, off = project((x - centre[side]).T, J[:, :, side])
    near = (off**2).sum(axis=0) <= apart[side] ** 2
    with np.errstate(divide="ignore"):
        slack = 2 * apart / stretch + 1e-6
    return near & (shape.depth(middle + local.T) >= -slack[side])


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
        done = np.abs(moved - xi).max() < 1e-12
        xi = moved
        if done:
            break
    rest = x.T - elements.paired_positions(basis.evaluate(xi), side)
    distance = np.sqrt((rest**2).sum(axis=0))
    return np.where(shape.depth(xi) > -1e-6, distance, np.inf)
