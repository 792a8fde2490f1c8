"""The next groups of elements, fetched into the cache while one is worked on: for data out of cache."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .indexed import CACHE_LINE, INDEX_BYTES, Indexed, row_count
from .ir import Builder, Index

# Bytes between what is worked on and what is fetched, where groups are small.
_DISTANCE = 32 << 10


def input_streams(b: Builder, n: int, components: int, indexed: Indexed) -> list[int]:
    """How much of the numbers that a group takes lies in a row: themselves, or their indices."""
    return [row_count(indexed) * b.lanes * INDEX_BYTES] if indexed else [n * b.nbytes] * components


class Prefetch:
    """Instructions that fetch what lies ahead, a share at every call of `fetch`.

    `read` and `written` are bytes of a group in each row of memory; a processor reads what is written too.
    """

    def __init__(self, b: Builder, read: Sequence[int] = (), written: Sequence[int] = ()) -> None:
        self._b, self._streams, self._read = b, [*read, *written], len(read)
        self._places: list[int] = []
        self._calls = 0

    def start(self, group: Index, rows: Sequence[str]) -> None:
        """Go to a group of elements, and to an application to some of its components."""
        # Far enough for memory to answer.
        ahead = max(1, min(_DISTANCE // max(sum(self._streams), 1), 16))
        following = Index(group.value, ahead)
        for i, (row, n) in enumerate(zip(rows, self._streams)):
            self._b.emit(f"store ptr {self._b.at(row, (following, n), unit='i8')}, ptr %ahead{i}")

    def fetch(self) -> None:
        """Fetch a share, of a size that `finish` knows."""
        if self._streams:
            self._places.append(len(self._b.lines))
            self._calls += self._b.trips
            self._b.lines.append("")

    def finish(self) -> list[str]:
        """Write the shares of all calls."""
        if not self._streams:
            return []
        b = self._b
        b.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        shares = [math.ceil(n / CACHE_LINE / max(self._calls, 1)) for n in self._streams]
        for call, place in enumerate(self._places):
            text = []
            for s, lines in enumerate(shares):
                here = f"%q{call}_{s}"
                text.append(f"  {here} = load ptr, ptr %ahead{s}")
                for i in range(lines):
                    text.append(f"  {here}_{i} = getelementptr i8, ptr {here}, i64 {CACHE_LINE * i}")
                    # Into the second-level cache: the first has no room for a group.
                    to_write = int(s >= self._read)
                    text.append(f"  call void @llvm.prefetch.p0(ptr {here}_{i}, i32 {to_write}, i32 2, i32 1)")
                text.append(f"  {here}_n = getelementptr i8, ptr {here}, i64 {CACHE_LINE * lines}")
                text.append(f"  store ptr {here}_n, ptr %ahead{s}")
            b.lines[place] = "\n".join(text)
        return [f"  %ahead{s} = alloca ptr, align 8" for s in range(len(shares))]
