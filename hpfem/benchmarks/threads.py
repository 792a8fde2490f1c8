"""Thread limits: throughput is stated per core by default, so the number of threads is limited during measurements."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from ..support.log import report_once

# Of hpfem's own kernels, and of BLAS and OpenMP, which read theirs when they are loaded.
OWN_VARIABLE = "HPFEM_NUM_THREADS"
VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@contextmanager
def thread_limit(threads: int = 1) -> Iterator[dict[str, Any]]:
    """Limit the threads of hpfem's kernels, BLAS and OpenMP inside a `with` block.

    Parameters
    ----------
    threads : int
        How many.

    Yields
    ------
    dict
        "limit": `threads`; "blas": the means that limits the libraries, "threadpoolctl", "environment" or "nothing".
    """
    before = os.environ.get(OWN_VARIABLE)
    os.environ[OWN_VARIABLE] = str(threads)
    try:
        with _library_limit(threads) as by:
            yield {"limit": threads, "blas": by}
    finally:
        if before is None:
            del os.environ[OWN_VARIABLE]
        else:
            os.environ[OWN_VARIABLE] = before


@contextmanager
def _library_limit(threads: int) -> Iterator[str]:
    try:
        control = import_module("threadpoolctl")
    except ImportError:
        control = None
    if control is not None:
        with control.threadpool_limits(limits=threads):
            yield "threadpoolctl"
    elif any(os.environ.get(name) == str(threads) for name in VARIABLES):
        yield "environment"
    else:
        advice = f"install threadpoolctl or set OMP_NUM_THREADS={threads}"
        report_once("benchmarks/threads", f"BLAS may not use {threads} thread(s): {advice}")
        yield "nothing"
