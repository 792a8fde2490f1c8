"""CUDA through CuPy, imported on first use only: a clock, and memory, one `CudaDevice` per GPU, by its number."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from hpfem.shapes.cached import cached_property

from ....errors import ArgumentError
from ....memory import Device, OutOfMemory, dlpack_device
from ....support.communicator import world
from ....support.ending import told
from ...timer import Timer
from .ahead import begin, begin_first
from .lazy import cupy


class CudaTimer(Timer):
    """A clock for work on the current CUDA stream: events before the first call and after the last."""

    def seconds(self, call: Callable[[], object], calls: int) -> float:
        """Time calls in a row, until the device has done their work; see `Timer.seconds`."""
        cuda = cupy.cuda
        start, stop = cuda.Event(), cuda.Event()
        start.record()
        for _ in range(calls):
            call()
        stop.record()
        stop.synchronize()
        return float(cuda.get_elapsed_time(start, stop)) * 1e-3


OLDEST_CUPY = (14, 2)
# While a thread takes a GPU, others wait: what is begun with it is begun once.
_TAKING = RLock()
# Registers of all threads that a multiprocessor has, and of a thread at least.
REGISTERS, FEWEST_REGISTERS = 65536, 32


@dataclass(frozen=True)
class Limits:
    """Limits of a device, and of a block of threads on it."""

    shared_block: int = 232448  # bytes of shared memory of a block at most
    shared_multiprocessor: int = 233472
    threads: int = 1024  # of a block at most
    multiprocessors: int = 132

    def too_many(self, threads: int, blocks: int) -> bool:
        """Tell whether there are too many threads."""
        return threads > self.threads or threads * blocks > REGISTERS // FEWEST_REGISTERS

    def shared_misfit(self, nbytes: int, blocks: int) -> str | None:
        """Say why blocks do not fit the shared memory."""
        if nbytes > self.shared_block:
            return f"{nbytes} bytes of shared memory are needed, a block has {self.shared_block}"
        if (nbytes + 1024) * blocks > self.shared_multiprocessor:
            return f"{blocks} blocks do not fit the shared memory of a multiprocessor"
        return None


class CudaDevice(Device):
    """Memory of one GPU, by its number in CUDA."""

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

    @cached_property
    def architecture(self) -> str:
        """Architecture, as the compiler names it."""
        return f"sm_{cupy.cuda.Device(self.number).compute_capability}"

    @cached_property
    def limits(self) -> Limits:
        """Limits of the GPU, and of a block of threads."""
        attributes = cupy.cuda.Device(self.number).attributes
        return Limits(
            int(attributes["MaxSharedMemoryPerBlockOptin"]),
            int(attributes["MaxSharedMemoryPerMultiprocessor"]),
            int(attributes["MaxThreadsPerBlock"]),
            int(attributes["MultiProcessorCount"]),
        )

    @cached_property
    def processor(self) -> str:
        """Name of the GPU."""
        return str(cupy.cuda.runtime.getDeviceProperties(self.number)["name"].decode())

    @staticmethod
    def place(kind: int, number: int) -> str | None:
        """Say on which GPU arrays are; see `Device.place`."""
        # CUDA's memory, and memory that CUDA moves by itself.
        return {2: f"on cuda:{number}", 13: "in managed memory"}.get(kind)

    def _room(self) -> tuple[int, int]:
        """Bytes that are free beside CuPy's pool, and all that there are."""
        pool, (free, total) = cupy.get_default_memory_pool(), cupy.cuda.Device(self.number).mem_info
        if limit := pool.get_limit():
            free, total = min(free, limit - pool.used_bytes()), min(total, limit)
        return int(free), int(total)

    def free(self) -> float:
        """What the device has free, and CuPy's pool holds for later; see `Device.free`."""
        with cupy.cuda.Device(self.number):
            pool = cupy.get_default_memory_pool()
            unused = 0 if pool.get_limit() else pool.free_bytes()
            return float(self._room()[0] + unused)

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Any:
        """Allocate a CuPy array; see `Device.empty`."""
        with cupy.cuda.Device(self.number):
            try:
                return cupy.empty(shape, dtype)
            except cupy.cuda.memory.OutOfMemoryError as error:
                free, total = self._room()
                size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
                raise OutOfMemory(
                    f"{self.name} has no room for {size / 1e9:.3g} GB: {free / 1e9:.3g} GB of {total / 1e9:.3g} GB are"
                    " free; space.memory_report() lists what hpfem holds there",
                    size,
                    free,
                    total,
                ) from error

    def from_host(self, source: np.ndarray[Any, Any], out: Any) -> None:
        """Copy in on the caller's stream, after which every stream can read it; see `Device.from_host`."""
        out.set(np.asarray(source, order="C"))
        cupy.cuda.get_current_stream().synchronize()

    def to_host(self, source: Any, out: np.ndarray[Any, Any]) -> None:
        """Copy out on the caller's stream, and wait for it; see `Device.to_host`."""
        source.get(out=out)

    def adopt(self, array: Any) -> Any | None:
        """See `Device.adopt`; DLPack orders the streams of the two libraries without waiting on the host."""
        if not isinstance(array, cupy.ndarray):
            place = dlpack_device(array)
            if place is not None and (self.place(*place) is None or place[1] != self.number):
                return None
            if place is None and not hasattr(array, self.interfaces[0]):
                return None
            try:
                array = cupy.from_dlpack(array) if place is not None else cupy.asarray(array)
            except (BufferError, RuntimeError, TypeError, ValueError) as error:
                raise ArgumentError(f"{type(array).__name__} gives no CuPy array of its memory: {error}") from error
        return array if int(array.device.id) == self.number else None

    def wait(self, context: Any) -> None:
        """Wait for a stream; see `Device.wait`."""
        own = cupy.cuda.get_current_stream()
        (own if context is None else cupy.cuda.ExternalStream(context.stream)).synchronize()

    def overlap(self, first: Any, second: Any) -> bool:
        """Whether two arrays may share memory; see `Device.overlap`."""
        a, b = int(first.data.ptr), int(second.data.ptr)
        return a < b + int(second.nbytes) and b < a + int(first.nbytes)


@cache
def cuda_device(number: int) -> CudaDevice:
    """Memory of a GPU: one object each."""
    return CudaDevice(number)


def current_device() -> CudaDevice:
    """Memory of the current GPU, as `cupy.cuda.Device` sets it."""
    with _TAKING:
        _take_own()
    return cuda_device(int(cupy.cuda.runtime.getDevice()))


@cache
def _take_own() -> None:
    """Select a GPU for each process of a machine, in turn if there are fewer; begin CuPy's kernels for one alone."""
    comm = world()
    if comm.size > 1:
        cupy.cuda.Device(comm.local_rank % cupy.cuda.runtime.getDeviceCount()).use()
    else:
        begin(int(cupy.cuda.runtime.getDevice()))


def upload(array: np.ndarray[Any, Any]) -> Any:
    """Copy a host array to the current device, ready for kernels on any stream."""
    device = current_device()
    out = device.empty(array.shape, array.dtype)
    device.from_host(array, out)
    return out


@cache
def missing() -> str | None:
    """Say what keeps CUDA from working here."""
    install = "pip install 'hpfem[cuda13]' (or 'hpfem[cuda12]' for an older driver)"
    if importlib.util.find_spec("cupy") is None:
        return f"CuPy is not installed; {install}"
    os.environ.setdefault("CUPY_NVRTC_USE_PCH", "1")  # two thirds of the time to compile each of its operations
    if told() == 1:  # else another GPU may be its own
        begin_first()
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


def architecture() -> str:
    """Architecture of the current device; see `CudaDevice.architecture`."""
    return current_device().architecture


def limits() -> Limits:
    """Limits of the current device; see `CudaDevice.limits`."""
    return current_device().limits


def all_names() -> list[str]:
    """Name the GPUs that CuPy sees."""
    try:
        import cupy
    except ImportError:
        return []
    runtime = cupy.cuda.runtime
    try:
        return [cuda_device(number).processor for number in range(runtime.getDeviceCount())]
    except runtime.CUDARuntimeError:
        return []
