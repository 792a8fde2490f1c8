"""CUDA's memory through CuPy, which is imported on first use only; one `CudaDevice` per GPU, by its number."""

from __future__ import annotations

import importlib.util
import os
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ....errors import ArgumentError
from ....memory import Device, OutOfMemory, dlpack_device

OLDEST_CUPY = (14, 2)
# Registers of all threads that a multiprocessor has.
REGISTERS = 65536
# Device types of DLPack: CUDA's memory, and memory that CUDA moves by itself.
_DLPACK_CUDA = (2, 13)


@dataclass(frozen=True)
class Limits:
    """What a device has, and what a block of threads may take of it.

    Attributes
    ----------
    shared_block, shared_multiprocessor : int
        Bytes of shared memory of a block at most, and of a multiprocessor.
    threads : int
        Threads of a block at most.
    multiprocessors : int
        Of the device.
    """

    shared_block: int = 232448
    shared_multiprocessor: int = 233472
    threads: int = 1024
    multiprocessors: int = 132


class CudaDevice(Device):
    """Memory of one GPU.

    Parameters
    ----------
    number : int
        As CUDA counts them.
    """

    backend, library = "cuda", "CuPy"
    interfaces = ("__cuda_array_interface__",)
    selection = "with cupy.cuda.Device(...)"

    def __init__(self, number: int) -> None:
        self.number = number
        self.name = f"cuda:{number}"

    def __reduce__(self) -> tuple[Any, ...]:
        return cuda_device, (self.number,)

    def __repr__(self) -> str:
        return f"CudaDevice({self.number})"

    @staticmethod
    def place(kind: int, number: int) -> str | None:
        """Say on which GPU arrays are; see `Device.place`."""
        return {2: f"on cuda:{number}", 13: "in managed memory"}.get(kind)

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Any:
        """Allocate a CuPy array; see `Device.empty`.

        Raises
        ------
        OutOfMemory
            If the device has not that much memory left.
        """
        import cupy

        with cupy.cuda.Device(self.number) as device:
            try:
                return cupy.empty(shape, dtype)
            except cupy.cuda.memory.OutOfMemoryError as error:
                pool, (free, total) = cupy.get_default_memory_pool(), device.mem_info
                if limit := pool.get_limit():
                    free, total = min(free, limit - pool.used_bytes()), min(total, limit)
                size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
                raise OutOfMemory(
                    f"{self.name} has no room for {size / 1e9:.3g} GB: {free / 1e9:.3g} GB of {total / 1e9:.3g} GB are"
                    " free; space.memory_report() lists what hpfem holds there",
                    size,
                    int(free),
                    int(total),
                ) from error

    def from_host(self, source: np.ndarray[Any, Any], out: Any) -> None:
        """Copy in on the caller's stream; it is there for every stream then; see `Device.from_host`."""
        import cupy

        out.set(np.ascontiguousarray(source))
        cupy.cuda.get_current_stream().synchronize()

    def to_host(self, source: Any, out: np.ndarray[Any, Any]) -> None:
        """Copy out on the caller's stream, and wait for it; see `Device.to_host`."""
        source.get(out=out)

    def adopt(self, array: Any) -> Any | None:
        """CuPy array on the memory of any library's array of this GPU; see `Device.adopt`.

        DLPack orders the streams of the two libraries without waiting on the host.
        """
        import cupy

        if not isinstance(array, cupy.ndarray):
            place = dlpack_device(array)
            if place is not None and (place[0] not in _DLPACK_CUDA or place[1] != self.number):
                return None
            if place is None and not hasattr(array, self.interfaces[0]):
                return None
            try:
                array = cupy.from_dlpack(array) if place is not None else cupy.asarray(array)
            except (BufferError, RuntimeError, TypeError, ValueError) as error:
                raise ArgumentError(f"{type(array).__name__} gives no CuPy array of its memory: {error}") from error
        return array if int(array.device.id) == self.number else None

    def overlap(self, first: Any, second: Any) -> bool:
        """Whether two arrays may share memory; see `Device.overlap`."""
        a, b = int(first.data.ptr), int(second.data.ptr)
        return a < b + int(second.nbytes) and b < a + int(first.nbytes)


@cache
def cuda_device(number: int) -> CudaDevice:
    """Memory of a GPU by its number: one object each."""
    return CudaDevice(number)


def current_device() -> CudaDevice:
    """Memory of the current GPU, as `cupy.cuda.Device` sets it."""
    import cupy

    return cuda_device(int(cupy.cuda.runtime.getDevice()))


def upload(array: np.ndarray[Any, Any]) -> Any:
    """Copy of a host array on the current device, ready for kernels on any stream."""
    device = current_device()
    out = device.empty(array.shape, array.dtype)
    device.from_host(array, out)
    return out


@cache
def missing() -> str | None:
    """Say what keeps CUDA from working here; None if nothing does."""
    install = "pip install 'hpfem[cuda13]' (or 'hpfem[cuda12]' for an older driver)"
    if importlib.util.find_spec("cupy") is None:
        return f"CuPy is not installed; {install}"
    try:
        import cupy
    except (ImportError, OSError, RuntimeError) as error:
        return f"CuPy is installed but cannot be imported ({error}); {install}"
    oldest = ".".join(map(str, OLDEST_CUPY))
    version = tuple(int(digits) for digits in re.findall(r"\d+", cupy.__version__)[:2])
    if version < OLDEST_CUPY:
        return f"CuPy {cupy.__version__} is too old, {oldest} is needed; {install}"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except RuntimeError as error:
        if "NoDevice" in str(error):
            return f"there is no NVIDIA GPU ({error}); use backend 'cpu'"
        if "Initialization" in str(error):
            return f"CUDA does not survive a fork ({error}); start processes with multiprocessing's method 'spawn'"
        return f"CuPy cannot reach a GPU ({error}); it needs NVIDIA's driver, of a version that fits: {install}"
    return None if count else "there is no NVIDIA GPU; use backend 'cpu'"


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=missing.cache_clear)


@cache
def _architecture(number: int) -> str:
    import cupy

    return f"sm_{cupy.cuda.Device(number).compute_capability}"


def architecture() -> str:
    """Architecture of the current device, as the compiler names it."""
    return _architecture(current_device().number)


@cache
def _limits(number: int) -> Limits:
    import cupy

    attributes = cupy.cuda.Device(number).attributes
    return Limits(
        int(attributes["MaxSharedMemoryPerBlockOptin"]),
        int(attributes["MaxSharedMemoryPerMultiprocessor"]),
        int(attributes["MaxThreadsPerBlock"]),
        int(attributes["MultiProcessorCount"]),
    )


def limits() -> Limits:
    """What the current device has, and what a block of threads may take of it."""
    return _limits(current_device().number)
