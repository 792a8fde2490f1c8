"""Which cells share what: numbers of vertices, edges and faces, each cell's orientation of them, facet neighbours.

Everything follows from the topological vertex ids of the cells alone, so a periodic mesh is one whose vertices were
identified before. An entity (edge, face) is known by the set of its vertices. Its global vertex order is the one,
among the symmetries of its shape, that starts at the smallest vertex id and goes on with the smallest neighbour; the
orientation code says how a cell's local order becomes it: ``global[i] = local[symmetries(shape)[code][i]]``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from hpfem.shapes import Entity, Shape
from hpfem.shapes.cached import cached_property

from ..support.immutable import frozen
from .cells import CellArray
from .symmetry import Indices, symmetries


def places(ascending: Indices, wanted: Indices) -> Indices:
    """Find numbers in an ascending table.

    Parameters
    ----------
    ascending : ndarray of int, [n]
        The table.
    wanted : ndarray of int
        Of any shape.

    Returns
    -------
    ndarray of int
        The position of each number, -1 for one that is not in the table.
    """
    if len(ascending) == 0:
        return np.full(wanted.shape, -1, dtype=np.int64)
    where = np.minimum(np.searchsorted(ascending, wanted), len(ascending) - 1)
    return np.where(ascending[where] == wanted, where, -1)


class TupleIndex:
    """Numbers the distinct rows of an integer table and finds them again.

    Rows are packed into one 64-bit key where they fit, else two columns at a time; ids follow the order of sorted keys.

    Parameters
    ----------
    rows : ndarray of int, [n, 2 or 4]
        Entries from -1 to ``limit`` - 1.
    limit : int
        Upper bound of the entries, below 3e9.

    Attributes
    ----------
    ids : ndarray of int, [n]
        The number of each row.
    count : int
        How many distinct rows there are.
    """

    def __init__(self, rows: Indices, limit: int) -> None:
        self._base = limit + 1
        # Leading columns of -1 alone, as in a table of triangles.
        self._skipped = next((k for k, column in enumerate(rows.T) if len(rows) and column.max() >= 0), 0)
        self._whole = self._base ** (rows.shape[1] - self._skipped) < 2**63
        self._tables: list[Indices] = []
        packed = self._packed(rows)
        while packed.shape[1] > 1:
            columns = []
            for column in packed.T:
                table, inverse = np.unique(column, return_inverse=True)
                self._tables.append(table)
                columns.append(inverse)
            packed = (columns[0] * len(self._tables[-1]) + columns[1])[:, None]
        table, ids = np.unique(packed[:, 0], return_inverse=True)
        self._tables.append(table)
        self.ids: Indices = ids
        self.count = len(table)

    def _packed(self, rows: Indices) -> Indices:
        if self._whole:
            key = rows[:, self._skipped] + 1
            for column in rows.T[self._skipped + 1 :]:
                key = key * self._base + column + 1
            return key[:, None]
        return (rows[:, 0::2] + 1) * self._base + rows[:, 1::2] + 1

    def find(self, rows: Indices) -> Indices:
        """Find rows again.

        Parameters
        ----------
        rows : ndarray of int, [n, 2 or 4]
            As wide as those of the table.

        Returns
        -------
        ndarray of int, [n]
            The number of each row, -1 for one that is not in the table.
        """
        packed = self._packed(rows)
        missing = (rows[:, : self._skipped] >= 0).any(axis=1) if self._whole else np.zeros(len(rows), dtype=bool)
        if packed.shape[1] > 1:
            first, second = (places(self._tables[i], packed[:, i]) for i in (0, 1))
            missing = (first < 0) | (second < 0)
            packed = (first * len(self._tables[1]) + second)[:, None]
        return np.where(missing, -1, places(self._tables[-1], packed[:, 0]))


@dataclass(frozen=True, eq=False)
class Entities:
    """The edges, or the faces, of a mesh.

    Attributes
    ----------
    count : int
        How many there are; ids run from 0.
    ids : tuple of ndarray, [n_cells, n_local] each
        Per cell array, the ids of a cell's entities in the order of ``shape.entities[dim]``.
    orientation : tuple of ndarray of int8, [n_cells, n_local] each
        Per cell array, the orientation codes (see the module).
    index : TupleIndex
        Finds an entity by its sorted vertices, see `sorted_rows`.
    """

    count: int
    ids: tuple[Indices, ...]
    orientation: tuple[NDArray[np.int8], ...]
    index: TupleIndex


@dataclass(frozen=True, eq=False)
class Facets:
    """The sides of the cells, each with the one or two cells it belongs to.

    A facet's number is its edge id in 2-D and its face id in 3-D.

    Attributes
    ----------
    cells : ndarray of int, [F, 2]
        Cell numbers; -1 in the second column where there is no neighbour.
    local : ndarray of int, [F, 2]
        The number of the facet in each of the cells, -1 where there is none.
    non_manifold : ndarray of int
        Facets of more than two cells (none in a checked mesh).
    """

    cells: Indices
    local: Indices
    non_manifold: Indices

    def __len__(self) -> int:
        return len(self.cells)

    @property
    def on_boundary(self) -> NDArray[np.bool_]:
        """Whether each facet has a cell on one side only, [F]."""
        return self.cells[:, 1] < 0

    @property
    def boundary(self) -> Indices:
        """Facets with a cell on one side only."""
        return np.flatnonzero(self.on_boundary)

    @property
    def interior(self) -> Indices:
        """Facets between two cells."""
        return np.flatnonzero(~self.on_boundary)


def sorted_rows(vertices: Indices, width: int) -> Indices:
    """Make vertex tuples keys of a `TupleIndex`.

    Parameters
    ----------
    vertices : ndarray of int, [n, n_vertices]
        In any order.
    width : int
        2 for edges, 4 for faces.

    Returns
    -------
    ndarray of int, [n, width]
        Ascending, padded with -1 in front.
    """
    rows = np.full((len(vertices), width), -1, dtype=np.int64)
    rows[:, width - vertices.shape[1] :] = np.sort(vertices, axis=1)
    return rows


def orientation_codes(shape: Shape, vertices: Indices, limit: int) -> NDArray[np.int8]:
    """The symmetry that brings each vertex tuple into its global order.

    Parameters
    ----------
    shape : Shape
        What the tuples are the vertices of.
    vertices : ndarray of int, [n, n_vertices]
        Distinct ids in each row, in the shape's vertex order.
    limit : int
        Upper bound of the ids, below 3e9.

    Returns
    -------
    ndarray of int8, [n]
    """
    table = symmetries(shape)
    best = vertices[:, table[0, 0]] * limit + vertices[:, table[0, 1]]
    codes = np.zeros(len(vertices), dtype=np.int8)
    for code, p in enumerate(table[1:], start=1):
        key = vertices[:, p[0]] * limit + vertices[:, p[1]]
        better = key < best
        best = np.where(better, key, best)
        codes[better] = code
    return codes


class Topology:
    """Edges, faces and facets of cells given by their vertices; each made when first asked for.

    Parameters
    ----------
    cells : sequence of CellArray
        All of one dimension, with the cell numbers 0 to the number of cells - 1.
    vertices : sequence of ndarray, [n_cells, n_vertices] each
        Topological vertex ids in our vertex order.
    n_vertices : int
        Upper bound of the ids.
    """

    def __init__(self, cells: Sequence[CellArray], vertices: Sequence[Indices], n_vertices: int) -> None:
        self.cells = tuple(cells)
        self.vertices = tuple(map(frozen, vertices))
        self.n_vertices = n_vertices

    def __getstate__(self) -> dict[str, object]:
        return {name: self.__dict__[name] for name in ("cells", "vertices", "n_vertices")}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        for vertices in self.vertices:
            frozen(vertices)

    @property
    def dim(self) -> int:
        """Dimension of the cells."""
        return self.cells[0].shape.dim

    @cached_property
    def edges(self) -> Entities:
        """Edges: ids and orientations."""
        return self._entities(1)

    @cached_property
    def faces(self) -> Entities:
        """Faces: ids and orientations; in 2-D the cells themselves."""
        return self._entities(2)

    @property
    def sides(self) -> Entities:
        """The entities of the facets: edges in 2-D, faces in 3-D."""
        return self.edges if self.dim == 2 else self.faces

    @cached_property
    def facets(self) -> Facets:
        """Facets and the cells beside them."""
        sides = self.sides
        facet = np.concatenate([ids.ravel() for ids in sides.ids])
        cell = np.concatenate(
            [np.repeat(own.indices, ids.shape[1]) for own, ids in zip(self.cells, sides.ids, strict=True)]
        )
        local = np.concatenate([np.tile(np.arange(ids.shape[1]), len(ids)) for ids in sides.ids])
        order = np.argsort(facet, kind="stable")
        facet, cell, local = facet[order], cell[order], local[order]
        starts = np.searchsorted(facet, np.arange(sides.count))
        claims = np.diff(np.append(starts, len(facet)))
        cells = np.full((sides.count, 2), -1, dtype=np.int64)
        numbers = cells.copy()
        cells[:, 0], numbers[:, 0] = cell[starts], local[starts]
        shared = claims > 1
        cells[shared, 1], numbers[shared, 1] = cell[starts[shared] + 1], local[starts[shared] + 1]
        swap = shared & (cells[:, 0] > cells[:, 1])
        cells[swap], numbers[swap] = cells[swap, ::-1], numbers[swap, ::-1]
        return Facets(frozen(cells), frozen(numbers), np.flatnonzero(claims > 2))

    def local_entities(self, dim: int) -> Iterator[tuple[int, int, Entity, Indices]]:
        """Go over the vertices, edges or faces of the reference shapes.

        Parameters
        ----------
        dim : int
            Dimension of the entities.

        Yields
        ------
        position, number : int
            The cell array, and the entity's number ``shape.entities[dim][number]`` in its shape.
        entity : Entity
            The same.
        vertices : ndarray of int, [n_cells, n_vertices of the entity]
            Its vertices in each of the cells.
        """
        for position, (cells, vertices) in enumerate(zip(self.cells, self.vertices, strict=True)):
            for number, entity in enumerate(cells.shape.entities[dim]):
                yield position, number, entity, vertices[:, entity.vertices]

    def _entities(self, dim: int) -> Entities:
        local = list(self.local_entities(dim))
        width = 2 if dim == 1 else 4
        index = TupleIndex(np.concatenate([sorted_rows(rows, width) for *_, rows in local]), self.n_vertices)
        of_local = np.split(index.ids, np.cumsum([len(rows) for *_, rows in local])[:-1])
        ids: list[list[Indices]] = [[] for _ in self.cells]
        codes: list[list[NDArray[np.int8]]] = [[] for _ in self.cells]
        for (position, _, entity, rows), own in zip(local, of_local, strict=True):
            ids[position].append(own)
            codes[position].append(orientation_codes(entity.shape, rows, self.n_vertices))
        columns = [tuple(frozen(np.stack(own, axis=1)) for own in table) for table in (ids, codes)]
        return Entities(index.count, columns[0], columns[1], index)


def numbered(cells: Sequence[CellArray], n_points: int) -> tuple[Topology, Indices]:
    """Number the vertices of cells: one for each point at a corner.

    Parameters
    ----------
    cells : sequence of CellArray
        All cells.
    n_points : int
        Number of points.

    Returns
    -------
    topology : Topology
    vertex_of : ndarray of int, [n_points]
        The vertex at each point, -1 where there is none.
    """
    corners = [array.corners for array in cells]
    is_corner = np.zeros(n_points, dtype=bool)
    for rows in corners:
        is_corner[rows.ravel()] = True
    vertex_of = np.where(is_corner, np.cumsum(is_corner) - 1, -1)
    return Topology(cells, [vertex_of[rows] for rows in corners], int(is_corner.sum())), vertex_of


def classes(n: int, pairs: Indices) -> tuple[int, Indices]:
    """Join things that are one, pair by pair.

    Parameters
    ----------
    n : int
        How many things there are.
    pairs : ndarray of int, [n_pairs, 2]
        Numbers of things that are one.

    Returns
    -------
    count : int
        How many are left.
    class_of : ndarray of int, [n]
        Which of them each thing is.
    """
    graph = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    count, class_of = connected_components(graph, directed=False)
    return int(count), class_of.astype(np.int64)


def identified(topology: Topology, pairs: Indices) -> Topology:
    """Make pairs of vertices one vertex each.

    Parameters
    ----------
    topology : Topology
    pairs : ndarray of int, [n, 2]
        Vertices that are images of each other in a periodic mesh.

    Returns
    -------
    Topology
    """
    count, vertex_of = classes(topology.n_vertices, pairs)
    return Topology(topology.cells, [vertex_of[rows] for rows in topology.vertices], count)
