"""Q^T A Q on vectors of the host without local arrays: kernels read one vector and add to another.

The groups of all blocks are divided into parts, as many as there are work and cores for. Threads work on every second
part, then on those between. An unknown of several of the former, or of the latter, belongs to the first one, and has
another place behind the result for each other part. So threads never add to the same place, and sums do not depend on
the number of threads. The unknowns of a part stay in the cache from block to block, where blocks are of cells here and
there.

Where all rows of Q have one entry, the argument is read where it is. Else it is copied: each other row has a place
behind it, one of which holds zero, and a place behind the result.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from hpfem.shapes.arrays import Floats, Indices

from ....geometry.element_map import CACHED, chunks
from ....mesh.sorting import distinct, run_starts
from ....support.pool import Pool
from ....support.threads import THREAD_FLOPS
from ...cellwise import CellMatrices, added, more_of
from ...restriction import BlockMatrix, Codes
from ...vectors import HOST_VECTORS
from ..codegen.indexed import Runs
from .kernel import CpuKernel, MatrixKernel, indexed_codes, tables_of
from .recording import COPY, PRODUCT, ZERO, Recorded, Recording
from .target import host

# Largest number of parts of a block, and for each core of the machine: more threads gain nothing.
_MOST_PARTS, _OF_CORE = 64, 4
# Threads work on every second part.
_PHASES = 2
# Parts get longer until at most one in so many unknowns is in two of those at the same time.
_FEW = 64
_NONE = np.empty(0, dtype=np.int64)

# The word of a call with the address of its result.
_OUT = 6

IndexedKernel = CpuKernel | MatrixKernel


def _bounds(kernels: Sequence[IndexedKernel], Q: BlockMatrix) -> list[list[int]]:
    """First groups of every part, block by block, and the numbers of groups."""
    work = sum(kernel.groups * kernel.group_flops for kernel in kernels)
    most = min(_MOST_PARTS, _OF_CORE * (os.cpu_count() or 1), int(_PHASES * work // THREAD_FLOPS))
    most = min(most, max(own.groups for own in kernels) // 4)
    # Of elements for whole groups of numbers of any type.
    wide = host().lanes(np.float32)
    groups = [-(-codes.shape[0] // wide) for codes in Q.blocks]
    bounds = [[wide * (own * part // most) for part in range(most + 1)] for own in groups] if most > 1 else []
    # The first and the last part with each unknown; one of each entity tells enough.
    first, last = np.full(Q.size, most, dtype=np.int8), np.zeros(Q.size, dtype=np.int8)
    for own, codes in zip(bounds, Q.blocks, strict=False):
        modes = codes.modes[(np.cumsum(codes.sizes) - codes.sizes)[codes.sizes > 0]]
        places = np.maximum(codes.on(np).take(modes, axis=1) >> 1, 0).astype(np.intp).ravel()
        part = np.repeat(np.arange(most, dtype=np.int8), len(modes) * np.diff(own))[: len(places)]
        # If several numbers are written to one place, the last one stays.
        for found, either, turn in ((last, np.maximum, 1), (first, np.minimum, -1)):
            here = found.copy()
            here[places[::turn]] = part[::turn]
            either(found, here, out=found)
    # Parts that are longer, so that few unknowns are in others than neighbours.
    together = next((n for n in (1, 2) if np.count_nonzero(last // n - first // n > 1) * _FEW <= Q.size), 1)
    parts = max(1, most // together)
    return [
        [min(wide * (own * part // parts) // kernel.lanes, kernel.groups) for part in range(parts + 1)]
        for kernel, own in zip(kernels, groups, strict=True)
    ]


def _table(kernel: IndexedKernel, codes: NDArray[np.integer[Any]], size: int) -> NDArray[np.int32]:
    """Signed places [group, mode, lane] of the coefficients of a block; lanes after its last element repeat it."""
    lanes, n_modes = kernel.lanes, codes.shape[1]
    table = np.empty((kernel.groups, n_modes, lanes), dtype=np.int32)
    for part in chunks(kernel.groups, n_modes * lanes, most=CACHED):
        own = codes[part.start * lanes : part.stop * lanes]
        if missing := (part.stop - part.start) * lanes - len(own):
            own = np.concatenate([own, np.repeat(own[-1:], missing, axis=0)])
        places = table[part]
        places[...] = own.reshape(-1, lanes, n_modes).swapaxes(1, 2)
        negative = places < 0
        if negative.any():
            places[negative] = 2 * (size - 1 - places[negative])
    return table


def _foreign(
    tables: Sequence[NDArray[np.int32]], bounds: Sequence[Sequence[int]], end: int, size: int
) -> tuple[list[tuple[int, Indices]], Indices, Indices]:
    """Which numbers of a table, counted through, are of unknowns that belong to an earlier part of the same phase;
    which of the keys each of these has; and the keys: size * (how many other such parts have the unknown before) +
    unknown.
    """
    parts = len(bounds[0]) - 1
    found, keys = list[tuple[int, Indices]](), [np.empty(0, dtype=np.int64)]
    for phase in range(_PHASES if parts > _PHASES else 0):
        owner = np.full(end, -1, dtype=np.int32)
        for part in reversed(range(phase, parts, _PHASES)):
            for table, own in zip(tables, bounds, strict=True):
                owner[(table[own[part] : own[part + 1]] >> 1).ravel()] = part
        for number, (table, own) in enumerate(zip(tables, bounds, strict=True)):
            for part in range(phase + _PHASES, parts, _PHASES):
                places = (table[own[part] : own[part + 1]] >> 1).ravel()
                others = np.flatnonzero((owner[places] != part) & (places < size))
                found.append((number, others + own[part] * table[0].size if len(table) else others))
                keys.append(places[others].astype(np.int64) * parts + part)
    every = np.concatenate(keys)
    first_of, which = distinct(every.copy(), size * parts)
    unknown = every[first_of] // parts
    starts = np.flatnonzero(run_starts(unknown))
    rank = np.arange(len(unknown)) - np.repeat(starts, np.diff(starts, append=len(unknown)))
    return found, which, rank * size + unknown


class _Entities(NamedTuple):
    """Entities of the elements of a block: codes of coefficients and of results, [groups, entities, lanes]."""

    runs: Runs
    given: NDArray[np.int32]
    results: NDArray[np.int32]


def _entities(codes: Codes, given: NDArray[np.int32], results: NDArray[np.int32]) -> list[_Entities]:
    """Entities with numbers side by side, those that are alike together, the interior last; other modes one by one."""
    numbers, modes = np.flatnonzero(codes.sizes), codes.modes
    sizes = codes.sizes[numbers]
    starts, entity = np.cumsum(sizes) - sizes, np.repeat(np.arange(len(sizes)), sizes)
    if len(given):  # in the order of the first element's numbers: those of turned faces are in another one
        modes = modes[np.lexsort((given[0, modes, 0] >> 1, entity))]

    def marked(array: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Which rows have a number that is not zero; [groups, n, lanes] -> [n]."""
        return np.asarray(np.bitwise_or.reduce(array, axis=0).any(axis=1))

    # Of an entity a code and one sign, by modes, tell all codes, and so do they those of results.
    first = np.empty((len(given), len(numbers), given.shape[2]), np.int32)
    apart = np.empty_like(first) if results is not given else np.zeros_like(first[:1])
    signed, turned, wrong = np.zeros((3, len(modes)), dtype=bool)
    odd, offsets = np.zeros(len(numbers), dtype=bool), 2 * (np.arange(len(modes)) - starts[entity]).astype(np.int32)
    for some in chunks(len(given), len(modes) * given.shape[2], most=CACHED):
        common, signs = first[some], given[some].take(modes, axis=1)
        np.bitwise_and(signs[:, starts], ~1, out=common)
        signs -= common.take(entity, axis=1)
        signs -= offsets[:, None]
        sign = np.bitwise_or.reduceat(signs, starts, axis=1)
        signed |= marked(signs)
        signs ^= sign.take(entity, axis=1)
        turned |= marked(signs)
        odd |= marked(sign & ~1)
        common += sign
        if results is not given:
            of_all = (results[some] - given[some]).take(modes, axis=1)
            apart[some] = of_all[:, starts]
            of_all ^= apart[some].take(entity, axis=1)
            wrong |= marked(of_all)
    wrong |= turned & signed
    alike = (sizes > 1) & ~np.logical_or.reduceat(wrong, starts) & ~odd
    kinds: dict[tuple[bool, tuple[bool, ...]], list[tuple[int, tuple[int, ...]]]] = {}
    for k, (number, own) in enumerate(zip(numbers, np.split(modes, starts[1:]), strict=True)):
        kind = tuple(signed[starts[k] : starts[k] + sizes[k]].tolist()) if alike[k] else (True,)
        of_kind, every = kinds.setdefault((number == len(codes.sizes) - 1, kind), []), tuple(own.tolist())
        of_kind += [(k, every)] if alike[k] else [(mode, (mode,)) for mode in every]
    found = []
    for (_, kind), entities in kinds.items():
        which, of_modes = zip(*entities, strict=True)
        here, side_by_side = list(which), len(kind) > 1
        own = (first if side_by_side else given).take(here, axis=1)
        further = own + apart.take(here, axis=1) if side_by_side else results.take(here, axis=1)
        found.append(_Entities(Runs(of_modes, kind), own, further))
    return found


def _alone(blocks: list[list[_Entities]], n_elements: Sequence[int]) -> list[tuple[int, int]]:
    """Find interiors that stand one after the other in a range of unknowns, mark them, and return the ranges."""
    ranges = []
    for block, count in zip(blocks, n_elements, strict=True):
        own, n = block[-1], len(block[-1].runs.signed)
        places = own.results.swapaxes(0, 1).reshape(len(own.runs.modes), -1)[:, :count]
        first = int(places[0, 0]) >> 1 if count else 0
        if not count or len(places) > 1 or (places[0] != 2 * (first + n * np.arange(count))).any():
            continue
        others = [other for those in blocks for other in those if other is not own]
        stop = first + n * count
        if not any(((o.results >> 1 < stop) & ((o.results >> 1) + len(o.runs.signed) > first)).any() for o in others):
            block[-1] = own._replace(runs=replace(own.runs, signed=(False,) * n, alone=True))
            ranges.append((first, stop))
    return ranges


@dataclass(frozen=True, eq=False)
class _Tables:
    """What kernels are told of the unknowns of a product."""

    blocks: Sequence[Codes]  # of which they are
    bounds: list[list[int]]
    codes: list[tuple[NDArray[np.int32], tuple[Runs, ...]]]  # block by block
    keys: Indices  # of the places that unknowns of several parts have further
    added: list[tuple[int, int]]  # ranges of places that are added to

    def of_lanes(self, kernels: Sequence[IndexedKernel], lanes: int) -> _Tables:
        """The same for kernels of other lanes than these are for."""
        bounds = [
            [min(-(-first * lanes // kernel.lanes), kernel.groups) for first in own]
            for kernel, own in zip(kernels, self.bounds, strict=True)
        ]
        made = []
        for kernel, codes, (given, runs) in zip(kernels, self.blocks, self.codes, strict=True):
            before = tables_of(given, runs, lanes, -(-codes.shape[0] // lanes))
            made.append((indexed_codes(runs, *(_of_lanes(own, codes.shape[0], kernel) for own in before)), runs))
        return replace(self, bounds=bounds, codes=made)


def _of_lanes(table: NDArray[np.int32], n_elements: int, kernel: IndexedKernel) -> NDArray[np.int32]:
    """A table [groups, n, lanes] for the lanes of a kernel; those after the last element repeat it."""
    there = np.minimum(np.arange(kernel.groups * kernel.lanes), n_elements - 1).reshape(kernel.groups, 1, kernel.lanes)
    group, lane = np.divmod(there, table.shape[2])
    return table[group, np.arange(table.shape[1])[:, None], lane]


# By ids of the blocks that they hold, and lanes: products of all types of numbers, with Q or its inverse, share them.
_SHARED: WeakValueDictionary[tuple[int, ...], _Tables] = WeakValueDictionary()


def _tables(kernels: Sequence[IndexedKernel], Q: BlockMatrix) -> _Tables:
    """The tables of kernels and a numbering; those for another type of numbers tell most."""
    key, lanes = tuple(map(id, Q.blocks)), kernels[0].lanes
    for other in (lanes, 2 * lanes, lanes // 2):
        known = _SHARED.get((*key, other))
        if known is not None:
            break
    else:
        known, other = _new_tables(kernels, Q), lanes
    made = known if other == lanes else known.of_lanes(kernels, other)
    return _SHARED.setdefault((*key, lanes), made)


def _new_tables(kernels: Sequence[IndexedKernel], Q: BlockMatrix) -> _Tables:
    bounds = _bounds(kernels, Q)
    base = Q.size if Q.signed else Q.size + Q.rows.shape[0]
    given = [_table(kernel, codes, Q.size) for kernel, codes in zip(kernels, Q.codes, strict=True)]
    found, which, own = _foreign(given, bounds, base, Q.size)
    keys = np.sort(own)
    places, done, results = 2 * (base + np.searchsorted(keys, own)[which]), 0, given
    if len(places):
        results = [table.copy() for table in given]
    for number, here in found if len(places) else ():
        flat = results[number].reshape(-1)
        flat[here] = places[done : done + len(here)] + (flat[here] & 1)
        done += len(here)
    blocks = [
        own
        for _, same in groupby(zip(Q.blocks, given, results, strict=True), lambda block: id(block[0].of[0]))
        for own in _by_part(list(same))
    ]
    ranges = sorted(_alone(blocks, [codes.shape[0] for codes in Q.blocks]))
    added = list(pairwise([0, *(end for own in ranges for end in own), base + len(keys)]))[::2]
    made = []
    for block in blocks:
        runs, *both = zip(*block, strict=True)
        tables = [np.concatenate(own, axis=1) for own in both[: 1 + (len(keys) > 0)]]
        made.append((indexed_codes(runs, *tables), runs))
    return _Tables(Q.blocks, bounds, made, keys, added)


def _by_part(parts: list[tuple[Codes, NDArray[np.int32], NDArray[np.int32]]]) -> list[list[_Entities]]:
    """`_entities` of parts of one block, found together."""
    if len(parts) == 1:
        return [_entities(*parts[0])]
    (codes, *_), (_, given, results) = parts[0], zip(*parts, strict=True)
    ends = np.cumsum([len(own) for own in given])[:-1]
    every = np.concatenate(given)
    found = _entities(codes, every, every if results[0] is given[0] else np.concatenate(results))
    both = [(own.runs, np.split(own.given, ends), np.split(own.results, ends)) for own in found]
    return [[_Entities(runs, a[n], b[n]) for runs, a, b in both] for n in range(len(parts))]


class CpuProduct:
    """back^T A Q: A are kernels by block, back has the codes of Q or is Q; a product `like` it has the tables."""

    def __init__(
        self,
        kernels: Sequence[IndexedKernel],
        Q: BlockMatrix,
        back: BlockMatrix | None = None,
        like: CpuProduct | None = None,
    ) -> None:
        self._of = tuple(kernels), Q
        self._size, self.dtype = Q.size, kernels[0].dtype
        self._tables: _Tables = _tables(kernels, Q) if like is None else like._tables
        codes, keys = self._tables.codes, self._tables.keys
        self._bounds, self._added = self._tables.bounds, self._tables.added
        self._kernels = [kernel.indexed(*own) for kernel, own in zip(kernels, codes, strict=True)]
        ones, n = np.ones(len(keys), self.dtype), len(keys)
        further = csr_array((ones, keys % Q.size, np.arange(n + 1)), (n, Q.size))
        # Entries of the other places of the argument, and where those of the result are added back.
        none = csr_array((0, Q.size))
        rows, back_rows = (none, none) if Q.signed else (Q.rows, Q.rows if back is None else back.rows)
        self._rows = csr_array(rows.astype(self.dtype))
        written = csr_array(vstack([back_rows.astype(self.dtype), further], format="csr"))
        there = np.zeros(Q.size, dtype=bool)
        there[written.indices] = True
        self._shared = np.flatnonzero(there)
        self._tail_t, self._length = csr_array(written.T[self._shared]), Q.size + written.shape[0]
        self._kept_rows = dict[Any, Any]()
        # Recordings of one product, with an argument if it is copied, by the number of components.
        self._pools: dict[tuple[int, bool], Pool[tuple[Recording, Floats]]] = {}

    def __call__(self, vector: Any, constrained: NDArray[np.integer[Any]] = _NONE, scale: Floats | None = None) -> Any:
        """Apply to a vector; vector, scale [components, size] -> [components, size]."""
        assert scale is None or not len(constrained)
        if isinstance(vector, Recorded):
            return self._recorded(vector, constrained, scale)
        n, some = len(vector), len(constrained) > 0
        direct = self._direct(vector) and not some and scale is None
        pool = self._pools.setdefault((n, direct), Pool())
        own = pool.take(lambda: self._new_recording(n, direct))
        recording, argument = own
        if not direct:
            target = argument[:, : self._size]
            if scale is None:
                target[...] = vector
            else:
                np.multiply(vector, scale, out=target)
            if some:
                target[:, constrained] = 0
        out = np.empty((n, self._length), self.dtype)
        recording.run((vector if direct else argument).ctypes.data, out.ctypes.data)
        pool.give(own)
        out = out[:, : self._size]
        if some:
            out[:, constrained] = vector[:, constrained]
        return np.ascontiguousarray(out)

    def _direct(self, vector: Any) -> bool:
        """Whether kernels read a vector where it is: rows of argument and result have one length."""
        fits = vector.dtype == self.dtype and vector.flags.c_contiguous and vector.flags.aligned
        return fits and not self._rows.shape[0] and (len(vector) == 1 or self._length == self._size)

    def _new_recording(self, n: int, direct: bool) -> tuple[Recording, Floats]:
        """A recording, and its argument; one that is not copied, and the result, are never touched."""
        recording = Recording(self.dtype)
        argument = np.empty((n, self._size), self.dtype) if direct else self._new_argument(n)
        out = np.empty((n, self._length), self.dtype)
        self._record(recording, argument, out)
        recording.finish((argument, out))
        return recording, argument

    def _recorded(self, vector: Recorded, constrained: NDArray[np.integer[Any]], scale: Floats | None) -> Recorded:
        """The product of a recorded vector."""
        recording, some = vector.recording, len(constrained) > 0
        n, argument = len(vector.array), vector.array
        if some or scale is not None or not self._direct(argument):
            argument = recording.once((id(self), n), lambda: (self._new_argument(n), self))[0]
            target = argument[:, : self._size]
            if some:
                key = id(constrained), target.shape
                scale = recording.once(key, lambda: (self._kept(constrained, target.shape), constrained))[0]
            if scale is not None:
                recording.update(PRODUCT, (vector.array, scale, target))
            else:
                recording.update(COPY, (vector.array, target))
        out = recording.empty((n, self._length))
        self._record(recording, argument, out.array)
        for source, row in zip(vector.array, out.array, strict=True) if some else ():
            recording.move(source, constrained, row, constrained)
        return out.part(out.array[:, : self._size])

    def _kept(self, constrained: NDArray[np.integer[Any]], shape: tuple[int, ...]) -> Floats:
        kept = np.ones(shape, self.dtype)
        kept[:, constrained] = 0
        return kept

    def _new_argument(self, n: int) -> Floats:
        """Make a vector with all places; some are zero for ever; -> [n, size + other places]."""
        return np.zeros((n, self._length), self.dtype)

    def _record(self, recording: Recording, argument: Floats, out: Floats) -> None:
        """Record the product with a vector whose other places are to be filled in; argument, out [n, length]."""
        size, n_rows, kept = self._size, self._rows.shape[0], self._kept_rows
        for row in argument if n_rows else ():
            recording.rows(self._rows, row[:size], row[size : size + n_rows], at=np.arange(n_rows), kept=kept)
        for first, last in self._added:
            recording.update(ZERO, (out[:, first:last],))
        at = argument.ctypes.data, out.ctypes.data
        parts = list[list[tuple[IndexedKernel, Sequence[int]]]]([] for _ in self._bounds[0][1:])
        work, held = 0, [argument, out]
        for kernel, bounds in zip(self._kernels, self._bounds, strict=True):
            if not kernel.groups:
                continue
            key, shape = (id(kernel), at[0], len(out)), (len(out), self._length)
            words, used = recording.once(key, lambda own=kernel, shape=shape: own.call(shape, at[0]))  # type: ignore[misc]
            held.append(used)
            work += kernel.groups * kernel.group_flops * len(argument)
            for part, (first, last) in zip(parts, pairwise(bounds), strict=True):
                if first < last:
                    part.append((kernel, (words[0], first, last, *words[3:_OUT], at[1], *words[_OUT + 1 :])))
        for phase in range(min(_PHASES, len(parts))):
            recording.add_parts(parts[phase::_PHASES], work // _PHASES, held)
        for row in out if self._tail_t.shape[1] else ():
            recording.rows(self._tail_t, row[size:], row[:size], add=True, at=self._shared, kept=kept)


# Living products; they hold the objects whose ids are the keys.
_MADE: WeakValueDictionary[tuple[int, ...], CpuProduct] = WeakValueDictionary()


def product_of(kernels: Sequence[CpuKernel], Q: BlockMatrix) -> CpuProduct:
    """The product of kernels with a numbering: one object for all boundary conditions."""
    key = (id(Q), *map(id, kernels))
    return _MADE.get(key) or _MADE.setdefault(key, CpuProduct(kernels, Q))


class CpuCellwise:
    """Products with a matrix per block of Q, without local arrays; see `CellwiseProduct`."""

    def __init__(self, given: CellMatrices) -> None:
        matrices, Q, back, self._vectors, dtype, _ = given
        pairs = [(M, own.shape[0]) for M, own in zip(matrices, Q.blocks, strict=True)]
        there = [MatrixKernel(M, n_elements, dtype) for M, n_elements in pairs]
        again = [MatrixKernel(M, n_elements, dtype, transposed=True) for M, n_elements in pairs]
        self.restriction = HOST_VECTORS.restriction(Q, dtype)
        self._forward = CpuProduct(there, Q, back)
        self._backward = CpuProduct(again, back, Q, self._forward)

    def apply(
        self,
        x: Floats,
        scale: Floats | None = None,
        onto: Floats | None = None,
        more: Callable[[Floats, bool], Any] | None = None,
    ) -> Floats:
        """Q_a^t M Q x; see `CellwiseProduct.apply`."""
        found: Floats = self._forward(x[None])[0]
        if scale is not None:
            found *= scale
        result: Floats = added(found, onto)
        if more is not None:
            more(result, onto is not None)
        return result

    def transposed(
        self,
        r: Floats,
        scale: Floats | None = None,
        weights: Floats | None = None,
        more: Callable[[Floats], Floats] | None = None,
    ) -> Floats:
        """Q^t M^t Q_a W r; see `CellwiseProduct.transposed`."""
        found: Floats = self._backward(r[None], scale=None if weights is None else weights[None])[0]
        end = None
        if self._vectors.comm.size > 1:
            end = self._vectors.summing(lambda: more_of(more, found[self._vectors.sent])[None])
        if scale is not None:
            found *= scale
        return found if end is None else end(found[None], scale=scale)[0]
