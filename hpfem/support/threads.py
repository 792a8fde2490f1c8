"""Threads that kernels and set-up share: HPFEM_NUM_THREADS, or one per processor that this process may use.

An exception of a signal handler, for example of Ctrl-C, can occur between any two steps of the waiting thread. Two
properties make this harmless. Whether a task runs or is done can be asked repeatedly, so that waiting starts again, for
up to four signals. And workers belong to no caller, so that none of their state can be lost. Waiting ends because
kernels end.

Results of compiled passes do not depend on the number of threads. Where NumPy multiplies matrices (integrals, values at
points, strategy `stdmat`, backend `numpy`) the last bits depend on the threads of its BLAS, OPENBLAS_NUM_THREADS.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import TypeVar

from ..errors import ArgumentError

# Least operations of a thread: below about 50 microseconds, waking a thread costs more than it saves.
THREAD_FLOPS = 3_000_000
# Operations of a core in the time of reading a number of either size from memory. It is less than by the roofline (15
# on a Zen 5 with 44 GB/s and 84 GFLOP/s), because no kernel reaches both limits; beyond it measurements show no gain.
OPERATIONS_PER_NUMBER = 12
# More threads of NumPy calls mostly wait for Python's lock.
_MOST_IN_PARTS = 8
T = TypeVar("T")


def thread_count() -> int:
    """Threads that a kernel may use."""
    asked = os.environ.get("HPFEM_NUM_THREADS")
    if asked:
        if not (asked.isascii() and asked.isdigit() and len(asked) < 7 and int(asked) > 0):
            raise ArgumentError(f"HPFEM_NUM_THREADS is {asked[:40]!r}; it must be a positive integer below a million")
        return int(asked)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Task:
    """Work that one thread does: the first that claims it."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work: Callable[[], None] | None = work
        self._owner: dict[str, object] = {}
        self._over = threading.Lock()
        self._over.acquire()
        self._finished = False
        self.error: Exception | None = None

    def claim(self, who: object) -> bool:
        """Whether `who` does the task; a repeated call gives the same answer."""
        return self._owner.setdefault("owner", who) is who

    def run(self) -> None:
        """Do the work; `wait` ends after that."""
        try:
            if self._work is not None:
                self._work()
        except Exception as error:  # noqa: BLE001 - raised by `run_all`
            self.error = error
        self._work = None
        self._finished = True
        self._over.release()

    def wait(self) -> None:
        """Wait until another thread has done the work; after an exception it can be called again."""
        while not self._finished:
            self._over.acquire()


# _Tasks to be done by the first worker that is free, and an entry for each worker. Handing a task over by a SimpleQueue
# costs half of what an executor does.
_tasks: SimpleQueue[_Task] = SimpleQueue()
_workers: list[threading.Thread] = []


def _work(tasks: SimpleQueue[_Task]) -> None:
    """The loop of a worker. Handlers of signals never run here."""
    me = object()
    while True:
        task = tasks.get()
        if task.claim(me):
            task.run()
        del task  # and with it the arrays that it holds


def _hire(count: int) -> None:
    """Start workers up to a number, or as many as the system allows."""
    while len(_workers) < count:
        worker = threading.Thread(target=_work, args=(_tasks,), name="hpfem", daemon=True)
        try:
            worker.start()
        except RuntimeError:  # tasks without a worker are done by the waiting thread
            return
        _workers.append(worker)


def shares(groups: int, work: int, smallest: int) -> list[int]:
    """Divide groups among the threads that may be used now."""
    most = int(min(groups, work // smallest))
    if most <= 1:  # little work needs no second thread
        return [0, groups]
    count = min(thread_count(), most)
    return [groups * share // count for share in range(count + 1)]


def run_all(tasks: Sequence[Callable[[], None]]) -> None:
    """Run tasks at once, the first one on this thread, and wait for all, even if this thread is interrupted."""
    me, others = object(), [_Task(task) for task in tasks[1:]]
    # No loop: Python may run a handler at its backward jump, outside of every `try`. Each level outlives one signal.
    try:
        _hire(len(others))
        for other in others[: len(_workers)]:
            _tasks.put(other)
        tasks[0]()
        for other in others:
            if other.claim(me):
                other.run()
    finally:
        try:
            _wait(others, me)
        finally:
            try:
                _wait(others, me)
            finally:
                try:
                    _wait(others, me)
                finally:
                    _wait(others, me)
    for other in others:
        if other.error is not None:
            raise other.error


def in_parts(work: Callable[[T], None], parts: Iterable[T], worth: bool = True) -> None:
    """Do work that leaves Python's lock for most of its time, as NumPy does on large arrays, on several threads."""
    every = list(parts)
    count = min(len(every), _MOST_IN_PARTS if worth else 1)
    count = min(count, thread_count()) if count > 1 else count

    def run(share: Sequence[T]) -> None:
        for part in share:
            work(part)

    if count:
        run_all([partial(run, every[len(every) * k // count : len(every) * (k + 1) // count]) for k in range(count)])


def _wait(tasks: Sequence[_Task], me: object) -> None:
    """Wait for the tasks that other threads have begun; the rest is not begun."""
    for task in tasks:
        if not task.claim(me):
            task.wait()


def _start_anew() -> None:
    """Threads do not survive a fork, and their tasks belong to the parent."""
    global _tasks
    _tasks = SimpleQueue()
    _workers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)
