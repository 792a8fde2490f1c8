"""A clock for work on a GPU, and the GPU's name."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from ...timer import Timer


class CudaTimer(Timer):
    """A clock for work on the current CUDA stream: events before the first call and after the last."""

    def seconds(self, call: Callable[[], object], calls: int) -> float:
        """Time calls in a row, until the device has done their work; see `Timer.seconds`."""
        import cupy

        cuda = cupy.cuda
        start, stop = cuda.Event(), cuda.Event()
        start.record()
        for _ in range(calls):
            call()
        stop.record()
        stop.synchronize()
        return float(cuda.get_elapsed_time(start, stop)) * 1e-3


@cache
def _name(number: int) -> str:
    import cupy

    return str(cupy.cuda.runtime.getDeviceProperties(number)["name"].decode())


def current_name() -> str:
    """Name of the current GPU."""
    import cupy

    return _name(int(cupy.cuda.runtime.getDevice()))


def all_names() -> list[str]:
    """Names of the GPUs that CuPy sees; none without CuPy or a GPU."""
    try:
        import cupy
    except ImportError:
        return []
    runtime = cupy.cuda.runtime
    try:
        return [_name(number) for number in range(runtime.getDeviceCount())]
    except runtime.CUDARuntimeError:
        return []
