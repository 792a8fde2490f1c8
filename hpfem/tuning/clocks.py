"""Clocks for work on a backend's device, and the name of that device, which measured times belong to."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Protocol

from ..kernels.cpu.threads import thread_count
from ..registry import Registry
from ..reporting import processor_name


class Timer(Protocol):
    """A clock for work on some device."""

    def seconds(self, call: Callable[[], object], calls: int) -> float:
        """Time calls in a row, until all their work is done.

        Parameters
        ----------
        call : callable
            The work.
        calls : int
            How often.

        Returns
        -------
        float
            Seconds of all of them.
        """


class HostTimer(Timer):
    """A clock for work on the host."""

    def seconds(self, call: Callable[[], object], calls: int) -> float:
        """Time calls in a row."""
        start = time.perf_counter()
        for _ in range(calls):
            call()
        return time.perf_counter() - start


class CudaTimer(Timer):
    """A clock for work on the current CUDA stream: events before the first call and after the last."""

    def seconds(self, call: Callable[[], object], calls: int) -> float:
        """Time calls in a row, until the device has done their work."""
        cuda = import_module("cupy").cuda
        start, stop = cuda.Event(), cuda.Event()
        start.record()
        for _ in range(calls):
            call()
        stop.record()
        stop.synchronize()
        return float(cuda.get_elapsed_time(start, stop)) * 1e-3


@dataclass(frozen=True)
class Clock:
    """How times are measured on a backend, and whose they are.

    Attributes
    ----------
    timer : callable
        () -> Timer.
    device : callable
        () -> name of the device that does the work, with all that its speed depends on.
    """

    timer: Callable[[], Timer]
    device: Callable[[], str]


def _compiled_device() -> str:
    return f"{processor_name()}, {thread_count()} thread(s)"


@cache
def _cuda_name(number: int) -> str:
    return str(import_module("cupy").cuda.runtime.getDeviceProperties(number)["name"].decode())


def _cuda_device() -> str:
    return _cuda_name(int(import_module("cupy").cuda.runtime.getDevice()))


# By name of the backend.
CLOCKS: Registry[Clock] = Registry("clock of a backend")
CLOCKS.add("numpy", Clock(HostTimer, processor_name))
CLOCKS.add("cpu", Clock(HostTimer, _compiled_device))
CLOCKS.add("cuda", Clock(CudaTimer, _cuda_device))
