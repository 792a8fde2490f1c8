"""Scratch that one application at a time may use: taken from a pool, and given back when the application is over.

Threads that share an operator take different scratch, and so does an application inside another one, as of a signal
handler or a user's function. Nobody waits. It relies on `list.pop` and `list.append` being atomic, which Python
promises with its global lock and without. What an exception keeps from being given back is lost, and made anew when
needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Pool(Generic[T]):
    """Scratch without a user; it grows to as many as were in use at once."""

    def __init__(self) -> None:
        self._idle: list[T] = []

    def take(self, make: Callable[[], T]) -> T:
        """Take one; it is nobody else's until it is given back.

        Parameters
        ----------
        make : callable
            () -> new scratch, called if none is idle.

        Returns
        -------
        object
        """
        try:
            return self._idle.pop()
        except IndexError:
            return make()

    def give(self, scratch: T) -> None:
        """Give one back that nobody writes to any more.

        Parameters
        ----------
        scratch : object
        """
        self._idle.append(scratch)
