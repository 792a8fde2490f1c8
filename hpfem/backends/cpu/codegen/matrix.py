"""One matrix for all elements, between global vectors: y = M x, one element per lane, zeros of M left out.

The matrix is read at run time: kernels are the same for all matrices with the same zeros. Rows that have their entries
in the same columns are computed together, so many at a time as registers hold.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .indexed import write_indexed_reader, write_indexed_writer
from .ir import ARGUMENTS, Builder, Index, Program

Indices = NDArray[np.int64]

# Rows that are formed together: what the registers of AVX-512 hold beside an input.
_SUMS = 28


def tiles(filled: NDArray[np.bool_]) -> list[tuple[Indices, Indices]]:
    """Rows and columns of the dense parts of a matrix, those of one size after each other.

    Parameters
    ----------
    filled : ndarray of bool, [n, n]
        Where it has entries.

    Returns
    -------
    list of (rows [k, r], columns [k, c])
        k tiles of one size each.
    """
    found: dict[tuple[int, int], list[tuple[Indices, Indices]]] = {}
    kinds, which = np.unique(filled, axis=0, return_inverse=True)
    for kind, pattern in enumerate(kinds):
        rows, columns = np.flatnonzero(which.ravel() == kind), np.flatnonzero(pattern)
        parts = -(-len(rows) // _SUMS)
        for own in np.array_split(rows, parts):
            found.setdefault((len(own), len(columns)), []).append((own, columns))
    return [tuple(np.array(part) for part in zip(*same, strict=True)) for same in found.values()]  # type: ignore[misc]


def packed(matrix: NDArray[np.float64], filled: NDArray[np.bool_], dtype: DTypeLike) -> NDArray[np.floating[Any]]:
    """Entries of a matrix in the order in which its kernel reads them.

    Parameters
    ----------
    matrix : ndarray, [n, n]
    filled : ndarray of bool, [n, n]
        As for `write_matrix`.
    dtype : dtype

    Returns
    -------
    ndarray
    """
    parts = [matrix[r[:, None, :], c[:, :, None]].ravel() for r, c in tiles(filled)]
    return np.concatenate(parts).astype(dtype)


def write_matrix(filled: NDArray[np.bool_], lanes: int, dtype: DTypeLike) -> Program:
    """Write the kernel of all matrices with entries in the same places; `packed` ones are its `geometry`.

    Parameters
    ----------
    filled : ndarray of bool, [n, n]
        Where the matrix has entries.
    lanes : int
        Elements of a group.
    dtype : dtype

    Returns
    -------
    Program
    """
    b, n = Builder(lanes, dtype), len(filled)
    write_indexed_reader(b, "read_modes", n, None)
    write_indexed_writer(b, "write_modes", n, None)
    with b.function("run", ARGUMENTS, internal=False):
        target = b.at("%scratch", (n, 1))
        with b.loop("%g1", "%g0") as group, b.loop("%components") as c:
            codes = b.at("%codes", (group, n), unit=f"<{lanes} x i32>")
            step = b.new(f"mul nsw i64 {c.value}, %stride")
            source = b.new(f"getelementptr {b.real}, ptr %in, i64 {step}")
            result = b.new(f"getelementptr {b.real}, ptr %out, i64 {step}")
            b.emit(f"call void @read_modes(ptr {source}, ptr %scratch, ptr {codes})")
            start = 0
            for rows, columns in tiles(filled):
                _write_tiles(b, rows, columns, start, target)
                start += rows.size * columns.shape[1]
            b.emit(f"call void @write_modes(ptr {result}, ptr {target}, ptr {codes})")
    return Program(b.module(), b.flops, 2 * n, 0)


def _write_tiles(b: Builder, rows: Indices, columns: Indices, start: int, target: str) -> None:
    (count, r), c = rows.shape, columns.shape[1]
    if c == 0:
        for row in rows.ravel().tolist():
            b.store(b.operand(0.0), target, row)
        return
    of_rows, of_columns = b.index_table(rows), b.index_table(columns)
    with b.loop(count) as tile:
        entries = b.at("%geometry", (start, 1), (tile, r * c), unit=b.real)

        def column(j: Index, sums: list[str]) -> list[str]:
            x = b.load(b.at("%scratch", (b.load_index(of_columns, _sum(b, tile, c, j)), 1)))
            return [b.fma(b.load_scalar(entries, (j, r), (i, 1)), x, s) for i, s in enumerate(sums)]

        for i, value in enumerate(b.reduce(c, [0.0] * r, column)):
            place = b.load_index(of_rows, _sum(b, tile, r, i))
            b.store(value, b.at(target, (place, 1)))


def _sum(b: Builder, tile: Index, stride: int, other: Index | int) -> Index:
    found = b.index((tile, stride), (other, 1))
    assert isinstance(found, Index)
    return found
