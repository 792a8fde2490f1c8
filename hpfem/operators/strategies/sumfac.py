"""SumFac on NumPy: the mode tree as batched small products ([X] Alg. 3)."""

from __future__ import annotations

from ...kernels.form import BlockProblem
from ...kernels.models import operator_flops
from ...kernels.numpy import NumpyKernel
from .provider import Strategy, Variant, no_variants


class NumpySumFac(Strategy):
    """Sum factorisation, elements fastest."""

    name, backend, special = "sumfac", "numpy", False

    def build(self, problem: BlockProblem, variant: Variant = None) -> NumpyKernel:
        """Build the kernel; it serves every form."""
        no_variants(self, variant)
        return NumpyKernel(problem, "sumfac")

    def cost(self, problem: BlockProblem) -> float:
        """Operations."""
        return float(operator_flops(problem, "sumfac"))
