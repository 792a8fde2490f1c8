"""A two-level Schwarz preconditioner whose iteration counts hardly grow with the order.

The interiors of the cells are eliminated exactly, cell by cell. What is left, on vertices, edges and faces, is
corrected additively in

- the vertex functions of order 1: a sparse LU factorisation, which carries information across the mesh;
- one function of low energy per vertex: 1 there, 0 on what does not touch the vertex, minimal in every cell, averaged
  where cells meet (the vertex modes of [SC]; those of order 1 cost too much energy at high order);
- for every edge, the edge with the faces around it: the exact inverse of its block.

Only element matrices, dense blocks and sparse products: memory and time of the set-up are those of assembling.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csc_array, csr_array, diags_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import splu

from hpfem.shapes import Basis, Shape, interpolation_nodes, make_basis

from ..assembly import C0Space, GlobalOperator
from ..assembly.entries import element_matrices
from ..backends import vectors_on
from ..errors import NotSuitable
from ..memory import HOST, Device

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

# Entries of all element matrices together.
_MOST_ENTRIES = 100_000_000
# Vertices of a coarse system that is inverted densely, where there is no sparse LU.
_MOST_DENSE = 6000
# Of the coarse diagonal, added to it in parts whose constants have less energy than that.
_SHIFT = 1e-6


@dataclass(frozen=True, eq=False)
class _Condensed:
    """A block without its interiors.

    Attributes
    ----------
    outer, inner : ndarray of int
        Modes on the boundary of the cells, and inside.
    slots : ndarray of int, [E, n_outer]
        Global numbers in the places of the outer modes; the size for none.
    own : ndarray of int, [E, n_inner]
        Global numbers of the inner modes.
    inverse : ndarray, [E, n_inner, n_inner]
        Of the inner part.
    extension : ndarray, [E, n_inner, n_outer]
        Minus the inner coefficients of least energy, for global numbers outside.
    schur : ndarray, [E, n_outer, n_outer]
        Schur complement for global numbers.
    turn : ndarray, [E, n_outer, n_outer]
        Local outer coefficients from those in the slots.
    """

    outer: Indices
    inner: Indices
    slots: Indices
    own: Indices
    inverse: Array
    extension: Array
    schur: Array
    turn: Array


def low_energy(A: GlobalOperator) -> Callable[[Any], Any]:
    """Make the preconditioner of an operator; set up on the host, it works where the operator does.

    Parameters
    ----------
    A : GlobalOperator
        Symmetric positive definite, of one component.

    Returns
    -------
    callable
        r -> M^-1 r.

    Raises
    ------
    NotSuitable
        If the operator has several components, its element matrices take too much memory, or the mesh has too many
        vertices for a coarse solve on a device.
    """
    space = A.c0.space
    if A.components > 1:
        raise NotSuitable("the low-energy preconditioner is for operators of one component")
    if A.device.name != HOST.name and space.mesh.n_vertices > _MOST_DENSE:
        raise NotSuitable(f"the coarse solve on a device takes {_MOST_DENSE} vertices at most, the mesh has more")
    entries = sum(block.n_elements * block.n_modes**2 for block in space.blocks)
    if entries > _MOST_ENTRIES:
        raise NotSuitable(f"the element matrices take {8e-9 * entries:.1f} GB")
    free = np.ones(A.c0.size, dtype=bool) if A.bc is None else A.bc.free
    return _LowEnergy(A, free)


class _LowEnergy:
    """The preconditioner, as sparse matrices on the operator's device."""

    name = "multilevel"
    # Host arrays first, then those of the device.
    free: Any
    low_scale: Any
    coarse: Any

    def __init__(self, A: GlobalOperator, free: NDArray[np.bool_]) -> None:
        self.A, c0 = A, A.c0
        self.size = c0.size
        self.free = np.append(free, False)
        self.blocks = [_condensed(A, number) for number in range(len(c0.space.blocks))]
        robin = None if A.bc is None else A.bc.matrix
        # At order 1 the coarse space is everything.
        self.exact = max(c0.space.orders.values()) == 1
        self._coarse(c0, robin)
        if not self.exact:
            self._vertices(c0, robin)
            self._edges(c0, robin)
        self._interiors()
        del self.blocks
        self._move(A.device, A.dtype)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[GlobalOperator]]:
        # Factorisations cannot be written down; the same ones are made again where it is opened.
        return low_energy, (self.A,)

    def _interiors(self) -> None:
        """Inverses of the interiors, and what the outer unknowns do to the inner ones."""
        own, slots, inverses, extensions = [], [], [], []
        for part in self.blocks:
            own.append(np.broadcast_to(part.own[:, :, None], part.extension.shape))
            slots.append(np.broadcast_to(part.slots[:, None], part.extension.shape))
            extensions.append(part.extension)
            inverses.append((part.own, part.inverse))
        self.extension = self._sparse(own, np.where(self.free[_flat(slots)], _flat(slots), -1), extensions, self.size)
        self.extension_t = csr_array(self.extension.T)
        rows = [np.broadcast_to(own[:, :, None], inverse.shape) for own, inverse in inverses]
        columns = [np.broadcast_to(own[:, None], inverse.shape) for own, inverse in inverses]
        self.inverse = self._sparse(rows, columns, [inverse for _, inverse in inverses], self.size)

    def _move(self, device: Device, dtype: DTypeLike) -> None:
        """Bring what `__call__` needs to the device."""
        vectors = vectors_on(device)
        names = ["extension", "extension_t", "inverse", "hat", "hat_t"]
        names += [] if self.exact else ["low", "low_t", "local"]
        for name in names:
            setattr(self, name, vectors.sparse(getattr(self, name).astype(dtype)))
        if not self.exact:
            self.low_scale = vectors.from_host(self.low_scale, dtype)
        self.free = vectors.from_host(self.free[:-1].astype(dtype))
        self.solve_coarse = None
        if self.coarse is not None and device.name == HOST.name:
            self.solve_coarse = splu(csc_array(self.coarse)).solve
        elif self.coarse is not None:
            dense = vectors.from_host(np.linalg.inv(self.coarse.toarray()), dtype)
            self.solve_coarse = lambda r: dense @ r
        del self.coarse

    def _sparse(self, rows: Any, columns: Any, values: Any, width: int) -> csr_array:
        """Of what is free."""
        i, j, v = (_flat(parts) for parts in (rows, columns, values))
        keep = self.free[i] & (j >= 0)
        return csr_array((v[keep], (i[keep], j[keep])), shape=(self.size, width))

    def _coarse(self, c0: C0Space, robin: csr_array | None) -> None:
        """Functions of order 1 on the boundaries of the cells, with their least extension inside."""
        mesh = c0.space.mesh
        rows, columns, values, energies = [], [], [], []
        for number, (block, part) in enumerate(zip(c0.space.blocks, self.blocks, strict=True)):
            vertices = c0.seen(number)[0].ids
            hats = np.einsum("emk,kv->emv", np.linalg.inv(part.turn), _hats(block.basis)[part.outer])
            shape = hats.shape
            count = c0.multiplicity[np.minimum(part.slots, self.size - 1)][:, :, None]
            rows.append(np.broadcast_to(part.slots[:, :, None], shape))
            columns.append(np.broadcast_to(vertices[:, None, :], shape))
            values.append(hats / count)
            energies.append((vertices, np.einsum("emv,emn,enw->evw", hats, part.schur, hats, optimize=True)))
        hat = self._sparse(rows, columns, values, mesh.n_vertices)
        hat.data[np.abs(hat.data) < 1e-13] = 0
        hat.eliminate_zeros()
        # A vertex is used where its function is not cut by the Dirichlet boundary.
        used = self.free[c0.numbering.offsets[0]]
        self.hat = csr_array(hat[:, np.flatnonzero(used)])
        self.hat_t = csr_array(self.hat.T)
        i = np.concatenate([np.broadcast_to(v[:, :, None], e.shape).ravel() for v, e in energies])
        j = np.concatenate([np.broadcast_to(v[:, None, :], e.shape).ravel() for v, e in energies])
        values_ = np.concatenate([e.ravel() for _, e in energies])
        matrix = csr_array((values_, (i, j)), shape=(mesh.n_vertices, mesh.n_vertices))[used][:, used]
        if robin is not None:
            matrix = csr_array(matrix + self.hat_t @ robin @ self.hat)
        self.coarse = None
        if matrix.shape[0]:
            # Where a constant is hardly seen its share of a residual is rounding, which must not be enlarged.
            count, part = connected_components(matrix, directed=False)
            diagonal = matrix.diagonal()
            seen, size = (np.bincount(part, v, count) for v in (matrix.sum(axis=1), diagonal))
            self.coarse = csr_array(matrix + diags_array(_SHIFT * diagonal * (seen < _SHIFT * size)[part]))

    def _vertices(self, c0: C0Space, robin: csr_array | None) -> None:
        """One function of low energy per vertex."""
        n_vertices = c0.space.mesh.n_vertices
        parts = []
        for number, (block, part) in enumerate(zip(c0.space.blocks, self.blocks, strict=True)):
            ids = c0.seen(number)[0].ids
            entities = [block.basis.modes[m].entity for m in part.outer]
            corners = [block.shape.entities[d][n].vertices for d, n in entities]
            for vertex in range(block.shape.n_vertices):
                at = [k for k, entity in enumerate(entities) if entity == (0, vertex)]
                around = [k for k, own in enumerate(corners) if vertex in own and entities[k][0] > 0]
                S = part.schur
                values = -np.linalg.solve(S[:, around][:, :, around], S[:, around][:, :, at])[:, :, 0]
                places = at + around
                values = np.concatenate([np.ones((len(values), 1)), values], axis=1)
                parts.append((part, places, part.slots[:, places], ids[:, [vertex]], values))
        slot = np.concatenate([p[2].ravel() for p in parts])
        owner = np.concatenate([np.broadcast_to(p[3], p[2].shape).ravel() for p in parts])
        value = np.concatenate([p[4].ravel() for p in parts])
        key, place = np.unique(slot * n_vertices + owner, return_inverse=True)
        mean = np.bincount(place, value) / np.bincount(place)
        rows, columns = key // n_vertices, key % n_vertices
        mean[~self.free[rows]] = 0
        energy = np.zeros(n_vertices)
        start = 0
        for part, places, slots, ids, _ in parts:
            stop = start + slots.size
            own = mean[place[start:stop]].reshape(slots.shape)
            S = part.schur[:, places][:, :, places]
            energy += np.bincount(ids[:, 0], np.einsum("em,emn,en->e", own, S, own, optimize=True), n_vertices)
            start = stop
        self.low = self._sparse([rows], [columns], [mean], n_vertices)
        if robin is not None:
            energy += np.asarray((robin @ self.low).multiply(self.low).sum(axis=0)).ravel()
        used = np.flatnonzero(self.free[c0.numbering.offsets[0]])
        self.low = csr_array(self.low[:, used])
        self.low_t = csr_array(self.low.T)
        self.low_scale = 1 / energy[used]

    def _edges(self, c0: C0Space, robin: csr_array | None) -> None:
        """The inverses of the blocks of the edges with the faces around them, summed up in one sparse matrix."""
        patches = _Patches(c0, self.free)
        for number, part in enumerate(self.blocks):
            patches.add(number, part)
        self.local = patches.inverse(self.size, robin)

    def __call__(self, r: Any) -> Any:
        rest = r * self.free
        z = rest * 0
        outer = rest - self.extension_t @ rest
        if not self.exact:
            z = self.local @ outer + self.low @ (self.low_scale * (self.low_t @ outer))
        if self.solve_coarse is not None:
            z = z + self.hat @ self.solve_coarse(self.hat_t @ outer)
        return z + self.inverse @ rest - self.extension @ z + (r - rest)


def _flat(parts: Any) -> NDArray[Any]:
    """Arrays, or one that is so already, as one vector."""
    return parts if isinstance(parts, np.ndarray) else np.concatenate([np.ravel(part) for part in parts])


def _hats(basis: Basis) -> Array:
    """Coefficients of the functions of order 1 that are 1 at one vertex, [n_modes, n_vertices]."""
    first = make_basis("modified", basis.shape, 1)
    xi = interpolation_nodes(basis.shape, basis.order)
    values = np.linalg.solve(basis.evaluate(xi).T, first.evaluate(xi).T)
    order = np.argsort([mode.entity[1] for mode in first.modes])
    return np.asarray(np.where(np.abs(values) < 1e-12, 0.0, values)[:, order], dtype=np.float64)


def _condensed(A: GlobalOperator, number: int) -> _Condensed:
    c0, block = A.c0, A.c0.space.blocks[number]
    dims = np.array([mode.entity[0] for mode in block.basis.modes])
    outer, inner = np.flatnonzero(dims < block.shape.dim), np.flatnonzero(dims == block.shape.dim)
    slots = c0.slots(number)
    matrices = element_matrices(A.operator, number).astype(np.float64)
    matrices = (matrices + np.swapaxes(matrices, 1, 2)) / 2
    inverse = np.asarray(np.linalg.inv(matrices[:, inner][:, :, inner]), dtype=np.float64)
    extension = inverse @ matrices[:, inner][:, :, outer]
    schur = matrices[:, outer][:, :, outer] - matrices[:, outer][:, :, inner] @ extension
    turn = _turns(c0, number, slots, outer)
    missing = slots[:, outer] < 0
    if missing.any():
        turn = turn + np.eye(len(outer)) * missing[:, :, None]
    schur = np.swapaxes(turn, 1, 2) @ schur @ turn
    extension = extension @ turn
    places = np.where(missing, c0.size, slots[:, outer])
    return _Condensed(outer, inner, places, slots[:, inner], inverse, extension, schur, turn)


def _turns(c0: C0Space, number: int, slots: Indices, outer: Indices) -> Array:
    """Local outer coefficients from those in the slots, [E, n_outer, n_outer]."""
    n_elements, n_modes = slots.shape
    rows = c0.matrix[c0.rows(number)].tocoo()
    element, mode = np.divmod(rows.row.astype(np.int64), n_modes)
    position = np.full(n_modes, -1)
    position[outer] = np.arange(len(outer))
    keep = position[mode] >= 0
    element, mode, column, value = element[keep], mode[keep], rows.col[keep], rows.data[keep]
    keys = (np.arange(n_elements)[:, None] * (c0.size + 1) + np.where(slots < 0, c0.size, slots)).ravel()
    order = np.argsort(keys)
    where = order[np.searchsorted(keys[order], element * (c0.size + 1) + column)] % n_modes
    turn = np.zeros((n_elements, len(outer), len(outer)))
    turn[element, position[mode], position[where]] = value
    return turn


class _Patches:
    """Dense blocks of edges with the faces around them, in one flat array."""

    def __init__(self, c0: C0Space, free: NDArray[np.bool_]) -> None:
        numbering, mesh = c0.numbering, c0.space.mesh
        self.c0, self.free = c0, free
        self.sizes = numbering.sizes
        n_edges, n_faces = self.sizes[1].size, self.sizes[2].size if mesh.dim == 3 else 0
        pairs = []
        for group, cells in enumerate(mesh.cells):
            edges = numbering.of_group(group, 1).ids
            faces = numbering.of_group(group, 2).ids if mesh.dim == 3 else None
            for e, f in _touching(cells.shape):
                pairs.append(edges[:, e] * n_faces + faces[:, f] if faces is not None else edges[:0, e])
        pair = np.unique(np.concatenate(pairs)) if pairs else np.empty(0, np.int64)
        edge, face = (pair // n_faces, pair % n_faces) if n_faces else (pair, pair)
        # An edge takes part if it is free; faces without a free edge make patches of their own, after the edges.
        live = np.zeros(n_edges, dtype=bool)
        has = self.sizes[1] > 0
        live[has] = free[numbering.offsets[1][has]]
        edge, face = edge[live[edge]], face[live[edge]]
        lonely = np.empty(0, np.int64)
        if n_faces:
            covered = np.zeros(n_faces, dtype=bool)
            covered[face] = True
            faced = self.sizes[2] > 0
            open_ = np.zeros(n_faces, dtype=bool)
            open_[faced] = free[numbering.offsets[2][faced]]
            lonely = np.flatnonzero(open_ & ~covered)
        self.n_edges, self.n_faces = n_edges, n_faces
        patch = np.concatenate([np.flatnonzero(live), edge, n_edges + lonely])
        dim = np.concatenate([np.full(int(live.sum()), 1), np.full(len(edge) + len(lonely), 2)])
        entity = np.concatenate([np.flatnonzero(live), face, lonely])
        order = np.lexsort((entity, dim, patch))
        self.patch, self.dim, self.entity = patch[order], dim[order], entity[order]
        size = np.empty(len(order), dtype=np.int64)
        start = np.empty(len(order), dtype=np.int64)
        for d in (1, 2):
            here = self.dim == d
            if here.any():
                size[here] = self.sizes[d][self.entity[here]]
                start[here] = numbering.offsets[d][self.entity[here]]
        self.member_size, self.member_start = size, start
        names, first = np.unique(self.patch, return_index=True)
        self.names = names
        total = np.add.reduceat(size, first) if len(first) else np.empty(0, np.int64)
        before = np.cumsum(size) - size
        self.inside = before - np.repeat(before[first], np.diff(np.append(first, len(order)))) if len(first) else before
        self.n = total
        self.offset = np.cumsum(total**2) - total**2
        self.flat = np.zeros(int((total**2).sum()))
        self.key = (self.patch * 3 + self.dim) * (max(n_edges, n_faces) + 1) + self.entity

    def _place(self, patch: Indices, dim: int, entity: Indices) -> Indices:
        """Position of the first unknown of an entity in a patch; -1 if it is none of the patch's."""
        key = (patch * 3 + dim) * (max(self.n_edges, self.n_faces) + 1) + entity
        where = np.minimum(np.searchsorted(self.key, key), len(self.key) - 1)
        return np.where(self.key[where] == key, self.inside[where], -1)

    def add(self, number: int, part: _Condensed) -> None:
        """Add what a block contributes."""
        if not len(self.flat):
            return
        block, seen = self.c0.space.blocks[number], self.c0.seen(number)
        entities = [block.basis.modes[m].entity for m in part.outer]
        of: dict[tuple[int, int], list[int]] = {}
        for k, entity in enumerate(entities):
            of.setdefault(entity, []).append(k)
        touching: dict[int, list[int]] = {}
        for e, f in _touching(block.shape):
            touching.setdefault(e, []).append(f)
        stars = [
            (seen[1].ids[:, e], [(1, e), *((2, f) for f in touching.get(e, []))]) for e in range(len(block.shape.edges))
        ]
        if block.shape.dim == 3:
            stars += [(self.n_edges + seen[2].ids[:, f], [(2, f)]) for f in range(len(block.shape.faces))]
        for patch, members in stars:
            known = np.minimum(np.searchsorted(self.names, patch), len(self.names) - 1)
            rows = np.flatnonzero(self.names[known] == patch)
            places = [k for member in members for k in of.get(member, [])]
            if not len(rows) or not places:
                continue
            position = np.concatenate(
                [
                    self._position(patch[rows], member, seen, rows, part.slots[rows][:, of[member]])
                    for member in members
                    if member in of
                ],
                axis=1,
            )
            own = known[rows]
            target = self.offset[own][:, None, None] + position[:, :, None] * self.n[own][:, None, None]
            target = target + position[:, None, :]
            good = (position[:, :, None] >= 0) & (position[:, None, :] >= 0)
            values = part.schur[rows][:, places][:, :, places]
            self.flat += np.bincount(target[good], values[good], len(self.flat))

    def _position(self, patch: Indices, member: tuple[int, int], seen: Any, rows: Indices, slots: Indices) -> Indices:
        """Positions in the patch of the unknowns in some slots, [n, n_slots]; -1 for none."""
        dim, number = member
        entity = seen[dim].ids[rows, number]
        first = self._place(patch, dim, entity)[:, None]
        inside = slots - self.c0.numbering.offsets[dim][entity][:, None]
        return np.where((slots < self.c0.size) & (first >= 0), first + inside, -1)

    def inverse(self, size: int, robin: csr_array | None) -> csr_array:
        """Sum of the inverses of all patches, [size, size]."""
        if not len(self.flat):
            return csr_array((size, size))
        unknown = np.repeat(self.member_start - (np.cumsum(self.member_size) - self.member_size), self.member_size)
        unknown = unknown + np.arange(len(unknown))
        ends = np.cumsum(self.n)
        rows, columns, values = [], [], []
        for n in np.unique(self.n):
            chosen = np.flatnonzero(self.n == n)
            blocks = self.flat[self.offset[chosen][:, None] + np.arange(n * n)].reshape(-1, n, n)
            numbers = unknown[(ends[chosen] - n)[:, None] + np.arange(n)]
            if robin is not None:
                i, j = np.broadcast_arrays(numbers[:, :, None], numbers[:, None, :])
                blocks = blocks + np.asarray(robin[i.ravel(), j.ravel()]).reshape(blocks.shape)
            held = ~self.free[numbers]
            blocks[held[:, :, None] | held[:, None, :]] = 0
            blocks[:, np.arange(n), np.arange(n)] += held
            inverse = np.linalg.inv(blocks)
            inverse[held[:, :, None] | held[:, None, :]] = 0
            rows.append(np.broadcast_to(numbers[:, :, None], inverse.shape).ravel())
            columns.append(np.broadcast_to(numbers[:, None, :], inverse.shape).ravel())
            values.append(inverse.ravel())
        i, j, v = (np.concatenate(parts) for parts in (rows, columns, values))
        return csr_array((v, (i, j)), shape=(size, size))


def _touching(shape: Shape) -> list[tuple[int, int]]:
    """Pairs (edge, face) of a 3-D cell such that the edge is one of the face's."""
    if shape.dim < 3:
        return []
    return [
        (e, f)
        for f, face in enumerate(shape.faces)
        for e, edge in enumerate(shape.edges)
        if set(edge.vertices) <= set(face.vertices)
    ]
