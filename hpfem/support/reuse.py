"""Memory that arrays leave, kept for the next ones while much is made.

glibc gives the memory of an array of more than 32 MiB back to the system at once, which zeroes each page at its first
use. That takes as long as much of what is computed, on virtual machines several times as long.
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

# glibc's numbers of the sizes from which on it takes memory from the system, and gives it back; those that it comes to.
_SIZES, _LARGEST = {-3: 32 << 20, -1: 64 << 20}, 2**31 - 1
# Seconds from which on giving back what is left is worth its time.
_LONG = 1.0
_users, _lock = list[object](), Lock()


@cache
def _library() -> Any:
    """glibc, if it is the C library and the user of the program has not tuned it."""
    if sys.platform != "linux" or any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ):
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None


@contextmanager
def memory_kept() -> Iterator[None]:
    """Keep the memory of arrays that end in the body for others; after a long one the system gets what is left."""
    library, began, mine = _library(), perf_counter(), object()
    if library is None:
        yield
        return
    with _lock:
        _users.append(mine)
        for number in _SIZES:
            library.mallopt(number, _LARGEST)
    try:
        yield
    finally:
        with _lock:
            _users.remove(mine)
            for number, size in _SIZES.items() if not _users else ():
                library.mallopt(number, size)
            if not _users and perf_counter() - began > _LONG:
                library.malloc_trim(0)
