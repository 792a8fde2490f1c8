"""CUDA's memory through CuPy, which is imported on first use only."""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ...errors import DeviceError
from .variant import Limits


class CudaDevice:
    """The current CUDA device's memory, as `hpfem.memory.Device`."""

    name = "cuda"

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Any:
        """Allocate an uninitialised C-ordered CuPy array.

        Raises
        ------
        DeviceError
            If the device has not that much memory left.
        """
        import cupy

        try:
            return cupy.empty(shape, dtype)
        except cupy.cuda.memory.OutOfMemoryError as error:
            free, total = cupy.cuda.Device().mem_info
            size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
            raise DeviceError(
                f"the GPU has no room for {size / 1e9:.3g} GB: {free / 1e9:.3g} GB of {total / 1e9:.3g} GB are free"
                " (hpfem's arrays already there are listed by space.memory_report()); use fewer elements, a lower"
                " order or float32"
            ) from error

    def from_host(self, source: np.ndarray[Any, Any], out: Any) -> None:
        """Copy a host array into a device array."""
        out.set(np.ascontiguousarray(source))

    def to_host(self, source: Any, out: np.ndarray[Any, Any]) -> None:
        """Copy a device array into a host array."""
        source.get(out=out)


CUDA = CudaDevice()


def upload(array: np.ndarray[Any, Any]) -> Any:
    """Copy of a host array on the device."""
    out = CUDA.empty(array.shape, array.dtype)
    out.set(np.ascontiguousarray(array))
    return out


@cache
def missing() -> str | None:
    """Say what keeps CUDA from working here; None if nothing does."""
    install = "pip install 'hpfem[cuda13]' (or 'hpfem[cuda12]' for an older driver)"
    if importlib.util.find_spec("cupy") is None:
        return f"CuPy is not installed; {install}"
    try:
        import cupy

        count = cupy.cuda.runtime.getDeviceCount()
    except (ImportError, OSError, RuntimeError) as error:
        return f"CuPy cannot reach a GPU ({error}); it needs an NVIDIA driver that fits: {install}"
    return None if count else "there is no NVIDIA GPU"


@cache
def architecture() -> str:
    """Architecture of the current device, as the compiler names it."""
    import cupy

    return f"sm_{cupy.cuda.Device().compute_capability}"


@cache
def limits() -> Limits:
    """What a block of threads may take on the current device."""
    import cupy

    attributes = cupy.cuda.Device().attributes
    return Limits(
        int(attributes["MaxSharedMemoryPerBlockOptin"]),
        int(attributes["MaxSharedMemoryPerMultiprocessor"]),
        int(attributes["MaxThreadsPerBlock"]),
    )
