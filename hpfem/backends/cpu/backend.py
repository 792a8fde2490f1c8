"""The CPU backend."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ...forms import Trace
from ...forms.form import BlockKernel
from ...support.cache import Cache
from ...support.machine import processor_name
from ..base import BACKENDS, Backend
from ..cellwise import CellwiseProduct
from ..roofline import Roofline, array_bytes
from ..vectors import BlockMatrix
from .runtime.cache import kernel_cache
from .runtime.function import CpuFunction, function_of
from .runtime.kernel import CpuKernel
from .runtime.limits import measure_cores
from .runtime.product import CpuCellwise, CpuProduct, product_of
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

    def product(self, kernels: Sequence[BlockKernel], Q: BlockMatrix) -> CpuProduct | None:
        """The product without local arrays, if all kernels are compiled; see `Backend.product`."""
        own = [kernel for kernel in kernels if isinstance(kernel, CpuKernel)]
        return product_of(own, Q) if len(own) == len(kernels) and 4 * Q.starts[-1] < 2**31 else None

    def cellwise(
        self, matrices: Sequence[NDArray[np.float64]], Q: BlockMatrix, back: BlockMatrix, dtype: DTypeLike
    ) -> CpuCellwise | CellwiseProduct:
        """The product without local arrays, where signs and places are those of Q; see `Backend.cellwise`."""
        if back.blocks is not Q.blocks or 4 * Q.starts[-1] >= 2**31:
            return super().cellwise(matrices, Q, back, dtype)
        return CpuCellwise(matrices, Q, back, dtype)

    def function(self, trace: Trace) -> CpuFunction | None:
        """One of what is compiled for all lanes at once; see `Backend.function`."""
        return function_of(trace)

    def product_needs(self, local: int, size: int, components: int, dtype: DTypeLike) -> dict[str, dict[str, float]]:
        """Tables of the product, and Q as a matrix; see `Backend.product_needs`."""
        return {self.device().name: {"index tables": float(local * (16 + np.dtype(dtype).itemsize))}}

    def processor(self) -> str:
        """Name of the processor, and the number of threads; see `Backend.processor`."""
        return f"{processor_name()}, {thread_count()} thread(s)"

    def caches(self) -> dict[str, Cache]:
        """Compiled kernels; see `Backend.caches`."""
        return {"kernels": kernel_cache()}

    def measure_limits(self, dtype: DTypeLike, quick: bool) -> Roofline:
        """Measure multiply-adds in registers and reading memory; see `Backend.measure_limits`."""
        return measure_cores(dtype, array_bytes(quick), quick)


BACKENDS.add("cpu", CpuBackend())
