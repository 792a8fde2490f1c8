"""The topology of cells: numbers of vertices, edges and faces, their orientations in the cells, facet neighbours.

Everything follows from the topological vertex ids of the cells alone, so a periodic mesh is one whose vertices were
identified before. An entity (edge, face) is known by the set of its vertices. Its global vertex order is the one,
among the symmetries of its shape, that starts at the smallest vertex id and goes on with the smallest neighbour; the
orientation code says how a cell's local order becomes it: ``global[i] = local[symmetries(shape)[code][i]]``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import cache
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from hpfem.shapes import Entity, Shape
from hpfem.shapes.arrays import Indices, Mask, frozen
from hpfem.shapes.cached import cached_property

from ..memory import as_numpy, moved
from ..support.threads import in_parts
from .cells import CellArray
from .sorting import MANY, TupleIndex, comparisons, in_order, marked, run_starts, sorted_rows
from .symmetry import symmetries


@dataclass(frozen=True, eq=False)
class Entities:
    """The edges, or the faces, of a mesh; ids run from 0."""

    count: int
    ids: tuple[Indices, ...]  # per array of cells, in the order of ``shape.entities[dim]``, [n_cells, n_local]
    orientation: tuple[NDArray[np.int8], ...]  # likewise, the orientation codes (see the module)
    index: TupleIndex  # finds an entity by its vertices, sorted


@dataclass(frozen=True, eq=False)
class Facets:
    """The sides of the cells, by edge id in 2-D and face id in 3-D, each with the one or two cells it belongs to."""

    cells: Indices  # [F, 2], cell numbers; second column: -1 without a neighbour, -2 on another process
    local: NDArray[np.int8]  # [F, 2], the number of the facet in each of the cells, -1 without one here
    non_manifold: Indices  # facets of more than two cells (none in a checked mesh)

    def __len__(self) -> int:
        return len(self.cells)

    @cached_property
    def on_boundary(self) -> Mask:
        """Whether each facet has a cell on one side only, [F]."""
        return self.cells[:, 1] == -1

    @cached_property
    def boundary(self) -> Indices:
        """Facets with a cell on one side only."""
        return np.flatnonzero(self.on_boundary)

    @cached_property
    def interior(self) -> Indices:
        """Facets between two cells."""
        return np.flatnonzero(~self.on_boundary)


def orientation_codes(shape: Shape, vertices: Indices, xp: Any = np) -> NDArray[np.int8]:
    """The symmetry that brings each vertex tuple into its global order; vertices [n, n_vertices] -> [n]."""
    codes: NDArray[np.int8] = xp.asarray(_codes_by_order(shape))[comparisons(vertices.T, xp)]
    return codes


@cache
def _codes_by_order(shape: Shape) -> NDArray[np.int8]:
    """Orientation codes by the order of the vertex ids, as `comparisons` encodes it."""
    rows, table = np.array(list(permutations(range(shape.n_vertices)))), symmetries(shape)
    # The symmetry with the smallest first id, and then the smallest second one.
    first = rows[:, table[:, 0]] * shape.n_vertices + rows[:, table[:, 1]]
    order = comparisons(rows.T)
    codes = np.zeros(int(order.max()) + 1, dtype=np.int8)
    codes[order] = np.argmin(first, axis=1)
    return codes


class Topology:
    """Edges, faces and facets of cells given by their vertices; each is made at its first use.

    Parameters
    ----------
    cells : sequence of CellArray
        All of one dimension, with the cell numbers 0 to the number of cells - 1.
    vertices : sequence of ndarray, [n_cells, n_vertices] each
        Topological vertex ids in our vertex order.
    n_vertices : int
        Upper bound of the ids.
    beyond : ndarray of int, optional
        Vertices of sides on which another process has the cell, ascending, of tris -1 first, [n, 2 or 4]; see `cut`.
    """

    def __init__(
        self, cells: Sequence[CellArray], vertices: Sequence[Indices], n_vertices: int, beyond: Indices | None = None
    ) -> None:
        self.cells = tuple(cells)
        self.vertices = tuple(map(frozen, vertices))
        self.n_vertices = n_vertices
        self.beyond = beyond

    def __getstate__(self) -> dict[str, object]:
        return {name: self.__dict__[name] for name in ("cells", "vertices", "n_vertices", "beyond")}

    def cut(self, beyond: Indices) -> Topology:
        """The same topology with the second cells of some sides on other processes; see `beyond`."""
        other = copy(self)
        other.__dict__.update(self.__dict__, beyond=beyond)  # with what is made already
        if "facets" in self.__dict__:
            cells = self.facets.cells.copy()
            cells[self.sides.index.find(beyond), 1] = -2
            other.__dict__["facets"] = replace(self.facets, cells=frozen(cells))
        return other

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        for vertices in self.vertices:
            frozen(vertices)

    @property
    def dim(self) -> int:
        """Dimension of the cells."""
        return self.cells[0].shape.dim

    @cached_property
    def n_cells(self) -> int:
        """Number of cells."""
        return sum(map(len, self.cells))

    @cached_property
    def locations(self) -> tuple[Indices, Indices]:
        """Where each cell is: the position of its array in ``cells`` and its row there, [n_cells] each."""
        array, row = np.empty((2, self.n_cells), dtype=np.int64)
        for position, cells in enumerate(self.cells):
            array[cells.indices], row[cells.indices] = position, np.arange(len(cells))
        return array, row

    @cached_property
    def edges(self) -> Entities:
        """Edges: ids and orientations."""
        return self._entities(1)

    @cached_property
    def faces(self) -> Entities:
        """Faces: ids and orientations; in 2-D the cells themselves."""
        return self._entities(2)

    @cached_property
    def cells_around(self) -> list[Indices]:
        """Number of cells at each vertex, edge, face and cell, by dimension."""
        vertices = np.bincount(np.concatenate([own.ravel() for own in self.vertices]), minlength=self.n_vertices)
        between = (self.edges, self.faces)[: self.dim - 1]
        return [vertices, *(own.index.times for own in between), np.ones(self.n_cells, np.int64)]

    @property
    def sides(self) -> Entities:
        """The entities of the facets: edges in 2-D, faces in 3-D."""
        return self.edges if self.dim == 2 else self.faces

    @cached_property
    def facets(self) -> Facets:
        """Facets and the cells beside them."""
        return self._facets(np)

    def _facets(self, xp: Any) -> Facets:
        sides = self.sides
        # A cell and the number of the side in it are one label.
        bits = max(ids.shape[1] for ids in sides.ids).bit_length()
        labels = [
            (moved(own.indices, xp)[:, None] << bits | xp.arange(ids.shape[1])).ravel()
            for own, ids in zip(self.cells, sides.ids, strict=True)
        ]
        most = self.n_cells << bits
        facet = xp.concatenate([moved(ids, xp).ravel() for ids in sides.ids])
        owners, facet = in_order(facet, sides.count, xp.concatenate(labels), most, xp)
        starts = xp.flatnonzero(run_starts(facet, xp))
        claims = xp.diff(starts, append=len(facet))
        alone = claims == 1
        local = owners.take(xp.stack([starts, starts + ~alone], axis=1))
        cells = local >> bits
        local = (local & (1 << bits) - 1).astype(np.int8)
        for second in (cells[:, 1], local[:, 1]):
            second[alone] = -1
        cells, local, non_manifold = (as_numpy(own) for own in (cells, local, xp.flatnonzero(claims > 2)))
        if self.beyond is not None:
            cells[sides.index.find(self.beyond), 1] = -2
        return Facets(frozen(cells), frozen(local), non_manifold)

    def local_entities(self, dim: int) -> Iterator[tuple[int, int, Entity]]:
        """Go over entities of reference shapes: array of cells, number in the shape, and entity; see `cut`."""
        for position, cells in enumerate(self.cells):
            for number, entity in enumerate(cells.shape.entities[dim]):
                yield position, number, entity

    def find_on(self, xp: Any) -> None:
        """Find edges, faces and facets on a device, if they are many and not found yet; see `facets`."""
        if xp is np:
            return
        for name, dim in (("edges", 1), ("faces", 2), ("facets", self.dim - 1)):
            # A device's library compiles its array operations first, which takes longer than NumPy for few numbers.
            many = sum(len(cells) * len(cells.shape.entities[dim]) for cells in self.cells) >= MANY
            if many and dim < self.dim and name not in self.__dict__:
                with suppress(MemoryError):
                    found = self._facets(xp) if name == "facets" else self._numbered(dim, xp)
                    self.__dict__.setdefault(name, found)

    def _entities(self, dim: int) -> Entities:
        return self._numbered(dim, np)

    def _numbered(self, dim: int, xp: Any) -> Entities:
        counts = [len(cells.shape.entities[dim]) for cells in self.cells]
        ends = np.cumsum([len(cells) * count for cells, count in zip(self.cells, counts, strict=True)])
        width = max(len(entity.vertices) for *_, entity in self.local_entities(dim))
        # Sorted vertices of the entities of all cells, cell by cell.
        rows = xp.full((width, int(ends[-1])), -1, dtype=np.int32 if self.n_vertices < 2**31 else np.int64)
        starts = [0, *map(int, ends)]
        of_array = [rows[:, a:b].reshape(width, -1, n) for a, b, n in zip(starts, ends, counts, strict=False)]
        codes = [xp.empty((len(cells), n), dtype=np.int8) for cells, n in zip(self.cells, counts, strict=True)]
        columns = [xp.ascontiguousarray(moved(own, xp).T, dtype=rows.dtype) for own in self.vertices]

        def write(place: tuple[int, int, Entity]) -> None:
            position, number, entity = place
            corners = columns[position][list(entity.vertices)].T
            codes[position][:, number] = orientation_codes(entity.shape, corners, xp)
            of_array[position][width - len(entity.vertices) :, :, number] = sorted_rows(corners, xp).T

        in_parts(write, self.local_entities(dim), xp is np and rows.size >= MANY)
        index = TupleIndex(rows.T, self.n_vertices, xp)
        index.ids = as_numpy(index.ids)
        ids = [frozen(own.reshape(-1, n)) for own, n in zip(np.split(index.ids, ends[:-1]), counts, strict=True)]
        return Entities(index.count, tuple(ids), tuple(frozen(as_numpy(own)) for own in codes), index)


def numbered(cells: Sequence[CellArray], n_points: int) -> tuple[Topology, Indices]:
    """Number the vertices of cells: one for each point at a corner; -> vertex_of [n_points]."""
    corners = [array.corners for array in cells]
    is_corner = marked(n_points, corners)
    vertex_of = np.where(is_corner, np.cumsum(is_corner) - 1, -1)
    return Topology(cells, [vertex_of[rows] for rows in corners], int(is_corner.sum())), vertex_of


def classes(n: int, pairs: Indices) -> tuple[int, Indices]:
    """Join equal things, pair by pair; pairs [n_pairs, 2] -> class_of [n]."""
    graph = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    count, class_of = connected_components(graph, directed=False)
    return int(count), class_of.astype(np.int64)


def identified(topology: Topology, pairs: Indices) -> Topology:
    """Make pairs of vertices one vertex each; pairs [n, 2]."""
    count, vertex_of = classes(topology.n_vertices, pairs)
    return Topology(topology.cells, [vertex_of[rows] for rows in topology.vertices], count)
