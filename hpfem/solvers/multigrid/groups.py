"""Groups of strongly coupled functions: their matrices, factorised so that a function's cost does not grow with them.

A group through the layers of a mesh is eliminated layer by layer: every second one at a time, until few are left, whose
matrix is inverted. A group that spreads sideways, as in unstructured meshes, is cut where it is coupled least.
Matrices are scaled to ones on the diagonal.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, hstack, vstack
from scipy.sparse.csgraph import breadth_first_order, connected_components

from ...geometry.element_map import CACHED, chunks
from ...mesh.sorting import distinct, marked
from ...support.threads import in_parts
from .irregular import noise

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

# Layers up to which a group's matrix is inverted as it is, and functions where nobody says how many.
_LAYERS, _FEW = 4, 24
# Smallest eigenvalue of a group's matrix, relative to the largest one, that float32 can invert.
_SMALLEST = 1e-5
# Parts in which blocks are inverted, by their sizes.
_PARTS = 8
# An entry that is zero up to rounding, where diagonals are one.
_ROUNDING = 1e-9
# Smallest eigenvalue from which on a diagonal nearly does: a pair makes a group from this coupling on then. Without
# that `pipe_mixed`, P = 6, has three times the entries, and one iteration less. Steps by which it is estimated.
_NEARLY, _STRONGER, _STEPS, _NEARER = 0.35, 0.2, 20, 0.6
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
    coupled: csr_array, diagonal: Array, order: int, least: float = 0.0, few: int = _FEW
) -> tuple[list[Eliminated], Indices, csr_array]:
    """Factorise the matrices of groups: steps, and the functions that are left, with the inverse of their matrix; for
    vectors that are divided by the diagonal; coupled [n, n], diagonal [n] -> [k], [k, n]. What is coupled by no more
    than `least`, relative to the diagonal, makes no group.
    """
    n = len(diagonal)
    members, group, pairs, scale, smallest = _scaled(coupled, diagonal, least)
    most = np.minimum(_EASY / smallest, most_of(order))
    group = _cut(pairs, group, most, np.where(most < most_of(order), 0, widest(order)), least)
    pairs = pairs.of(group[pairs.i] == group[pairs.j])
    group = distinct(group, 2 * len(group))[1]
    steps, level = list[Eliminated](), np.zeros_like(group)
    if np.bincount(group).max(initial=0) > few:
        level = levels(pairs.matrix(len(group)), group)
    # Functions of a layer side by side: their rows have the same columns.
    sides = np.lexsort((level, group))
    N = pairs.placed(np.argsort(sides)).matrix(len(sides))
    members, scale, group, level = members[sides], scale[sides], group[sides], level[sides]
    while len(members):
        top, size = np.zeros(group.max() + 1, dtype=np.int64), np.bincount(group)
        np.maximum.at(top, group, level)
        odd = ((top >= _LAYERS) & (size > few))[group] & (level % 2 == 1)
        if not odd.any():
            break
        own, others = np.flatnonzero(odd), np.flatnonzero(~odd)
        rows = csr_array(N[own])
        inverse = inverse_of_blocks(csr_array(rows[:, own]), group[own] * (level.max() + 1) + level[own])
        beside = csr_array(rows[:, others])
        back = csr_array(inverse @ beside)
        N = csr_array(N[others][:, others] - beside.T @ back)
        near = np.flatnonzero(marked(len(others), (back.indices,)))
        back = csr_array(back[:, near])
        there = _rescaled(-back.T, scale[others[near]], scale[own])
        found = hstack([_rescaled(inverse, scale[own], scale[own]), _rescaled(-back, scale[own], scale[others[near]])])
        columns = np.concatenate([members[own], members[others[near]]])
        whole = _of_all(there, members[own], n), _of_all(found, columns, n)
        steps.append(Eliminated(members[own], members[others[near]], *whole))
        members, scale, group, level = members[others], scale[others], group[others], level[others] // 2
    return steps, members, _of_all(_rescaled(inverse_of_blocks(N, group), scale, scale), members, n)


def pieces(coupled: csr_array, diagonal: Array, most: int, width: int = 0, least: float = 0.0) -> Indices:
    """Number the groups, cut to a size of pairs above `least`; coupled [n, n], diagonal [n] -> [n]."""
    members, group, pairs, *_ = _scaled(coupled, diagonal, least, nearly=0.0)
    found = len(members) + np.arange(len(diagonal))
    found[members] = _cut(pairs, group, np.full(len(members), most), np.full(len(members), width))
    return found


class _Pairs(NamedTuple):
    """Entries above the diagonal of a matrix with ones there, in ascending rows."""

    i: Indices
    j: Indices
    values: Array

    def of(self, some: NDArray[np.bool_]) -> _Pairs:
        """Take some; [pairs]."""
        places = np.flatnonzero(some)
        return _Pairs(self.i.take(places), self.j.take(places), self.values.take(places))

    def placed(self, place: Indices) -> _Pairs:
        """Number the functions anew; place [n]."""
        return _Pairs(place[self.i], place[self.j], self.values)

    def upper(self, n: int) -> csr_array:
        """The matrix above its diagonal, [n, n]."""
        return csr_array((self.values, self.j, np.append(0, np.cumsum(np.bincount(self.i, minlength=n)))), (n, n))

    def matrix(self, n: int) -> csr_array:
        """The matrix, [n, n]."""
        own = np.arange(n, dtype=self.i.dtype)
        places = np.concatenate([self.i, self.j, own]), np.concatenate([self.j, self.i, own])
        return csr_array((np.concatenate([self.values, self.values, np.ones(n)]), places), shape=(n, n))


def _scaled(
    coupled: csr_array, diagonal: Array, least: float = 0.0, nearly: float = _NEARLY
) -> tuple[Indices, Indices, _Pairs, Array, Array]:
    """Functions that are coupled to others, their groups, the pairs of these with ones on the diagonal, the scale, and
    an estimate of the smallest eigenvalue of their group's matrix, if that is wanted; -> [k].
    """
    scale, entries = 1 / np.sqrt(diagonal), coo_array(coupled)
    i, j = entries.row, entries.col
    pairs = _Pairs(i, j, entries.data * scale[i] * scale[j] * (i < j))
    members, group, pairs = _groups(pairs, np.abs(pairs.values) > least, len(scale))
    smallest = np.full(len(members), _SMALLEST)
    if nearly:
        smallest = np.maximum(_smallest(pairs, group)[group], _SMALLEST)
    if least and nearly:
        strong = np.abs(pairs.values) > np.where(smallest < nearly, least, max(least, _STRONGER))[pairs.i]
        some, group, pairs = _groups(pairs, strong, len(members))
        members, smallest = members[some], smallest[some]
    return members, group, pairs, scale[members], smallest


def _groups(pairs: _Pairs, strong: NDArray[np.bool_], n: int) -> tuple[Indices, Indices, _Pairs]:
    """The functions of n that strong pairs make groups of, their groups, and the pairs inside; -> [k], [k], pairs."""
    there = marked(n, (pairs.i[strong], pairs.j[strong]))
    members, place = np.flatnonzero(there), np.cumsum(there, dtype=pairs.i.dtype) - 1
    graph = pairs.of(strong).placed(place).upper(len(members))
    group = connected_components(graph, directed=False)[1]
    label = np.full(n, -1, group.dtype)
    label[members] = group
    here, inside = label[pairs.i], pairs.values != 0
    inside &= (here >= 0) & (here == label[pairs.j])
    return members, group, pairs.of(inside).placed(place)


def _smallest(pairs: _Pairs, group: Indices) -> Array:
    """Estimate the smallest eigenvalue of every group's matrix, from above; group [n] -> [groups]."""
    x = noise(np.arange(len(group), dtype=np.uint32))
    found: Array = np.zeros(0)
    U = csr_array(pairs.upper(len(group)).astype(np.float32))
    shift = np.full(int(group.max(initial=-1)) + 1, 2, np.float32)  # so that the largest one is nearer to it
    np.maximum.at(shift, group, _NEARER * (1 + abs(U).sum(axis=0) + abs(U).sum(axis=1)))
    for _ in range(_STEPS):
        x /= np.sqrt(np.bincount(group, x * x)).astype(np.float32)[group]
        product = x + U @ x + U.T @ x
        found, x = np.asarray(np.bincount(group, x * product)), shift[group] * x - product
    return found


def _rescaled(M: csr_array, rows: Array, columns: Array) -> csr_array:
    """For vectors that are divided by the diagonal, without what rounding leaves, as between even and odd functions;
    M [k, m], scales of its rows [k] and columns [m].
    """
    M = csr_array(M)  # by rows, if transposed
    large = np.abs(M.data) > _ROUNDING
    ends, places = np.append(0, np.cumsum(large))[M.indptr], np.flatnonzero(large)
    j = M.indices[places]
    values = M.data[places] * np.repeat(rows, np.diff(ends)) / columns[j]
    return csr_array((values, j, ends), shape=M.shape)


def _of_all(M: csr_array, columns: Indices, n: int) -> csr_array:
    """A matrix for whole vectors; M [k, m], columns [m] -> [k, n]."""
    M = csr_array(M)
    return csr_array((M.data, columns[M.indices], M.indptr), shape=(M.shape[0], n))


def inverse_of_blocks(N: csr_array, label: Indices) -> csr_array:
    """Invert the blocks of functions of one label; N [n, n], label [n] in ascending order -> [n, n]."""
    starts = np.flatnonzero(np.diff(label, prepend=-1))
    counts = np.diff(starts, append=len(label))
    which = np.repeat(np.arange(len(counts)), counts)
    first, widths = starts[which], counts[which]
    ends = np.concatenate([[0], np.cumsum(widths)])
    entries, values = coo_array(N), np.zeros(ends[-1])
    same = which[entries.row] == which[entries.col]
    i, j = entries.row[same], entries.col[same]
    values[ends[i] + j - first[i]] = entries.data[same]

    def invert(sizes: Indices) -> None:
        for size in sizes.tolist():
            blocks = ends[starts[counts == size]][:, None] + np.arange(size**2)
            values[blocks] = _inverse(values[blocks].reshape(-1, size, size)).reshape(blocks.shape)

    in_parts(invert, [np.unique(counts)[k::_PARTS] for k in range(_PARTS)])
    return csr_array((values, np.arange(ends[-1]) - np.repeat(ends[:-1] - first, widths), ends), shape=N.shape)


def _inverse(blocks: Array) -> Array:
    """Invert matrices, with their smallest eigenvalues raised to what float32 can invert; [k, n, n]."""
    with suppress(np.linalg.LinAlgError):
        root = np.linalg.inv(np.linalg.cholesky(blocks))
        found = root.swapaxes(1, 2) @ root
        if (np.abs(found).sum(axis=2).max() * np.abs(blocks).sum(axis=2).max()) * _SMALLEST < 1:
            return np.asarray(found)
    eigenvalues, V = np.linalg.eigh(blocks)
    eigenvalues = np.maximum(eigenvalues, _SMALLEST * eigenvalues[:, -1:])
    return np.asarray((V / eigenvalues[:, None]) @ V.swapaxes(1, 2))


def levels(N: csr_array, group: Indices) -> Indices:
    """Number the layers of every group, from one end of it to the other; N [n, n], group [n] -> [n]."""
    if not len(group):
        return group
    found = _distances(N, np.unique(group, return_index=True)[1])
    return _distances(N, np.lexsort((found, group))[np.cumsum(np.bincount(group)) - 1])


def _distances(N: csr_array, starts: Indices) -> Indices:
    """Steps from the nearest of some functions; N [n, n] -> [n]."""
    n = len(starts), N.shape[0]
    first = csr_array((np.ones(n[0]), (np.zeros(n[0], np.int64), starts)), shape=(1, n[1]))
    graph = csr_array(vstack([N, first]))
    graph.resize(n[1] + 1, n[1] + 1)
    before = breadth_first_order(graph, n[1], directed=False)[1].astype(np.int64)
    before[n[1]], steps = n[1], np.ones(n[1] + 1, dtype=np.int64)
    steps[n[1]] = 0
    while (before != n[1]).any():
        steps, before = steps + steps[before], before[before]
    return steps[:-1] - 1


def _cut(pairs: _Pairs, group: Indices, most: Array, width: Indices, least: float = 0.0) -> Indices:
    """Number the groups; one that is larger than `most`, with a layer beyond a width, in pieces, joined by pairs
    above `least`; group, most and width of the groups of functions [n] -> [n].
    """
    large, found = np.bincount(group)[group] > most, group.astype(np.int64)
    if width[large].any():
        which = np.unique(group[large], return_inverse=True)[1]
        here = pairs.of(large[pairs.i]).placed(np.cumsum(large) - 1)
        first, layer = distinct(which * len(group) + levels(here.matrix(len(which)), which), len(group) ** 2)
        widths = np.zeros(int(which.max()) + 1, dtype=np.int64)
        np.maximum.at(widths, which[first], np.bincount(layer))
        large[large] = widths[which] > width[large]
    strong = pairs.of(large[pairs.i] & (np.abs(pairs.values) > least)).placed(np.cumsum(large) - 1)
    found[large] = len(group) + _clusters(strong, most[large])
    return found


def _clusters(pairs: _Pairs, most: Array) -> Indices:
    """Merge the functions that are coupled most, up to a size; most [n] -> [n]."""
    strongest = np.argsort(-np.abs(pairs.values), kind="stable")
    n, first, second = len(most), pairs.i[strongest], pairs.j[strongest]
    label, size, best = np.arange(n), np.ones(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    for some in chunks(len(first), 1, most=CACHED):  # as one pair after the other would be
        i, j = label[first[some]], label[second[some]]
        while True:
            possible = (i != j) & (size[i] + size[j] <= most[i])
            i, j = i[possible], j[possible]
            if not len(i):
                break
            rank = np.arange(len(i))
            best[np.stack([i, j], axis=1).ravel()[::-1]] = np.repeat(rank, 2)[::-1]  # the first one is written last
            merged = (best[i] == rank) & (best[j] == rank)
            low, high = np.minimum(i[merged], j[merged]), np.maximum(i[merged], j[merged])
            label[high] = low
            size[low] += size[high]
            i, j = label[i], label[j]
        while (label != label[label]).any():
            label = label[label]
    return label
