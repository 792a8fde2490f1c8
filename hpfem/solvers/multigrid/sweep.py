"""A step before groups of strongly coupled functions are solved for: large ones are eliminated from others.

At thin pyramids what is constant across a layer is a sum of functions of several groups. So the functions beside a
large group continue into it with least energy, but for small entries. Matrices are scaled to ones on the diagonal.
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
_SMALL, _SMALLER, _LEAST = 0.03, 1e-4, 1e-3
# Steps by which the entries that are kept make up for those that are not: pyramids stretched 1:16, P = 4, take 20
# iterations without, 17 with two, and 16 from four on.
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
    label, scale = pieces(coupled, diagonal, most_of(order), widest(order), least), 1 / np.sqrt(diagonal)
    A = diags_array(scale) @ (coupled + beside.energies) @ diags_array(scale)
    A = coo_array(A + A.T)
    i, j, n = A.row, A.col, len(scale)
    rank, apart = np.argsort(np.argsort(np.bincount(label), kind="stable")), label[i] != label[j]
    most = np.full(len(rank), len(rank))  # of the groups beside a group
    most[label[i[apart]]] = -1
    np.maximum.at(most, label[i[apart]], rank[label[j[apart]]])
    most[label[beside.partly]] = len(rank)
    chosen, some = (rank > most)[label], A.data != 0
    within, across = (
        csr_array((A.data[own], (i[own], j[own])), shape=A.shape)
        for own in (some & (label[i] == label[j]), some & chosen[i] & ~chosen[j])
    )
    steps, members, inverse = eliminated(within, np.where(chosen, 1, np.inf), order)
    E = -_solved(steps, members, inverse.matrix(members, n), across)
    E = _of_least_energy(within, across, _written(csr_array((n, n)), np.arange(n), E, _SMALL))
    S = E.T @ across
    S = coo_array(S + S.T + E.T @ (within @ E + E))
    S = csr_array((S.data * (label[S.row] == label[S.col]), (S.row, S.col)), shape=S.shape)
    left, root = np.maximum(1 + S.diagonal(), _LEAST), diags_array(np.where(scale > 0, np.sqrt(diagonal), 0))
    there, back = csr_array(diags_array(scale / left) @ E.T @ root), csr_array(diags_array(scale) @ E @ root)
    own, others = np.flatnonzero(np.diff(E.indptr)), np.flatnonzero(np.diff(there.indptr))
    S.setdiag(0)
    steps = [Eliminated(own, others, there[others], back[own], onto=True)] if len(own) else []
    return steps, csr_array(root @ (within + S) @ root), diagonal * left


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
    keep, entries = np.ones(X.shape[0]), coo_array(given)
    keep[rows], large = 0, np.abs(entries.data) > small
    new = csr_array((entries.data[large], (rows[entries.row[large]], entries.col[large])), shape=X.shape)
    return csr_array(diags_array(keep) @ X + new)
