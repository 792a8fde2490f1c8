"""Groups of strongly coupled functions: their matrices, factorised so that a function's cost does not grow with them.

A group through the layers of a mesh is eliminated layer by layer: every second one at a time, until few are left, whose
matrix is inverted. A group that spreads sideways, as in unstructured meshes, is cut where it is coupled least.
Matrices are scaled to ones on the diagonal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import coo_array, csr_array, hstack
from scipy.sparse.csgraph import dijkstra

from hpfem.shapes.arrays import Array, Indices

from ...backends.grouping import scaled
from ...backends.vectors import HOST_VECTORS, Blocks, VectorSpace
from ...memory import as_numpy, moved
from ...mesh.sorting import distinct, marked, run_starts
from .irregular import noise_of

# Layers up to which a group's matrix is inverted as it is, and functions where nobody says how many.
_LAYERS, _FEW = 4, 24
# Smallest eigenvalue of a group's matrix, relative to the largest one, that float32 can invert.
_SMALLEST = 1e-5
# An entry that is zero up to rounding, where diagonals are one.
_ROUNDING = 1e-9
# Smallest eigenvalue from which on a diagonal nearly does: a pair makes a group from this coupling on then. Without
# that `pipe_mixed`, P = 6, has three times the entries, and one iteration less. Steps by which it is estimated,
# where eigenvalues that are not the smallest begin, and couplings that change it hardly.
_NEARLY, _STRONGER, _STEPS, _LOW, _SLIGHT = 0.35, 0.2, 10, 0.7, 0.01
# Functions of a group at most, times its smallest eigenvalue: where a diagonal is not far off pieces do, and cost less.
_EASY = 16.0


def most_of(order: int) -> int:
    """Functions of a group that spreads sideways, at most: an inverse has that many entries for each."""
    return max(64, 4 * order**2)


def widest(order: int) -> int:
    """Functions of a layer at most, of groups that are not cut."""
    return max(32, 5 * order**2)


class Eliminated(NamedTuple):
    """Functions of some layers, eliminated: z_others += there z; ..; z_own = back z, or z_own += back z; z [n]."""

    own: Indices  # [k]
    others: Indices  # [m]
    there: csr_array  # [m, n]
    back: csr_array  # [k, n]
    onto: bool = False  # whether that is added


def eliminated(
    coupled: Any, diagonal: Any, order: int, least: float = 0.0, few: int = _FEW, vectors: VectorSpace = HOST_VECTORS
) -> tuple[list[Eliminated], Any, Blocks]:
    """Factorise the matrices of groups: steps, and the functions that are left, with the inverses of their matrices;
    for vectors that are divided by the diagonal; coupled [n, n] and diagonal [n] of `vectors` -> [k]. What is coupled
    by no more than `least`, relative to the diagonal, makes no group; without it groups are those that are given.
    """
    xp, steps = vectors.xp, list[Eliminated]()
    members, group, pairs, scale, smallest = _scaled(coupled, diagonal, vectors, least)
    if not len(members):
        return steps, members, Blocks(np.zeros(0, np.int64), xp.zeros(0))
    most = xp.minimum(_EASY / smallest if least else np.inf, xp.full(len(members), most_of(order)))
    group = _cut(pairs, group, most, xp.where(most < most_of(order), 0, widest(order)), vectors, least)
    pairs = pairs.of(group[pairs.i] == group[pairs.j])
    entries = [pairs, _Pairs(pairs.j, pairs.i, pairs.values)]
    sides, counts = _side_by_side(group, xp)
    if counts.max(initial=0) > few and (counts**2).sum() > len(diagonal):  # else inverses have few entries anyway
        xp, vectors = np, HOST_VECTORS
        members, group, scale, pairs = (*map(as_numpy, (members, group, scale)), _Pairs(*map(as_numpy, pairs)))
        group = distinct(group, 2 * len(group))[1]
        large = (np.bincount(group) > few)[group]
        whole = pairs.of(large[pairs.i]).placed(np.cumsum(large) - 1)
        steps, left, N = _by_layers(members[large], group[large], whole, scale, few)
        kept, place = np.concatenate([np.flatnonzero(large)[left], np.flatnonzero(~large)]), np.empty_like(group)
        place[kept] = np.arange(len(kept))
        i, j, values = pairs.of(~large[pairs.i]).placed(place)
        entries = [_Pairs(N.row, N.col, N.data), _Pairs(i, j, values), _Pairs(j, i, values)]
        members, group = members[kept], group[kept]
        sides, counts = _side_by_side(group, np)
    place = xp.empty_like(sides)
    place[sides] = xp.arange(len(sides))
    members = members[sides]
    return steps, members, _inverses(counts, [own.placed(place) for own in entries], scale[members], vectors)


def _by_layers(
    members: Indices, group: Indices, pairs: _Pairs, scale: Array, few: int
) -> tuple[list[Eliminated], Indices, coo_array]:
    """Eliminate layers of groups until few are left, members and group [k]: steps, the places of what is left, [m], and
    its matrix.
    """
    steps, group = list[Eliminated](), distinct(group, 2 * len(group))[1]
    level = levels(pairs.matrix(len(group)), group)
    # Functions of a layer side by side: their rows have the same columns.
    left = np.lexsort((level, group))
    N = pairs.placed(np.argsort(left)).matrix(len(left))
    members, group, level = members[left], group[left], level[left]
    while True:
        top, size = np.zeros(group.max() + 1, dtype=np.int64), np.bincount(group)
        np.maximum.at(top, group, level)
        odd = ((top >= _LAYERS) & (size > few))[group] & (level % 2 == 1)
        if not odd.any():
            return steps, left, coo_array(N)
        own, others = np.flatnonzero(odd), np.flatnonzero(~odd)
        sides, counts = _side_by_side(group[own] * (level.max() + 1) + level[own], np)
        own = own[sides]
        rows = csr_array(N[own])
        inverse = _inverses(counts, _inside(rows[:, own], counts)).matrix(np.arange(len(own)), len(own))
        beside = csr_array(rows[:, others])
        back = csr_array(inverse @ beside)
        N = csr_array(N[others][:, others] - beside.T @ back)
        near = np.flatnonzero(marked(len(others), (back.indices,)))
        back, these, those = csr_array(back[:, near]), members[own], members[others[near]]
        found = _of_all(hstack([inverse, -back]), these, np.concatenate([these, those]), scale)
        steps.append(Eliminated(these, those, _of_all(-back.T, those, these, scale), found))
        left, members, group, level = left[others], members[others], group[others], level[others] // 2


def pieces(coupled: csr_array, diagonal: Array, most: int, width: int = 0, least: float = 0.0) -> Indices:
    """Number the groups, cut to a size of pairs above `least`; coupled [n, n], diagonal [n] -> [n]."""
    members, group, pairs, *_ = _scaled(coupled, diagonal, HOST_VECTORS, least, nearly=0.0)
    found = len(members) + np.arange(len(diagonal))
    found[members] = _cut(pairs, group, np.full(len(members), most), np.full(len(members), width), HOST_VECTORS)
    return found


class _Pairs(NamedTuple):
    """Entries above the diagonal of a matrix with ones there, in ascending rows."""

    i: Any
    j: Any
    values: Any

    def of(self, some: Any) -> _Pairs:
        """Take some; [pairs]."""
        (places,) = some.nonzero()
        return _Pairs(self.i.take(places), self.j.take(places), self.values.take(places))

    def placed(self, place: Any) -> _Pairs:
        """Number the functions anew; place [n]."""
        return _Pairs(place[self.i], place[self.j], self.values)

    def upper(self, n: int, vectors: VectorSpace, dtype: Any = np.float64) -> Any:
        """The matrix above its diagonal, [n, n]."""
        ends = vectors.xp.searchsorted(self.i, vectors.xp.arange(n + 1, dtype=self.i.dtype)).astype(self.i.dtype)
        return vectors.sparse_library.csr_matrix((self.values.astype(dtype, copy=False), self.j, ends), shape=(n, n))

    def matrix(self, n: int) -> csr_array:
        """The matrix on a host, [n, n]."""
        own = np.arange(n, dtype=self.i.dtype)
        places = np.concatenate([self.i, self.j, own]), np.concatenate([self.j, self.i, own])
        return csr_array((np.concatenate([self.values, self.values, np.ones(n)]), places), shape=(n, n))


def _scaled(
    coupled: Any, diagonal: Any, vectors: VectorSpace, least: float = 0.0, nearly: float = _NEARLY
) -> tuple[Any, Any, _Pairs, Any, Any]:
    """Coupled functions, their groups, pairs, scale [n], and smallest eigenvalues, if these are wanted; -> [k]."""
    xp, scale, entries = vectors.xp, 1 / vectors.xp.sqrt(diagonal), coupled.tocoo(copy=False)
    i, j = entries.row, entries.col
    pairs = _Pairs(i, j, entries.data * scale[i] * scale[j] * (i < j))
    members, group, pairs = _groups(pairs, abs(pairs.values) > least, len(scale), vectors)
    smallest = xp.full(len(members), _SMALLEST)
    if nearly and len(members):
        smallest = xp.maximum(_smallest(pairs, group, vectors)[group], _SMALLEST)
    if least and nearly and len(members):
        strong = abs(pairs.values) > xp.where(smallest < nearly, least, max(least, _STRONGER))[pairs.i]
        some, group, pairs = _groups(pairs, strong, len(members), vectors)
        members, smallest = members[some], smallest[some]
    return members, group, pairs, scale, smallest


def _groups(pairs: _Pairs, strong: Any, n: int, vectors: VectorSpace) -> tuple[Any, Any, _Pairs]:
    """The functions of n that strong pairs make groups of, their groups, and the pairs inside; -> [k], [k], pairs."""
    xp, graph = vectors.xp, pairs.of(strong)
    there = xp.zeros(n, bool)
    there[graph.i] = there[graph.j] = True
    members, place = xp.flatnonzero(there), xp.cumsum(there, dtype=pairs.i.dtype) - 1
    group = vectors.parts(place[graph.i], place[graph.j], len(members))
    label = xp.full(n, -1, group.dtype)
    label[members] = group
    here = label[pairs.i]
    return members, group, pairs.of((pairs.values != 0) & (here >= 0) & (here == label[pairs.j])).placed(place)


def _smallest(pairs: _Pairs, group: Any, vectors: VectorSpace) -> Any:
    """Estimate the smallest eigenvalue of every group's matrix, from above; group [n] -> [groups]."""
    xp, sparse, n = vectors.xp, vectors.sparse_library, len(group)
    x, order = noise_of(n, xp), xp.argsort(group, kind="stable")
    starts = xp.searchsorted(group[order], xp.arange(int(group.max()) + 2, dtype=group.dtype)).astype(pairs.i.dtype)
    parts = xp.ones(n), order.astype(pairs.i.dtype), starts
    sums = vectors.sparse(sparse.csr_matrix(parts, shape=(len(starts) - 1, n)))
    pairs = pairs.of(abs(pairs.values) > _SLIGHT)
    U, ones = pairs.upper(n, vectors, np.float32), xp.ones(n, np.float32)
    L = U.T.tocsr()
    sizes = ones + vectors.sparse(abs(U)) @ ones + vectors.sparse(abs(L)) @ ones
    # Chebyshev's polynomial of what is in (_LOW, high), where it is small, taken to (-1, 1); here from 2 to -2.
    high = xp.maximum(2, vectors.row_max(starts, sizes[order]))[group]
    middle, factor = (high + _LOW) / 2, 4 / (_LOW - high)
    own = (1 - middle) * factor
    U.data *= factor[pairs.i]
    L.data *= factor[L.indices]
    upper, lower = vectors.sparse(U), vectors.sparse(L)
    before, x = x, (own * x + upper @ x + lower @ x) / 2
    for _ in range(_STEPS - 1):
        before, x = x, own * x + upper @ x + lower @ x - before
    y = (own * x + upper @ x + lower @ x) / factor + middle * x
    return (sums @ (x * y)) / (sums @ (x * x))


def _side_by_side(label: Any, xp: Any) -> tuple[Any, Indices]:
    """Places of functions by their labels, those that most have first, and how many have each; label [n] -> [n]."""
    order = xp.argsort(label, kind="stable")
    starts = as_numpy(xp.flatnonzero(run_starts(label[order], xp)))
    counts = np.diff(starts, append=len(label))
    by_size = np.argsort(-counts, kind="stable")
    counts = counts[by_size]
    place = np.repeat(starts[by_size] - np.cumsum(counts) + counts, counts) + np.arange(len(label))
    return order[moved(place, xp)], counts


def _of_all(M: csr_array, rows: Indices, columns: Indices, scale: Array) -> csr_array:
    """A matrix of some rows and columns for whole vectors that are divided by the diagonal; M [k, m] -> [k, n]."""
    M = coo_array(M)
    (large,) = (np.abs(M.data) > _ROUNDING).nonzero()  # others are zero, as between even and odd functions
    i, j = M.row[large], columns[M.col[large]]
    return csr_array((M.data[large] * scale[rows[i]] / scale[j], (i, j)), shape=(len(rows), len(scale)))


def _inside(N: csr_array, counts: Indices) -> list[tuple[Any, ...]]:
    """The entries of groups that stand side by side; N [n, n]."""
    which, entries = np.repeat(np.arange(len(counts)), counts), coo_array(N)
    same = which[entries.row] == which[entries.col]
    return [(entries.row[same], entries.col[same], entries.data[same])]


def _inverses(
    counts: Indices, entries: Sequence[tuple[Any, ...]], scale: Any = None, vectors: VectorSpace = HOST_VECTORS
) -> Blocks:
    """Invert groups side by side, of a unit diagonal but for `entries`; with a scale [n] for vectors divided by it."""
    xp, n = vectors.xp, int(counts.sum())
    begins, rows = np.cumsum(counts**2) - counts**2, np.cumsum(counts) - counts
    # Places of the rows of functions, less the number of the first one of their group.
    place = moved(np.repeat(begins - (counts + 1) * rows, counts) + np.repeat(counts, counts) * np.arange(n), xp)
    values, own = xp.zeros((counts**2).sum()), xp.arange(n)
    for i, j, data in [(own, own, 1.0), *entries]:
        values[place[i] + j] = data
    blocks, left = vectors.inverses(Blocks(counts, values), scale, _ROUNDING, 1 / _SMALLEST)
    for n in np.unique(counts[left]).tolist():
        few = left[counts[left] == n]
        at = moved(begins[few, None] + np.arange(n * n), xp)
        eigenvalues, V = np.linalg.eigh(as_numpy(values[at]).reshape(-1, n, n))
        eigenvalues = np.maximum(eigenvalues, _SMALLEST * eigenvalues[:, -1:])
        found = (V / eigenvalues[:, None]) @ V.swapaxes(1, 2)
        if scale is not None:
            found = scaled(found, as_numpy(scale)[rows[few, None] + np.arange(n)], _ROUNDING)
        blocks.values[at] = moved(found.reshape(len(few), -1), xp)
    return blocks


def levels(N: csr_array, group: Indices) -> Indices:
    """Number the layers of every group, from one end of it to the other; N [n, n], group [n] -> [n]."""
    graph, found = abs(N), -np.arange(len(group))
    for _ in range(2):  # from the first function, and from one that is farthest from it
        ends = np.lexsort((found, group))[np.cumsum(np.bincount(group)) - 1]
        found = dijkstra(graph, False, ends, unweighted=True, min_only=True).astype(np.int64)
    return found


def _cut(
    pairs: _Pairs, group: Any, most: Any, width: Any, vectors: VectorSpace = HOST_VECTORS, least: float = 0.0
) -> Any:
    """Number the groups; those above `most`, with a layer beyond `width`, in pieces of pairs above `least`; [n]."""
    xp, found = vectors.xp, group.astype(np.int64)
    large = vectors.equals(group) > most
    (places,) = (large & (width > 0)).nonzero()
    if len(places):
        chosen = xp.zeros(len(group), bool)
        chosen[places] = True
        which = np.unique(as_numpy(group[places]), return_inverse=True)[1]
        here = _Pairs(*map(as_numpy, pairs.of(chosen[pairs.i]).placed(xp.cumsum(chosen) - 1)))
        first, layer = distinct(which * len(group) + levels(here.matrix(len(which)), which), len(group) ** 2)
        widths = np.zeros(int(which.max()) + 1, dtype=np.int64)
        np.maximum.at(widths, which[first], np.bincount(layer))
        large[places] = xp.asarray(widths[which]) > width[places]
    (places,) = large.nonzero()
    if len(places):
        strong = pairs.of(large[pairs.i] & (abs(pairs.values) > least)).placed(xp.cumsum(large) - 1)
        strongest = xp.argsort(-abs(strong.values), kind="stable")
        found[places] = len(group) + vectors.clusters(strong.i[strongest], strong.j[strongest], most[places])
    return found
