"""Thread limits: throughput is stated per core, so libraries' threads are held back while it is measured."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from ..reporting import report_once

VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@contextmanager
def thread_limit(threads: int = 1) -> Iterator[dict[str, Any]]:
    """Limit the threads of BLAS and OpenMP inside a `with` block.

    Parameters
    ----------
    threads : int
        How many.

    Yields
    ------
    dict
        "limit" (None if it could not be set) and "by": "threadpoolctl", "environment" or "nothing".
    """
    try:
        control = import_module("threadpoolctl")
    except ImportError:
        control = None
    if control is not None:
        with control.threadpool_limits(limits=threads):
            yield {"limit": threads, "by": "threadpoolctl"}
        return
    if any(os.environ.get(name) == str(threads) for name in VARIABLES):
        yield {"limit": threads, "by": "environment"}
        return
    report_once(
        "benchmarks/threads",
        f"BLAS may use all cores: install threadpoolctl or set OMP_NUM_THREADS={threads} to measure one",
    )
    yield {"limit": None, "by": "nothing"}
