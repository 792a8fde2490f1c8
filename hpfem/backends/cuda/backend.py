"""The CUDA backend."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from ...memory import HOST, Device
from ...support.cache import Cache
from ...support.machine import DEVICE_NAMES
from ..base import BACKENDS, Backend, SolveSizes
from ..cellwise import CellMatrices
from ..restriction import BlockMatrix
from .dense.strategy import CudaDense
from .fused.strategy import CudaFused
from .kronecker.strategy import CudaKronecker
from .runtime.device import CudaDevice, CudaTimer, all_names, architecture, current_device, missing
from .runtime.kernel import held
from .runtime.limits import measure_gpu
from .runtime.nvrtc import kernel_cache
from .stdmat.strategy import CudaStdMat
from .sumfac.strategy import CudaSumFac
from .sumfac_top.strategy import CudaSumFacTop
from .vectors.cellwise import CudaCellwise, begin_tiles, has_bfloat16
from .vectors.function import CudaFunction
from .vectors.space import CudaVectors, begin_common

# By times of levels in benchmarks/results/cycle_h100.json and iterations in benchmarks/MULTIGRID.md.
_SMOOTHER_STEPS = {
    "quad": ((1, 2, 1),),
    "hex": ((1, 2, 2),),
    **dict.fromkeys(("tri", "pyramid", "tet"), ((2, 3, 2),)),
    "prism": ((1, 2, 2), (1, 2, 2), (2, 3, 2)),
}


class CudaBackend(Backend):
    """Kernels on an NVIDIA GPU, through CuPy and NVRTC."""

    name, device_type = "cuda", CudaDevice
    strategies = (*(CudaSumFacTop(), CudaSumFac(), CudaStdMat()), *(CudaDense(), CudaKronecker(), CudaFused()))
    # On boxes the diagonal is faster up to 1e7 unknowns and more. Harder problems take more iterations: below this size
    # a thousand of them take less than a second.
    solve_sizes = SolveSizes(solid=1_000_000, flat=1_000_000)
    smoother_steps = _SMOOTHER_STEPS
    costs_of = "an H200, by the shipped table of measured speeds, or a model of them"
    apart = True

    # The memory is that of the current GPU, and a function is a kernel of one thread a point.
    missing, device, function = staticmethod(missing), staticmethod(current_device), staticmethod(CudaFunction)
    held, timer, measure_limits = staticmethod(held), staticmethod(CudaTimer), staticmethod(measure_gpu)

    def vectors(self, device: Device) -> CudaVectors | None:
        """Vectors of CuPy; see `Backend.vectors`."""
        if not isinstance(device, CudaDevice):
            return None
        begin_common(device.name)
        return CudaVectors(device)

    def cellwise(self, given: CellMatrices) -> CudaCellwise:
        """Products by tensor cores, if they may be rough; see `Backend.cellwise`."""
        return CudaCellwise(given._replace(rough=given.rough and has_bfloat16(architecture())))

    def begin_cellwise(self, Q: BlockMatrix, dtype: DTypeLike) -> None:
        """See `Backend.begin_cellwise`."""
        if np.dtype(dtype) == np.float32 and has_bfloat16(architecture()):
            begin_tiles(Q)

    def product_needs(self, local: int, size: int, components: int, dtype: DTypeLike) -> dict[str, dict[str, float]]:
        """Tables with and without conditions, and entity by entity, sorted there; see `Backend.product_needs`."""
        index = 4 if 2 * local + 2 < 2**31 else 8
        tables, sorting = 2.0 * index * (3 * local + size), local * (4.0 * index + 32)
        scratch = 4.0 * local * np.dtype(dtype).itemsize * components
        return {
            HOST.name: {"index tables": 5.0 * index * local},
            self.device().name: {"index tables": tables, "scratch": scratch + sorting},
        }

    def processor(self) -> str:
        """Name of the current GPU; see `Backend.processor`."""
        return current_device().processor

    def caches(self) -> dict[str, Cache]:
        """Compiled kernels; see `Backend.caches`."""
        return {"cuda": kernel_cache()}


BACKENDS.add("cuda", CudaBackend())
DEVICE_NAMES.append(all_names)
