"""A product of sparse matrices for all elements, between global vectors: y = F_1 F_2 .. x, one element per lane.

Entries are read at run time: kernels are the same for all matrices with the same zeros. Each factor is cut into dense
tiles. It works in place where its tiles have rows that are their columns, or where it adds to some rows what it takes
from others; else from one array into another. Tiles that do not touch each other are sorted by size: a loop each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array

from hpfem.shapes.arrays import Indices

from ....support.tables import on_disk
from ...cellwise import transposed
from .indexed import Runs, codes_at, write_both
from .ir import ARGUMENTS, Builder, Index, Program

Tile = tuple[Indices, Indices]

# Rows that are formed together: what the registers of AVX-512 hold beside an input.
_SUMS = 28


@dataclass(frozen=True, eq=False)
class Step:
    """Tiles of one size, whose order does not matter."""

    rows: Indices  # [k, r]
    columns: Indices  # [k, c]
    factors: Indices  # whose entries they are, [k]
    add: bool  # to what is there
    source: int  # arrays, 0 or 1
    target: int


def _alike(rows: Indices, columns: Indices) -> list[Tile]:
    """Rows with entries in the same columns, and these columns; of entries in any order."""
    order = np.lexsort((columns, rows))
    rows, columns = rows[order], columns[order].astype(np.int64)
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    found: dict[bytes, list[int]] = {}
    for first, last in pairwise([*starts.tolist(), len(rows)]):
        found.setdefault(columns[first:last].tobytes(), []).append(int(rows[first]))
    return [(np.array(own), np.frombuffer(key, dtype=np.int64)) for key, own in found.items()]


def _cut(tiles: Sequence[Tile]) -> list[Tile]:
    """The same with no more rows than can be formed together."""
    return [(own, columns) for rows, columns in tiles for own in np.array_split(rows, -(-len(rows) // _SUMS))]


def _loads(tiles: Sequence[Tile]) -> int:
    return sum(2 * rows.size + columns.size for rows, columns in tiles)


def _tiles(factor: csr_array) -> tuple[list[Tile], bool, bool]:
    """Tiles of a factor, whether they are added, and whether in place."""
    n, columns = factor.shape[0], factor.indices
    rows, one = np.repeat(np.arange(n), np.diff(factor.indptr)), factor.diagonal() == 1
    off = rows != columns
    changed, read = ~one, np.zeros(n, dtype=bool)
    changed[rows[off]] = read[columns[off]] = True
    if not np.any(changed & (read | ~one)):
        by_rows, by_columns = _alike(rows[off], columns[off]), _alike(columns[off], rows[off])
        return min(_cut(by_rows), _cut([(r, c) for c, r in by_columns]), key=_loads), True, True
    # Zeros on the diagonal count: their rows are to be written.
    own = np.flatnonzero(changed)
    blocks = _alike(np.concatenate([rows[off], own]), np.concatenate([columns[off], own]))
    if all(len(r) <= _SUMS and np.array_equal(r, c) for r, c in blocks):
        return blocks, False, True
    empty = np.flatnonzero(np.diff(factor.indptr) == 0)
    return _cut([*_alike(rows, columns), *([(empty, empty[:0])] if len(empty) else [])]), False, False


def steps_of(factors: Sequence[csr_array]) -> list[Step]:
    """Cut a product of matrices into steps; factors [n, n]."""
    n, source = factors[0].shape[0], 0
    written, seen = np.zeros((2, n), dtype=np.int64)
    found: dict[tuple[int, bool, int, int, int, int], list[tuple[Indices, Indices, int]]] = {}
    for number, factor in reversed(list(enumerate(factors))):
        tiles, add, within = _tiles(factor)
        target = source if within else 1 - source
        if not within:
            written[:] = seen[:] = max(written.max(), seen.max()) + 1
        for rows, columns in tiles:
            # After what has written its columns, and read or overwritten its rows.
            level = int(max(written[columns].max(initial=0), seen[rows].max() + 1) if within else written[0])
            found.setdefault((level, add, source, target, len(rows), len(columns)), []).append((rows, columns, number))
            if within:
                written[rows], seen[columns] = np.maximum(written[rows], level + 1), np.maximum(seen[columns], level)
        if not within:
            written, seen, source = written + 1, seen + 1, target
    steps = []
    for (_, add, before, after, *_), own in sorted(found.items(), key=lambda item: item[0]):
        rows, columns, numbers = (np.array(part) for part in zip(*own, strict=True))
        steps.append(Step(rows, columns, numbers, add, before, after))
    return steps


def packed(factors: Sequence[csr_array], steps: Sequence[Step], dtype: DTypeLike) -> NDArray[Any]:
    """Entries of factors in the order in which their kernel reads them; factors [n, n]."""
    parts = [np.empty((len(step.rows), step.columns.shape[1], step.rows.shape[1]), dtype) for step in steps]
    for number, factor in enumerate(factors):
        dense = factor.toarray()
        for step, part in zip(steps, parts, strict=True):
            own = step.factors == number
            part[own] = dense[step.rows[own][:, None, :], step.columns[own][:, :, None]]
    return np.concatenate([part.ravel() for part in parts]) if parts else np.zeros(0, dtype)


# Places of entries and of ones on the diagonal, for each factor of a product of sparse matrices.
Zeros = tuple[tuple[bytes, bytes, bytes], ...]


def zeros_of(factors: Sequence[csr_array]) -> Zeros:
    """Where the entries of factors are; factors [n, n]."""
    i32 = np.int32
    return tuple(
        (m.indptr.astype(i32).tobytes(), m.indices.astype(i32).tobytes(), (m.diagonal() == 1).tobytes())
        for m in factors
    )


def steps_at(zeros: Zeros, across: bool) -> tuple[list[Step], NDArray[np.int64]]:
    """`steps_of` products with the same zeros, or of these transposed, and which entries are packed; -1 for none."""
    patterns, numbers, start = [], [], 1
    for arrays in zeros:
        ends, columns, one = (np.frombuffer(array, dtype) for array, dtype in zip(arrays, (np.int32, np.int32, bool)))
        n, rows = len(one), np.repeat(np.arange(len(one)), np.diff(ends))
        patterns.append(csr_array((np.where((rows == columns) & one[rows], 1.0, 2.0), columns, ends), shape=(n, n)))
        numbers.append(csr_array((np.arange(start, start + len(columns)), columns, ends), shape=(n, n)))
        start += len(columns)
    if across:
        patterns, numbers = transposed(patterns), transposed(numbers)
    steps = steps_of(patterns)
    return steps, packed(numbers, steps, np.int64) - 1


@lru_cache(maxsize=64)
@on_disk
def order_of(zeros: Zeros, across: bool) -> tuple[int, NDArray[np.int64]]:
    """Operations of such a product, and which entries are packed."""
    steps, order = steps_at(zeros, across)
    return sum(2 * step.rows.size * step.columns.shape[1] for step in steps), order


def write_matrix(n: int, steps: Sequence[Step], runs: Sequence[Runs], lanes: int, dtype: DTypeLike) -> Program:
    """Write the kernel of all matrices of the same steps; `packed` ones are its `geometry`."""
    b, last = Builder(lanes, dtype), steps[-1].target if steps else 0
    write_both(b, "read_modes", "write_modes", n, runs, False)
    with b.function("run", ARGUMENTS, internal=False):
        arrays = ["%scratch", b.at("%scratch", (n, 1))]
        with b.loop("%g1", "%g0") as group, b.loop("%components") as c:
            there, back = (codes_at(b, runs, group, results) for results in (False, True))
            offset = b.row(c.value, None)
            source = b.new(f"getelementptr {b.real}, ptr %in, i64 {offset}")
            result = b.new(f"getelementptr {b.real}, ptr %out, i64 {offset}")
            b.emit(f"call void @read_modes(ptr {source}, ptr %scratch, {there})")
            start = 0
            for step in steps:
                _write_step(b, step, start, arrays[step.source], arrays[step.target])
                start += step.rows.size * step.columns.shape[1]
            b.emit(f"call void @write_modes(ptr {result}, ptr {arrays[last]}, {back})")
    return Program(b.module(), b.flops, (1 + any(step.target for step in steps)) * n, 0)


def _write_step(b: Builder, step: Step, start: int, source: str, target: str) -> None:
    (count, r), c = step.rows.shape, step.columns.shape[1]
    if c == 0:
        for row in step.rows.ravel().tolist():
            b.store(b.operand(0.0), target, row)
        return
    of_rows, of_columns = b.index_table(step.rows), b.index_table(step.columns)
    with b.loop(count) as tile:
        entries = b.at("%geometry", (start, 1), (tile, r * c), unit=b.real)
        places = [b.at(target, (b.load_index(of_rows, _sum(b, tile, r, i)), 1)) for i in range(r)]

        def column(j: Index, sums: list[str]) -> list[str]:
            x = b.load(b.at(source, (b.load_index(of_columns, _sum(b, tile, c, j)), 1)))
            return [b.fma(b.load_scalar(entries, (j, r), (i, 1)), x, s) for i, s in enumerate(sums)]

        given = [b.load(place) if step.add else 0.0 for place in places]
        for value, place in zip(b.reduce(c, given, column), places, strict=True):
            b.store(value, place)


def _sum(b: Builder, tile: Index, stride: int, other: Index | int) -> Index:
    found = b.index((tile, stride), (other, 1))
    assert isinstance(found, Index)
    return found
