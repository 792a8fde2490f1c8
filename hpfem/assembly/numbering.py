"""Numbers of the global degrees of freedom: so many on every vertex, edge and face and inside every cell of a mesh.

Vertices come first, then edges, faces and cells; those of one entity stand next to each other in the order of its
interior modes (`traces.interior_modes`), seen in its global vertex order.

Cells of different orders meet under the minimum rule: an entity has the modes of the lowest order of the cells around
it, and the coefficients of the higher modes of the other cells are zero. It needs a hierarchical basis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from hpfem.shapes import Basis, Shape, make_basis

from ..errors import ArgumentError
from ..mesh import Mesh
from ..mesh.symmetry import symmetries
from ..mesh.topology import sorted_rows
from .traces import Array, Indices, edge_block, entity_modes, inner_block, interior_modes


@dataclass(frozen=True, eq=False)
class Seen:
    """The entities of one dimension of some cells or facets of one shape.

    Attributes
    ----------
    ids : ndarray of int, [n, n_entities]
        Of the mesh.
    codes : ndarray of int, [n, n_entities]
        Orientation codes.
    """

    ids: Indices
    codes: NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class LocalToGlobal:
    """What ties the coefficients of cells or facets to global ones: matrices [element * n_modes + mode, global].

    Attributes
    ----------
    own : csr_array
        From the global modes of an entity to the local ones of the same entity.
    rotated : csr_array
        From the global modes of edges to the local ones inside rotated faces.
    back : csr_array
        Inverse of `own` entity by entity, transposed.
    """

    own: csr_array
    rotated: csr_array
    back: csr_array

    @property
    def matrix(self) -> csr_array:
        """Local coefficients from global ones."""
        return csr_array(self.own + self.rotated)


_Entries = tuple[Indices, Indices, Array]


def _outer(rows: Indices, columns: Indices, matrix: Array) -> _Entries:
    """Row, column and value of the non-zeros of one matrix [i, j] at many places: rows [n, i], columns [n, j]."""
    i, j = np.nonzero(matrix)
    values = np.broadcast_to(matrix[i, j], (len(rows), len(i)))
    return rows[:, i].ravel(), columns[:, j].ravel(), values.ravel()


def _sparse(entries: list[_Entries], shape: tuple[int, int]) -> csr_array:
    if not entries:
        return csr_array(shape)
    rows, columns, values = (np.concatenate(parts) for parts in zip(*entries, strict=True))
    return csr_array((values, (rows, columns)), shape=shape)


@cache
def _n_inside(name: str, shape: Shape, order: int) -> int:
    return 1 if shape.dim == 0 else len(interior_modes(make_basis(name, shape, order)))


@cache
def _kept(name: str, shape: Shape, order: int, lower: int) -> Indices:
    """Positions among the interior modes of order `order` of those of order `lower`."""
    if shape.dim == 0 or order == lower:
        return np.arange(_n_inside(name, shape, order))
    full, small = make_basis(name, shape, order), make_basis(name, shape, lower)
    place = {full.modes[m].indices: i for i, m in enumerate(interior_modes(full))}
    return np.array([place[small.modes[m].indices] for m in interior_modes(small)], dtype=np.int64)


class Numbering:
    """Where the global degrees of freedom of every entity of a mesh start.

    Parameters
    ----------
    mesh : Mesh
    name : str
        Basis: "modified" or "lagrange".
    orders : mapping
        Shape name -> polynomial order.

    Attributes
    ----------
    cells : tuple of CellGroup
        As spaces see them.
    topology : AlignedTopology
    orders : tuple of ndarray of int
        Per dimension 0 to dim, the order of every entity.
    offsets : tuple of ndarray of int
        Per dimension, the first number of every entity.
    sizes : tuple of ndarray of int
        Per dimension, the degrees of freedom of every entity.
    counts : tuple of int
        Per dimension, the degrees of freedom of all its entities together.
    """

    def __init__(self, mesh: Mesh, name: str, orders: dict[str, int]) -> None:
        self.mesh, self.name = mesh, name
        self.cells = mesh.aligned
        self.topology = mesh.aligned_topology
        if name == "lagrange" and len(set(orders.values())) > 1:
            raise ArgumentError(
                f"cells of different orders {orders} meet continuously in the hierarchical basis only; use"
                " basis='modified', or one order for all shapes"
            )
        found_orders, found_sizes, offsets = [], [], []
        start = 0
        for dim in range(mesh.dim + 1):
            count = self._count(dim)
            order = np.full(count, np.iinfo(np.int64).max)
            for group, cells in enumerate(self.cells):
                np.minimum.at(order, self.of_group(group, dim).ids.ravel(), orders[cells.shape.name])
            sizes = np.zeros(count, dtype=np.int64)
            for group, cells in enumerate(self.cells):
                ids = self.of_group(group, dim).ids
                for number, entity in enumerate(cells.shape.entities[dim]):
                    lowest = order[ids[:, number]]
                    for value in np.unique(lowest):
                        sizes[ids[lowest == value, number]] = _n_inside(name, entity.shape, int(value))
            found_orders.append(order)
            found_sizes.append(sizes)
            offsets.append(start + np.cumsum(sizes) - sizes)
            start += int(sizes.sum())
        self.orders: tuple[Indices, ...] = tuple(found_orders)
        self.offsets: tuple[Indices, ...] = tuple(offsets)
        self.sizes: tuple[Indices, ...] = tuple(found_sizes)
        self.counts = tuple(int(sizes.sum()) for sizes in self.sizes)

    @property
    def size(self) -> int:
        """Number of global degrees of freedom."""
        return sum(self.counts)

    def of_unknowns(self, values: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Give every global degree of freedom the value of its entity.

        Parameters
        ----------
        values : sequence of ndarray, [n_entities]
            Per dimension, from 0 on.

        Returns
        -------
        ndarray, [size]
            Fewer where dimensions are left out.
        """
        return np.concatenate([np.repeat(*pair) for pair in zip(values, self.sizes, strict=False)])

    def _count(self, dim: int) -> int:
        if dim == 0:
            return self.mesh.n_vertices
        if dim == self.mesh.dim:
            return self.mesh.n_cells
        return self.topology.edges.count if dim == 1 else self.topology.faces.count

    def of_group(self, group: int, dim: int) -> Seen:
        """Ids and orientations of the entities of one dimension of the cells of a group.

        Parameters
        ----------
        group : int
            Position in ``mesh.aligned``.
        dim : int

        Returns
        -------
        Seen
        """
        cells = self.cells[group]
        ids = cells.ids(dim)
        if dim in (0, self.mesh.dim):
            return Seen(ids, np.zeros(ids.shape, dtype=np.int8))
        return Seen(ids, cells.edge_orientation if dim == 1 else cells.face_orientation)

    def of_vertices(self, shape: Shape, vertices: Indices, dim: int) -> Seen:
        """Ids and orientations of the entities of one dimension, below the cells', of shapes given by their vertices.

        Parameters
        ----------
        shape : Shape
            Of an edge or a face of the mesh.
        vertices : ndarray of int, [n, n_vertices]
            Topological vertex ids, in the shape's order.
        dim : int
            0 to the shape's.

        Returns
        -------
        Seen
        """
        if dim == 0:
            return Seen(vertices, np.zeros(vertices.shape, dtype=np.int8))
        index = (self.topology.edges if dim == 1 else self.topology.faces).index
        ids, codes = [], []
        for entity in shape.entities[dim]:
            corners = vertices[:, entity.vertices]
            ids.append(index.find(sorted_rows(corners, 2 if dim == 1 else 4)))
            codes.append(self.topology.codes(entity.shape, corners))
        return Seen(np.stack(ids, axis=1), np.stack(codes, axis=1))

    def local_to_global(self, basis: Basis, seen: Sequence[Seen]) -> LocalToGlobal:
        """Local-to-global matrices of cells or facets of one shape and order.

        Parameters
        ----------
        basis : Basis
            Of the cells or facets.
        seen : sequence of Seen
            Per dimension, from 0 on; modes of the dimensions left out have empty rows.

        Returns
        -------
        LocalToGlobal
        """
        own: list[_Entries] = []
        rotated: list[_Entries] = []
        back: list[_Entries] = []
        for dim, number, chosen, code, order, local, columns in self._places(basis, seen):
            shape = basis.shape.entities[dim][number].shape
            rows = chosen[:, None] * basis.n_modes + local
            own.append(_outer(rows, columns, inner_block(self.name, shape, order, code)))
            back.append(_outer(rows, columns, _inverse(self.name, shape, order, code).T))
            if code and dim == 2:
                rotated += self._from_edges(basis, seen[1], number, chosen, code, order, rows)
        size = (len(seen[0].ids) * basis.n_modes, self.size)
        return LocalToGlobal(*(_sparse(entries, size) for entries in (own, rotated, back)))

    def _places(
        self, basis: Basis, seen: Sequence[Seen]
    ) -> Iterator[tuple[int, int, Indices, int, int, Indices, Indices]]:
        """Cells that see an entity alike: dimension and number of the entity, the cells, orientation code and order of
        the entity, their modes on it, and the global numbers [cell, mode] of these.
        """
        for dim, those in enumerate(seen):
            for number, entity in enumerate(basis.shape.entities[dim]):
                ids, codes = those.ids[:, number], those.codes[:, number].astype(np.int64)
                modes = entity_modes(basis, dim, number)
                for chosen, code, order in _alike(codes, self.orders[dim][ids]):
                    local = modes[_kept(self.name, entity.shape, basis.order, order)]
                    columns = self.offsets[dim][ids[chosen]][:, None] + np.arange(len(local))
                    yield dim, number, chosen, code, order, local, columns

    def slots(self, basis: Basis, seen: Sequence[Seen]) -> Indices:
        """The global number that stands where each mode does in the order of its entity, [n, n_modes]; -1 for none.

        A global mode of an entity and the local one in its slot are the same up to what `orientation_matrix` says.

        Parameters
        ----------
        basis : Basis
            Of the cells or facets.
        seen : sequence of Seen
            Per dimension, from 0 on.

        Returns
        -------
        ndarray of int, [n, n_modes]
        """
        result = np.full((len(seen[0].ids), basis.n_modes), -1, dtype=np.int64)
        for _, _, chosen, _, _, local, columns in self._places(basis, seen):
            result[np.ix_(chosen, local)] = columns
        return result

    def _from_edges(
        self, basis: Basis, edges: Seen, number: int, chosen: Indices, code: int, order: int, rows: Indices
    ) -> list[_Entries]:
        """What the global modes of a rotated face's edges are inside the face, as its cells see it."""
        face = basis.shape.entities[2][number]
        corners = np.array(face.vertices)[symmetries(face.shape)[code]]
        found = []
        for place, edge in enumerate(face.shape.edges):
            block = edge_block(self.name, face.shape, order, code, place)
            if not block.any():
                continue
            ends = tuple(int(v) for v in corners[list(edge.vertices)])
            _, own = basis.shape.entity_number(ends)
            ids, codes = edges.ids[chosen, own], edges.codes[chosen, own].astype(np.int64)
            if basis.shape.edges[own].vertices != ends:
                codes = 1 - codes
            for part, edge_code, edge_order in _alike(codes, self.orders[1][ids]):
                kept = _kept(self.name, edge.shape, order, edge_order)
                matrix = block[:, kept] @ inner_block(self.name, edge.shape, edge_order, edge_code)
                columns = self.offsets[1][ids[part]][:, None] + np.arange(len(kept))
                found.append(_outer(rows[part], columns, matrix))
        return found


def _alike(codes: Indices, orders: Indices) -> list[tuple[Indices, int, int]]:
    """Positions of equal (code, order), with both."""
    keys = codes + 64 * orders
    return [(np.flatnonzero(keys == key), int(key % 64), int(key // 64)) for key in np.unique(keys)]


@cache
def _inverse(name: str, shape: Shape, order: int, code: int) -> Array:
    """Inverse of `inner_block`, its rounding errors removed."""
    inverse = np.linalg.inv(inner_block(name, shape, order, code))
    return np.where(np.abs(inverse) < 1e-13, 0.0, inverse)
