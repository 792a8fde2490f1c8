"""A step before groups of strongly coupled functions are solved for: large ones are eliminated from others.

At thin pyramids what is constant across a layer is a sum of functions of several groups. So the functions beside a
large group continue into it with least energy, but for small entries. What has little energy is continued exactly: in
thin layers the small entries count there. Matrices are scaled to ones on the diagonal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr
from scipy.sparse import coo_array, csr_array, diags_array

from hpfem.shapes.arrays import Array, Indices

from ...geometry.element_map import at_once, chunks
from ...mesh.sorting import run_starts, unique
from .groups import Eliminated, most_of, pieces, widest

_Block = tuple[Indices, Indices, Array]  # rows and columns of several places, [k, n] and [k, m], and entries [n, m]
# Groups and what is beside them, [k, n] and [k, m], of the same matrices in the order of numbers, [n, n] and [n, m].
_Case = tuple[Indices, Indices, csr_array, csr_array]

# Entries that are left out of continuations. The least energy that is left.
_SMALL, _LEAST = 0.05, 1e-3
# Energy that is little, functions of a group where it is looked for, at most, and errors that are left there.
_LITTLE, _MOST, _EXACT = 0.05, 160, 0.003
# Couplings that make groups of what is not eliminated: what is constant across a layer is to be in one.
_WEAK = 0.06
# Entries that are none, and differences between groups that are alike; what is added to diagonals for float32.
_ALIKE, _ADDED = 1e-7, 1e-5


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
    size, some = np.bincount(label), np.abs(A.data) > _ALIKE
    # Groups of which most functions are beside smaller groups alone: these are eliminated.
    rank, kept = np.argsort(np.argsort(size, kind="stable"))[label], np.zeros(n, dtype=bool)
    kept[i[rank[i] < rank[j]]] = True
    kept[beside.partly] = True
    chosen = ~kept & (2 * np.bincount(label[kept], minlength=len(size)) < size)[label]
    left = diags_array(np.where(chosen, 0.0, 1.0))
    label = np.where(chosen, label, len(size) + pieces(csr_array(left @ coupled @ left), diagonal, *sizes, _WEAK))
    within, across = (
        csr_array((A.data[own], (i[own], j[own])), shape=A.shape)
        for own in (some & (label[i] == label[j]), some & chosen[i] & ~chosen[j])
    )
    cases, summed = _alike(within, across, label), partial(_summed, label, chosen)
    S = within + summed((others, others, exact.T @ B) for _, others, _, B, exact in _solved(cases))
    # By Gershgorin's theorem other groups have no such vectors.
    perhaps = np.isin(label, label[across.indices]) & (abs(S).sum(axis=1) > 1 - _LITTLE)
    C = summed(_of_little_energy(S, _groups(perhaps, label)))
    M = summed(_continued(cases, C))
    S = csr_array(left @ M)
    E, S = csr_array(M - S), (S + S.T) / 2
    energies, root = np.maximum(1 + S.diagonal(), _LEAST), diags_array(np.where(scale > 0, np.sqrt(diagonal), 0))
    there, back = csr_array(diags_array(scale / energies) @ E.T @ root), csr_array(diags_array(scale) @ E @ root)
    own, others = np.flatnonzero(np.diff(E.indptr)), np.flatnonzero(np.diff(there.indptr))
    S.setdiag(0)
    steps = [Eliminated(own, others, there[others], back[own], onto=True)] if len(own) else []
    return steps, csr_array(root @ (within + S) @ root), diagonal * energies


def _summed(label: Indices, chosen: NDArray[np.bool_], blocks: Iterable[_Block]) -> csr_array:
    """Add blocks, rows of functions that are chosen, and entries of functions of one group; label, chosen [n]."""
    parts = [(np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for rows, columns, M in blocks:
        i, j = np.where(chosen[rows[0], None] | (label[rows[0], None] == label[columns[0]]), M, 0).nonzero()
        parts.append((np.tile(M[i, j], len(rows)), rows[:, i].ravel(), columns[:, j].ravel()))
    data, i, j = (np.concatenate(own) for own in zip(*parts, strict=True))
    return csr_array((data, (i, j)), shape=(len(label),) * 2)


def _groups(some: NDArray[np.bool_], label: Indices) -> list[Indices]:
    """The functions of every group that has some of these; [n]."""
    members = np.flatnonzero(np.isin(label, label[some]))
    members = members[np.argsort(label[members], kind="stable")]
    return np.split(members, np.flatnonzero(run_starts(label[members])))[1:]


def _part(M: csr_array, rows: Indices, columns: Indices) -> csr_array:
    """Rows of a matrix that have entries in some columns alone, which ascend; M [n, n] -> [rows, columns]."""
    M = M[rows]
    return csr_array((M.data, np.searchsorted(columns, M.indices), M.indptr), shape=(len(rows), len(columns)))


def _alike(within: csr_array, across: csr_array, label: Indices) -> list[_Case]:
    """Groups that something is beside, those of equal matrices at once; all [n, n], label [n]."""
    found = dict[tuple[bytes, ...], tuple[list[tuple[Indices, Indices]], csr_array, csr_array]]()
    for own in _groups(np.diff(across.indptr) > 0, label):
        others = unique(across[own].indices)
        _, first, group = np.unique(label[others], return_index=True, return_inverse=True)
        W, B = _part(within, own, own), _part(across, own, others)
        told = [part for M in (W, B) for part in (np.rint(M.data / _ALIKE), M.indices, M.indptr)]
        key = tuple(part.tobytes() for part in (first[group], *told))
        found.setdefault(key, ([], W, B))[0].append((own, others))
    return [(*map(np.array, zip(*places, strict=True)), W, B) for places, W, B in found.values()]


def _solved(cases: Iterable[_Case]) -> Iterator[tuple[Indices, Indices, Array, Array, Array]]:
    """Places and matrices of cases, and continuations of least energy, [n, m]."""
    for own, others, within, across in cases:
        W, B = within.toarray() + (1 + _ADDED) * np.eye(within.shape[0]), across.toarray()
        yield own, others, W, B, np.linalg.solve(W, -B)


def _of_little_energy(S: csr_array, groups: Iterable[Indices]) -> Iterator[_Block]:
    """Vectors of little energy in groups, in columns of functions that others lack; S [n, n] less a unit diagonal."""
    for own in groups:
        if len(own) <= _MOST:
            energies, V = np.linalg.eigh(_part(S, own, own).toarray() + np.eye(len(own)))
            V = V[:, energies < _LITTLE]
            top = qr(V.T, mode="r", pivoting=True)[1][: V.shape[1]]
            yield own[None], own[None, top], V @ np.linalg.inv(V[top])


def _continued(cases: Iterable[_Case], C: csr_array) -> Iterator[_Block]:
    """Continuations without small entries, but of the columns of C exact; and what they add to energies; C [n, n]."""
    for own, others, W, B, exact in _solved(cases):
        E = _of_least_energy(W, B, np.abs(exact) > _SMALL)
        R, lost = B + W @ E, exact - E
        yield own, others, E
        yield others, others, E.T @ (B + R)
        for rows, places in zip(own, others[:, None], strict=True):
            columns = unique(C[places[0]].indices)
            more = lost @ _part(C, places[0], columns).toarray()
            more[np.abs(more) <= _EXACT] = 0
            yield rows[None], columns[None], more
            yield columns[None], places, 2 * more.T @ R
            yield columns[None], columns[None], more.T @ (W @ more)


def _of_least_energy(W: Array, B: Array, kept: NDArray[np.bool_]) -> Array:
    """Continuations of least energy with some entries; W [n, n], B, kept [n, m] -> [n, m]."""
    E, counts = np.zeros(B.shape), kept.sum(axis=0)
    order = np.argsort(counts)[(counts == 0).sum() :]
    for some in chunks(len(order), max(counts, default=0) ** 2, most=at_once(np)):
        columns = order[some, None]
        at = np.argsort(~kept[:, columns[:, 0]], axis=0, kind="stable")[: counts[columns[-1, 0]]].T
        there = kept[at, columns]
        blocks = np.where(there[:, :, None] & there[:, None], W[at[:, :, None], at[:, None]], np.eye(at.shape[1]))
        E[at, columns] = np.linalg.solve(blocks, np.where(there, -B[at, columns], 0)[:, :, None])[:, :, 0]
    return E
