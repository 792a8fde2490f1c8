"""A clock for work on a GPU."""

from __future__ import annotations

from collections.abc import Callable

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
