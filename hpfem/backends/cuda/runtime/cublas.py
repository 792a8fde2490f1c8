"""Matrix products by cuBLAS: CuPy's, and while a CUDA graph is captured, where CuPy refuses them, cuBLAS' own."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

import numpy as np

from ....errors import DeviceError
from .lazy import cupy

_GEMM = {
    np.dtype(np.float64): ("cublasDgemm_v2", ctypes.c_double),
    np.dtype(np.float32): ("cublasSgemm_v2", ctypes.c_float),
}


@cache
def library() -> Any:
    """Load cuBLAS: the one that CuPy has loaded, of the same version."""
    major = int(cupy.cuda.runtime.runtimeGetVersion()) // 1000
    name = f"cublas64_{major}.dll" if sys.platform == "win32" else f"libcublas.so.{major}"
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise DeviceError(
            f"{name} is not found ({error}): without it matrix products cannot be captured in a CUDA graph; it comes"
            f" with pip install 'hpfem[cuda{major}]'"
        ) from error


def handle() -> int:
    """Handle of cuBLAS for the current device, made at the first call, which must not be while a graph is captured."""
    return int(cupy.cuda.device.get_cublas_handle())


def multiply(left: Any, matrix: Any, out: Any) -> None:
    """Product of [..., n] with a matrix [n, m] into [..., m], all in C order: one GEMM on the current stream."""
    stream = cupy.cuda.get_current_stream()
    if not stream.is_capturing():
        cupy.matmul(left.reshape(-1, left.shape[-1]), matrix, out=out.reshape(-1, out.shape[-1]))
        return
    blas, context = library(), ctypes.c_void_p(handle())
    name, scalar = _GEMM[np.dtype(out.dtype)]
    (k, m), rows = matrix.shape, left.size // left.shape[-1]
    none, columns, n, inner = (ctypes.c_int(number) for number in (0, m, rows, k))
    one, zero = ctypes.byref(scalar(1.0)), ctypes.byref(scalar(0.0))
    a, b, c = (ctypes.c_void_p(array.data.ptr) for array in (matrix, left, out))
    # cuBLAS has columns for rows: out^T = matrix^T left^T.
    sizes = (none, none, columns, n, inner)
    status = blas.cublasSetStream_v2(context, ctypes.c_void_p(stream.ptr)) or getattr(blas, name)(
        context, *sizes, one, a, columns, b, inner, zero, c, columns
    )
    if status:
        raise DeviceError(f"{name} of {rows} x {k} and {k} x {m} numbers failed with status {status} of cuBLAS")
