"""Sorting of integers: which are equal, where they are, and rows of integers as keys.

Sorting integers takes a fraction of the time of an indirect sort. So a number and its label, for example its position,
are packed into one integer if both fit into 63 bits. Numbers below their count are sorted by counting, which is a pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from hpfem.shapes.arrays import Indices, Mask

from ..memory import as_numpy
from ..support.threads import in_parts, thread_count

_BITS = 63
# Numbers that are worth several threads, those of a part, which fit into a core's cache, and the parts of a sort.
MANY, _CACHED, _SORTED = 1_000_000, 1 << 16, 8
# Different numbers that are counted instead of sorted.
_FEW = 4096
# Compare-exchange steps that sort a row of this many numbers.
_NETWORKS = {2: [(0, 1)], 3: [(0, 1), (1, 2), (0, 1)], 4: [(0, 1), (2, 3), (0, 2), (1, 3), (1, 2)]}


def places(ascending: Indices, wanted: Indices) -> Indices:
    """Find numbers in an ascending table; ascending [n]."""
    if len(ascending) == 0:
        return np.full(wanted.shape, -1, dtype=np.int64)
    where = np.minimum(np.searchsorted(ascending, wanted), len(ascending) - 1)
    return np.where(ascending[where] == wanted, where, -1)


def marked(count: int, numbers: Iterable[NDArray[np.integer[Any]]]) -> Mask:
    """Tell which of the numbers below a count occur; numbers [..] each -> [count]."""
    found = np.zeros(count, dtype=bool)
    for own in numbers:
        found[own] = True
    return found


def with_marked(rows: Indices, marks: Mask) -> Indices:
    """Find the rows with a marked number; rows [n, width] -> [m]."""
    found = np.zeros(len(rows), dtype=bool)

    def write(part: slice) -> None:
        for column in rows[part].T:
            found[part] |= marks[column]

    in_parts(write, _pieces(*rows.shape), rows.size >= MANY)
    return np.flatnonzero(found)


def sort(numbers: Indices) -> None:
    """Sort in place; many numbers of the host on several threads; numbers [n]."""
    if isinstance(numbers, np.ndarray) and len(numbers) >= MANY and thread_count() > 1:
        in_parts(lambda part: part.sort(), np.array_split(numbers, _SORTED))
        numbers.sort(kind="stable")  # which merges what is in order
    else:
        numbers.sort()


def _pieces(count: int, width: int) -> list[slice]:
    """Equal parts of rows, each of few numbers."""
    n = 1 + count * width // _CACHED
    return [slice(count * k // n, count * (k + 1) // n) for k in range(n)]


def turned(rows: Indices, permutations: Indices, which: Indices) -> Indices:
    """Permute the entries of rows; rows [n, width], permutations [n_permutations, m], which [n] -> [n, m]."""
    rows = np.ascontiguousarray(rows)
    out = np.empty((len(rows), permutations.shape[1]), rows.dtype)

    def write(part: slice) -> None:
        at = rows.shape[1] * np.arange(part.start, part.stop)[:, None] + permutations.take(which[part], axis=0)
        rows.take(at, out=out[part], mode="clip")  # which needs no copy of the result

    in_parts(write, _pieces(*out.shape), out.size >= MANY)
    return out


def counting_sort(numbers: Indices, bound: int) -> Indices:
    """Sort numbers of the host below a bound, equal ones by place; numbers [n] -> their places [n]."""
    n = len(numbers)
    places: Indices = csr_array((np.ones(n, bool), numbers, np.arange(n + 1)), shape=(n, bound)).tocsc().indices
    return places


def in_order(
    numbers: Indices, bound: int, labels: Indices | None = None, below: int | None = None, xp: Any = np
) -> tuple[Indices, Indices]:
    """Sort numbers with labels, equal ones by their labels; numbers, labels [n] -> labels, numbers [n]."""
    if xp is np and bound <= len(numbers) and (labels is None or (labels[1:] >= labels[:-1]).all()):
        order = counting_sort(numbers, bound)
        return order if labels is None else labels[order], numbers[order]
    bits = _bits(len(numbers) if below is None else below)
    if bound > 1 << (_BITS - bits):
        if labels is None:
            labels = xp.argsort(numbers, kind="stable")
            return labels, numbers[labels]
        order = xp.argsort(labels)
        order = order[xp.argsort(numbers[order], kind="stable")]
        return labels[order], numbers[order]
    if labels is None:
        labels = xp.arange(len(numbers), dtype=np.int32 if len(numbers) < 2**31 else np.int64)
    numbers <<= bits
    numbers |= labels
    sort(numbers)
    labels = numbers & ((1 << bits) - 1)
    numbers >>= bits
    return labels, numbers


def _bits(bound: int) -> int:
    return max(1, bound - 1).bit_length()


def run_starts(ascending: Indices, xp: Any = np) -> Mask:
    """Tell which numbers start a run of equal ones; ascending [n] -> [n]."""
    first: Mask = xp.ones(len(ascending), dtype=bool)
    xp.not_equal(ascending[1:], ascending[:-1], out=first[1:])
    return first


def unique(numbers: Indices) -> Indices:
    """Find the distinct ones of many integers ten times as fast as NumPy 2.3 to 2.5; numbers [..] -> [n]."""
    ascending = numbers.flatten()
    sort(ascending)
    return ascending[run_starts(ascending)]


def distinct(numbers: Indices, bound: int) -> tuple[Indices, Indices]:
    """Tell numbers apart; numbers [n] -> first [n distinct numbers], which [n]."""
    if bound <= _FEW < len(numbers):
        position = np.full(bound, -1)
        # If several numbers are written to one place, the last one stays.
        position[numbers[::-1]] = np.arange(len(numbers) - 1, -1, -1)
        there = position >= 0
        return position[there], (np.cumsum(there) - 1)[numbers]
    if len(numbers) and (numbers == numbers[0]).all():
        return np.zeros(1, dtype=np.int64), np.zeros(len(numbers), dtype=np.int64)
    order, ascending = in_order(numbers, bound)
    first = run_starts(ascending)
    which = np.empty_like(order)
    which[order] = np.cumsum(first.astype(np.int64)) - 1
    return order[first], which


class TupleIndex:
    """Numbers distinct rows [n, width] of integers from -1 to limit - 1 in lexicographic order, and finds them."""

    def __init__(self, rows: NDArray[np.integer[Any]], limit: int, xp: Any = np) -> None:
        self._base = limit + 1
        # Leading columns with -1 only, as in a table of triangles, are ignored.
        used = next((k for k, column in enumerate(rows.T) if len(rows) and column.max() >= 0), 0)
        self._width = rows.shape[1] - used
        # Columns, counted from the last one, that make a key with what came before; and the keys.
        self._stages: list[tuple[list[int], Indices]] = []
        fast = 1 << (_BITS - _bits(len(rows)))
        order: Indices | None = None
        self._counted = xp is np and self._base <= len(rows)
        for column in rows.T[used:][::-1] if self._counted else ():
            here = counting_sort((column if order is None else column[order]) + 1, self._base)
            order = here if order is None else order[here]
        column = rows[:, used]
        key, bound, columns = (column if order is None else column[order]).astype(np.int64), self._base, [self._width]
        key += 1
        for left in range(self._width - 1, 0, -1):
            wide = bound * self._base
            if wide > fast and bound > len(rows) and (bound <= fast or wide > 1 << _BITS):
                order, key = self._rank(columns, key, bound, order, xp)
                bound, columns = len(self._stages[-1][1]), []
            column = rows[:, -left]
            key *= self._base
            key += column if order is None else column[order]
            key += 1
            bound *= self._base
            columns.append(left)
        order, key = self._rank(columns, key, bound, order, xp)
        self.count = len(self._stages[-1][1])
        self.times: Indices = as_numpy(xp.diff(xp.flatnonzero(run_starts(key, xp)), append=len(key)))  # of each row
        self.ids: Indices = xp.empty(len(rows), dtype=np.int64)
        self.ids[order] = key

    def _rank(
        self, columns: list[int], key: Indices, bound: int, order: Indices | None, xp: Any
    ) -> tuple[Indices, Indices]:
        """Sort keys, if rows are not in order yet, and number them; the rows in their order, and the numbers."""
        ascending = key
        if order is None or not self._counted:
            places, ascending = in_order(key, bound, xp=xp)
            order = places if order is None else order[places]
        first = run_starts(ascending, xp)
        self._stages.append((columns, as_numpy(ascending[first])))
        ascending[...] = first
        xp.cumsum(ascending, out=ascending)
        ascending -= 1
        return order, ascending

    def find(self, rows: NDArray[np.integer[Any]]) -> Indices:
        """Find rows again; rows [n, width] -> [n]."""
        missing = (rows[:, : -self._width] >= 0).any(axis=1)
        place = np.zeros(len(rows), dtype=np.int64)
        for columns, table in self._stages:
            for left in columns:
                place = place * self._base + (rows[:, -left] + 1 if left <= rows.shape[1] else 0)
            place = places(table, place)
            missing |= place < 0
        return np.where(missing, -1, place)


def sorted_rows(vertices: NDArray[np.integer[Any]], xp: Any = np) -> NDArray[np.integer[Any]]:
    """Sort each row of a narrow table; vertices [n, 2, 3 or 4]."""
    columns = list(vertices.T)
    for i, j in _NETWORKS[len(columns)]:
        columns[i], columns[j] = xp.minimum(columns[i], columns[j]), xp.maximum(columns[i], columns[j])
    result: NDArray[np.integer[Any]] = xp.stack(columns).T
    return result


def comparisons(columns: Sequence[Indices] | Indices, xp: Any = np) -> Indices:
    """Encode the order of the numbers in every row; columns [n] -> [n]."""
    pairs = list(combinations(range(len(columns)), 2))
    result: Indices = xp.zeros(len(columns[0]), dtype=np.int64)

    def write(part: slice) -> None:
        here = result[part]
        for bit, (i, j) in enumerate(pairs):
            here |= xp.left_shift(columns[i][part] > columns[j][part], bit, dtype=np.int64)

    in_parts(write, _pieces(len(result), len(pairs)) if xp is np else [slice(None)], len(result) * len(pairs) >= MANY)
    return result
