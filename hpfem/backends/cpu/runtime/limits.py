"""Limits of the cores, measured by kernels that are generated and compiled like the others.

The FMA peak is that of independent chains in registers; the read bandwidth that of sums over an array.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import DTypeLike

from ....support.threads import run_all, thread_count
from ...roofline import Roofline
from ..codegen.ir import ARGUMENTS, Builder, Index
from .buffers import aligned
from .cache import compiled
from .target import host

# Runs of multiply-adds take a few milliseconds, against which waking a thread is nothing.
_CHAINS, _TRIPS, _REPEATS = 12, 1000, 200
_STREAMS = 8


def best_seconds(function: Callable[[], None], seconds: float) -> float:
    """Time repeated calls, at least five."""
    function()
    best, start, calls = float("inf"), time.perf_counter(), 0
    while calls < 5 or time.perf_counter() - start < seconds:
        before = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - before)
        calls += 1
    return best


def _best_run(b: Builder, trips: int, vectors: int, repeat: int, seconds: float, threads: int) -> float:
    """Shortest time of a kernel over that many trips, that reads so many vectors: `repeat` times, on threads."""
    run = compiled(b.module(), host()).run

    def work(data: np.ndarray, out: np.ndarray) -> None:
        for _ in range(repeat):
            run(0, trips, 0, 0, data.ctypes.data, out.ctypes.data, 0, 0, 0, 0, 0, 0, 0)

    tasks = []
    for _ in range(threads):
        data, out = aligned((vectors, b.lanes), b.dtype), aligned((max(_CHAINS, _STREAMS), b.lanes), b.dtype)
        data[...], out[...] = 1.0, 0.0
        tasks.append(partial(work, data, out))
    return best_seconds(partial(run_all, tasks), seconds)


def measure_fma(dtype: DTypeLike = np.float64, seconds: float = 0.1, threads: int = 1) -> float:
    """Measure fused multiply-adds in registers."""
    b = Builder(host().lanes(dtype), dtype)
    with b.function("run", ARGUMENTS, internal=False):
        factor = b.load("%in")

        def body(trip: Index, sums: list[str]) -> list[str]:
            for _ in range(4):
                sums = [b.fma(s, factor, factor) for s in sums]
            return sums

        b.store_fiber(b.reduce(_TRIPS, [factor] * _CHAINS, body), "%out", 1)
    return threads * _REPEATS * b.flops * b.lanes / _best_run(b, 1, 1, _REPEATS, seconds, threads)


def measure_read(nbytes: int, seconds: float = 0.2, threads: int = 1) -> float:
    """Measure reading an array."""
    b = Builder(host().lanes(np.float64), np.float64)
    with b.function("run", ARGUMENTS, internal=False):
        # g1 trips over blocks of _STREAMS vectors
        def body(i: Index, sums: list[str]) -> list[str]:
            start = b.at("%in", (i, _STREAMS))
            return [b.add(s, b.load(start, k)) for k, s in enumerate(sums)]

        b.store_fiber(b.reduce("%g1", [0.0] * _STREAMS, body), "%out", 1)
    trips = max(1, nbytes // (_STREAMS * b.nbytes))
    repeat = max(1, (1 << 22) // nbytes)
    best = _best_run(b, trips, trips * _STREAMS, repeat, seconds, threads)
    return threads * trips * _STREAMS * b.nbytes * repeat / best


def measure_cores(dtype: DTypeLike, size: int, quick: bool) -> Roofline:
    """Measure multiply-adds in registers and reading memory, of all threads together."""
    seconds, threads = 0.05 if quick else 0.3, thread_count()
    fma, read = measure_fma(dtype, seconds, threads), measure_read(size, seconds, threads)
    return Roofline(read, fma, {"fma": fma, "compiled_read": read})
