"""Arrays on a GPU between the launches of one application: in use by one thread, on one stream at a time.

An application gives its scratch back after its launches, long before the work is done. On the same stream the next
application runs after it. Another stream waits, on the device, for the work that the first stream has so far. CUDA
graphs keep the scratch with which they were captured: one for all graphs of a stream, which must be launched in order.
No one else gets it until the owner of the graphs says that they are gone (`captured`). Scratch is freed only with its
kernel, so an exception between two launches does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Generic, TypeVar

from ....support.pool import Pool
from .lazy import cupy

T = TypeVar("T")

# The address of every thread's own default stream: equal addresses, different streams.
_PER_THREAD = 2


class StreamPool(Generic[T]):
    """Scratch of a kernel; `made` is all of it, in use or not."""

    def __init__(self) -> None:
        self.made: list[T] = []
        self._idle: Pool[tuple[T, Any, Any]] = Pool()
        # Scratch of graphs, by the address of the stream of their capture.
        self._graphs: dict[int, list[T]] = {}

    def take(self, make: Callable[[], T]) -> T:
        """Take scratch for launches on the current stream."""

        def new() -> tuple[T, Any, Any]:
            scratch = make()
            self.made.append(scratch)
            return scratch, None, None

        stream = cupy.cuda.get_current_stream()
        again = self._graphs.get(stream.ptr)
        if again and stream.is_capturing():
            return again.pop()
        scratch, before, event = self._idle.take(new)
        # A stream in capture cannot wait for other work: its own work starts when the graph is launched.
        if before is not None and (event or before.ptr != stream.ptr) and not stream.is_capturing():
            stream.wait_event(event or before.record())
        return scratch

    def give(self, scratch: T) -> None:
        """Give scratch back, after the last launch that uses it."""
        stream = cupy.cuda.get_current_stream()
        if not stream.is_capturing():
            self._idle.give((scratch, stream, stream.record() if stream.ptr == _PER_THREAD else None))
            return
        self._graphs.setdefault(stream.ptr, []).append(scratch)
        if stream.ptr in _CAPTURED and self not in _CAPTURED[stream.ptr]:
            _CAPTURED[stream.ptr].append(self)

    def release(self, stream: Any) -> None:
        """Take back the scratch of a stream's graphs, after they are gone and their work is done."""
        for scratch in self._graphs.pop(stream.ptr, ()):
            self.give(scratch)


# Priority of streams whose few blocks are not to wait for kernels of many.
FIRST = -5


@cache
def aside(device: str) -> Any:
    """The stream of what a device exchanges and tells beside its other work."""
    return cupy.cuda.Stream(non_blocking=True, priority=FIRST)


# Pools whose scratch graphs use that are being captured, and streams for branches, by the address of the stream.
_CAPTURED: dict[int, list[StreamPool[Any]]] = {}
_BESIDE: dict[int, list[Any]] = {}


@contextmanager
def captured(stream: Any, beside: Sequence[Any] = ()) -> Iterator[list[StreamPool[Any]]]:
    """Record the pools whose scratch a capture with branches `beside` it uses, lest the graph keep it for ever."""
    used = _CAPTURED[stream.ptr] = []
    _BESIDE[stream.ptr] = list(beside)
    try:
        yield used
    finally:
        del _CAPTURED[stream.ptr]
        for own in (stream, *beside):
            _BESIDE.pop(own.ptr, None)


def in_branches(calls: Sequence[Callable[[], Any]]) -> None:
    """Make calls one after the other or, while a graph is captured, in branches of it.

    The first stays on the stream: it alone may take scratch. Each may have branches again while some are left.
    """
    stream = cupy.cuda.get_current_stream()
    free = _BESIDE.get(stream.ptr, [])
    branches = list(zip(free, calls[1:]))
    before = stream.record() if branches else None
    for branch, call in branches:
        branch.wait_event(before)
        _BESIDE[branch.ptr] = free[len(branches) :]
        with branch:
            call()
    if branches:
        _BESIDE[stream.ptr] = free[len(branches) :]
    for call in [*calls[:1], *calls[1 + len(branches) :]]:
        call()
    if branches:
        _BESIDE[stream.ptr] = free
    for branch, _ in branches:
        stream.wait_event(branch.record())
