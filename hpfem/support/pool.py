"""Scratch for one application at a time: taken from a pool, and given back after the application.

Threads that share an operator use different scratch, and so does an application inside another one, for example in a
signal handler or a user's function. No thread waits for another. This relies on `list.pop` and `list.append` being
atomic, which Python promises with its global lock and without. Scratch that is not given back because of an exception
is lost, and made again when needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Pool(Generic[T]):
    """Unused scratch; the pool grows to the largest number in use at once."""

    def __init__(self) -> None:
        self._idle: list[T] = []

    def take(self, make: Callable[[], T]) -> T:
        """Take scratch; no one else uses it until it is given back."""
        try:
            return self._idle.pop()
        except IndexError:
            return make()

    def give(self, scratch: T) -> None:
        """Give scratch back after its last use."""
        self._idle.append(scratch)
