"""The NumPy backend: the readable reference."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import DTypeLike

from ...forms.cost import operator_flops
from ...forms.form import BlockProblem
from ..base import BACKENDS, Backend
from ..roofline import Roofline, array_bytes
from ..strategy import Options, Strategy, with_source
from ..timer import measure
from .pipeline import NumpyKernel

_MATRIX_SIZE = 768


class NumpyStrategy(Strategy):
    """Matrix products over chunks of elements; speed: operations in the time of one of sum factorisation."""

    special = False

    def __init__(self, name: str, speed: float) -> None:
        self.name, self._speed = name, speed
        self.tensor = name == "sumfac"

    def build(self, problem: BlockProblem, options: Options = None) -> NumpyKernel:
        """Build the kernel, which serves every form; see `Strategy.build`."""
        return NumpyKernel(with_source(self, problem, options), self.name)

    def cost(self, problem: BlockProblem) -> float:
        """Estimate the time by operations; see `Strategy.cost`."""
        return operator_flops(problem, self.name) / self._speed


class NumpyBackend(Backend):
    """Batched matrix products on the host, by NumPy and its BLAS."""

    name = "numpy"
    # One large product is about three times as fast as many small ones.
    strategies = (NumpyStrategy("sumfac", 1.0), NumpyStrategy("stdmat", 3.0))

    def missing(self) -> str | None:
        """Nothing is ever missing; see `Backend.missing`."""
        return None

    def measure_limits(self, dtype: DTypeLike, quick: bool) -> Roofline:
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


BACKENDS.add("numpy", NumpyBackend())
