"""Kernels that are compiled in the background, in the order in which they are begun, while Python goes on.

LLVM works on one module at a time. Who needs a kernel compiles it, unless the thread did: nothing depends on it.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext, suppress
from time import sleep

from ....support.compiling import compiling
from ....support.threads import thread_count
from .cache import compiled_as
from .target import LOCK, Code, Target

# What is not compiled yet, and who waits for LLVM: they come before the thread's next kernel.
_queue: deque[Begun] = deque()
_first: list[Begun] = []
_compiled_now: list[Begun] = []
_threads: list[threading.Thread] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_queue.clear)  # that is the parent's work


class Begun:
    """Code with a name, of a text that is written if it is not in the cache; compiled by who comes first."""

    def __init__(self, name: str, write: Callable[[], str], target: Target) -> None:
        self._work: tuple[str, Callable[[], str], Target] | None = (name, write, target)
        self._code: Code | None = None
        if thread_count() > 1:
            _queue.append(self)
            if not any(thread.is_alive() for thread in _threads):
                _threads[:] = [threading.Thread(target=_compile_all, name="llvm")]
                with suppress(RuntimeError):  # no more threads, or Python ends
                    _threads[0].start()

    @property
    def code(self) -> Code:
        """The code; waits for the compiler."""
        if self._code is None:
            try:
                _first.append(self)
                with compiling("compiling a kernel") if _compiled_now else nullcontext():
                    self.make()
            finally:
                _first.clear()
        assert self._code is not None
        return self._code

    def make(self) -> None:
        """Compile it, or find it in the cache, once."""
        with LOCK:
            if self._work is not None:
                self._code = compiled_as(*self._work)
                self._work = None  # texts are long


def _compile_all() -> None:
    """Compile what was begun; not longer than the main thread lives."""
    with suppress(IndexError):
        while threading.main_thread().is_alive():
            if _first:
                sleep(1e-3)
            else:
                _compiled_now.append(_queue.popleft())
                with suppress(Exception):  # raised again where the kernel is needed
                    _compiled_now[0].make()
                _compiled_now.clear()
