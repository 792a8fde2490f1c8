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


class NumpyStrategy(Strategy):
    """Matrix products over chunks of elements.

    Parameters
    ----------
    name : str
        "sumfac": sum factorisation; "stdmat": dense reference matrices.
    speed : float
        Operations in the time of one of sum factorisation.
    """

    special = False

    def __init__(self, name: str, speed: float) -> None:
        self.name, self._speed = name, speed

    def build(self, problem: BlockProblem, options: Options = None) -> NumpyKernel:
        """Build the kernel, which serves every form; see `Strategy.build`."""
        no_options(self, options)
        return NumpyKernel(problem, self.name)

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
        return measure_host(dtype, quick)


BACKENDS.add("numpy", NumpyBackend())
