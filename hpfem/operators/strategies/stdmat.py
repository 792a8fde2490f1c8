"""StdMat on NumPy: dense matrices through BLAS ([X] Alg. 1, 2)."""

from __future__ import annotations

from ...kernels.form import BlockProblem
from ...kernels.models import operator_flops
from ...kernels.numpy import NumpyKernel
from .provider import Strategy, Variant, no_variants


class NumpyStdMat(Strategy):
    """Dense reference matrices, one product for a chunk of elements."""

    name, backend, special = "stdmat", "numpy", False

    def build(self, problem: BlockProblem, variant: Variant = None) -> NumpyKernel:
        """Build the kernel; it serves every form."""
        no_variants(self, variant)
        return NumpyKernel(problem, "stdmat")

    def cost(self, problem: BlockProblem) -> float:
        """Operations, which one large product does about three times as fast as many small ones."""
        return operator_flops(problem, "stdmat") / 3
