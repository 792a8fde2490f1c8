"""A pool of threads that kernels share: HPFEM_NUM_THREADS, or one per processor that this process may use."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from ...errors import ArgumentError

_pools: dict[int, ThreadPoolExecutor] = {}


def thread_count() -> int:
    """Threads that a kernel may use.

    Raises
    ------
    ArgumentError
        If HPFEM_NUM_THREADS is no positive integer.
    """
    asked = os.environ.get("HPFEM_NUM_THREADS")
    if asked:
        if not asked.isdigit() or int(asked) < 1:
            raise ArgumentError(f"HPFEM_NUM_THREADS is {asked!r}; it must be a positive integer")
        return int(asked)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_all(tasks: Sequence[Callable[[], None]]) -> None:
    """Run tasks at once, the first one on this thread, and wait for all."""
    others = len(tasks) - 1
    if others < 1:
        for task in tasks:
            task()
        return
    if others not in _pools:
        _pools[others] = ThreadPoolExecutor(others, thread_name_prefix="hpfem")
    waiting = [_pools[others].submit(task) for task in tasks[1:]]
    tasks[0]()
    for future in waiting:
        future.result()


if hasattr(os, "register_at_fork"):
    # Threads do not survive a fork.
    os.register_at_fork(after_in_child=_pools.clear)
