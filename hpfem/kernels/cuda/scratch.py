"""Arrays on a GPU between the launches of one application: in use by one thread, on one stream at a time.

An application gives its scratch back when all of it is launched, long before it is computed. On the same stream the
next one comes after it anyway; another stream is made to wait, on the device, for what the first one has been given so
far. Scratch that a CUDA graph was captured with is the graph's: nobody gets it until whoever made the graph says that
it is gone (`captured`). Nothing is freed before its kernel is, so that an exception between two launches does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from ...pool import Pool

T = TypeVar("T")


class StreamPool(Generic[T]):
    """Scratch of a kernel.

    Attributes
    ----------
    made : list
        All that there is, in use or not.
    """

    def __init__(self) -> None:
        self.made: list[T] = []
        self._idle: Pool[tuple[T, Any]] = Pool()

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

        def new() -> tuple[T, Any]:
            scratch = make()
            self.made.append(scratch)
            return scratch, None

        scratch, before = self._idle.take(new)
        stream = cupy.cuda.get_current_stream()
        # A stream that is captured waits for nothing outside: its work comes when the graph is launched.
        if before is not None and before.ptr != stream.ptr and not stream.is_capturing():
            stream.wait_event(before.record())
        return scratch

    def give(self, scratch: T) -> None:
        """Give scratch back, after the last launch that uses it."""
        import cupy

        stream = cupy.cuda.get_current_stream()
        if not stream.is_capturing():
            self._idle.give((scratch, stream))
        elif stream.ptr in _CAPTURED:
            _CAPTURED[stream.ptr].append((self, scratch))


# What graphs that are being captured use, by the address of the stream.
_CAPTURED: dict[int, list[tuple[StreamPool[Any], Any]]] = {}


@contextmanager
def captured(stream: Any) -> Iterator[list[tuple[StreamPool[Any], Any]]]:
    """Note the scratch that is used while a graph is captured; without this it stays the graph's for ever.

    Parameters
    ----------
    stream : cupy.cuda.Stream
        That is captured.

    Yields
    ------
    list of (StreamPool, scratch)
        To be given back when the graph is gone.
    """
    used = _CAPTURED[stream.ptr] = []
    try:
        yield used
    finally:
        del _CAPTURED[stream.ptr]
