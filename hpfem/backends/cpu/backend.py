"""The CPU backend."""

from __future__ import annotations

from numpy.typing import DTypeLike

from ...support.machine import processor_name
from ..base import BACKENDS, Backend
from ..roofline import Roofline, array_bytes
from .runtime.limits import measure_cores
from .runtime.target import missing
from .runtime.threads import thread_count
from .strategies import CpuDense, CpuPlain, CpuStdMat, CpuSumFac


class CpuBackend(Backend):
    """Kernels compiled for the processor through LLVM."""

    name = "cpu"
    strategies = (CpuSumFac(), CpuDense(), CpuStdMat(), CpuPlain())

    def missing(self) -> str | None:
        """Say what keeps LLVM from compiling here; see `Backend.missing`."""
        return missing()

    def processor(self) -> str:
        """Name of the processor, and the number of threads; see `Backend.processor`."""
        return f"{processor_name()}, {thread_count()} thread(s)"

    def measure_limits(self, dtype: DTypeLike, quick: bool) -> Roofline:
        """Measure multiply-adds in registers and reading memory; see `Backend.measure_limits`."""
        return measure_cores(dtype, array_bytes(quick), quick)


BACKENDS.add("cpu", CpuBackend())
