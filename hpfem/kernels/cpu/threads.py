"""A pool of threads that kernels share: HPFEM_NUM_THREADS, or one per processor that this process may use."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence

from ...errors import ArgumentError


def thread_count() -> int:
    """Threads that a kernel may use.

    Raises
    ------
    ArgumentError
        If HPFEM_NUM_THREADS is no positive integer.
    """
    asked = os.environ.get("HPFEM_NUM_THREADS")
    if asked:
        if not (asked.isascii() and asked.isdigit() and len(asked) < 7 and int(asked) > 0):
            raise ArgumentError(f"HPFEM_NUM_THREADS is {asked[:40]!r}; it must be a positive integer below a million")
        return int(asked)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Worker:
    """A thread that waits for one task at a time; handing over by bare locks costs half of what an executor does."""

    def __init__(self) -> None:
        self._ready, self._done = threading.Lock(), threading.Lock()
        self._ready.acquire()
        self._done.acquire()
        self._task: Callable[[], None] | None = None
        self._error: Exception | None = None
        threading.Thread(target=self._work, name="hpfem", daemon=True).start()

    def _work(self) -> None:
        while True:
            self._ready.acquire()
            try:
                if self._task is not None:
                    self._task()
            except Exception as error:  # noqa: BLE001 - raised again by `wait`
                self._error = error
            self._task = None
            self._done.release()

    def start(self, task: Callable[[], None]) -> None:
        """Begin a task."""
        self._task = task
        self._ready.release()

    def wait(self) -> Exception | None:
        """Wait for the task's end; returns what it raised."""
        self._done.acquire()
        error, self._error = self._error, None
        return error


# Workers without a task; taking and giving back are atomic.
_idle: list[Worker] = []


def run_all(tasks: Sequence[Callable[[], None]]) -> None:
    """Run tasks at once, the first one on this thread, and wait for all."""
    workers = []
    for task in tasks[1:]:
        try:
            worker = _idle.pop()
        except IndexError:
            worker = Worker()
        worker.start(task)
        workers.append(worker)
    try:
        tasks[0]()
    finally:
        errors = [worker.wait() for worker in workers]
        _idle.extend(workers)
    for error in errors:
        if error is not None:
            raise error


if hasattr(os, "register_at_fork"):
    # Threads do not survive a fork.
    os.register_at_fork(after_in_child=_idle.clear)
