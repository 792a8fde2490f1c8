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
from .irregular import noise

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

# Layers up to which a group's matrix is inverted as it is, and functions where nobody says how many.
_LAYERS, _FEW = 4, 24
# Smallest eigenvalue of a group's matrix, relative to the largest one, that float32 can invert.
_SMALLEST = 1e-5
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
    members, N, scale, smallest = _scaled(coupled, diagonal, least)
    most = np.minimum(_EASY / smallest, most_of(order))
    N = _within(N, _cut(N, most, np.where(most < most_of(order), 0, widest(order)), least))
    _, group = connected_components(N, directed=False)
    steps, level = list[Eliminated](), levels(N, group)
    # Functions of a layer side by side: their rows have the same columns.
    sides = np.lexsort((level, group))
    members, scale, N, group, level = members[sides], scale[sides], N[sides][:, sides], group[sides], level[sides]
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
    members, N, *_ = _scaled(coupled, diagonal, least, nearly=0.0)
    found = len(members) + np.arange(len(diagonal))
    found[members] = _cut(N, np.full(len(members), most), np.full(len(members), width))
    return found


def _scaled(
    coupled: csr_array, diagonal: Array, least: float = 0.0, nearly: float = _NEARLY
) -> tuple[Indices, csr_array, Array, Array]:
    """Functions that are coupled to others, their matrix with ones on the diagonal, the scale, and an estimate of the
    smallest eigenvalue of their group's matrix, if that is wanted; -> [k].
    """
    scale, entries = 1 / np.sqrt(diagonal), coo_array(coupled)
    i, j = entries.row, entries.col
    values = np.where(i < j, entries.data * scale[i] * scale[j], 0.0)
    members, group, (i, j, values) = _groups(i, j, values, np.abs(values) > least, len(scale))
    smallest = np.full(len(members), _SMALLEST)
    if nearly:
        smallest = np.maximum(_smallest(i, j, values, group)[group], _SMALLEST)
    if least and nearly:
        strong = np.abs(values) > np.where(smallest < nearly, least, max(least, _STRONGER))[i]
        some, _, (i, j, values) = _groups(i, j, values, strong, len(members))
        members, smallest = members[some], smallest[some]
    own = np.arange(len(members))
    rows, columns = np.concatenate([i, j, own]), np.concatenate([j, i, own])
    N = csr_array((np.concatenate([values, values, np.ones(len(own))]), (rows, columns)), shape=(len(own),) * 2)
    return members, N, scale[members], smallest


def _upper(i: Indices, j: Indices, values: Array, n: int) -> csr_array:
    """A matrix of entries in ascending rows; [m] -> [n, n]."""
    return csr_array((values, j, np.append(0, np.cumsum(np.bincount(i, minlength=n)))), shape=(n, n))


def _groups(
    i: Indices, j: Indices, values: Array, strong: NDArray[np.bool_], n: int
) -> tuple[Indices, Indices, tuple[Indices, Indices, Array]]:
    """The functions of n that strong pairs make groups of, their groups, and the pairs inside; pairs in ascending rows
    [m] -> [k], [k], pairs.
    """
    there = marked(n, (i[strong], j[strong]))
    members, place, known = np.flatnonzero(there), np.cumsum(there) - 1, there[i] & there[j] & (values != 0)
    i, j, values, strong = place[i[known]], place[j[known]], values[known], strong[known]
    graph = _upper(i[strong], j[strong], values[strong], len(members))
    group = connected_components(graph, directed=False)[1]
    inside = group[i] == group[j]
    return members, group, (i[inside], j[inside], values[inside])


def _smallest(i: Indices, j: Indices, values: Array, group: Indices) -> Array:
    """Estimate the smallest eigenvalue of every group's matrix, from above; pairs [m], group [n] -> [groups]."""
    x: Array = noise(np.arange(len(group), dtype=np.uint32)).astype(np.float64)
    found: Array = np.zeros(0)
    U = _upper(i, j, values, len(group))
    shift = np.full(int(group.max(initial=-1)) + 1, 2.0)  # so that the largest one is nearer to it
    np.maximum.at(shift, group, _NEARER * (1 + abs(U).sum(axis=0) + abs(U).sum(axis=1)))
    for _ in range(_STEPS):
        x /= np.sqrt(np.bincount(group, x * x))[group]
        product = x + U @ x + U.T @ x
        found, x = np.asarray(np.bincount(group, x * product)), shift[group] * x - product
    return found


def _rescaled(M: csr_array, rows: Array, columns: Array) -> csr_array:
    """For vectors that are divided by the diagonal, without what rounding leaves, as between even and odd functions;
    M [k, m], scales of its rows [k] and columns [m].
    """
    entries = coo_array(M)
    large = np.abs(entries.data) > _ROUNDING
    i, j = entries.row[large], entries.col[large]
    return csr_array((entries.data[large] * rows[i] / columns[j], (i, j)), shape=M.shape)


def _of_all(M: csr_array, columns: Indices, n: int) -> csr_array:
    """A matrix for whole vectors; M [k, m], columns [m] -> [k, n]."""
    M = csr_array(M)
    return csr_array((M.data, columns[M.indices], M.indptr), shape=(M.shape[0], n))


def _within(N: csr_array, label: Indices) -> csr_array:
    """The entries between functions of one label."""
    entries = coo_array(N)
    same = label[entries.row] == label[entries.col]
    return csr_array((entries.data[same], (entries.row[same], entries.col[same])), shape=N.shape)


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
    for size in np.unique(counts):
        blocks = ends[starts[counts == size]][:, None] + np.arange(size**2)
        values[blocks] = _inverse(values[blocks].reshape(-1, size, size)).reshape(blocks.shape)
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


def _cut(N: csr_array, most: Array, width: Indices, least: float = 0.0) -> Indices:
    """Number the groups; one that is larger than `most`, with a layer beyond a width, in pieces, joined by pairs
    above `least`; N [n, n], most and width of the groups of functions [n] -> [n].
    """
    _, group = connected_components(N, directed=False)
    if not len(group):
        return group
    group = group.astype(np.int64)
    own = np.flatnonzero(np.bincount(group)[group] > most)
    if width[own].any():
        which = group[own]
        layer = which * len(group) + levels(csr_array(N[own][:, own]), np.unique(which, return_inverse=True)[1])
        first, layer = distinct(layer, (int(which.max()) + 1) * len(group))
        widths = np.zeros(int(which.max()) + 1, dtype=np.int64)
        np.maximum.at(widths, which[first], np.bincount(layer))
        own = own[widths[which] > width[own]]
    if len(own):
        group[own] = len(group) + _clusters(csr_array(N[own][:, own]), most[own], least)
    return group


def _clusters(N: csr_array, most: Array, least: float = 0.0) -> Indices:
    """Merge the functions that are coupled most, by more than `least`, up to a size; N [n, n], most [n] -> [n]."""
    n, entries = N.shape[0], coo_array(abs(N))
    upper = np.flatnonzero((entries.row < entries.col) & (entries.data > least))
    upper = upper[np.argsort(-entries.data[upper], kind="stable")]
    label, size, best = np.arange(n), np.ones(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    for some in chunks(len(upper), 1, most=CACHED):  # as one pair after the other would be
        i, j = label[entries.row[upper[some]]], label[entries.col[upper[some]]]
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
