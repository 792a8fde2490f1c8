"""A step before groups of strongly coupled functions are solved for: large ones are eliminated from others.

At thin pyramids what is constant across a layer is a sum of functions of several groups. So the functions beside a
large group continue into it with least energy, but for small entries. What has little energy is continued exactly: in
thin layers the small entries count there. Matrices are scaled to ones on the diagonal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, diags_array

from .groups import Eliminated, eliminated, most_of, pieces, widest

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

# Entries that are left out: of continuations, and while these are computed. The least energy that is left.
_SMALL, _SMALLER, _LEAST = 0.05, 3e-4, 1e-3
# Energy that is little, functions of a group where it is looked for, at most, and errors that are left there.
_LITTLE, _MOST, _EXACT = 0.05, 160, 0.003
# Couplings that make groups of what is not eliminated: what is constant across a layer is to be in one.
_WEAK = 0.06
# Steps by which the entries that are kept make up for those that are not.
_STEPS = 4


class Beside(NamedTuple):
    """Couplings of functions of different groups."""

    energies: csr_array  # above the diagonal, [n, n]
    partly: Indices  # functions of which not all couplings are known


def swept(
    coupled: csr_array, beside: Beside, diagonal: Array, order: int, least: float
) -> tuple[list[Eliminated], csr_array, Array]:
    """Eliminate large groups: the step, if there is one, and the groups' matrix and the diagonal that are left; as
    `eliminated`; coupled [n, n], diagonal [n].
    """
    sizes, scale = (most_of(order), widest(order)), 1 / np.sqrt(diagonal)
    label = pieces(coupled, diagonal, *sizes, least)
    A = diags_array(scale) @ (coupled + beside.energies) @ diags_array(scale)
    A = coo_array(A + A.T)
    i, j, n = A.row, A.col, len(scale)
    size, some = np.bincount(label), A.data != 0
    # Groups of which most functions are beside smaller groups alone: these are eliminated.
    rank, kept = np.argsort(np.argsort(size, kind="stable")), np.zeros(n, dtype=bool)
    kept[i[rank[label[i]] < rank[label[j]]]] = True
    kept[beside.partly] = True
    chosen = ~kept & (2 * np.bincount(label[kept], minlength=len(size)) < size)[label]
    others = diags_array(np.where(chosen, 0.0, 1.0))
    label = np.where(chosen, label, len(rank) + pieces(csr_array(others @ coupled @ others), diagonal, *sizes, _WEAK))
    within, across = (
        csr_array((A.data[own], (i[own], j[own])), shape=A.shape)
        for own in (some & (label[i] == label[j]), some & chosen[i] & ~chosen[j])
    )
    steps, members, inverse = eliminated(within, np.where(chosen, 1, np.inf), order)
    exact = csr_array(-_solved(steps, members, inverse.matrix(members, n), across))
    E = _of_least_energy(within, across, _written(csr_array((n, n)), np.arange(n), exact, _SMALL))
    C, at = _of_little_energy(_inside(exact.T @ across, label) + within, np.unique(across.indices), label)
    lost = coo_array((exact - E) @ C)
    large = np.abs(lost.data) > _EXACT
    E = csr_array(E + csr_array((lost.data[large], (lost.row[large], at[lost.col[large]])), shape=E.shape))
    S = _inside(E.T @ across, label)
    S = csr_array(S + S.T + _inside(E.T @ (within @ E + E), label))
    left, root = np.maximum(1 + S.diagonal(), _LEAST), diags_array(np.where(scale > 0, np.sqrt(diagonal), 0))
    there, back = csr_array(diags_array(scale / left) @ E.T @ root), csr_array(diags_array(scale) @ E @ root)
    own, others = np.flatnonzero(np.diff(E.indptr)), np.flatnonzero(np.diff(there.indptr))
    S.setdiag(0)
    steps = [Eliminated(own, others, there[others], back[own], onto=True)] if len(own) else []
    return steps, csr_array(root @ (within + S) @ root), diagonal * left


def _inside(S: csr_array, label: Indices) -> csr_array:
    """The entries of functions of one group; S [n, n], label [n]."""
    S = coo_array(S)
    same = label[S.row] == label[S.col]
    return csr_array((S.data[same], (S.row[same], S.col[same])), shape=S.shape)


def _of_little_energy(S: csr_array, given: Indices, label: Indices) -> tuple[csr_array, Indices]:
    """Vectors of little energy in the groups of some functions, and a function of each that others of its group lack; S
    [n, n] but for ones on the diagonal, label [n] -> [n, m], [m].
    """
    members = np.flatnonzero(np.isin(label, label[given]))
    members = members[np.argsort(label[members], kind="stable")]
    group, counts = np.unique(label[members], return_inverse=True, return_counts=True)[1:]
    place, starts = np.zeros(len(label), dtype=np.int64), np.cumsum(counts) - counts
    place[members] = np.arange(len(members)) - starts[group]
    entries, n = coo_array(S[members]), 0
    i, j, which = place[members[entries.row]], place[entries.col], group[entries.row]
    rows, columns, data, at = ([np.zeros(0, dtype)] for dtype in (np.int64, np.int64, np.float64, np.int64))
    for size in np.unique(counts[(counts > 1) & (counts <= _MOST)]).tolist():
        own, here = np.flatnonzero(counts == size), counts[which] == size
        blocks = np.tile(np.eye(size), (len(own), 1, 1))
        blocks[np.searchsorted(own, which[here]), i[here], j[here]] += entries.data[here]
        energies, vectors = np.linalg.eigh(blocks)
        little = (energies < _LITTLE).sum(axis=1)
        for count in np.unique(little[little > 0]).tolist():
            V, some = vectors[little == count][:, :, :count], own[little == count]
            functions, each = members[starts[some, None] + np.arange(size)], np.arange(len(V))
            for k in range(count):  # by Gauss and Jordan
                top = np.abs(V[:, :, k]).argmax(axis=1)
                V[:, :, k] /= V[each, top, k, None]
                V -= V[:, :, k, None] * np.where(np.arange(count) == k, 0, V[each, top])[:, None]
                at.append(functions[each, top])
                columns.append(np.repeat(n + np.arange(len(V)), size))
                n += len(V)
            rows.append(np.tile(functions.ravel(), count))
            data.append(V.transpose(2, 0, 1).ravel())
    i, j, values = (np.concatenate(own) for own in (rows, columns, data))
    return csr_array((values, (i, j)), shape=(len(label), n)), np.concatenate(at)


def _of_least_energy(within: csr_array, across: csr_array, E: csr_array) -> csr_array:
    """Lower the energy of continuations by conjugate gradients in their entries; all [n, n]."""
    places = csr_array((np.ones(E.nnz), E.indices, E.indptr), shape=E.shape)
    p = r = -places.multiply(within @ E + E + across)
    rho = r.power(2).sum()
    for _ in range(_STEPS if rho > 0 else 0):
        q = places.multiply(within @ p + p)
        step = rho / p.multiply(q).sum()
        E, r, before = E + step * p, r - step * q, rho
        rho = r.power(2).sum()
        p = r + (rho / before) * p
    return csr_array(E)


def _solved(steps: Sequence[Eliminated], members: Indices, inverse: csr_array, X: csr_array) -> csr_array:
    """The inverse of groups times a matrix, but for small entries; X [n, n] -> [n, n]."""
    for step in steps:
        X = _written(X, step.others, X[step.others] + step.there @ X, _SMALLER)
    X = _written(X, members, inverse @ X, _SMALLER)
    for step in reversed(steps):
        X = _written(X, step.own, step.back @ X, _SMALLER)
    return X


def _written(X: csr_array, rows: Indices, given: csr_array, small: float) -> csr_array:
    """Replace rows of a matrix, but for small entries; X [n, n], given [k, n] -> [n, n]."""
    X, given = csr_array(X), csr_array(given)
    counts, sources = np.diff(X.indptr), X.indptr[:-1].astype(np.int64)
    large = np.abs(given.data) > small
    ends = np.append(0, np.cumsum(large))[given.indptr]
    counts[rows], sources[rows] = np.diff(ends), X.nnz + ends[:-1]
    data, indices = (np.concatenate([a, b[large]]) for a, b in ((X.data, given.data), (X.indices, given.indices)))
    ends = np.append(0, np.cumsum(counts))
    places = np.arange(ends[-1]) + np.repeat(sources - ends[:-1], counts)
    return csr_array((data[places], indices[places], ends), shape=X.shape)
