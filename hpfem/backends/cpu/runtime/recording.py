"""A function of vectors as calls of compiled code, recorded once and repeated by one call from Python.

The function is called with a `Recorded` vector in place of an array. NumPy hands over what is done with it: each
operation becomes a call with fixed addresses. As with a CUDA graph, the recording has memory of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array, issparse

from hpfem.shapes.arrays import Floats

from ....errors import NotSuitable
from ....geometry.element_map import CACHED, chunks
from ....support.threads import OPERATIONS_PER_NUMBER, THREAD_FLOPS, run_all, shares, thread_count
from ...passes import Pass
from ..codegen.sequence import WORDS, write_sequence
from ..codegen.vectors import blocks_of, write_move, write_panels, write_row_panels, write_rows
from .buffers import aligned
from .kernel import GroupKernel
from .passes import code_of, words_of_pass
from .target import Code, host

_ALIGNMENT = 64
# Lanes by entry of a sparse matrix up to which panels of rows are faster than single rows.
_SPARSE = 8
# Lanes of a panel at least: with few rows, wide loads mostly cross cache lines.
_FEWEST = 4
_NOTHING = (0,) * 8
# The words of a kernel's call with the addresses of its inputs, and of its scratch.
_INPUTS, _SCRATCH = slice(7, 11), 11


def _pieces(*arrays: Floats) -> Iterator[tuple[Floats, ...]]:
    """Arrays of one shape, as vectors without gaps."""
    if all(array.flags.c_contiguous for array in arrays):
        yield tuple(array.reshape(-1) for array in arrays)
    else:
        for rows in zip(*arrays, strict=True):
            yield from _pieces(*rows)


# What NumPy's functions write, of vectors x and y.
COPY, ZERO, PRODUCT = Pass("x out", "", "out = x"), Pass("out", "", "out ="), Pass("x y out", "", "out = x y")
_OF_TWO = {
    np.multiply: PRODUCT,
    np.add: Pass("x y out", "", "out = x + y"),
    np.subtract: Pass("x y out", "", "out = x - y"),
}
_SCALED = Pass("x out", "a", "out = a x")


class _Memory:
    """An array that others may use after its last reader is gone."""

    def __init__(self, array: Floats, free: list[Floats]) -> None:
        self.array, self._free = array, free

    def __del__(self) -> None:
        self._free.append(self.array)


class Recording:
    """Calls of compiled code on vectors of one type; () -> their result."""

    result: Floats

    def __init__(self, dtype: DTypeLike) -> None:
        self.dtype = np.dtype(dtype)
        self._lanes = host().lanes(dtype)
        self._words: list[Sequence[int]] = []
        self._held: list[Any] = []
        # Calls that are divided among threads, by the first one: their end, and what runs them of a recording.
        self._divided: dict[int, tuple[int, Callable[[Recording], None]]] = {}
        # By what gives the inputs of a kernel, the calls that they are filled in before a run.
        self._changing: dict[Callable[[], tuple[tuple[int, ...], Any]], list[int]] = {}
        self._free: dict[int, list[Floats]] = {}
        self._made: dict[Any, Any] = {}
        # Of arrays in whose place others are given to a run: words with addresses in them, and their distances.
        self._moving: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        self._moved: tuple[int, ...] = ()

    def empty(self, shape: tuple[int, ...]) -> Recorded:
        """Make a vector with any content."""
        size = int(np.prod(shape))
        padded = -(-size // self._lanes) * self._lanes
        free = self._free.setdefault(padded, [])
        array = free.pop() if free else self._new(padded)
        return Recorded(self, array[:size].reshape(shape), _Memory(array, free))

    def _new(self, size: int) -> Floats:
        array = aligned((size,), self.dtype, _ALIGNMENT)
        array[...] = 0
        self._held.append(array)
        return array

    def hold(self, thing: Any, dtype: DTypeLike | None = None) -> int:
        """Keep an array."""
        array = np.ascontiguousarray(thing, dtype)
        self._held.append(array)
        return int(array.ctypes.data)

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """Something that the recording holds."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def _call(self, code: Code, n: int, work: int, given: Sequence[int], entries: int = 0, stride: int = 0) -> None:
        """Call vector code for 0 to n, with the addresses of its pointers; a work that is large may be divided."""
        if not n:
            return
        if work >= 2 * THREAD_FLOPS:
            number = len(self._words)

            def divided(own: Recording) -> None:
                parts, run = pairwise(shares(n, work, THREAD_FLOPS)), partial(code.run_holding, own)
                arguments = own._calls[number, 3:].tolist()
                run_all([partial(run, first, last, *arguments) for first, last in parts])

            self._divided[number] = number + 1, divided
        self._words.append((code.address, 0, n, entries, 1, *given, stride))

    def add_parts(self, parts: Sequence[Sequence[tuple[GroupKernel, Sequence[int]]]], work: int, used: Any) -> None:
        """Add calls of kernels in parts, which threads may run at the same time; the calls of a part stay in order."""
        starts, kernels = [len(self._words)], [kernel for part in parts for kernel, _ in part]
        self._held.append((used, kernels))
        for part in parts:
            for kernel, words in part:
                if kernel.changes:
                    self._changing.setdefault(kernel.inputs, []).append(len(self._words))
                self._words.append(words)
            starts.append(len(self._words))
        if len(parts) > 1:
            numbers = {kernel: number for number, kernel in enumerate(dict.fromkeys(kernels))}
            which = np.array([numbers[kernel] for kernel in kernels])
            run = partial(Recording._run_parts, starts=starts, kernels=list(numbers), which=which, work=work)
            self._divided[starts[0]] = starts[-1], run

    def _run_parts(
        self, starts: Sequence[int], kernels: Sequence[GroupKernel], which: NDArray[np.int64], work: int
    ) -> None:
        """Run parts on several threads, all but the first with other scratch."""
        tasks, taken = list[Callable[[], None]](), list[tuple[GroupKernel, tuple[Floats, int]]]()
        for first, last in pairwise(starts[part] for part in shares(len(starts) - 1, work, THREAD_FLOPS)):
            words = self._calls[first:last]
            if tasks:
                words, scratch = words.copy(), [kernel.take_scratch() for kernel in kernels]
                addresses = np.array([address for _, address in scratch])
                words[:, _SCRATCH] = addresses[which[first - starts[0] : last - starts[0]]]
                taken += zip(kernels, scratch, strict=True)
            run, at = partial(self._sequence.run_holding, (self, words, taken)), words.ctypes.data
            tasks.append(partial(run, 0, last - first, 0, 0, at, *_NOTHING))
        run_all(tasks)
        for kernel, own in taken:
            kernel.give_scratch(own)

    def update(self, what: Pass, arrays: Sequence[Floats], numbers: Sequence[float] = ()) -> None:
        """Make a pass over vectors, which may have gaps."""
        parameters = self.hold(np.array(numbers, self.dtype)) if numbers else 0
        self._held.append(arrays)
        for own in _pieces(*arrays):
            if n := own[0].size:
                code, places, table, held = words_of_pass(what, own)
                self._held.append(held)
                work = OPERATIONS_PER_NUMBER * n * len(own)
                self._call(code, blocks_of(n), work, (*places, parameters, 0, table), n)

    def move(self, source: Floats, take: Any, target: Floats, put: Any) -> None:
        """Copy entries: target[put] = source[take]."""
        n = len(target) if put is None else len(put)
        code = code_of(write_move, take is not None, put is not None, self.dtype.name)
        taken, to = (0 if own is None else self._indices(own) for own in (take, put))
        self._call(code, n, n, (source.ctypes.data, target.ctypes.data, taken, 0, 0, 0, 0, to))

    def _indices(self, given: Any) -> int:
        """The address of indices, kept once."""
        return int(self.once(("indices", id(given)), lambda: (self.hold(given, np.int32), given))[0])

    def rows(
        self,
        matrix: csr_array,
        source: Floats,
        target: Floats,
        add: bool = False,
        at: Any = None,
        kept: dict[Any, Any] | None = None,
    ) -> None:
        """Multiply a vector by a sparse matrix; matrix [n, m], source [m], at [n]. Tables of a matrix that never
        changes are `kept` for other recordings.
        """
        made = self._made if kept is None else kept
        key: tuple[Any, ...] = ("panels", id(matrix))
        if not add and key not in made:
            made[key] = self._panels(matrix), matrix
        if not add and made[key][0] is not None:
            self._row_panels(matrix, made[key][0], source, target, at)
            return
        key = "rows", id(matrix), at is None
        if key not in made:
            counts = np.diff(matrix.indptr)
            some = np.flatnonzero(counts)
            starts = np.append(0, np.cumsum(counts[some])).astype(np.int32)
            places = (some if at is None else np.asarray(at)[some]).astype(np.int32)
            data, columns = matrix.data.astype(self.dtype, copy=False), matrix.indices.astype(np.int32, copy=False)
            made[key] = (data, starts, columns, places), matrix
        *given, at_rows = (self.hold(own) for own in made[key][0])
        n = len(made[key][0][-1])
        if at is None and not add and n < len(target):
            self.update(ZERO, (target,))
        code = code_of(write_rows, add, self.dtype.name)
        self._call(code, n, 2 * matrix.nnz, (source.ctypes.data, target.ctypes.data, *given, 0, 0, at_rows))

    def _panels(self, matrix: csr_array) -> Any:
        """Rows side by side with those of the same columns, if most lanes are used: tables, and places of rows."""
        some = np.flatnonzero(np.diff(matrix.indptr))
        if not len(some):
            return None
        # Rows of the same columns one after the other, by a number that other columns hardly have.
        mark = np.empty(len(some), np.uint64)
        for part, own in _parts_of(matrix, some):
            mark[part] = np.add.reduceat(_mixed(matrix.indices[own]), matrix.indptr[some[part]] - own.start)
        order = np.argsort(mark, kind="stable")
        some, mark, rows = some[order], mark[order], np.arange(len(some))
        counts, same = np.diff(matrix.indptr)[some], np.zeros(len(some), dtype=bool)
        same[1:] = (mark[1:] == mark[:-1]) & (counts[1:] == counts[:-1])
        number = rows - np.flatnonzero(~same)[np.cumsum(~same) - 1]
        lanes = min(self._lanes, max(_FEWEST, 1 << int(2 * number.mean()).bit_length()))
        number %= lanes
        first, panel = np.flatnonzero(number == 0), np.cumsum(number == 0) - 1
        if self._lanes * counts[first].sum() > _SPARSE * matrix.nnz:
            return None
        ordered = matrix[some]
        ordered.sort_indices()
        starts, columns = ordered.indptr[:-1], ordered.indices
        for part, own in _parts_of(ordered, rows):
            before = np.maximum(np.arange(own.start, own.stop) - np.repeat(counts[part], counts[part]), 0)
            if not ((columns[own] == columns[before]) | ~np.repeat(same[part], counts[part])).all():
                return None
        sizes = np.diff(np.append(first, len(some)))
        parts = np.stack([counts[first], counts[first] * sizes, sizes], axis=1)
        ends = np.concatenate([np.zeros((1, 3), np.int64), parts.cumsum(axis=0)])
        entries, step = np.empty(len(columns), self.dtype), sizes[panel]
        at = ends[panel, 1] + number - step * starts
        for part, own in _parts_of(ordered, rows):
            n = counts[part]
            places = np.repeat(at[part], n) + np.repeat(step[part], n) * np.arange(own.start, own.stop)
            entries[places] = ordered.data[own]
        return (
            lanes,
            len(first),
            (entries, ends.astype(np.int32), ordered[first].indices.astype(np.int32)),
            some,
        )

    def _row_panels(self, matrix: csr_array, panels: Any, source: Floats, target: Floats, at: Any) -> None:
        """Multiply by panels of rows; see `rows`."""
        lanes, n, tables, some = panels
        given = [self.hold(own) for own in tables]
        direct = at is None and np.array_equal(some, np.arange(len(target)))
        out, code = target, code_of(write_row_panels, lanes, self.dtype.name)
        if not direct:
            out = self.empty((len(some),)).array
        self._call(code, n, 2 * matrix.nnz, (source.ctypes.data, out.ctypes.data, *given, 0, 0, 0))
        if direct:
            return
        if at is None and len(some) < len(target):
            self.update(ZERO, (target,))
        self.move(out, None, target, some if at is None else np.asarray(at)[some])

    def dense(self, source: Floats, matrix: Floats, target: Floats) -> None:
        """Multiply a vector by a dense matrix from the right; source [n], matrix [n, k], target [k]."""
        (n, k), lanes = matrix.shape, self._lanes
        if id(matrix) not in self._made:
            panels = np.zeros((-(-k // lanes), n, lanes), self.dtype)
            for number, panel in enumerate(panels):
                own = matrix[:, number * lanes : (number + 1) * lanes]
                panel[:, : own.shape[1]] = own
            place = self._new(panels.size)
            place[:] = panels.ravel()
            self._made[id(matrix)] = place.ctypes.data, matrix
        at = source.ctypes.data, target.ctypes.data, self._made[id(matrix)][0], 0, 0, 0, 0, 0
        code, count = code_of(write_panels, lanes, self.dtype.name), -(-k // lanes) if n else 0
        self._call(code, count, 2 * matrix.size, at, stride=n)

    def finish(self, moving: Sequence[Floats] = ()) -> None:
        """End the recording: calls can be run, with other arrays than the `moving` ones."""
        self._sequence = code_of(write_sequence)
        self._calls = np.array(self._words, dtype=np.int64).reshape(-1, WORDS)
        self._at, words = self._calls.ctypes.data, self._calls.reshape(-1)
        for array in moving:
            apart = words - array.ctypes.data
            here = np.flatnonzero((apart >= 0) & (apart < array.nbytes))
            self._moving.append((here, apart[here]))

    def __call__(self) -> Floats:
        """Make the calls, for their result."""
        self.run()
        return self.result

    @property
    def calls(self) -> int:
        """How many they are."""
        return len(self._words)

    def run(self, *addresses: int) -> None:
        """Make the calls, with arrays at these addresses in place of the moving ones."""
        used, done = [], 0
        if addresses != self._moved:  # memory that was given back is mostly given again
            self._moved = addresses
            for (here, apart), address in zip(self._moving, addresses, strict=True):
                self._calls.reshape(-1)[here] = apart + address
        for inputs, calls in self._changing.items():
            addresses, held = inputs()
            self._calls[calls, _INPUTS] = addresses
            used.append(held)
        for first, (last, divided) in self._divided.items() if self._divided and thread_count() > 1 else ():
            self._run(done, first)
            divided(self)
            done = last
        self._run(done, len(self._calls))

    def _run(self, first: int, last: int) -> None:
        if first < last:
            self._sequence.run(first, last, 0, 0, self._at, *_NOTHING)


def _mixed(numbers: NDArray[np.integer[Any]]) -> NDArray[np.uint64]:
    """Numbers without order, one for each number; sums of them tell sets of numbers apart."""
    found = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    found ^= found >> np.uint64(29)
    found *= np.uint64(0xBF58476D1CE4E5B9)
    return found ^ (found >> np.uint64(32))


def _parts_of(matrix: csr_array, rows: NDArray[np.int64]) -> Iterator[tuple[slice, slice]]:
    """Go through ascending rows with all the entries, as many as a cache holds at a time: rows, and their entries."""
    step = max(1, CACHED * len(rows) // max(1, matrix.nnz))
    for part in chunks(len(rows), 1, most=step):
        last = rows[part.stop] if part.stop < len(rows) else -1
        yield part, slice(int(matrix.indptr[rows[part.start]]), int(matrix.indptr[last]))


class Recorded(NDArrayOperatorsMixin):
    """A vector of a recording, in its memory: NumPy's operators, `where`, `concatenate` and so on add calls to it."""

    def __init__(self, recording: Recording, array: Floats, memory: Any) -> None:
        self.recording, self.array, self._memory = recording, array, memory
        self.shape, self.dtype, self.flags, self.size = array.shape, array.dtype, array.flags, array.size

    def part(self, array: Floats) -> Recorded:
        """The same memory, seen in another way."""
        return Recorded(self.recording, array, self._memory)

    def copy(self) -> Recorded:
        """A copy without gaps."""
        out = self.recording.empty(self.shape)
        self.recording.update(COPY, (self.array, out.array))
        return out

    def reshape(self, *shape: Any) -> Recorded:
        """The same entries in another shape; a copy if there are gaps between them."""
        own = self if self.flags.c_contiguous else self.copy()
        return own.part(own.array.reshape(*shape))

    def __iter__(self) -> Iterator[Recorded]:
        return (self.part(row) for row in self.array)

    def __getitem__(self, key: Any) -> Recorded:
        *rows, last = key if isinstance(key, tuple) else (key,)
        if not isinstance(last, np.ndarray):
            return self.part(self.array[key])
        own = self.array[tuple(rows)]
        out = self.recording.empty((*own.shape[:-1], len(last)))
        for source, target in zip(_rows(own), _rows(out.array), strict=True):
            self.recording.move(source, last, target, None)
        return out

    def __setitem__(self, key: Any, value: Recorded) -> None:
        *rows, last = key if isinstance(key, tuple) else (key,)
        if not isinstance(last, np.ndarray):
            target = self.array[key]
            if target.ctypes.data != value.array.ctypes.data:
                self.recording.update(COPY, (value.array, target))
            return
        for source, target in zip(_rows(value.array), _rows(self.array[tuple(rows)]), strict=True):
            self.recording.move(source, None, target, last)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **more: Any) -> Any:
        if method != "__call__" or more or ufunc not in (np.multiply, np.add, np.subtract, np.matmul):
            raise NotSuitable(f"{ufunc.__name__} cannot be recorded")
        first, second = inputs
        if ufunc is np.matmul:
            return self._multiplied(first, second, None if out is None else out[0])
        target = self.recording.empty(self.shape) if out is None else out[0]
        arrays = [_array(given, self.dtype) for given in inputs]
        if any(array is not None and array.shape != target.shape for array in arrays):
            raise NotSuitable("arrays of different shapes cannot be recorded")
        known = [array for array in arrays if array is not None]
        if len(known) == 1 and ufunc is np.multiply:
            number = first if arrays[0] is None else second
            self.recording.update(_SCALED, (*known, target.array), (float(number),))
        elif len(known) == 2:
            self.recording.update(_OF_TWO[ufunc], (*known, target.array))
        else:
            raise NotSuitable(f"{ufunc.__name__} with a number cannot be recorded")
        return target

    def _multiplied(self, left: Any, right: Any, out: Any) -> Recorded:
        """A product of a sparse matrix and a vector, or of rows and a dense matrix."""
        if issparse(left) and isinstance(right, Recorded) and len(right.shape) == 1:
            found = self.recording.empty((left.shape[0],))
            self.recording.rows(left, right.array, found.array)
            return found
        if isinstance(left, Recorded) and isinstance(right, np.ndarray) and out is not None:
            for source, target in zip(left.array, out.array, strict=True):
                self.recording.dense(source, right, target)
            return out
        raise NotSuitable("this product of matrices cannot be recorded")

    def __array_function__(self, function: Any, types: Any, given: Any, more: Any) -> Any:
        made = _FUNCTIONS.get(function)
        if made is None or more:
            raise NotSuitable(f"{function.__name__} cannot be recorded")
        return made(self.recording, *given)


def _array(given: Any, dtype: np.dtype[Any]) -> Floats | None:
    """The array of an operand; None for a number."""
    if isinstance(given, Recorded):
        return given.array
    return np.ascontiguousarray(given, dtype) if np.ndim(given) else None


def _rows(array: Floats) -> list[Floats]:
    """The vectors along the last axis."""
    return [array] if array.ndim == 1 else [row for part in array for row in _rows(part)]


def _where(recording: Recording, mask: Any, yes: Recorded, no: Recorded) -> Recorded:
    out = no.copy()
    for own, target, source in zip(_rows(mask), _rows(out.array), _rows(yes.array), strict=True):
        here = np.flatnonzero(own)
        recording.move(source, here, target, here)
    return out


def _concatenate(recording: Recording, parts: Sequence[Recorded]) -> Recorded:
    out = recording.empty((sum(part.size for part in parts),))
    ends = np.cumsum([0, *(part.size for part in parts)]).tolist()
    for part, (first, last) in zip(parts, pairwise(ends), strict=True):
        recording.update(COPY, (part.array, out.array[first:last]))
    return out


def _zeros_like(recording: Recording, like: Recorded) -> Recorded:
    out = recording.empty(like.shape)
    recording.update(ZERO, (out.array,))
    return out


_FUNCTIONS: dict[Any, Callable[..., Recorded]] = {
    np.where: _where,
    np.concatenate: _concatenate,
    np.zeros_like: _zeros_like,
    np.empty_like: lambda recording, like: recording.empty(like.shape),
}


def recorded(function: Callable[[Any], Any], given: Floats) -> Recording | None:
    """Record a function of a vector; given [n]."""
    recording = Recording(given.dtype)
    try:
        result = function(Recorded(recording, given, given))
    except (NotSuitable, TypeError, ValueError):  # the latter are NumPy's; errors of the function's own come again
        return None
    recording.finish()
    recording.result = result.array
    return recording
