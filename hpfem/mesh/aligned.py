"""An order of every cell's vertices in which cells that share a face collapse it at the same vertex [Warburton].

If two cells collapse their common tri at the same vertex, their modes on it are the same up to signs; else they are
dense combinations of each other. Therefore vertices are ranked, and each cell is rotated such that its faces are
collapsed at their vertices of highest rank. This is always possible for tets. A pyramid has one apex, so apexes rank
above all others. A prism collapses its two tris at vertices above each other, so the vertices of an edge between them
have consecutive ranks. Where no rotation fits, neighbours differ.

If a file lists its cells in no spatial order, they are sorted such that neighbours are near each other in memory, for
the caches.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpfem.shapes import Shape
from hpfem.shapes.arrays import Array, Indices
from hpfem.shapes.cached import cached_property

from .cells import CellArray
from .curve import along_curve, is_scattered
from .sorting import comparisons, distinct, marked, turned
from .symmetry import lattice_permutations, parities, symmetries
from .topology import Entities, Topology, classes, orientation_codes

Agree = Callable[[Indices, Callable[..., Any]], tuple[Indices, bool]]


@cache
def _corners(shape: Shape) -> Indices:
    """How many corners of the cube collapse to each vertex of a shape: one for an ordinary vertex."""
    cube = np.array(list(product((-1.0, 1.0), repeat=shape.dim)))
    distance = np.abs(shape.collapse(cube)[:, None] - shape.vertices).max(axis=2)
    return np.bincount(np.argmin(distance, axis=1), minlength=shape.n_vertices)


@cache
def _rotations(shape: Shape) -> Indices:
    """The symmetries that are rotations, identity first."""
    return symmetries(shape)[parities(shape) > 0]


@cache
def _collapses(shape: Shape) -> dict[tuple[int, ...], list[int]]:
    """The collapsed vertex of every collapsed face, after each of the rotations."""
    found: dict[tuple[int, ...], list[int]] = {}
    for turn in _rotations(shape):
        for face in shape.faces if shape.dim == 3 else ():
            corners = _corners(face.shape)
            if corners.max() > 1:
                vertices = turn[list(face.vertices)]
                found.setdefault(tuple(sorted(map(int, vertices))), []).append(int(vertices[np.argmax(corners)]))
    return found


def vertex_ranks(topology: Topology, agree: Agree | None = None, ids: Indices | None = None) -> Indices:
    """Rank the vertices; ids [n_vertices] -> [n_vertices]."""
    apexes, ties = list[Indices](), list[Indices]()
    for cells, vertices in zip(topology.cells, topology.vertices, strict=True):
        collapses = _collapses(cells.shape)
        apexes += [vertices[:, own[0]] for own in collapses.values() if len(set(own)) == 1]
        for (face, own), (other, theirs) in combinations(collapses.items(), 2):
            pairs = sorted(set(zip(own, theirs, strict=True)))
            if len(pairs) == len(face) and not set(face) & set(other):
                ties += [vertices[:, pair] for pair in pairs]
    if not apexes and not ties:  # on no process, as all have arrays of the same shapes
        return np.arange(topology.n_vertices)
    first = marked(topology.n_vertices, apexes)
    _, column = classes(topology.n_vertices, np.concatenate([np.empty((0, 2), dtype=np.int64), *ties]))
    if agree is not None and ids is not None:
        # A column has the number of its least vertex, which may lie on another process.
        first, again = agree(first.astype(np.int64), np.maximum)[0] > 0, True
        least = ids
        while again:
            of_column = np.full(topology.n_vertices, np.iinfo(np.int64).max)
            np.minimum.at(of_column, column, least)
            least, again = agree(of_column[column], np.minimum)
        column = least
    ranks = np.empty(topology.n_vertices, dtype=np.int64)
    ranks[np.lexsort((np.arange(topology.n_vertices), column, first))] = np.arange(topology.n_vertices)
    return ranks


def _turns(shape: Shape, ranks: Indices) -> Indices:
    """The best rotations [n, n_vertices] of cells with vertices of these ranks [n, n_vertices]."""
    turns = _rotations(shape)
    misses = np.zeros((len(ranks), len(turns)), dtype=np.int64)
    for i, turn in enumerate(turns):
        for face in shape.faces if shape.dim == 3 else ():
            corners, own = _corners(face.shape), ranks[:, turn[list(face.vertices)]]
            if corners.max() > 1:
                misses[:, i] += np.argmax(own, axis=1) != np.argmax(corners)
    return turns[np.argmin(misses, axis=1)]


class AlignedTopology(Topology):
    """A topology with the vertices of cells in the order of the module, by ranks; ids of entities stay;."""

    def __init__(self, topology: Topology, points: Array, ranks: Indices | None = None) -> None:
        self._plain, self._points = topology, points
        self.ranks = vertex_ranks(topology) if ranks is None else ranks
        self._turned: list[tuple[Indices, Indices, Indices]] = []
        self._orders: list[Indices | slice] = []
        arrays, vertices = [], []
        for cells, own in zip(topology.cells, topology.vertices, strict=True):
            order: Indices | slice = slice(None)
            if is_scattered(own):
                corners = cells.corners.T
                order = along_curve(sum(points.take(column, axis=0) for column in corners) / len(corners))
                own = own.take(order, axis=0)
            self._orders.append(order)
            indices = cells.indices[order]
            # Cells whose vertices have the same order of ranks get the same rotation.
            n = cells.shape.n_vertices
            keys = comparisons(self.ranks[own].T)
            first, which = distinct(keys, 2 ** (n * (n - 1) // 2))
            turns = _turns(cells.shape, self.ranks[own[first]])
            self._turned.append((which, turns, np.take_along_axis(self.ranks[own[first]], turns, axis=1)))
            table = symmetries(cells.shape)
            symmetry = np.argmax((table[None] == turns[:, None]).all(axis=2), axis=1)
            nodes, moved = cells.nodes if isinstance(order, slice) else cells.nodes.take(order, axis=0), own
            if symmetry.any():
                nodes = turned(nodes, lattice_permutations(cells.shape, cells.order)[symmetry], which)
                moved = turned(own, turns, which)
            arrays.append(CellArray(cells.shape, cells.order, nodes, indices))
            vertices.append(moved)
        super().__init__(arrays, vertices, topology.n_vertices)
        self.scattered = any(not isinstance(order, slice) for order in self._orders)

    @cached_property
    def locations(self) -> tuple[Indices, Indices]:
        """See `Topology.locations`."""
        return super().locations if self.scattered else self._plain.locations

    def find_on(self, xp: Any) -> None:
        """Find what edges, faces and facets are made of where arrays of a module are; see `Topology.find_on`."""
        self._plain.find_on(xp)

    def _entities(self, dim: int) -> Entities:
        plain = self._plain.edges if dim == 1 else self._plain.faces
        ids, codes = [], []
        given = zip(self.cells, plain.ids, self._orders, self._turned, strict=True)
        for cells, own, order, (which, turns, ranks) in given:
            entities = cells.shape.entities[dim]
            # The vertices of an entity as bits of a number.
            marks = np.array([sum(1 << vertex for vertex in e.vertices) for e in entities])
            moved = np.stack([(1 << turns[:, e.vertices]).sum(axis=1) for e in entities], axis=1)
            places = np.argmax(moved[:, :, None] == marks, axis=2)
            here = [orientation_codes(e.shape, ranks[:, e.vertices]) for e in entities]
            own = own if isinstance(order, slice) else own.take(order, axis=0)
            as_it_was = (places == np.arange(len(entities))).all()
            ids.append(own if as_it_was else turned(own, places, which))
            codes.append(np.stack(here, axis=1).take(which, axis=0))
        return Entities(plain.count, tuple(ids), tuple(codes), plain.index)

    def codes(self, shape: Shape, vertices: Indices) -> NDArray[np.int8]:
        """Orientation codes by rank; see `orientation_codes`; vertices [n, n_vertices] -> [n]."""
        return orientation_codes(shape, self.ranks[vertices])

    def __reduce__(self) -> tuple[type[AlignedTopology], tuple[Topology, Array, Indices]]:
        return AlignedTopology, (self._plain, self._points, self.ranks)
