"""The next groups of elements, fetched into the cache while one is worked on: for data out of cache."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

from .indexed import CACHE_LINE, INDEX_BYTES, Indexed, row_count
from .ir import Builder, Index

# Bytes between what is worked on and what is fetched, where groups are small.
_DISTANCE = 8 << 10
# A processor drops prefetches when many are under way. Lines from memory are therefore fetched again, over so many
# lines, at most so often, and as often as there is time: for so many operations and fetches while a line comes.
BY_WORK = -1
_READ_AGAIN, _WRITTEN_AGAIN = 64, 16
_MOST, _OPERATIONS = 8, 21


def input_streams(b: Builder, n: int, components: int, indexed: Indexed) -> list[int]:
    """How much of the numbers that a group takes lies in a row: themselves, or their indices."""
    return [row_count(indexed) * b.lanes * INDEX_BYTES] if indexed else [n * b.nbytes] * components


class Prefetch:
    """Instructions that fetch what lies ahead, a share at every call of `fetch`.

    `read` and `written` are bytes of a group in each row of memory; a processor reads what is written too. A line is
    fetched so many times, half as many where it is written, or not at all, or `BY_WORK`.
    """

    def __init__(self, b: Builder, fetches: int, read: Sequence[int], written: Sequence[int]) -> None:
        self._b, self._streams, self._read = b, [*read, *written] if fetches else [], len(read)
        self._fetches = fetches
        self._places: list[tuple[int, int]] = []  # in the builder's lines, and how often it is passed

    def start(self, group: Index, rows: Sequence[str]) -> None:
        """Go to a group of elements, and to an application to some of its components."""
        # Far enough for memory to answer, and not farther than the cache has room. Factors, in the first row, are not
        # read before a part of them is fetched.
        groups = min(_DISTANCE / max(sum(self._streams), 1), 16)
        for i, (row, n) in enumerate(zip(rows, self._streams)):
            lines = int(max(groups, 1 if i else 0.5) * n) // CACHE_LINE
            place = self._b.at(row, (group, n), (lines, CACHE_LINE), unit="i8")
            self._b.emit(f"store ptr {place}, ptr %ahead{i}")

    def fetch(self) -> None:
        """Fetch a share, of a size that `finish` knows."""
        if self._streams:
            self._places.append((len(self._b.lines), self._b.trips))
            self._b.lines.append("")

    def _shares(self, n: int) -> list[int]:
        """Cache lines of a stream that each call fetches, for n in all: an even stream, by the work of each call."""
        lines = self._b.lines
        work = [
            trips * next((k for k, line in enumerate(lines[at:]) if line.startswith("  br ")), len(lines) - at)
            for at, trips in self._places
        ]
        shares, done, due = list[int](), 0, 0.0
        for (_, trips), own in zip(self._places, work, strict=True):
            due += n * own / max(sum(work), 1)
            shares.append(max(round((due - done) / trips), 0))
            done += shares[-1] * trips
        if shares and done < n:
            shares[-1] += math.ceil((n - done) / self._places[-1][1])
        return shares

    def _again(self) -> list[range]:
        """How many lines further on a line is fetched again, where it is read, and where it is written."""
        n, lines = self._fetches, sum(self._streams) / CACHE_LINE
        if n == BY_WORK:
            n = min(max(_OPERATIONS - round(self._b.flops / lines), 1), _MOST)
        return [range(0, over, over // k)[:k] for over, k in ((_READ_AGAIN, n), (_WRITTEN_AGAIN, (n + 1) // 2))]

    def finish(self) -> list[str]:
        """Write the shares of all calls."""
        if not self._streams:
            return []
        b = self._b
        b.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        shares, again = [self._shares(math.ceil(n / CACHE_LINE)) for n in self._streams], self._again()
        for call, (place, _) in enumerate(self._places):
            text = []
            for s, lines in enumerate(own[call] for own in shares):
                if not lines:
                    continue
                here, to_write = f"%q{call}_{s}", int(s >= self._read)
                text.append(f"  {here} = load ptr, ptr %ahead{s}")
                for i, far in product(range(lines), again[to_write]):
                    there = f"{here}_{i}_{far}"
                    text.append(f"  {there} = getelementptr i8, ptr {here}, i64 {CACHE_LINE * (i + far)}")
                    # Into the first-level cache, from which what has no room goes to the second.
                    text.append(f"  call void @llvm.prefetch.p0(ptr {there}, i32 {to_write}, i32 3, i32 1)")
                text.append(f"  {here}_n = getelementptr i8, ptr {here}, i64 {CACHE_LINE * lines}")
                text.append(f"  store ptr {here}_n, ptr %ahead{s}")
            b.lines[place] = "\n".join(text)
        return [f"  %ahead{s} = alloca ptr, align 8" for s in range(len(shares))]
