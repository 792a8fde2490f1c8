"""Waits for compilers: shown where they are long, and counted."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from .progress import progress_if_long

_waited = threading.local()


def compile_seconds() -> float:
    """Seconds that this thread has waited for compilers so far."""
    return float(getattr(_waited, "seconds", 0.0))


@contextmanager
def compiling(what: str) -> Iterator[None]:
    """Count the body's time as that of a compiler, or of another process that compiles the same."""
    began, before = perf_counter(), compile_seconds()
    try:
        with progress_if_long(what):
            yield
    finally:
        _waited.seconds = before + perf_counter() - began  # of the outermost, if inside another
