"""A mesh with every cell cut into smaller ones of half its size (`hpfem.shapes.refinement`).

The nodes of the pieces are the map of the cell at the pieces' nodes, which are lattice points of twice the order; so
the mesh covers the same domain. For hexes, prisms, tets, quads and tris the maps of the pieces are the cell's map. The
map of a pyramid that is not affine is rational: its pieces agree with it at their nodes and on its sides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from hpfem.shapes import SHAPES, Shape, lattice
from hpfem.shapes.arrays import Array, Indices
from hpfem.shapes.refinement import Piece, refinements

from ..geometry.element_map import elevated_nodes
from .cells import CellArray
from .lattice import lattice_numbering
from .node_order import lattice_positions, vertex_positions
from .sorting import marked
from .symmetry import entity_nodes, spanning
from .topology import Topology

# Lengths that differ by less are equal: the choice of a cut must not depend on rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Refined:
    """Cells cut into pieces, which have consecutive numbers in the order of the cells."""

    points: Array  # [n, D]
    topology: Topology
    counts: Indices  # pieces of each cell
    _ways: tuple[Indices, ...]  # per array, how each cell is cut

    @property
    def starts(self) -> Indices:
        """The number of the first piece of each cell."""
        return np.asarray(np.cumsum(self.counts) - self.counts)

    def pieces(self, cells: Indices) -> Indices:
        """The numbers of the pieces of cells; cells [n]."""
        counts = self.counts[cells]
        ends = np.cumsum(counts)
        return np.arange(ends[-1] if len(ends) else 0) + np.repeat(self.starts[cells] - (ends - counts), counts)

    def sides(self, cells: Sequence[CellArray], pairs: Indices, dim: int) -> Indices:
        """Facets, edges or vertices of the pieces into which those of cells are cut; pairs [n, 2] -> [m, 2]."""
        way = np.empty(len(self.counts), dtype=np.int64)
        array_of = np.empty(len(self.counts), dtype=np.int64)
        for position, (array, own) in enumerate(zip(cells, self._ways, strict=True)):
            way[array.indices], array_of[array.indices] = own, position
        places, found = [np.empty(0, dtype=np.int64)], [np.empty((0, 2), dtype=np.int64)]
        keys = np.column_stack([array_of[pairs[:, 0]], way[pairs[:, 0]], pairs[:, 1]])
        for position, own, local in np.unique(keys, axis=0):
            rows = np.flatnonzero((keys == (position, own, local)).all(axis=1))
            pieces = np.array(_entities(cells[position].shape, dim, int(own), int(local)))
            first = self.starts[pairs[rows, 0]]
            numbers = first[:, None] + pieces[:, 0]
            found.append(np.stack([numbers, np.broadcast_to(pieces[:, 1], numbers.shape)], axis=2).reshape(-1, 2))
            places.append(np.repeat(rows, len(pieces)))
        return np.concatenate(found)[np.argsort(np.concatenate(places), kind="stable")]


@cache
def _entities(shape: Shape, dim: int, way: int, local: int) -> tuple[tuple[int, int], ...]:
    """The facets, edges or vertices, as (piece, local number), that one of a shape is divided into, once each."""
    inside = set(entity_nodes(shape, 2, dim, local).tolist())
    found: dict[frozenset[int], tuple[int, int]] = {}
    for number, piece in enumerate(refinements(shape)[way]):
        for own, entity in enumerate(piece.shape.entities[dim]):
            corners = frozenset(lattice_positions(shape, 2, piece.corners[list(entity.vertices)]).tolist())
            if corners <= inside:
                found.setdefault(corners, (number, own))
    return tuple(found.values())


@cache
def _nodes(shape: Shape, way: int, number: int, order: int) -> Indices:
    """Positions of a piece's nodes among the lattice points of twice the order of the shape."""
    piece = refinements(shape)[way][number]
    corners = piece.corners[spanning(piece.shape)]
    indices = order * corners[0] + lattice(piece.shape, order) @ (corners[1:] - corners[0])
    return lattice_positions(shape, 2 * order, indices)


def _shortest(shape: Shape, middles: Array) -> Indices:
    """Which cut of each cell, with lattice points [E, n, D] of order 2, has the shortest longest edge inside."""
    ways = refinements(shape)
    longest = np.zeros((len(middles), len(ways)))
    if len(ways) == 1:
        return np.zeros(len(middles), dtype=np.int64)
    for column, way in enumerate(ways):
        for a, b in _own_edges(shape, way, ways):
            length = ((middles[:, a] - middles[:, b]) ** 2).sum(axis=1)
            np.maximum(longest[:, column], length, out=longest[:, column])
    return np.argmax(longest <= (1 + _ROUNDING) * longest.min(axis=1)[:, None], axis=1)


def _own_edges(shape: Shape, way: tuple[Piece, ...], ways: tuple[tuple[Piece, ...], ...]) -> Iterator[tuple[int, int]]:
    """Edges of the pieces, as lattice points of order 2, that not all cuts have."""

    def edges(own: tuple[Piece, ...]) -> set[tuple[int, int]]:
        ends = [piece.corners[list(edge.vertices)] for piece in own for edge in piece.shape.edges]
        return {(int(min(pair)), int(max(pair))) for pair in lattice_positions(shape, 2, np.array(ends))}

    yield from sorted(own for own in edges(way) if not all(own in edges(other) for other in ways))


def refined(points: Array, topology: Topology, in_space: Topology) -> Refined:
    """Cut every cell; points [n, D]."""
    counts = np.empty(topology.n_cells, dtype=np.int64)
    for array in topology.cells:
        counts[array.indices] = len(refinements(array.shape)[0])
    starts = np.cumsum(counts) - counts
    vertices, n_vertices = lattice_numbering(topology, 2)
    # Corners come first, for all orders; then, order by order, all nodes of the cells of that order.
    corners, n_corners = (vertices, n_vertices) if in_space is topology else lattice_numbering(in_space, 2)
    numberings, size = {}, n_corners
    for order in sorted({array.order for array in topology.cells} - {1}):
        numbering, count = lattice_numbering(in_space, 2 * order)
        numberings[order] = [own + size for own in numbering]
        size += count
    place = np.full((size, points.shape[1]), np.nan)
    parts: dict[tuple[str, int], list[tuple[Indices, Indices, Indices]]] = {}
    ways = []
    for position, array in enumerate(topology.cells):
        shape, order = array.shape, array.order
        nodes = numberings[order][position] if order > 1 else corners[position]
        coordinates = elevated_nodes(array, points, 2 * order)
        coordinates[:, lattice_positions(shape, 2 * order, 2 * lattice(shape, order))] = points[array.nodes]
        middles = coordinates[:, lattice_positions(shape, 2 * order, order * lattice(shape, 2))]
        place[nodes], place[corners[position]] = coordinates, middles
        ways.append(_shortest(shape, middles))
        for way, pieces in enumerate(refinements(shape)):
            rows = np.flatnonzero(ways[-1] == way)
            for number, piece in enumerate(pieces):
                at = lattice_positions(shape, 2, piece.corners)
                own = nodes[rows[:, None], _nodes(shape, way, number, order)]
                own[:, vertex_positions(piece.shape, order)] = corners[position][rows[:, None], at]
                numbers = starts[array.indices[rows]] + number
                parts.setdefault((piece.shape.name, order), []).append(
                    (own, vertices[position][rows[:, None], at], numbers)
                )
    arrays, tops = _joined(parts)
    used = marked(size, (array.nodes for array in arrays))
    new_number = np.cumsum(used) - 1
    arrays = [CellArray(own.shape, own.order, new_number[own.nodes], own.indices) for own in arrays]
    return Refined(place[used], Topology(arrays, tops, n_vertices), counts, tuple(ways))


def _joined(
    parts: Mapping[tuple[str, int], Sequence[tuple[Indices, Indices, Indices]]],
) -> tuple[list[CellArray], list[Indices]]:
    """Cells of each shape and order, and their vertices, by their numbers."""
    arrays, tops = [], []
    for (name, order), own in parts.items():
        nodes, vertices, numbers = (np.concatenate(rows) for rows in zip(*own, strict=True))
        by_number = np.argsort(numbers)
        arrays.append(CellArray(SHAPES[name], order, nodes[by_number], numbers[by_number]))
        tops.append(vertices[by_number])
    return arrays, tops
