"""Q^T A Q on vectors of the host without local arrays: kernels read one vector and add to another.

Both vectors have more places than there are unknowns. One place holds zero, for modes without an unknown and lanes
after the last element. Each row of Q with several entries has a place. The groups of a block are divided into parts, as
many as there is work for. An unknown of several parts belongs to the first one, and has another place for each other
part. So threads never add to the same place, and sums do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array, vstack

from ....geometry.element_map import CACHED, chunks
from ....mesh.sorting import distinct, run_starts
from ....support.pool import Pool
from ...vectors import HOST_VECTORS, BlockMatrix
from ..codegen.sequence import WORDS, write_sequence
from .cache import compiled
from .kernel import CpuKernel, MatrixKernel
from .target import Code, host
from .threads import THREAD_FLOPS, thread_count

Array = NDArray[np.floating[Any]]
Indices = NDArray[np.int64]

# Largest number of parts of a block: more threads gain nothing.
_MOST_PARTS = 64
_NONE = np.empty(0, dtype=np.int64)

# Words of a call, and arguments that a sequence does not need.
_OUT, _INPUTS = 6, slice(7, 11)
_NOTHING = (0,) * 8

IndexedKernel = CpuKernel | MatrixKernel


def _parts(kernel: IndexedKernel) -> list[int]:
    """First groups of the parts of a block, and the number of groups."""
    parts = max(1, min(_MOST_PARTS, kernel.groups // 4, kernel.groups * kernel.group_flops // THREAD_FLOPS))
    return [kernel.groups * part // parts for part in range(parts + 1)]


def _table(kernel: IndexedKernel, codes: NDArray[np.integer[Any]], size: int) -> NDArray[np.int32]:
    """Signed places [group, mode, lane] of the coefficients of a block, also for lanes after its last element."""
    lanes, n_modes = kernel.lanes, codes.shape[1]
    table = np.empty((kernel.groups, n_modes, lanes), dtype=np.int32)
    for part in chunks(kernel.groups, n_modes * lanes, most=CACHED):
        own = codes[part.start * lanes : part.stop * lanes]
        if missing := (part.stop - part.start) * lanes - len(own):
            own = np.concatenate([own, np.full((missing, n_modes), -1, dtype=own.dtype)])
        places = table[part]
        places[...] = own.reshape(-1, lanes, n_modes).swapaxes(1, 2)
        negative = places < 0
        if negative.any():
            places[negative] = 2 * (size - 1 - places[negative])
    return table


def _foreign(table: NDArray[np.int32], bounds: Sequence[int], end: int, size: int) -> tuple[Indices, Indices, Indices]:
    """Which numbers of a table, counted through, are of unknowns that belong to an earlier part; which of the keys each
    of these has; and the keys: size * (how many other parts have it before, but the first) + unknown.
    """
    owner = np.full(end, -1, dtype=np.int32)
    spans = list(enumerate(pairwise(bounds)))
    for part, (first, last) in reversed(spans):
        owner[(table[first:last] >> 1).ravel()] = part
    found, keys = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for part, (first, last) in spans[1:]:
        places = (table[first:last] >> 1).ravel()
        here = np.flatnonzero((owner[places] != part) & (places < size))
        found.append(here + first * table[0].size)
        keys.append(places[here].astype(np.int64) * len(spans) + part)
    every = np.concatenate(keys)
    first_of, which = distinct(every.copy(), size * len(spans))
    unknown = every[first_of] // len(spans)
    starts = np.flatnonzero(run_starts(unknown))
    rank = np.arange(len(unknown)) - np.repeat(starts, np.diff(starts, append=len(unknown)))
    return np.concatenate(found), which, rank * size + unknown


def _tables(kernels: Sequence[IndexedKernel], Q: BlockMatrix) -> tuple[list[NDArray[np.int32]], Indices]:
    """Signed places of the numbers of every block, and keys of those that unknowns of several parts have further."""
    base = Q.size + Q.rows.shape[0]
    tables = [_table(kernel, codes, Q.size) for kernel, codes in zip(kernels, Q.codes, strict=True)]
    found = [_foreign(table, _parts(kernel), base, Q.size) for kernel, table in zip(kernels, tables, strict=True)]
    keys = np.sort(np.concatenate([own for *_, own in found]))
    keys = keys[run_starts(keys)]
    for table, (here, which, own) in zip(tables, found, strict=True):
        flat = table.reshape(-1)
        flat[here] = 2 * (base + np.searchsorted(keys, own)[which]) + (flat[here] & 1)
    return tables, keys


class _Scratch:
    """What one product at a time uses: a vector with all places, and the calls of the kernels, for one thread."""

    def __init__(
        self, shape: tuple[int, int], kernels: Sequence[tuple[IndexedKernel, list[int]]], dtype: DTypeLike
    ) -> None:
        self.given = np.zeros(shape, dtype)
        self.given_at = self.given.ctypes.data
        some = [kernel for kernel, _ in kernels if kernel.groups]
        calls = [kernel.call(shape, self.given_at) for kernel in some]
        self._calls = np.array([words for words, _ in calls], dtype=np.int64).reshape(-1, WORDS)
        self._at, self._used = self._calls.ctypes.data, [used for _, used in calls]
        self._changing = [(row, kernel) for row, kernel in zip(self._calls, some, strict=True) if kernel.changes]

    def run(self, sequence: Code, out: int) -> None:
        """Run the kernels, which add to the vector at the address `out`."""
        used = []
        for row, kernel in self._changing:
            addresses, held = kernel.inputs()
            if held is not None:
                row[_INPUTS] = addresses
                used.append(held)
        self._calls[:, _OUT] = out
        if len(self._calls):
            sequence.run(0, len(self._calls), 0, 0, self._at, *_NOTHING)


class CpuProduct:
    """The product of a global operator with vectors.

    Parameters
    ----------
    kernels : sequence of CpuKernel or MatrixKernel
        A, block by block.
    Q : BlockMatrix
    back : BlockMatrix, optional
        The matrix to transpose instead of Q, with the same codes.
    like : CpuProduct, optional
        One with the same codes and kernels of the same work, whose tables are used.
    """

    def __init__(
        self,
        kernels: Sequence[IndexedKernel],
        Q: BlockMatrix,
        back: BlockMatrix | None = None,
        like: CpuProduct | None = None,
    ) -> None:
        self._of = tuple(kernels), Q
        self._size, self._dtype = Q.size, kernels[0].dtype
        self._tables: tuple[list[NDArray[np.int32]], Indices] = _tables(kernels, Q) if like is None else like._tables
        tables, keys = self._tables
        self._kernels = [(kernel.indexed(table), _parts(kernel)) for kernel, table in zip(kernels, tables, strict=True)]
        ones, n = np.ones(len(keys), self._dtype), len(keys)
        further = csr_array((ones, keys % Q.size, np.arange(n + 1)), (n, Q.size))
        # The unknowns with other places, the entries there, and the unknowns to which these are added back.
        rows = [Q.rows, Q.rows if back is None else back.rows]
        tails = [csr_array(vstack([own.astype(self._dtype), further], format="csr")) for own in rows]
        shared = np.zeros(Q.size, dtype=bool)
        for tail in tails:
            shared[tail.indices] = True
        self._shared = np.flatnonzero(shared)
        among = np.empty(Q.size, dtype=np.int64)
        among[self._shared] = np.arange(len(self._shared))
        n_shared = len(self._shared)
        self._tail, written = (
            csr_array((tail.data, among[tail.indices], tail.indptr), (tail.shape[0], n_shared)) for tail in tails
        )
        self._tail_t = csr_array(written.T)
        self._small = all(len(bounds) == 2 for _, bounds in self._kernels)
        self._sequence = compiled(write_sequence(), host())
        self._pools: dict[int, Pool[_Scratch]] = {}

    def __call__(self, vector: Array, constrained: NDArray[np.integer[Any]] = _NONE) -> Array:
        """Apply to a vector.

        Parameters
        ----------
        vector : ndarray, [components, size]
            Of the space's dtype.
        constrained : ndarray of int
            Unknowns that are taken out: their rows and columns are those of the identity; none when left out.

        Returns
        -------
        ndarray, [components, size]
            A new one.
        """
        n, size = len(vector), self._size
        shape = n, size + self._tail.shape[0]
        pool = self._pools.setdefault(n, Pool())
        own = pool.take(lambda: _Scratch(shape, self._kernels, self._dtype))
        given, shared, some = own.given, self._shared, len(constrained) > 0
        given[:, :size] = vector
        if some:
            given[:, constrained] = 0
        for row in given if len(shared) else ():
            row[size:] = self._tail @ row.take(shared)
        out = np.zeros(shape, self._dtype)
        if self._small or thread_count() == 1:
            own.run(self._sequence, out.ctypes.data)
        else:
            at = own.given_at, out.ctypes.data
            for kernel, bounds in self._kernels:
                kernel.apply_indexed(given, out, bounds, at)
        pool.give(own)
        for row in out if len(shared) else ():
            row[shared] = row.take(shared) + self._tail_t @ row[size:]
        if some:
            out[:, constrained] = vector[:, constrained]
        return out[:, :size]


# Living products; they hold the objects whose ids are the keys.
_MADE: WeakValueDictionary[tuple[int, ...], CpuProduct] = WeakValueDictionary()


def product_of(kernels: Sequence[CpuKernel], Q: BlockMatrix) -> CpuProduct:
    """The product of kernels with a numbering: one object for all boundary conditions.

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


class CpuCellwise:
    """Products with a matrix per block of Q, without local arrays; see `CellwiseProduct`."""

    def __init__(
        self, matrices: Sequence[Sequence[csr_array]], Q: BlockMatrix, back: BlockMatrix, dtype: DTypeLike
    ) -> None:
        pairs = [(M, own.shape[0]) for M, own in zip(matrices, Q.blocks, strict=True)]
        there = [MatrixKernel(M, n_elements, dtype) for M, n_elements in pairs]
        again = [MatrixKernel(M, n_elements, dtype, transposed=True) for M, n_elements in pairs]
        self.restriction = HOST_VECTORS.restriction(Q, dtype)
        self._forward = CpuProduct(there, Q, back)
        self._backward = CpuProduct(again, back, Q, self._forward)

    def apply(self, x: Array) -> Array:
        """Q_a^t M Q x; see `CellwiseProduct.apply`."""
        return self._forward(x[None])[0]

    def transposed(self, r: Array) -> Array:
        """Q^t M^t Q_a r; see `CellwiseProduct.apply`."""
        return self._backward(r[None])[0]
