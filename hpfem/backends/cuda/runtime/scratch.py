"""Arrays on a GPU between the launches of one application: in use by one thread, on one stream at a time.

An application gives its scratch back when all of it is launched, long before it is computed. On the same stream the
next one comes after it anyway; another stream is made to wait, on the device, for what the first one has been given so
far. Scratch that CUDA graphs were captured with is theirs, one for all that are captured on a stream, which are to be
launched in order: nobody else gets it until whoever made them says that they are gone (`captured`). Nothing is freed
before its kernel is, so that an exception between two launches does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from ....support.pool import Pool

T = TypeVar("T")

# The address of every thread's own default stream: equal addresses, different streams.
_PER_THREAD = 2


class StreamPool(Generic[T]):
    """Scratch of a kernel.

    Attributes
    ----------
    made : list
        All that there is, in use or not.
    """

    def __init__(self) -> None:
        self.made: list[T] = []
        self._idle: Pool[tuple[T, Any, Any]] = Pool()
        # What graphs use, by the address of the stream that they are captured on.
        self._graphs: dict[int, list[T]] = {}

    def take(self, make: Callable[[], T]) -> T:
        """Take scratch for launches on the current stream.

        Parameters
        ----------
        make : callable
            () -> new scratch, called if none is idle.

        Returns
        -------
        object
        """
        import cupy

        def new() -> tuple[T, Any, Any]:
            scratch = make()
            self.made.append(scratch)
            return scratch, None, None

        stream = cupy.cuda.get_current_stream()
        again = self._graphs.get(stream.ptr)
        if again and stream.is_capturing():
            return again.pop()
        scratch, before, event = self._idle.take(new)
        # A stream that is captured waits for nothing outside: its work comes when the graph is launched.
        if before is not None and (event or before.ptr != stream.ptr) and not stream.is_capturing():
            stream.wait_event(event or before.record())
        return scratch

    def give(self, scratch: T) -> None:
        """Give scratch back, after the last launch that uses it.

        Parameters
        ----------
        scratch : object
        """
        import cupy

        stream = cupy.cuda.get_current_stream()
        if not stream.is_capturing():
            self._idle.give((scratch, stream, stream.record() if stream.ptr == _PER_THREAD else None))
            return
        self._graphs.setdefault(stream.ptr, []).append(scratch)
        if stream.ptr in _CAPTURED and self not in _CAPTURED[stream.ptr]:
            _CAPTURED[stream.ptr].append(self)

    def release(self, stream: Any) -> None:
        """Take back what the graphs captured on a stream have used, when they are gone and nothing is under way.

        Parameters
        ----------
        stream : cupy.cuda.Stream
        """
        for scratch in self._graphs.pop(stream.ptr, ()):
            self.give(scratch)


# Pools whose scratch graphs use that are being captured, by the address of the stream.
_CAPTURED: dict[int, list[StreamPool[Any]]] = {}


@contextmanager
def captured(stream: Any) -> Iterator[list[StreamPool[Any]]]:
    """Note whose scratch is used while a graph is captured; without this it stays the graph's for ever.

    Parameters
    ----------
    stream : cupy.cuda.Stream
        That is captured.

    Yields
    ------
    list of StreamPool
        To be told (`release`) when the graph is gone; until then the stream must live.
    """
    used = _CAPTURED[stream.ptr] = []
    try:
        yield used
    finally:
        del _CAPTURED[stream.ptr]
