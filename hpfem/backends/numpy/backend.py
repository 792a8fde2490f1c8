"""The NumPy backend: the readable reference."""

from __future__ import annotations

from numpy.typing import DTypeLike

from ...forms.cost import operator_flops
from ...forms.form import BlockProblem
from ..base import BACKENDS, Backend
from ..roofline import Roofline
from ..strategy import Options, Strategy, no_options
from .limits import measure_host
from .pipeline import NumpyKernel


class NumpySumFac(Strategy):
    """Sum factorisation, elements fastest."""

    name, special = "sumfac", False

    def build(self, problem: BlockProblem, options: Options = None) -> NumpyKernel:
        """Build the kernel; it serves every form."""
        no_options(self, options)
        return NumpyKernel(problem, "sumfac")

    def cost(self, problem: BlockProblem) -> float:
        """Operations."""
        return float(operator_flops(problem, "sumfac"))


class NumpyStdMat(Strategy):
    """Dense reference matrices, one product for a chunk of elements."""

    name, special = "stdmat", False

    def build(self, problem: BlockProblem, options: Options = None) -> NumpyKernel:
        """Build the kernel; it serves every form."""
        no_options(self, options)
        return NumpyKernel(problem, "stdmat")

    def cost(self, problem: BlockProblem) -> float:
        """Operations, which one large product does about three times as fast as many small ones."""
        return operator_flops(problem, "stdmat") / 3


class NumpyBackend(Backend):
    """Batched matrix products on the host, by NumPy and its BLAS."""

    name = "numpy"
    strategies = (NumpySumFac(), NumpyStdMat())

    def missing(self) -> str | None:
        """Nothing is ever missing."""
        return None

    def measure_limits(self, dtype: DTypeLike, quick: bool) -> Roofline:
        """Measure reading, copying and updating arrays, and a matrix product; see `Backend.measure_limits`."""
        return measure_host(dtype, quick)


BACKENDS.add("numpy", NumpyBackend())
