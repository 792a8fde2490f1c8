"""Q^T A Q on vectors of the host without local arrays: kernels take coefficients out of a vector, and add to another.

Both vectors have more places than there are unknowns. One holds zero, for modes that no unknown is seen in and lanes
behind the last element. Each row of Q with several entries has one. And so that threads never add to the same place,
and sums do not depend on their number, the groups of a block are divided into parts, as many as there is work for: an
unknown of several parts belongs to the first one, and has a further place for each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from ....support.pool import Pool
from ...vectors import BlockMatrix
from .kernel import CpuKernel
from .threads import THREAD_FLOPS

Array = NDArray[np.floating[Any]]
Indices = NDArray[np.int64]

# Parts of a block at most: more threads than that gain nothing.
_MOST_PARTS = 64


def _parts(kernel: CpuKernel) -> list[int]:
    """First groups of the parts of a block, and the number of groups."""
    parts = max(1, min(_MOST_PARTS, kernel.groups // 4, kernel.groups * kernel.group_flops // THREAD_FLOPS))
    return [kernel.groups * part // parts for part in range(parts + 1)]


def _foreign(places: NDArray[np.int32], bounds: Sequence[int], size: int) -> tuple[NDArray[np.bool_], Indices]:
    """Which numbers [group, mode, lane] are of unknowns that belong to an earlier part, and of each of these
    size * (how many other parts have it before, but the first) + unknown.
    """
    owner = np.full(int(places.max()) + 1, -1, dtype=np.int32)
    spans = list(enumerate(pairwise(bounds)))
    for part, (first, last) in reversed(spans):
        owner[places[first:last]] = part
    foreign = np.zeros(places.shape, dtype=bool)
    keys = [np.empty(0, dtype=np.int64)]
    for part, (first, last) in spans[1:]:
        own = places[first:last]
        foreign[first:last] = (owner[own] != part) & (own < size)
        keys.append(own[foreign[first:last]].astype(np.int64) * len(spans) + part)
    found, inverse = np.unique(np.concatenate(keys), return_inverse=True)
    unknown = found // len(spans)
    _, starts, counts = np.unique(unknown, return_index=True, return_counts=True)
    rank = np.arange(len(found)) - np.repeat(starts, counts)
    return foreign, (rank * size + unknown)[inverse.ravel()]


class CpuProduct:
    """The product of a global operator with vectors.

    Parameters
    ----------
    kernels : sequence of CpuKernel
        A, block by block.
    Q : BlockMatrix
    """

    def __init__(self, kernels: Sequence[CpuKernel], Q: BlockMatrix) -> None:
        self._of = tuple(kernels), Q
        self._size, self._dtype = Q.size, kernels[0].problem.dtype
        base = Q.size + Q.rows.shape[0]
        tables: list[NDArray[np.int32]] = []
        found = []
        for kernel, codes in zip(kernels, Q.codes, strict=True):
            padded = np.full((kernel.groups * kernel.lanes, codes.shape[1]), -1, dtype=np.int32)
            padded[: len(codes)] = codes
            table = np.ascontiguousarray(padded.reshape(kernel.groups, kernel.lanes, -1).transpose(0, 2, 1))
            negative = table < 0
            table[negative] = 2 * (Q.size - 1 - table[negative])
            tables.append(table)
            found.append(_foreign(table >> 1, _parts(kernel), Q.size))
        keys = np.unique(np.concatenate([own for _, own in found]))
        for table, (foreign, own) in zip(tables, found, strict=True):
            table[foreign] = 2 * (base + np.searchsorted(keys, own)) + (table[foreign] & 1)
        self._kernels = [(kernel.indexed(table), _parts(kernel)) for kernel, table in zip(kernels, tables, strict=True)]
        ones, n = np.ones(len(keys), self._dtype), len(keys)
        further = csr_array((ones, keys % Q.size, np.arange(n + 1)), (n, Q.size))
        tail = csr_array(vstack([Q.rows.astype(self._dtype), further], format="csr"))
        # The unknowns that have other places, what is there, and its transpose.
        self._shared = np.unique(tail.indices)
        self._tail = csr_array(tail[:, self._shared])
        self._tail_t = csr_array(self._tail.T)
        self._pool: Pool[Array] = Pool()

    def __call__(self, vector: Array, constrained: NDArray[np.integer[Any]]) -> Array:
        """Apply to a vector.

        Parameters
        ----------
        vector : ndarray, [components, size]
            Of the space's dtype.
        constrained : ndarray of int
            Unknowns that are taken out: their rows and columns are those of the identity.

        Returns
        -------
        ndarray, [components, size]
            A new one.
        """
        n, size = len(vector), self._size
        shape = n, size + self._tail.shape[0]
        given = self._pool.take(lambda: np.empty(shape, self._dtype))
        if given.shape != shape:
            given = np.empty(shape, self._dtype)
        given[:, :size] = vector
        given[:, constrained] = 0
        for row in given:
            row[size:] = self._tail @ row[self._shared]
        out = np.zeros(shape, self._dtype)
        for kernel, bounds in self._kernels:
            kernel.apply_indexed(given, out, bounds)
        self._pool.give(given)
        for row in out:
            row[self._shared] += self._tail_t @ row[size:]
        out[:, constrained] = vector[:, constrained]
        return out[:, :size]


# Those that are alive; they hold the objects whose ids they are found by.
_MADE: WeakValueDictionary[tuple[int, ...], CpuProduct] = WeakValueDictionary()


def product_of(kernels: Sequence[CpuKernel], Q: BlockMatrix) -> CpuProduct:
    """The product of kernels with a numbering: one, whatever conditions each of those has who ask for it.

    Parameters
    ----------
    kernels : sequence of CpuKernel
    Q : BlockMatrix

    Returns
    -------
    CpuProduct
    """
    key = (id(Q), *map(id, kernels))
    made = _MADE.get(key)
    if made is None:
        made = _MADE[key] = CpuProduct(kernels, Q)
    return made
