"""Q^T A Q on vectors of the host without local arrays: kernels read one vector and add to another.

Both vectors have more places than there are unknowns. One place holds zero, for modes without an unknown and lanes
after the last element. Each row of Q with several entries has a place. The groups of all blocks are divided into parts,
as many as there is work for. An unknown of several parts belongs to the first one, and has another place for each other
part. So threads never add to the same place, and sums do not depend on the number of threads. The unknowns of a part
stay in the cache from block to block, where blocks are of cells here and there.
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
from ....support.threads import THREAD_FLOPS
from ...cellwise import added
from ...restriction import BlockMatrix
from ...vectors import HOST_VECTORS, VectorSpace
from .kernel import CpuKernel, MatrixKernel
from .recording import COPY, PRODUCT, ZERO, Recorded, Recording

Array = NDArray[np.floating[Any]]
Indices = NDArray[np.int64]

# Largest number of parts of a block: more threads gain nothing.
_MOST_PARTS = 64
_NONE = np.empty(0, dtype=np.int64)

# The word of a call with the address of its result.
_OUT = 6

IndexedKernel = CpuKernel | MatrixKernel


def _bounds(kernels: Sequence[IndexedKernel]) -> list[list[int]]:
    """First groups of every part, block by block, and the numbers of groups."""
    work = sum(kernel.groups * kernel.group_flops for kernel in kernels)
    parts = max(1, min(_MOST_PARTS, max(kernel.groups for kernel in kernels) // 4, work // THREAD_FLOPS))
    return [[kernel.groups * part // parts for part in range(parts + 1)] for kernel in kernels]


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


def _foreign(
    tables: Sequence[NDArray[np.int32]], bounds: Sequence[Sequence[int]], end: int, size: int
) -> tuple[list[list[Indices]], Indices, Indices]:
    """Which numbers of the tables, counted through, are of unknowns that belong to an earlier part, by table and part;
    which of the keys each of these has, part by part; and the keys: size * (how many other parts have the unknown
    before, but the first) + unknown.
    """
    parts, owner = len(bounds[0]) - 1, np.full(end, -1, dtype=np.int32)
    for part in reversed(range(parts)):
        for table, own in zip(tables, bounds, strict=True):
            owner[(table[own[part] : own[part + 1]] >> 1).ravel()] = part
    found, keys = [list[Indices]() for _ in tables], [np.empty(0, dtype=np.int64)]
    for here, table, own in zip(found, tables, bounds, strict=True):
        for part in range(1, parts):
            places = (table[own[part] : own[part + 1]] >> 1).ravel()
            others = np.flatnonzero((owner[places] != part) & (places < size))
            here.append(others + own[part] * table[0].size if len(table) else others)
            keys.append(places[others].astype(np.int64) * parts + part)
    every = np.concatenate(keys)
    first_of, which = distinct(every.copy(), size * parts)
    unknown = every[first_of] // parts
    starts = np.flatnonzero(run_starts(unknown))
    rank = np.arange(len(unknown)) - np.repeat(starts, np.diff(starts, append=len(unknown)))
    return found, which, rank * size + unknown


def _tables(
    kernels: Sequence[IndexedKernel], bounds: Sequence[Sequence[int]], Q: BlockMatrix
) -> tuple[list[NDArray[np.int32]], Indices]:
    """Signed places of the numbers of every block, and keys of those that unknowns of several parts have further."""
    base = Q.size + Q.rows.shape[0]
    tables = [_table(kernel, codes, Q.size) for kernel, codes in zip(kernels, Q.codes, strict=True)]
    found, which, own = _foreign(tables, bounds, base, Q.size)
    keys = np.sort(own)
    places, done = 2 * (base + np.searchsorted(keys, own)[which]), 0
    for table, parts in zip(tables, found, strict=True):
        flat = table.reshape(-1)
        for here in parts:
            flat[here] = places[done : done + len(here)] + (flat[here] & 1)
            done += len(here)
    return tables, keys


class CpuProduct:
    """The product back^T A Q with vectors: A are kernels, block by block; back has the codes of Q, or is Q.

    `like` is a product with the same codes and kernels of the same work, whose tables are used.
    """

    def __init__(
        self,
        kernels: Sequence[IndexedKernel],
        Q: BlockMatrix,
        back: BlockMatrix | None = None,
        like: CpuProduct | None = None,
    ) -> None:
        self._of = tuple(kernels), Q
        self._size, self.dtype = Q.size, kernels[0].dtype
        self._bounds: list[list[int]] = _bounds(kernels) if like is None else like._bounds
        made = _tables(kernels, self._bounds, Q) if like is None else like._tables
        self._tables: tuple[list[NDArray[np.int32]], Indices] = made
        tables, keys = made
        self._kernels = [kernel.indexed(table) for kernel, table in zip(kernels, tables, strict=True)]
        ones, n = np.ones(len(keys), self.dtype), len(keys)
        further = csr_array((ones, keys % Q.size, np.arange(n + 1)), (n, Q.size))
        # Entries of the other places, and where these are added back.
        rows = [Q.rows, Q.rows if back is None else back.rows]
        self._tail, written = (csr_array(vstack([own.astype(self.dtype), further], format="csr")) for own in rows)
        there = np.zeros(Q.size, dtype=bool)
        there[written.indices] = True
        self._shared = np.flatnonzero(there)
        self._tail_t = csr_array(written.T[self._shared])
        # Recordings of one product, with its argument and result, by the number of components.
        self._pools: dict[int, Pool[tuple[Recording, Array, Recorded]]] = {}

    def __call__(self, vector: Any, constrained: NDArray[np.integer[Any]] = _NONE, scale: Array | None = None) -> Any:
        """Apply to a vector; vector, scale [components, size] -> [components, size]."""
        assert scale is None or not len(constrained)
        if isinstance(vector, Recorded):
            return self._recorded(vector, constrained, scale)
        pool, some = self._pools.setdefault(len(vector), Pool()), len(constrained) > 0
        own = pool.take(lambda: self._new_recording(len(vector)))
        recording, argument, result = own
        target = argument[:, : self._size]
        if scale is None:
            target[...] = vector
        else:
            np.multiply(vector, scale, out=target)
        if some:
            target[:, constrained] = 0
        recording.run()
        out = result.array.copy()
        pool.give(own)
        if some:
            out[:, constrained] = vector[:, constrained]
        return out

    def _new_recording(self, n: int) -> tuple[Recording, Array, Recorded]:
        recording, argument = Recording(self.dtype), self._new_argument(n)
        result = self._record(recording, argument)
        recording.finish()
        return recording, argument, result

    def _recorded(self, vector: Recorded, constrained: NDArray[np.integer[Any]], scale: Array | None) -> Recorded:
        """The product of a recorded vector."""
        recording, some = vector.recording, len(constrained) > 0
        n = len(vector.array)
        argument = recording.once((id(self), n), lambda: (self._new_argument(n), self))[0]
        target = argument[:, : self._size]
        if some:
            key = id(constrained), target.shape
            scale = recording.once(key, lambda: (self._kept(constrained, target.shape), constrained))[0]
        if scale is not None:
            recording.update(PRODUCT, (vector.array, scale, target))
        else:
            recording.update(COPY, (vector.array, target))
        out = self._record(recording, argument)
        for source, row in zip(vector.array, out.array, strict=True) if some else ():
            recording.move(source, constrained, row, constrained)
        return out

    def _kept(self, constrained: NDArray[np.integer[Any]], shape: tuple[int, ...]) -> Array:
        kept = np.ones(shape, self.dtype)
        kept[:, constrained] = 0
        return kept

    def _new_argument(self, n: int) -> Array:
        """Make a vector with all places; some are zero for ever; -> [n, size + other places]."""
        return np.zeros((n, self._size + self._tail.shape[0]), self.dtype)

    def _record(self, recording: Recording, argument: Array) -> Recorded:
        """Record the product with a vector whose other places are to be filled in; -> [n, size]."""
        size, places = self._size, np.arange(self._tail.shape[0])
        for row in argument:
            recording.rows(self._tail, row[:size], row[size:], at=places)
        out = recording.empty(argument.shape)
        recording.update(ZERO, (out.array,))
        at = argument.ctypes.data, out.array.ctypes.data
        parts = list[list[tuple[IndexedKernel, Sequence[int]]]]([] for _ in self._bounds[0][1:])
        work, held = 0, [argument, out.array]
        for kernel, bounds in zip(self._kernels, self._bounds, strict=True):
            if not kernel.groups:
                continue
            key = id(kernel), id(argument)
            words, used = recording.once(key, lambda own=kernel: own.call(argument.shape, at[0]))  # type: ignore[misc]
            held.append(used)
            work += kernel.groups * kernel.group_flops * len(argument)
            for part, (first, last) in zip(parts, pairwise(bounds), strict=True):
                if first < last:
                    part.append((kernel, (words[0], first, last, *words[3:_OUT], at[1], *words[_OUT + 1 :])))
        recording.add_parts(parts, work, held)
        for row in out.array:
            recording.rows(self._tail_t, row[size:], row[:size], add=True, at=self._shared)
        return out.part(out.array[:, :size])


# Living products; they hold the objects whose ids are the keys.
_MADE: WeakValueDictionary[tuple[int, ...], CpuProduct] = WeakValueDictionary()


def product_of(kernels: Sequence[CpuKernel], Q: BlockMatrix) -> CpuProduct:
    """The product of kernels with a numbering: one object for all boundary conditions."""
    key = (id(Q), *map(id, kernels))
    made = _MADE.get(key)
    if made is None:
        made = _MADE[key] = CpuProduct(kernels, Q)
    return made


class CpuCellwise:
    """Products with a matrix per block of Q, without local arrays; see `CellwiseProduct`."""

    def __init__(
        self,
        matrices: Sequence[Sequence[csr_array]],
        Q: BlockMatrix,
        back: BlockMatrix,
        vectors: VectorSpace,
        dtype: DTypeLike,
    ) -> None:
        self._vectors = vectors
        pairs = [(M, own.shape[0]) for M, own in zip(matrices, Q.blocks, strict=True)]
        there = [MatrixKernel(M, n_elements, dtype) for M, n_elements in pairs]
        again = [MatrixKernel(M, n_elements, dtype, transposed=True) for M, n_elements in pairs]
        self.restriction = HOST_VECTORS.restriction(Q, dtype)
        self._forward = CpuProduct(there, Q, back)
        self._backward = CpuProduct(again, back, Q, self._forward)

    def apply(self, x: Array, scale: Array | None = None, onto: Array | None = None) -> Array:
        """Q_a^t M Q x; see `CellwiseProduct.apply`."""
        found: Array = added(self._of_all(self._forward(x[None])[0], scale), onto)
        return found

    def transposed(self, r: Array, scale: Array | None = None, weights: Array | None = None) -> Array:
        """Q^t M^t Q_a W r; see `CellwiseProduct.transposed`."""
        product = self._backward(r[None], scale=None if weights is None else weights[None])
        return self._of_all(product[0], scale)

    def _of_all(self, result: Array, scale: Array | None) -> Array:
        if scale is not None:
            result *= scale
        summed: Array = self._vectors.summed(result)
        return summed
