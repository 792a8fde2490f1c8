"""Strong couplings between functions of low energy in stretched cells: whole matrices in place of the diagonal.

Across a thin cell the functions of opposite vertices, edges and faces nearly cancel, so that their sum has little
energy. The diagonal does not see that. What stands above each other in the cells forms groups, as lines through the
layers of a mesh, whose matrices are factorised (`groups`). Where a group's functions are on several processes, these
exchange its coefficients, and each multiplies its own rows of the inverse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from hpfem.shapes import Shape, make_basis
from hpfem.shapes.overlap import stacked, thin

from ...assembly import C0Space
from ...backends import vectors_on
from ...backends.shared_vectors import shared_vectors
from ...backends.sharing import Sharing
from ...backends.vectors import VectorSpace
from ...mesh.sorting import marked, unique
from .groups import Eliminated, eliminated, inverse_of_groups, most_of, pieces
from .sweep import Beside, swept

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

# An entry of a cell's matrix that is weak, relative to the diagonal: in cells that are not thin, and in thin ones.
_WEAK = 0.3, 0.1
# An entry between functions of different groups that is none: energies that are left beside groups need small ones.
_BESIDE = 1e-4
# The same of the mean over the cells around: in unstructured meshes most pairs of one cell are weak in the others.
_WEAK_MEAN = 0.12
# A group on several processes is that much larger than others at most.
_SHARED = 4


def strong_pairs(shape: Shape, order: int, S: Array, A: Array, T: Array, beside: bool) -> list[tuple[Any, ...]]:
    """Find pairs of functions of a cell in one group, and if wanted all others, once; S [dim, dim], A, T [n, n]."""
    groups = stacked(shape, S)
    if not groups and not beside:
        return [(np.zeros(0, np.int64),) * 2] * 2
    own = np.array([groups.get(mode.entity, -1) for mode in make_basis("modified", shape, order).modes])
    energy = T.T @ (A @ T)
    size = np.sqrt(np.maximum(energy.diagonal(), 0))
    scale = np.outer(size, size)
    same = (own[:, None] == own) & (own >= 0) & (scale > 0)
    _, part = connected_components(csr_array(same & (np.abs(energy) > _WEAK[thin(shape, S)] * scale)))
    within = (part[:, None] == part) & same
    others = beside & ~within & (np.abs(energy) > _BESIDE * scale)
    return [np.nonzero(np.triu(own, 1)) for own in (within, others)]


class Lines:
    """z -> the inverse of the groups' matrices times z, in place; members [k], inverse [k, size]."""

    def __init__(self, members: Indices, inverse: csr_array, vectors: VectorSpace, dtype: DTypeLike) -> None:
        self.members, self.entries = vectors.from_host(members), inverse.nnz
        self.inverse = vectors.sparse(csr_array(inverse.astype(dtype)))

    def __call__(self, z: Any) -> None:
        """Apply to a vector, [size]; collective where processes share groups."""
        z[self.members] = self.inverse @ self._coefficients(z)

    def _coefficients(self, z: Any) -> Any:
        """What the inverse is multiplied with."""
        return z


@dataclass(frozen=True, eq=False)
class _Part:
    """What a process has of groups that processes share."""

    members: Indices  # the functions in groups, as places in what this process has sent to the first one, [k]
    owned: Indices  # those whose coefficients it sends to the others, [m]
    inverse: csr_array  # its rows, with columns for all functions of its groups, [k, n]
    places: Indices  # columns of `owned`, [m]
    neighbours: Mapping[int, Indices]  # by rank, columns that another process has too


class SharedLines(Lines):
    """The same for groups whose functions are on several processes; `sent` are the unknowns sent to the first one."""

    def __init__(self, part: _Part, sent: Indices, c0: C0Space, vectors: VectorSpace, dtype: DTypeLike) -> None:
        super().__init__(sent[part.members], part.inverse, vectors, dtype)
        self._n, self._vectors = part.inverse.shape[1], vectors
        self._owned, self._places = vectors.from_host(sent[part.owned]), vectors.from_host(part.places)
        sharing = Sharing(c0.space.comm, self._n, part.neighbours)
        self._functions = shared_vectors(vectors_on(vectors.device), sharing)

    def _coefficients(self, z: Any) -> Any:
        """Those of all functions of the groups, from the processes that give them."""
        found = self._vectors.xp.zeros((1, self._n), z.dtype)
        found[0, self._places] = z[self._owned]
        return self._functions.summed(found)[0]


class Stage:
    """A step of an elimination of groups: what stands in their odd layers, in terms of the even ones."""

    def __init__(self, given: Eliminated, vectors: VectorSpace, dtype: DTypeLike) -> None:
        self._own, self._others, self._vectors = vectors.from_host(given.own), vectors.from_host(given.others), vectors
        self._onto = given.onto
        self._there, self._back = (vectors.sparse(csr_array(M.astype(dtype))) for M in (given.there, given.back))

    def there(self, z: Any) -> None:
        """Take from the others what the eliminated ones do to them, in place."""
        self._vectors.plus_product(z, 1.0, self._there, z, z, self._others)

    def back(self, z: Any) -> None:
        """Find the eliminated ones from all, in place."""
        if self._onto:
            self._vectors.plus_product(z, 1.0, self._back, z, z, self._own)
        else:
            z[self._own] = self._back @ z


class Layers:
    """z -> the inverse of the groups' matrices times z, in place; with the number of entries of their factors."""

    def __init__(self, steps: list[Eliminated], rest: Lines, vectors: VectorSpace, dtype: DTypeLike) -> None:
        self._stages, self._rest = [Stage(step, vectors, dtype) for step in steps], rest
        self.entries = rest.entries + sum(step.there.nnz + step.back.nnz for step in steps)

    def __call__(self, z: Any) -> None:
        """Apply to a vector, [size]."""
        for stage in self._stages:
            stage.there(z)
        self._rest(z)
        for stage in reversed(self._stages):
            stage.back(z)


def lines_of(
    coupled: csr_array, beside: Beside | None, diagonal: Array, c0: C0Space, vectors: VectorSpace, dtype: DTypeLike
) -> tuple[list[Lines | Layers], Array]:
    """Make what multiplies by the inverses of groups, and the diagonal by which vectors are divided; collective;
    coupled [size, size] above its diagonal, diagonal [size].
    """
    given, made, sharing, order = diagonal, list[Lines | Layers](), c0.numbering.sharing, max(c0.space.orders.values())
    if sharing is not None:
        strong = marked(len(diagonal), coo_array(coupled).coords) & np.isfinite(diagonal)
        strong = sharing.combined(strong, np.logical_or)
        group = pieces(coupled, diagonal, _SHARED * most_of(order))
        shared = strong & np.isin(group, group[sharing.shared[strong[sharing.shared]]])
        sent = np.flatnonzero(shared)
        numbers, entries = c0.places()[sent], coupled[sent][:, sent].tocoo()
        comm = c0.space.comm
        found = comm.gather((numbers, numbers[entries.row], numbers[entries.col], entries.data, diagonal[sent]))
        part = comm.scatter(None if found is None else _parts(found, _SHARED * most_of(order)))
        if part is not None and len(part.members):
            made.append(SharedLines(part, sent, c0, vectors, dtype))
        shared[sharing.shared if beside else []] = True
        diagonal = np.where(shared, np.inf, diagonal)
    first, least = list[Eliminated](), _WEAK_MEAN
    if beside:
        first, coupled, diagonal = swept(coupled, beside, diagonal, order, least)
        least = 0.0
    steps, members, inverse = eliminated(coupled, diagonal, order, least)
    if len(members):
        made.append(Layers([*first, *steps], Lines(members, inverse, vectors, dtype), vectors, dtype))
    return made, np.where(np.isinf(diagonal), given, diagonal)


def _parts(given: Sequence[tuple[Any, ...]], most: int) -> list[_Part | None]:
    """Groups that processes share: what each of them gets, from what each of them has sent."""
    known = unique(np.concatenate([numbers for numbers, *_ in given]))
    sent = [np.searchsorted(known, numbers) for numbers, *_ in given]
    pairs = np.sort([np.searchsorted(known, np.concatenate([own[i] for own in given])) for i in (1, 2)], axis=0)
    values, diagonal = np.concatenate([own[3] for own in given]), np.empty(len(known))
    for places, own in zip(sent, given, strict=True):
        diagonal[places] = own[4]
    found = inverse_of_groups(
        csr_array(coo_array((values, tuple(pairs)), (len(known),) * 2)), diagonal, most, _WEAK_MEAN
    )
    if found is None:
        return [None] * len(given)
    row, inverse = np.full(len(known), -1), found[1]
    row[found[0]] = np.arange(len(found[0]))
    members = [np.flatnonzero(row[places] >= 0) for places in sent]
    own_rows = [row[places[at]] for places, at in zip(sent, members, strict=True)]
    needed = [unique(inverse[own].indices) for own in own_rows]
    ends = np.cumsum([0, *map(len, needed)])
    has = csr_array((np.ones(ends[-1]), np.concatenate(needed), ends), shape=(len(given), inverse.shape[0]))
    meets, seen, parts = csr_array(has @ has.T), np.zeros(inverse.shape[0], dtype=bool), list[_Part | None]()
    for rank, (at, own, columns) in enumerate(zip(members, own_rows, needed, strict=True)):
        fresh = ~seen[own]
        seen[own] = True
        others = meets.indices[meets.indptr[rank] : meets.indptr[rank + 1]].tolist()
        common = {other: np.intersect1d(columns, needed[other]) for other in others if other != rank}
        neighbours = {other: np.searchsorted(columns, both) for other, both in common.items()}
        places = np.searchsorted(columns, own[fresh])
        parts.append(_Part(at, at[fresh], csr_array(inverse[own][:, columns]), places, neighbours))
    return parts
