"""Limits of the cores, measured by kernels that are generated and compiled like the others.

The FMA peak is that of independent chains in registers; the read bandwidth that of sums over an array.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import DTypeLike

from ...roofline import Roofline
from ..codegen.ir import ARGUMENTS, Builder, Index
from .cache import compiled
from .kernel import aligned
from .target import host
from .threads import thread_count

_CHAINS, _TRIPS = 12, 1000
_STREAMS = 8


def best_seconds(function: Callable[[], None], seconds: float) -> float:
    """Shortest of repeated calls within about that many seconds, at least five."""
    function()
    best, start, calls = float("inf"), time.perf_counter(), 0
    while calls < 5 or time.perf_counter() - start < seconds:
        before = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - before)
        calls += 1
    return best


def measure_fma(dtype: DTypeLike = np.float64, seconds: float = 0.1) -> float:
    """Fused multiply-adds in registers on one core.

    Parameters
    ----------
    dtype : dtype
    seconds : float
        How long to measure.

    Returns
    -------
    float
        Operations per second, two per multiply-add.
    """
    b = Builder(host().lanes(dtype), dtype)
    with b.function("run", ARGUMENTS, internal=False):
        factor = b.load("%in")

        def body(trip: Index, sums: list[str]) -> list[str]:
            for _ in range(4):
                sums = [b.fma(s, factor, factor) for s in sums]
            return sums

        for i, s in enumerate(b.reduce(_TRIPS, [factor] * _CHAINS, body)):
            b.store(s, "%out", i)
    run = compiled(b.module(), host()).run
    data = aligned((_CHAINS + 1, b.lanes), dtype)
    out = aligned((_CHAINS + 1, b.lanes), dtype)
    seconds = best_seconds(lambda: run(0, 1, 0, 0, data.ctypes.data, out.ctypes.data, 0, 0, 0, 0, 0), seconds)
    return b.flops * b.lanes / seconds


def measure_read(nbytes: int, seconds: float = 0.2) -> float:
    """Reading an array on one core.

    Parameters
    ----------
    nbytes : int
        Size of the array: smaller than a cache measures the cache.
    seconds : float
        How long to measure.

    Returns
    -------
    float
        Bytes per second.
    """
    b = Builder(host().lanes(np.float64), np.float64)
    with b.function("run", ARGUMENTS, internal=False):
        # g1 trips over blocks of _STREAMS vectors
        def body(i: Index, sums: list[str]) -> list[str]:
            start = b.at("%in", (i, _STREAMS))
            return [b.add(s, b.load(start, k)) for k, s in enumerate(sums)]

        for k, s in enumerate(b.reduce("%g1", [0.0] * _STREAMS, body)):
            b.store(s, "%out", k)
    run = compiled(b.module(), host()).run
    trips = max(1, nbytes // (_STREAMS * b.nbytes))
    data = aligned((trips * _STREAMS, b.lanes), np.float64)
    data[...] = 1.0
    out = aligned((_STREAMS, b.lanes), np.float64)
    repeat = max(1, (1 << 22) // nbytes)

    def read() -> None:
        for _ in range(repeat):
            run(0, trips, 0, 0, data.ctypes.data, out.ctypes.data, 0, 0, 0, 0, 0)

    return trips * _STREAMS * b.nbytes * repeat / best_seconds(read, seconds)


def measure_cores(dtype: DTypeLike, size: int, quick: bool) -> Roofline:
    """Measure multiply-adds in registers and reading memory, of all threads together; see `Backend.measure_limits`.

    Parameters
    ----------
    dtype : dtype
    size : int
        Bytes to read.
    quick : bool
    """
    seconds, threads = 0.05 if quick else 0.3, thread_count()
    with ThreadPoolExecutor(threads) as pool:
        fma = sum(pool.map(lambda _: measure_fma(dtype, seconds), range(threads)))
        read = sum(pool.map(lambda _: measure_read(size, seconds), range(threads)))
    return Roofline(read, fma, {"fma": fma, "compiled_read": read})
