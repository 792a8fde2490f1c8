"""Products while a graph is captured: cuBLAS' own call, with arguments as it takes them, on a machine without it."""

import ctypes
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from hpfem.backends.cuda.runtime import cublas
from hpfem.errors import DeviceError
from tests.fake_cupy import FakeArray


class Blas:
    """cuBLAS on the host: products of matrices of columns."""

    def __init__(self, status=0):
        self.status, self.streams = status, []

    def cublasSetStream_v2(self, context, stream):
        """Take the stream."""
        assert context.value == 77
        self.streams.append(stream.value)
        return 0

    def product(self, scalar, dtype, context, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):
        """c = a b, of columns."""
        assert (ta.value, tb.value, alpha._obj.value, beta._obj.value) == (0, 0, 1.0, 0.0)

        def columns(pointer, stride, count):
            size = stride.value * count.value
            numbers = (scalar * size).from_address(pointer.value)
            return np.frombuffer(numbers, dtype).reshape(count.value, stride.value).T

        columns(c, ldc, n)[: m.value] = columns(a, lda, k)[: m.value] @ columns(b, ldb, n)[: k.value]
        return self.status

    def cublasDgemm_v2(self, *arguments):
        """Double precision."""
        return self.product(ctypes.c_double, np.float64, *arguments)

    def cublasSgemm_v2(self, *arguments):
        """Single precision."""
        return self.product(ctypes.c_float, np.float32, *arguments)


@pytest.fixture
def capturing(monkeypatch):
    """A CuPy whose current stream captures."""
    cupy = ModuleType("cupy")
    stream = SimpleNamespace(is_capturing=lambda: True, ptr=123)
    cupy.cuda = SimpleNamespace(
        get_current_stream=lambda: stream,
        device=SimpleNamespace(get_cublas_handle=lambda: 77),
        runtime=SimpleNamespace(runtimeGetVersion=lambda: 99010),
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)


class Sized(FakeArray):
    """With the number of entries, as CuPy's arrays have it."""

    size = property(lambda self: self.inside.size)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_products_of_rows(dtype, capturing, monkeypatch, rng):
    blas = Blas()
    monkeypatch.setattr(cublas, "library", lambda: blas)
    left, matrix = rng.standard_normal((2, 3, 4)).astype(dtype), rng.standard_normal((4, 5)).astype(dtype)
    out = Sized(np.full((2, 3, 5), np.nan, dtype))
    cublas.multiply(Sized(left), Sized(matrix), out)
    np.testing.assert_allclose(out.inside, left @ matrix, rtol=1e-5)
    assert blas.streams == [123]


def test_failures(capturing, monkeypatch):
    square = Sized(np.eye(2))
    cublas.library.cache_clear()
    with pytest.raises(DeviceError, match=r"99.* is not found .*cannot be captured.*hpfem\[cuda99\]"):
        cublas.multiply(square, square, Sized(np.empty((2, 2))))
    monkeypatch.setattr(cublas, "library", lambda: Blas(13))
    with pytest.raises(DeviceError, match="cublasDgemm_v2 of 2 x 2 and 2 x 2 numbers failed with status 13"):
        cublas.multiply(square, square, Sized(np.empty((2, 2))))
