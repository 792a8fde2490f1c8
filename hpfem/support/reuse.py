"""Memory that arrays leave, kept for the next ones while much is made.

glibc gives the memory of an array of more than 32 MiB back to the system at once, and the system zeroes each page at its
first use. That takes as long as much of what is computed, several times as long on virtual machines.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from time import perf_counter
from typing import Any

# glibc's numbers of the sizes from which on memory is taken from the system, and given back; the largest that it knows,
# and those that its own adaption ends at.
_TAKEN, _GIVEN_BACK = -3, -1
_LARGEST, _USUAL = 2**31 - 1, 32 << 20
# Seconds from which on giving back what is left is worth its time.
_LONG = 1.0
_users: list[object] = []
_lock = Lock()


@cache
def _library() -> Any:
    """glibc, if it is the C library and the user of the program has not tuned it."""
    if sys.platform != "linux" or any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ):
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None


@contextmanager
def memory_kept() -> Iterator[None]:
    """Keep the memory of arrays that end in the body for others; what is left goes back to the system after a long one."""
    library, began, mine = _library(), perf_counter(), object()
    if library is None:
        yield
        return
    with _lock:
        _users.append(mine)
        _limits(library, _LARGEST, _LARGEST)
    try:
        yield
    finally:
        with _lock:
            _users.remove(mine)
            if not _users:
                _limits(library, _USUAL, 2 * _USUAL)
                if perf_counter() - began > _LONG:
                    library.malloc_trim(0)


def _limits(library: Any, taken: int, given_back: int) -> None:
    library.mallopt(_TAKEN, taken)
    library.mallopt(_GIVEN_BACK, given_back)
