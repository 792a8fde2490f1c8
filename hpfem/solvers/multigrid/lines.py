"""Strong couplings between functions of low energy in stretched cells: whole matrices in place of the diagonal.

Across a thin cell the functions of opposite vertices, edges and faces nearly cancel, so that their sum has little
energy. The diagonal does not see that. Strongly coupled functions of neighbouring cells form groups, as lines through
the layers of a mesh; the matrix of each group is inverted. Where a group's functions are on several processes, these
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

from hpfem.shapes import Shape
from hpfem.shapes.low_energy import regular_jacobian

from ...assembly import C0Space
from ...backends import vectors_on
from ...backends.shared_vectors import shared_vectors
from ...backends.sharing import Sharing
from ...backends.vectors import VectorSpace
from ...mesh.sorting import unique

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

# Ratio of energies by direction from which on a cell counts as stretched; an entry of its matrix that is strong,
# relative to the diagonal; and the largest group.
_STRETCHED, _STRONG, _MOST = 16.0, 0.6, 100
# Smallest eigenvalue of a group's matrix, relative to its diagonal, that float32 can invert.
_SMALLEST = 1e-5


def strong_pairs(shape: Shape, S: Array, A: Array, T: Array) -> tuple[Indices, Indices]:
    """Find pairs of functions of a cell that are in one group; S [dim, dim], A, T [n, n] -> [pairs]."""
    R = regular_jacobian(shape)
    values = np.linalg.eigvalsh(R @ S @ R.T)
    if values[-1] <= _STRETCHED * values[0]:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    energy = T.T @ (A @ T)
    size = np.sqrt(energy.diagonal())
    _, group = connected_components(csr_array(np.abs(energy) > _STRONG * np.outer(size, size)))
    i, j = np.nonzero(group[:, None] == group)
    return i[i != j], j[i != j]


def inverse_of_groups(coupled: csr_array, diagonal: Array) -> tuple[Indices, csr_array] | None:
    """Invert the matrices of groups; coupled [n, n], diagonal [n] -> [k]."""
    n, scale = len(diagonal), 1 / np.sqrt(diagonal)
    entries = coo_array(coupled)
    inside = (scale[entries.row] > 0) & (scale[entries.col] > 0) & (entries.row != entries.col)
    i, j = entries.row[inside], entries.col[inside]
    N = csr_array((entries.data[inside] * scale[i] * scale[j], (i, j)), shape=(n, n))
    _, group = connected_components(N, directed=False)
    counts = np.bincount(group)
    by_group, starts = np.argsort(group, kind="stable"), np.cumsum(counts) - counts
    members = np.flatnonzero((counts[group] > 1) & (counts[group] <= _MOST))
    parts = list[tuple[Any, Any, Any]]()
    for size in np.unique(counts[group[members]]):
        own = by_group[starts[counts == size][:, None] + np.arange(size)]
        row, column = np.broadcast_arrays(own[:, :, None], own[:, None, :])
        matrices = np.asarray(N[row.ravel(), column.ravel()]).reshape(row.shape) + np.eye(size)
        values, V = np.linalg.eigh(matrices)
        inverse = (V / np.maximum(values, _SMALLEST)[:, None]) @ V.swapaxes(1, 2)
        inverse *= scale[row] / scale[column]
        parts.append((row.ravel(), column.ravel(), inverse.ravel()))
    if not parts:
        return None
    row, column, given = (np.concatenate(own) for own in zip(*parts, strict=True))
    places = np.searchsorted(members, row), np.searchsorted(members, column)
    return members, csr_array((given, places), shape=(len(members),) * 2)


class Lines:
    """z -> the inverse of the groups' matrices times z, in place; members [k], inverse [k, k]."""

    def __init__(self, members: Indices, inverse: csr_array, vectors: VectorSpace, dtype: DTypeLike) -> None:
        self.members = vectors.from_host(members)
        self.inverse = vectors.sparse(csr_array(inverse.astype(dtype)))

    def __call__(self, z: Any) -> None:
        """Apply to a vector, [size]; collective where processes share groups."""
        z[self.members] = self.inverse @ self._coefficients(z)

    def _coefficients(self, z: Any) -> Any:
        """What the inverse is multiplied with."""
        return z[self.members]


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


def lines_of(coupled: csr_array, diagonal: Array, c0: C0Space, vectors: VectorSpace, dtype: DTypeLike) -> list[Lines]:
    """Make what multiplies by the inverses of groups; collective; coupled [size, size], diagonal [size]."""
    made, sharing = list[Lines](), c0.numbering.sharing
    if sharing is not None:
        strong = sharing.combined((np.diff(coupled.indptr) > 0) & np.isfinite(diagonal), np.logical_or)
        _, group = connected_components(coupled, directed=False)
        shared = strong & np.isin(group, group[sharing.shared[strong[sharing.shared]]])
        sent = np.flatnonzero(shared)
        numbers, entries = c0.places()[sent], coupled[sent][:, sent].tocoo()
        comm = c0.space.comm
        found = comm.gather((numbers, numbers[entries.row], numbers[entries.col], entries.data, diagonal[sent]))
        part = comm.scatter(None if found is None else _parts(found))
        if part is not None and len(part.members):
            made.append(SharedLines(part, sent, c0, vectors, dtype))
        diagonal = np.where(shared, np.inf, diagonal)
    own = inverse_of_groups(coupled, diagonal)
    return made if own is None else [*made, Lines(*own, vectors, dtype)]


def _parts(given: Sequence[tuple[Any, ...]]) -> list[_Part | None]:
    """Groups that processes share: what each of them gets, from what each of them has sent."""
    known = unique(np.concatenate([numbers for numbers, *_ in given]))
    sent = [np.searchsorted(known, numbers) for numbers, *_ in given]
    rows, columns = (np.searchsorted(known, np.concatenate([own[i] for own in given])) for i in (1, 2))
    values, diagonal = np.concatenate([own[3] for own in given]), np.empty(len(known))
    for places, own in zip(sent, given, strict=True):
        diagonal[places] = own[4]
    found = inverse_of_groups(csr_array(coo_array((values, (rows, columns)), (len(known),) * 2)), diagonal)
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
