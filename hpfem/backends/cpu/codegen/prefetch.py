"""The next groups of elements, fetched into the cache while one is worked on: for data out of cache."""

from __future__ import annotations

import math
from collections.abc import Mapping

from .indexed import INDEX_BYTES
from .ir import Builder, Index

_CACHE_LINE = 64
# Bytes between what is worked on and what is fetched, where groups are small.
_DISTANCE = 32 << 10


def input_stream(b: Builder, n: int, indexed: bool) -> dict[str, int]:
    """Where the numbers that a group takes lie in a row: themselves, or their indices.

    Parameters
    ----------
    b : Builder
    n : int
        Numbers of an element.
    indexed : bool

    Returns
    -------
    dict
        Pointer -> vectors of a group.
    """
    return {"%codes": math.ceil(n * INDEX_BYTES / b.dtype.itemsize)} if indexed else {"%in": n}


class Prefetch:
    """Instructions that fetch what lies ahead, a share at every call of `fetch`.

    Parameters
    ----------
    b : Builder
    streams : mapping
        Pointer -> vectors of a group that lie there. Without any, nothing is fetched.
    """

    def __init__(self, b: Builder, streams: Mapping[str, int]) -> None:
        self._b, self._streams = b, streams
        self._places: list[int] = []
        self._calls = 0

    def start(self, group: Index) -> None:
        """Go to a group of elements.

        Parameters
        ----------
        group : Index
        """
        # Far enough for memory to answer.
        ahead = max(1, min(_DISTANCE // max(sum(self._streams.values()) * self._b.nbytes, 1), 16))
        following = Index(group.value, ahead)
        for i, pointer in enumerate([self._b.at(base, (following, n)) for base, n in self._streams.items()]):
            self._b.emit(f"store ptr {pointer}, ptr %ahead{i}")

    def fetch(self) -> None:
        """Fetch a share, of a size that `finish` knows."""
        if self._streams:
            self._places.append(len(self._b.lines))
            self._calls += self._b.trips
            self._b.lines.append("")

    def finish(self) -> list[str]:
        """Write the shares of all calls.

        Returns
        -------
        list of str
            Lines for the head of the function.
        """
        if not self._streams:
            return []
        b = self._b
        b.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        shares = [math.ceil(n * b.nbytes / _CACHE_LINE / max(self._calls, 1)) for n in self._streams.values()]
        for call, place in enumerate(self._places):
            text = []
            for s, lines in enumerate(shares):
                here = f"%q{call}_{s}"
                text.append(f"  {here} = load ptr, ptr %ahead{s}")
                for i in range(lines):
                    text.append(f"  {here}_{i} = getelementptr i8, ptr {here}, i64 {_CACHE_LINE * i}")
                    # Read, into the second-level cache: the first has no room for a group.
                    text.append(f"  call void @llvm.prefetch.p0(ptr {here}_{i}, i32 0, i32 2, i32 1)")
                text.append(f"  {here}_n = getelementptr i8, ptr {here}, i64 {_CACHE_LINE * lines}")
                text.append(f"  store ptr {here}_n, ptr %ahead{s}")
            b.lines[place] = "\n".join(text)
        return [f"  %ahead{s} = alloca ptr, align 8" for s in range(len(shares))]
