"""Numbers of the global degrees of freedom on the vertices, edges and faces and inside the cells of a mesh.

Vertices come first, then edges, faces and cells; those of one entity stand next to each other in the order of its
interior modes (`traces.interior_modes`), seen in its global vertex order.

Cells of different orders meet under the minimum rule: an entity has the modes of the lowest order of the cells around
it, and the coefficients of the higher modes of the other cells are zero. This needs a hierarchical basis.

Processes that share an entity agree on its order (`Numbering.common`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array

from hpfem.shapes import Basis, Shape, make_basis
from hpfem.shapes.arrays import Array, Indices
from hpfem.shapes.cached import cached_property
from hpfem.shapes.low_energy import eigenbasis, interior_modes, kept_modes

from ..backends.restriction import BlockMatrix, Codes
from ..backends.sharing import Sharing
from ..errors import ArgumentError
from ..geometry.element_map import CACHED, chunks
from ..memory import PerDevice, device_of, moved
from ..mesh import Mesh
from ..mesh.aligned import AlignedTopology
from ..mesh.part import combined
from ..mesh.sorting import marked, sorted_rows
from ..mesh.symmetry import symmetries
from ..support.tables import on_disk
from .traces import edge_block, entity_modes, inner_block, modes_by_entity, sizes_by_entity


@dataclass(frozen=True, eq=False)
class Seen:
    """The entities of one dimension of some cells or facets of one shape: ids of the mesh and orientation codes, both
    [n, n_entities].
    """

    ids: Indices
    codes: NDArray[np.int8]

    def ids_on(self, xp: Any) -> Any:
        """Ids as an array of a module, on a device of few bytes; -> [n, n_entities]."""
        few = xp is not np and (not self.ids.size or int(self.ids.max()) < 2**31)
        return moved(self.ids.astype(np.int32) if few else self.ids, xp)

    @cached_property
    def copies(self) -> PerDevice[tuple[Any, Any]]:
        """What devices have of it."""
        return PerDevice()


# Orientations of an entity at most, and cells whose codes a device writes at a time, times modes.
_MOST_CODES, _AT_ONCE = 8, 1 << 24
# An entry that is zero up to rounding, between functions of length one.
_ROUNDING = 1e-13
# Ids and codes by topology: one copy on a device serves the numberings of all orders.
_SEEN: WeakKeyDictionary[AlignedTopology, dict[tuple[int, int], Seen]] = WeakKeyDictionary()
# By topology and dimension, the order in which all numberings go through entities, where it is not their own.
_ORDERED: WeakKeyDictionary[AlignedTopology, dict[int, Indices]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class LocalToGlobal:
    """The relation of coefficients of cells or facets to global ones, as in a `BlockMatrix`."""

    codes: Codes  # [n, n_modes]: 2 * global number, + 1 if its sign changes; -1 - r if it is row r of the matrices
    own: csr_array  # [r, global]: from the global modes of an entity to its local ones; row 0, for modes that are zero
    rotated: csr_array  # [r, global]: from the global modes of edges to the local ones inside rotated faces
    back: csr_array  # [r, global]: inverse of `own` entity by entity, transposed
    low_energy: Callable[[], csr_array]  # `own` of functions of low energy

    @property
    def matrix(self) -> csr_array:
        """Local coefficients from global ones, [element * n_modes + mode, global]."""
        return BlockMatrix([self.codes], csr_array(self.own + self.rotated)).matrix


_Entries = tuple[Indices, Indices, Array]
# An entity seen turned, where its modes differ by more than signs: its number in some cells, shape, the cells, order,
# orientation code, and the local and global numbers of its modes, [cells, n].
_Turned = tuple[int, Shape, Indices, int, int, Indices, Indices]


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
@on_disk
def _signed(name: str, shape: Shape, order: int, codes: int) -> tuple[Indices, Indices, NDArray[np.bool_]]:
    """For the first orientation codes of an entity: the global mode of each interior mode, [codes, n]; 1 where its sign
    changes; and whether the orientation is such a signed permutation, [codes].
    """
    blocks = np.array([inner_block(name, shape, order, code) for code in range(codes)])
    unit = np.abs(blocks) == 1
    whole = (unit.sum(axis=2) == 1).all(axis=1) & ((blocks != 0) == unit).all(axis=(1, 2))
    if shape.dim == 2:
        edges = range(len(shape.edges))
        whole &= [not any(edge_block(name, shape, order, code, e).any() for e in edges) for code in range(codes)]
    place = np.argmax(unit, axis=2) if unit.size else np.zeros(unit.shape[:2], dtype=np.int64)
    return place, (np.take_along_axis(blocks, place[:, :, None], axis=2)[:, :, 0] < 0).astype(np.int64), whole


@cache
def _n_inside(name: str, shape: Shape, order: int) -> int:
    return 1 if shape.dim == 0 else len(interior_modes(make_basis(name, shape, order)))


@cache
def _kept(name: str, shape: Shape, order: int, lower: int) -> Indices:
    """Positions among the interior modes of order `order` of those of order `lower`."""
    return np.arange(_n_inside(name, shape, order)) if order == lower else kept_modes(shape, order, lower)


@cache
def _of_low_energy(name: str, shape: Shape, order: int, code: int) -> Array:
    """`inner_block` of the functions of `eigenbasis`, few of which meet few others."""
    U = eigenbasis(shape, order)
    found = np.linalg.solve(U, inner_block(name, shape, order, code) @ U)
    return np.where(abs(found) > _ROUNDING, found, 0.0)


class Numbering:
    """Where the global degrees of freedom of every entity of a mesh start: for each dimension 0 to dim the order of
    every entity (`orders`), its first number (`offsets`), how many it has (`sizes`), and those of all entities together
    (`counts`). Its cells are as turned for spaces.
    """

    def __init__(self, mesh: Mesh, name: str, orders: dict[str, int]) -> None:
        self.mesh, self.name, self._dim = mesh, name, mesh.dim
        self._there: PerDevice[Any] = PerDevice()
        self.cells = mesh.aligned
        self.topology = mesh.aligned_topology
        if name == "lagrange" and len(set(orders.values())) > 1:
            raise ArgumentError(
                f"cells of different orders {orders} meet continuously in the hierarchical basis only; use"
                " basis='modified', or one order for all shapes"
            )
        # The order of all entities; 0 if there are several orders.
        self._values = sorted(set(orders.values()))
        self._same = 0 if len(self._values) > 1 else self._values[0]
        found_orders, found_sizes, offsets, counts = [], [], [], []
        self._orders: list[Indices | slice] = []
        start = 0
        for dim in range(mesh.dim + 1):
            count = self._count(dim)
            order = self._lowest(dim, count, orders)
            sizes = self._sizes(dim, order, orders)
            found_orders.append(order)
            found_sizes.append(sizes)
            among = self._order(dim, count)
            self._orders.append(among)
            offsets.append(_starts(start, sizes, among))
            counts.append(len(sizes) * int(sizes[0]) if _of_one_size(sizes) else int(sizes.sum()))
            start += counts[-1]
        self.orders: tuple[Indices, ...] = tuple(found_orders)
        self.offsets: tuple[Indices, ...] = tuple(offsets)
        self.sizes: tuple[Indices, ...] = tuple(found_sizes)
        self.counts = tuple(counts)

    def _lowest(self, dim: int, count: int, orders: dict[str, int]) -> Indices:
        """The lowest order of the cells around every entity."""
        if self._same:
            return np.broadcast_to(np.int64(self._same), count)
        lowest = np.full(count, np.iinfo(np.int64).max)
        for group, cells in enumerate(self.cells):
            np.minimum.at(lowest, self.of_group(group, dim).ids.ravel(), orders[cells.shape.name])
        return self.common(dim, lowest, np.minimum)

    def common(self, dim: int, values: NDArray[Any], operation: Callable[..., Any]) -> NDArray[Any]:
        """Combine values on entities over the processes that share the mesh; collective; values [n_entities] ->
        [n_entities].
        """
        part = self.mesh.part
        if part is None or dim == self._dim:
            return values
        return combined(part.comm, values, self.mesh.shared[dim], operation)

    @cached_property
    def sharing(self) -> Sharing | None:
        """Which degrees of freedom other processes have too; None if there is one process."""
        part = self.mesh.part
        if part is None:
            return None
        found: dict[int, list[Indices]] = {}
        for dim, neighbours in enumerate(self.mesh.shared):
            for rank, ids in neighbours.items():
                sizes = self.sizes[dim][ids]
                within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
                found.setdefault(rank, []).append(np.repeat(self.offsets[dim][ids], sizes) + within)
        return Sharing(part.comm, self.size, {rank: np.concatenate(own) for rank, own in found.items()})

    def _sizes(self, dim: int, order: Indices, orders: dict[str, int]) -> Indices:
        """The degrees of freedom of every entity, of these orders."""
        shapes = {entity.shape for cells in self.cells for entity in cells.shape.entities[dim]}
        values = sorted(set(orders.values()))
        if len(shapes) == len(values) == 1:
            return np.broadcast_to(np.int64(_n_inside(self.name, shapes.pop(), values[0])), len(order))
        sizes = np.zeros(len(order), dtype=np.int64)
        for group, cells in enumerate(self.cells):
            ids = self.of_group(group, dim).ids
            for number, entity in enumerate(cells.shape.entities[dim]):
                inside = np.zeros(values[-1] + 1, dtype=np.int64)
                inside[values] = [_n_inside(self.name, entity.shape, value) for value in values]
                sizes[ids[:, number]] = inside[order[ids[:, number]]]
        return sizes

    def _order(self, dim: int, count: int) -> Indices | slice:
        """The order in which entities are numbered: by the first cell that has them, or the mesh's own order."""
        if not self.topology.scattered:
            return slice(None)
        known = _ORDERED.setdefault(self.topology, {})
        if dim not in known:
            known[dim] = self._by_cells(dim, count)
        return known[dim]

    def _by_cells(self, dim: int, count: int) -> Indices:
        ids = [self.of_group(group, dim).ids.ravel() for group in range(len(self.cells))]
        every = ids[0] if len(ids) == 1 else np.concatenate(ids)
        # If several numbers are written to one place, the last one stays.
        first = np.empty(count, dtype=np.int64)
        first[every[::-1]] = np.arange(len(every) - 1, -1, -1)
        is_first = np.zeros(len(every), dtype=bool)
        is_first[first] = True
        return every[is_first]

    @property
    def size(self) -> int:
        """Number of global degrees of freedom."""
        return sum(self.counts)

    def of_unknowns(self, values: Sequence[NDArray[Any]], xp: Any = np, dtype: DTypeLike | None = None) -> Any:
        """Give every global degree of freedom the value of its entity; values [n_entities] -> [size]."""
        ends = np.cumsum([0, *self.counts[: len(values)]]).tolist()
        found = xp.empty(ends[-1], np.result_type(*values) if dtype is None else dtype)
        for own, sizes, order, a, b in zip(values, self.sizes, self._orders, ends, ends[1:], strict=False):
            if b > a and (_of_one_size(sizes) or (sizes == sizes[0]).all()):
                found[a:b].reshape(len(sizes), -1)[...] = moved(own[order], xp)[:, None]
            elif b > a:
                found[a:b] = moved(np.repeat(own[order], sizes[order]), xp)
        return found

    def truncation(self, lower: Numbering, xp: Any = np) -> Any:
        """Numbers of the modes of lower orders, in two hierarchical numberings of one mesh; -> [lower.size]."""
        if lower is self:
            return slice(None)
        return xp.concatenate([xp.asarray(self._kept_of(dim, lower, xp)) for dim in range(len(self.orders))])

    def _kept_of(self, dim: int, lower: Numbering, xp: Any) -> Any:
        """`truncation` of the modes on the entities of one dimension."""
        first, count = sum(self.counts[:dim]), len(self.orders[dim])
        shapes = {entity.shape for cells in self.cells for entity in cells.shape.entities[dim]}
        if self._same and lower._same and len(shapes) == 1:
            kept = _kept(self.name, shape := shapes.pop(), self._same, lower._same)
            starts = first + xp.arange(count) * _n_inside(self.name, shape, self._same)
            return (starts[:, None] + xp.asarray(kept)).reshape(-1)
        out, start = np.empty(lower.counts[dim], dtype=np.int64), sum(lower.counts[:dim])
        for group, cells in enumerate(self.cells):
            ids = self.of_group(group, dim).ids
            for number, entity in enumerate(cells.shape.entities[dim]):
                own = ids[:, number]
                for chosen, order in _alike(self.orders[dim][own]):
                    for among, low in _alike(lower.orders[dim][own[chosen]]):
                        those = own[chosen][among]
                        kept = _kept(self.name, entity.shape, order, low)
                        columns = lower.offsets[dim][those][:, None] - start + np.arange(len(kept))
                        out[columns] = self.offsets[dim][those][:, None] + kept
        return out

    def _count(self, dim: int) -> int:
        if dim == 0:
            return self.mesh.n_vertices
        if dim == self._dim:
            return self.mesh.n_cells
        return self.topology.edges.count if dim == 1 else self.topology.faces.count

    def of_group(self, group: int, dim: int) -> Seen:
        """Ids and orientations of the entities of one dimension of the cells of a group."""
        seen = _SEEN.setdefault(self.topology, {})
        if (group, dim) not in seen:
            cells = self.cells[group]
            codes = {1: cells.edge_orientation, 2: cells.face_orientation} if 0 < dim < self._dim else {}
            ids = cells.ids(dim)
            seen[group, dim] = Seen(ids, codes.get(dim, np.zeros(ids.shape, dtype=np.int8)))
        return seen[group, dim]

    def of_vertices(self, shape: Shape, vertices: Indices, dim: int) -> Seen:
        """Ids and orientations of the entities, below the cells' dimension, of shapes given by their vertices;
        vertices [n, n_vertices].
        """
        if dim == 0:
            return Seen(vertices, np.zeros(vertices.shape, dtype=np.int8))
        index = (self.topology.edges if dim == 1 else self.topology.faces).index
        ids, codes = [], []
        for entity in shape.entities[dim]:
            corners = vertices[:, entity.vertices]
            ids.append(index.find(sorted_rows(corners)))
            codes.append(self.topology.codes(entity.shape, corners))
        return Seen(np.stack(ids, axis=1), np.stack(codes, axis=1))

    def local_to_global(self, basis: Basis, seen: Sequence[Seen]) -> LocalToGlobal:
        """The matrix between the coefficients of cells or facets of one shape and order and global ones."""
        turned = list[_Turned]()
        complete = len(seen) == self._dim + 1
        for dim, those in enumerate(seen):
            for number, entity in enumerate(basis.shape.entities[dim]):
                ids, modes = those.ids[:, number], entity_modes(basis, dim, number)
                for chosen, order in self._alike(dim, ids):
                    complete &= order == basis.order
                    local = modes[_kept(self.name, entity.shape, basis.order, order)]
                    whole, seen_as = self._signed(entity.shape, order, dim)[2], those.codes[chosen, number]
                    for code in () if whole.all() else np.flatnonzero(~whole & marked(len(whole), [seen_as])):
                        cells = np.arange(len(ids))[chosen][seen_as == code]
                        columns = self.offsets[dim][ids[cells]][:, None] + np.arange(len(local))
                        rows = cells[:, None] * basis.n_modes + local
                        turned.append((number, entity.shape, cells, order, int(code), rows, columns))
        rows = np.sort(np.concatenate([np.empty(0, dtype=np.int64), *(own[5].ravel() for own in turned)]))
        turned = [(*own[:5], np.searchsorted(rows, own[5]) + 1, own[6]) for own in turned]  # row 0 is empty
        make, shape = partial(self._codes, basis, seen, rows), (len(rows) + 1, self.size)
        by_entity = modes_by_entity(basis), sizes_by_entity(basis)
        codes = Codes((len(seen[0].ids), basis.n_modes), make, complete and not len(rows), *by_entity)
        rotated = [self._from_edges(basis, seen[1], n, cells, code, p, at) for n, _, cells, p, code, at, _ in turned]
        of_each = partial(self._of_each, turned, shape)
        edges = _sparse([own for some in rotated for own in some], shape)
        return LocalToGlobal(codes, of_each(inner_block), edges, of_each(_inverse), partial(of_each, _of_low_energy))

    def _of_each(self, turned: Sequence[_Turned], shape: tuple[int, int], block: Callable[..., Array]) -> csr_array:
        """A matrix of blocks for what is turned."""
        return _sparse(
            [_outer(rows, columns, block(self.name, face, p, code)) for _, face, _, p, code, rows, columns in turned],
            shape,
        )

    def _codes(self, basis: Basis, seen: Sequence[Seen], rows: Indices, xp: Any) -> Any:
        """Codes of `local_to_global`, with the modes that are rows of matrices."""
        n, n_modes = len(seen[0].ids), basis.n_modes
        kind = np.int32 if 2 * max(self.size, n * n_modes) + 2 < 2**31 else np.int64
        codes = xp.empty((n, n_modes), dtype=kind)
        firsts = self._of_all(f"firsts {kind}", len(seen), xp, lambda p: (2 * p).astype(kind), self.offsets)
        entity_of, table = self._code_table(basis, len(seen))
        entity_of, partial_table = moved(entity_of, xp), table[:, 0].min() < 0
        table, own, orders = moved(table.ravel().astype(kind), xp), xp.arange(n_modes, dtype=kind), None
        if not self._same:
            orders = self._of_all("orders", len(seen), xp, partial(np.searchsorted, self._values), self.orders)
        for part in chunks(n, n_modes, most=CACHED if xp is np else _AT_ONCE):
            ids, turned = self._entities(seen, part, xp)
            row = turned.astype(kind) if orders is None else turned + (_MOST_CODES * orders[ids]).astype(kind)
            found = table.take((n_modes * row).take(entity_of, axis=1) + own)
            codes[part] = firsts[ids].take(entity_of, axis=1) + found
            if partial_table:
                codes[part][found < 0] = -1
        codes.reshape(-1)[moved(rows, xp)] = -2 - xp.arange(len(rows), dtype=kind)
        return codes

    def _of_all(self, what: str, dims: int, xp: Any, made: Callable[[Any], Any], of_dims: Sequence[Indices]) -> Any:
        """What is made of numbers of the entities of all dimensions; kept on a device, for all blocks."""

        def make() -> Any:
            return moved(made(np.concatenate(of_dims[:dims])), xp)

        return make() if xp is np else self._there.get(f"{device_of(xp)} {dims} {what}", make)

    def _entities(self, seen: Sequence[Seen], part: slice, xp: Any) -> tuple[Any, Any]:
        """Numbers among the entities of all dimensions, and orientations, of some elements; [n, entities]."""

        def make(part: slice, kind: Any = np.int64) -> tuple[Any, Any]:
            firsts = zip(seen, np.cumsum([0, *map(len, self.offsets)]).tolist(), strict=False)
            ids = np.concatenate([own.ids[part] + first for own, first in firsts], axis=1, dtype=kind)
            return ids, np.concatenate([own.codes[part] for own in seen], axis=1)

        if xp is np:
            return make(part)
        # Of all elements, for the numberings of all orders.
        kind = np.int32 if sum(map(len, self.offsets)) < 2**31 else np.int64
        place, copy = f"{device_of(xp)} {len(seen)}", lambda: tuple(moved(own, xp) for own in make(slice(None), kind))
        ids, turned = seen[0].copies.get(place, copy)
        return ids[part], turned[part]

    def _code_table(self, basis: Basis, dims: int) -> tuple[Indices, Indices]:
        """The entity of each mode among those of all dimensions, [n_modes]; and by an entity's order and orientation
        the code of each mode less that of the entity's first one, or -1, [orders, _MOST_CODES, n_modes].
        """
        entity_of = np.zeros(basis.n_modes, dtype=np.int64)
        table = np.full((len(self._values), _MOST_CODES, basis.n_modes), -1, dtype=np.int64)
        before = 0
        for dim in range(dims):
            for number, entity in enumerate(basis.shape.entities[dim]):
                modes = entity_modes(basis, dim, number)
                entity_of[modes] = before + number
                for own, order in zip(table, self._values, strict=True):
                    if order <= basis.order:
                        local = modes[_kept(self.name, entity.shape, basis.order, order)]
                        place, negative, _ = self._signed(entity.shape, order, dim)
                        own[: len(place), local] = 2 * place + negative
            before += len(basis.shape.entities[dim])
        return entity_of, table

    def _signed(self, shape: Shape, order: int, dim: int) -> tuple[Indices, Indices, NDArray[np.bool_]]:
        """`_signed` of the existing codes: cells themselves have one orientation."""
        return _signed(self.name, shape, order, 1 if dim == self._dim else len(symmetries(shape)))

    def _alike(self, dim: int, ids: Indices) -> list[tuple[slice | Indices, int]]:
        """Positions of entities of equal orders, all where they are all equal; with the order."""
        return [(slice(None), self._same)] if self._same else _alike(self.orders[dim][ids])

    def _from_edges(
        self, basis: Basis, edges: Seen, number: int, chosen: Indices, code: int, order: int, rows: Indices
    ) -> list[_Entries]:
        """The parts of the edges' global modes inside a rotated face, in the face's local modes."""
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
            for part, edge_order in self._alike(1, ids):
                kept = _kept(self.name, edge.shape, order, edge_order)
                blocks = [block[:, kept] @ inner_block(self.name, edge.shape, edge_order, way) for way in (0, 1)]
                i, j = np.logical_or(*blocks).nonzero()
                columns = self.offsets[1][ids[part]][:, None] + j
                values = np.array([both[i, j] for both in blocks])[codes[part]]
                found.append((rows[part][:, i].ravel(), columns.ravel(), values.ravel()))
        return found


def _of_one_size(sizes: Indices) -> bool:
    """Whether sizes are known to be the same, without a look at them."""
    return len(sizes) > 0 and sizes.strides == (0,)


def _starts(start: int, sizes: Indices, among: Indices | slice) -> Indices:
    """Where things of some sizes start, one after the other in some order, the first one at `start`."""
    if _of_one_size(sizes):
        size = int(sizes[0])
        starts = np.arange(start, start + len(sizes) * size, size) if size else np.full(len(sizes), start)
    else:
        ordered = sizes[among]
        starts = start + np.cumsum(ordered) - ordered
    if isinstance(among, slice):
        return starts
    own = np.empty_like(starts)
    own[among] = starts
    return own


def _alike(orders: Indices) -> list[tuple[slice | Indices, int]]:
    """Positions of equal orders, all where they are all equal; with the order."""
    if not len(orders):
        return []
    if (first := int(orders[0])) == orders.max() == orders.min():
        return [(slice(None), first)]
    return [(np.flatnonzero(orders == order), int(order)) for order in np.unique(orders)]


@cache
def _inverse(name: str, shape: Shape, order: int, code: int) -> Array:
    """Inverse of `inner_block`, transposed, its rounding errors removed."""
    inverse = np.linalg.inv(inner_block(name, shape, order, code)).T
    return np.where(np.abs(inverse) < 1e-13, 0.0, inverse)
