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
from numpy.typing import DTypeLike
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from hpfem.shapes import Shape, make_basis
from hpfem.shapes.arrays import Array, Indices
from hpfem.shapes.overlap import stacked, thin

from ...assembly import C0Space
from ...backends import vectors_on
from ...backends.shared_vectors import shared_vectors
from ...backends.sharing import Sharing
from ...backends.vectors import HOST_VECTORS, Blocks, VectorSpace, sparse_on_host
from ...memory import as_numpy
from ...mesh.sorting import marked, unique
from .groups import Eliminated, eliminated, most_of, pieces, widest
from .sweep import Beside, swept

Factors = tuple[list[Eliminated], Indices, Blocks]  # as `eliminated` makes them

# An entry of a cell's matrix that is weak, relative to the diagonal: in cells that are not thin, and in thin ones.
_WEAK = 0.22, 0.1
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


class Layers:
    """z -> the inverse of the groups' matrices times z [n], in place; with the number of entries of their factors."""

    def __init__(self, factors: Factors, n: int, vectors: VectorSpace, dtype: DTypeLike) -> None:
        steps, members, inverse = factors
        self._vectors, self._stages = vectors, list[Eliminated]()
        for step in steps:
            there, back = (vectors.sparse(csr_array(M.astype(dtype))) for M in (step.there, step.back))
            own, others = vectors.from_host(step.own), vectors.from_host(step.others)
            self._stages.append(Eliminated(own, others, there, back, step.onto))
        self._rest = vectors.in_groups(inverse, members, n, dtype)
        self.entries = len(inverse.values) + sum(step.there.nnz + step.back.nnz for step in steps)

    def __call__(self, z: Any) -> None:
        """Apply to a vector, [size]."""
        plus_product = self._vectors.plus_product
        for step in self._stages:
            plus_product(z, 1.0, step.there, z, z, step.others)
        self._rest(z)
        for step in reversed(self._stages):
            if step.onto:
                plus_product(z, 1.0, step.back, z, z, step.own)
            else:
                z[step.own] = step.back @ z


@dataclass(frozen=True, eq=False)
class _Part:
    """What a process has of groups that processes share; places in what it has sent to the first one, or columns."""

    diagonal: Array  # by which vectors are divided, of what it has sent
    members: Indices  # what the factors change, places, [k]
    at: Indices  # their columns, [k]
    owned: Indices  # places of those whose coefficients it sends to the others, [m]
    columns: Indices  # theirs, [m]
    n: int  # columns
    factors: Factors  # of all that its members need
    neighbours: Mapping[int, Indices]  # by rank, columns that another process has too


class SharedLayers:
    """The same for groups on several processes, which exchange coefficients once: each computes what its own need."""

    def __init__(self, part: _Part, sent: Indices, c0: C0Space, vectors: VectorSpace, dtype: DTypeLike) -> None:
        on, self._n = vectors_on(vectors.device), part.n
        self._layers, self._xp = Layers(part.factors, part.n, on, dtype), vectors.xp
        self._members, self._at = vectors.from_host(sent[part.members]), vectors.from_host(part.at)
        self._owned, self._columns = vectors.from_host(sent[part.owned]), vectors.from_host(part.columns)
        self._functions = shared_vectors(on, Sharing(c0.space.comm, self._n, part.neighbours))
        self.entries = self._layers.entries

    def __call__(self, z: Any) -> None:
        """Apply to a vector, [size]; collective where processes share groups."""
        found = self._xp.zeros((1, self._n), z.dtype)
        found[0, self._columns] = z[self._owned]
        found = self._functions.summed(found)[0]
        self._layers(found)
        z[self._members] = found[self._at]


def lines_of(
    coupled: Any, beside: Beside | None, diagonal: Any, c0: C0Space, vectors: VectorSpace, dtype: DTypeLike
) -> tuple[list[Layers | SharedLayers], Any]:
    """Make what multiplies by the inverses of groups, and the diagonal by which vectors are divided; collective;
    coupled [size, size] above its diagonal, diagonal [size]; all processes give `beside`, or none.
    """
    made, order, comm = list[Layers | SharedLayers](), max(c0.space.orders.values()), c0.space.comm
    where = HOST_VECTORS if isinstance(coupled.data, np.ndarray) else vectors
    if where is HOST_VECTORS:
        diagonal = as_numpy(diagonal)
    own, left = diagonal, diagonal.copy()
    if c0.numbering.sharing is not None:
        sent, entries = _shared(sparse_on_host(coupled), beside, as_numpy(diagonal), c0, order)
        found = comm.gather(entries)
        with comm.together():
            parts = None if found is None else _parts(found, order, vectors.whole_group)
        part = comm.scatter(parts)
        own, here = diagonal.copy(), where.from_host(sent)
        own[here], left[here] = np.inf, where.from_host(part.diagonal)
        if len(part.members):
            made.append(SharedLayers(part, sent, c0, vectors, dtype))
    factors, own = _factors(coupled, beside, own, order, vectors.whole_group, where)
    if len(factors[1]):
        made.append(Layers(factors, c0.size, vectors, dtype))
    xp = vectors.xp
    return made, xp.where(xp.isinf(xp.asarray(own)), xp.asarray(left), xp.asarray(own))


def _shared(
    coupled: csr_array, beside: Beside | None, diagonal: Array, c0: C0Space, order: int
) -> tuple[Indices, tuple[Any, ...]]:
    """Functions of groups on several processes, with all that is eliminated with them, [n]; and for `_parts` their
    numbers among those of all processes, diagonal, which are known partly, and the entries of each matrix; collective.
    """
    sharing, n, matrices = c0.numbering.sharing, len(diagonal), [coupled, *([beside.energies] if beside else [])]
    strong = marked(n, [own for M in matrices for own in coo_array(M).coords]) & np.isfinite(diagonal)
    strong = sharing.combined(strong, np.logical_or)
    group = pieces(coupled, diagonal, _SHARED * most_of(order), widest(order))
    if beside:
        i, j = (group[own] for own in coo_array(beside.energies).coords)
        joined = csr_array((np.ones(len(i)), (i, j)), (group.max(initial=-1) + 1,) * 2)
        group = connected_components(joined, directed=False)[1][group]
    shared = strong & np.isin(group, group[sharing.shared[strong[sharing.shared]]])
    partly = marked(n, [beside.partly] if beside else [])
    sent = np.flatnonzero(shared)
    numbers, some = c0.places[sent], [coo_array(M[sent][:, sent]) for M in matrices]
    entries = [(numbers[M.row], numbers[M.col], M.data) for M in some]
    return sent, (numbers, diagonal[sent], partly[sent], entries)


def _factors(
    coupled: Any, beside: Beside | None, diagonal: Any, order: int, few: int, vectors: VectorSpace = HOST_VECTORS
) -> tuple[Factors, Any]:
    """Factorise groups, large ones eliminated from what is beside them; and the diagonal that is left; [n]."""
    if beside is None:
        return eliminated(coupled, diagonal, order, _WEAK_MEAN, few, vectors), diagonal
    first, coupled, diagonal = swept(sparse_on_host(coupled), beside, as_numpy(diagonal), order, _WEAK_MEAN)
    steps, members, inverse = eliminated(coupled, diagonal, order, few=few)
    return ([*first, *steps], members, inverse), diagonal


def _parts(given: Sequence[tuple[Any, ...]], order: int, few: int) -> list[_Part]:
    """Groups that processes share: what each of them gets, from what each of them has sent."""
    known = unique(np.concatenate([numbers for numbers, *_ in given]))
    sent, diagonal = [np.searchsorted(known, numbers) for numbers, *_ in given], np.empty(len(known))
    partly, matrices = np.zeros(len(known), dtype=bool), list[csr_array]()
    for places, (_, own, some, _) in zip(sent, given, strict=True):
        diagonal[places] = own
        partly[places] |= some
    for several in zip(*(own[3] for own in given), strict=True):
        i, j, values = (np.concatenate(own) for own in zip(*several, strict=True))
        pairs = np.sort([np.searchsorted(known, own) for own in (i, j)], axis=0)
        matrices.append(csr_array(coo_array((values, tuple(pairs)), (len(known),) * 2)))
    beside = Beside(matrices[1], np.flatnonzero(partly)) if len(matrices) > 1 else None
    (steps, members, inverse), diagonal = _factors(matrices[0], beside, diagonal, order, few)
    changed = marked(len(known), [members, *(own for step in steps for own in (step.own, step.others))])
    used = marked(len(known), [M.indices for step in steps for M in (step.there, step.back)])
    own = [places[(changed | used)[places]] for places in sent]
    needed, factors = zip(*(_needed(places, len(known), steps, members, inverse) for places in own), strict=True)
    ends = np.cumsum([0, *map(len, needed)])
    has = csr_array((np.ones(ends[-1]), np.concatenate(needed), ends), shape=(len(given), len(known)))
    meets, seen, parts = csr_array(has @ has.T), np.zeros(len(known), dtype=bool), list[_Part]()
    for rank, (places, columns) in enumerate(zip(sent, needed, strict=True)):
        at, mine = np.flatnonzero(changed[places]), np.flatnonzero(~seen[places] & (changed | used)[places])
        seen[places] = True
        others = meets.indices[meets.indptr[rank] : meets.indptr[rank + 1]].tolist()
        common = {other: np.intersect1d(columns, needed[other]) for other in others if other != rank}
        neighbours = {other: np.searchsorted(columns, both) for other, both in common.items()}
        there = [np.searchsorted(columns, places[which]) for which in (at, mine)]
        parts.append(_Part(diagonal[places], at, there[0], mine, there[1], len(columns), factors[rank], neighbours))
    return parts


def _needed(
    own: Indices, n: int, steps: Sequence[Eliminated], members: Indices, inverse: Blocks
) -> tuple[Indices, Factors]:
    """The functions of n from which factors make some of them, in order, and the factors of these alone; own [k]."""
    need = marked(n, [own])

    def rows_of(M: csr_array, written: Indices) -> tuple[csr_array, Indices]:
        rows = np.flatnonzero(need[written])
        need[M[rows].indices] = True
        return M[rows], written[rows]

    back = [rows_of(step.back, step.own) for step in steps]
    counts, group = inverse.counts, np.repeat(np.arange(len(inverse.counts)), inverse.counts)
    chosen = marked(len(counts), [group[need[members]]])  # whole groups
    members, inverse = members[chosen[group]], Blocks(counts[chosen], inverse.values[np.repeat(chosen, counts**2)])
    need[members] = True
    there = [rows_of(step.there, step.others) for step in reversed(steps)][::-1]
    place = np.cumsum(need) - 1

    def placed(M: csr_array, written: Indices) -> tuple[csr_array, Indices]:
        return csr_array((M.data, place[M.indices], M.indptr), shape=(M.shape[0], int(need.sum()))), place[written]

    found = list[Eliminated]()
    for step, after, before in zip(steps, back, there, strict=True):
        (M, these), (N, others) = placed(*after), placed(*before)
        found.append(Eliminated(these, others, N, M, step.onto))
    return np.flatnonzero(need), (found, place[members], inverse)
