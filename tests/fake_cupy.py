"""CuPy as far as hpfem's memory needs it, on a machine without a GPU: some GPUs of which one is current."""

import sys
from contextlib import contextmanager, nullcontext
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from hpfem.backends import BACKENDS
from hpfem.backends.cuda.runtime import device as cuda
from hpfem.backends.cuda.runtime.kernel import shared_factors
from hpfem.backends.numpy.pipeline import NumpyKernel
from hpfem.backends.strategy import Strategy


class OutOfMemoryError(MemoryError):
    """CuPy's."""


class FakeArray:
    """An array in the memory of a GPU: not one of NumPy's, and none that NumPy can read.

    Attributes
    ----------
    inside : ndarray
        What it holds, for kernels and tests only.
    """

    __module__ = "cupy"

    def __init__(self, inside, number=0):
        self.inside, self.device = inside, SimpleNamespace(id=number)

    shape = property(lambda self: self.inside.shape)
    dtype = property(lambda self: self.inside.dtype)
    nbytes = property(lambda self: self.inside.nbytes)
    strides = property(lambda self: self.inside.strides)
    flags = property(lambda self: SimpleNamespace(c_contiguous=self.inside.flags.c_contiguous))
    data = property(lambda self: SimpleNamespace(ptr=self.inside.ctypes.data))

    def copy(self, order="C"):
        """A copy on the same GPU."""
        return FakeArray(self.inside.copy(order), self.device.id)

    def set(self, source):
        """Copy from the host."""
        np.copyto(self.inside, source)

    def get(self, out=None):
        """Copy to the host."""
        out = np.empty_like(self.inside) if out is None else out
        np.copyto(out, self.inside)
        return out

    def __mul__(self, factor):
        return FakeArray(self.inside * factor, self.device.id)

    def __array__(self, *args, **options):
        raise TypeError("implicit conversion to NumPy is refused")

    def __dlpack__(self, **options):
        return SimpleNamespace(array=self, options=options)

    def __dlpack_device__(self):
        return 2, self.device.id

    @property
    def __cuda_array_interface__(self):
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.data.ptr, False), "version": 3}


class ForeignTensor:
    """An array of a third library on a GPU: it speaks DLPack and nothing else."""

    __module__ = "foreign.tensors"

    def __init__(self, inside, number=0):
        self.inside, self.number = inside, number

    def __dlpack__(self, **options):
        return SimpleNamespace(array=FakeArray(self.inside, self.number), options=options)

    def __dlpack_device__(self):
        return 2, self.number


class FakeKernel(NumpyKernel):
    """A NumPy kernel that insists on arrays of the GPU."""

    def apply(self, source, out):
        """Apply."""
        assert isinstance(source, FakeArray) and isinstance(out, FakeArray)
        super().apply(source.inside, out.inside)


class FakeStrategy(Strategy):
    """The only strategy of the backend."""

    name, special = "sumfac-top", False

    def build(self, problem, options=None):
        """Serve everything; the geometric factors take memory on the GPU."""
        kind = problem.form.factor_kind
        kernel = FakeKernel(problem, "sumfac")
        if kind is not None:
            factors = problem.geometry.factors(kind, 1, problem.dtype)
            shared_factors(problem.geometry, (kind, problem.dtype.str), lambda: cuda.upload(factors))
        return kernel

    def cost(self, problem):
        """One."""
        return 1.0


class FakeStream:
    """A stream.

    Attributes
    ----------
    capturing : bool
        Whether a graph is captured.
    waited : list of FakeStream
        Whose events it was made to wait for.
    """

    def __init__(self, gpus):
        self.gpus, self.ptr, self.capturing, self.waited, self.before = gpus, id(self), False, [], []

    def __enter__(self):
        self.before.append(self.gpus.stream)
        self.gpus.stream = self
        return self

    def __exit__(self, *what):
        self.gpus.stream = self.before.pop()

    def synchronize(self):
        """Count that somebody waits."""
        self.gpus.waits += 1

    def is_capturing(self):
        """Whether a graph is captured."""
        return self.capturing

    def record(self):
        """An event; it is enough to know whose."""
        return self

    def wait_event(self, event):
        """Work from now on comes after the event."""
        self.waited.append(event)


class FakeCuda:
    """The GPUs.

    Attributes
    ----------
    current : int
        Number of the current one.
    free, total : int
        Bytes of each.
    limit, used : int
        Bytes that CuPy's pool may take, 0 for any, and has given.
    count : int or Exception
        GPUs, or what asking for them raises.
    asked : list of int
        GPUs whose attributes were asked for.
    waits : int
        How often a stream was waited for.
    stream : FakeStream
        The current one.
    """

    def __init__(self, count=2):
        self.count, self.current, self.free, self.total = count, 0, 1 << 30, 1 << 31
        self.asked, self.waits = [], 0
        self.limit, self.used = 0, 0
        self.stream = FakeStream(self)

    def module(self, version="14.2.0"):
        """The module `cupy`."""
        gpus = self

        class Device:
            """cupy.cuda.Device."""

            def __init__(self, number=None):
                self.id = gpus.current if number is None else number
                self.before = []

            mem_info = property(lambda self: (gpus.free, gpus.total))

            @property
            def compute_capability(self):
                gpus.asked.append(self.id)
                return "90" if self.id == 0 else "80"

            @property
            def attributes(self):
                gpus.asked.append(self.id)
                size = 232448 if self.id == 0 else 101376
                return {
                    "MaxSharedMemoryPerBlockOptin": size,
                    "MaxSharedMemoryPerMultiprocessor": size + 1024,
                    "MaxThreadsPerBlock": 1024,
                    "MultiProcessorCount": 132,
                }

            def __enter__(self):
                self.before.append(gpus.current)
                gpus.current = self.id
                return self

            def __exit__(self, *what):
                gpus.current = self.before.pop()

        def empty(shape, dtype):
            array = np.full(shape, np.nan, dtype)
            if array.nbytes > gpus.free:
                raise OutOfMemoryError(f"Out of memory allocating {array.nbytes} bytes")
            return FakeArray(array, gpus.current)

        def from_dlpack(array):
            return array.__dlpack__(stream=7).array

        def device_count():
            if isinstance(gpus.count, Exception):
                raise gpus.count
            return gpus.count

        cupy = ModuleType("cupy")
        cupy.__spec__ = ModuleSpec("cupy", None)
        cupy.__version__ = version
        pool = SimpleNamespace(get_limit=lambda: gpus.limit, used_bytes=lambda: gpus.used, free_bytes=lambda: 0)
        cupy.get_default_memory_pool = lambda: pool
        cupy.ndarray, cupy.empty, cupy.from_dlpack = FakeArray, empty, from_dlpack
        cupy.cuda = SimpleNamespace(
            Device=Device,
            memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
            runtime=SimpleNamespace(
                getDevice=lambda: gpus.current,
                getDeviceCount=device_count,
                getDeviceProperties=lambda number: {"name": b"fake"},
            ),
            get_current_stream=lambda: gpus.stream,
            MemoryPool=lambda: SimpleNamespace(malloc=None),
            using_allocator=lambda malloc: nullcontext(),
        )
        return cupy


@contextmanager
def fake_cuda(version="14.2.0", count=2):
    """Make `import cupy` find it, and backend "cuda" run on it.

    Parameters
    ----------
    version : str
        Of CuPy.
    count : int or Exception
        Of `FakeCuda`.

    Yields
    ------
    FakeCuda
    """
    caches = (cuda.missing, cuda.cuda_device)
    gpus = FakeCuda(count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BACKENDS["cuda"], "strategies", (FakeStrategy(),))
        patch.setitem(sys.modules, "cupy", gpus.module(version))
        for cached in caches:
            cached.cache_clear()
        yield gpus
    for cached in caches:
        cached.cache_clear()
