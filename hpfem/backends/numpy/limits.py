"""What NumPy and its BLAS reach on the host."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike
from scipy.linalg import get_blas_funcs

from ..roofline import MIB, Roofline
from ..timer import measure

MATRIX_SIZE = 768


def last_level_cache() -> int:
    """Tell the size of the largest cache.

    Returns
    -------
    int
        Bytes; 32 MiB where the system does not tell.
    """
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text(encoding="ascii").strip()
        if text[:-1].isdigit() and text[-1] in "KM":
            sizes.append(int(text[:-1]) * {"K": 1 << 10, "M": 1 << 20}[text[-1]])
    return max(sizes, default=32 * MIB)


def array_bytes(quick: bool) -> int:
    """Size of arrays that are far larger than the caches; a small one to be quick."""
    return 64 * MIB if quick else int(np.clip(4 * last_level_cache(), 128 * MIB, 512 * MIB))


def measure_host(dtype: DTypeLike, quick: bool) -> Roofline:
    """Measure reading, copying and updating arrays, and a matrix product; see `Backend.measure_limits`."""
    real, size, repeats = np.dtype(dtype), array_bytes(quick), 3 if quick else 7
    a, b = np.full(size // real.itemsize, 1.0, real), np.full(size // real.itemsize, 2.0, real)
    axpy = get_blas_funcs("axpy", (a,))
    # BLAS dot reads both arrays and writes nothing: the pattern of operators, whose factors are read and forgotten.
    kinds: dict[str, tuple[Callable[[], object], int]] = {
        "read": (lambda: np.dot(a, b), 2),
        "copy": (lambda: np.copyto(a, b), 2),
        "axpy": (lambda: axpy(b, a, a=1e-9), 3),
    }
    rates = {name: count * a.nbytes / measure(call, repeats=repeats).best for name, (call, count) in kinds.items()}
    left, right = np.ones((2, MATRIX_SIZE, MATRIX_SIZE), real)
    out = np.empty_like(left)
    product = measure(lambda: np.matmul(left, right, out=out), repeats=3 * repeats)
    flops = 2 * MATRIX_SIZE**3 / product.best
    return Roofline(max(rates.values()), flops, {**rates, "gemm": flops, "array_bytes": float(size)})
