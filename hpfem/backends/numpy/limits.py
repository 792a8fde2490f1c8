"""What NumPy and its BLAS reach on the host."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import DTypeLike

from ..roofline import Roofline, array_bytes
from ..timer import measure

_MATRIX_SIZE = 768


def measure_host(dtype: DTypeLike, quick: bool) -> Roofline:
    """Measure reading, copying and updating arrays, and a matrix product; see `Backend.measure_limits`."""
    real, size, repeats = np.dtype(dtype), array_bytes(quick), 3 if quick else 7
    a, b = np.full(size // real.itemsize, 1.0, real), np.full(size // real.itemsize, 2.0, real)
    from scipy.linalg import get_blas_funcs

    axpy = get_blas_funcs("axpy", (a,))
    # BLAS dot reads both arrays and writes nothing: the pattern of operators, whose factors are read and forgotten.
    kinds: dict[str, tuple[Callable[[], object], int]] = {
        "read": (lambda: np.dot(a, b), 2),
        "copy": (lambda: np.copyto(a, b), 2),
        "axpy": (lambda: axpy(b, a, a=1e-9), 3),
    }
    rates = {name: count * a.nbytes / measure(call, repeats=repeats).best for name, (call, count) in kinds.items()}
    left, right = np.ones((2, _MATRIX_SIZE, _MATRIX_SIZE), real)
    out = np.empty_like(left)
    product = measure(lambda: np.matmul(left, right, out=out), repeats=3 * repeats)
    flops = 2 * _MATRIX_SIZE**3 / product.best
    return Roofline(max(rates.values()), flops, {**rates, "gemm": flops, "array_bytes": float(size)})
