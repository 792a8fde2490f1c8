"""The strategies of backend "cpu": compiled sum factorisation, and dense matrices through BLAS."""

from __future__ import annotations

from ...kernels.cpu import CpuKernel, missing
from ...kernels.form import BlockProblem
from ...kernels.models import operator_flops
from ...kernels.numpy import NumpyKernel
from ...memory import HOST
from .provider import BACKENDS, Backend

# Compiled fibers run at the processor's peak; BLAS streams its arguments and results through memory.
BLAS_COST = 4.0


class CpuSumFac:
    """Sum factorisation, one element per SIMD lane, fused over all stages ([X] Alg. 3)."""

    name, backend = "sumfac", "cpu"

    def build(self, problem: BlockProblem) -> CpuKernel:
        """Build the kernel; it serves every form."""
        return CpuKernel(problem)

    def cost(self, problem: BlockProblem) -> float:
        """Operations."""
        return float(operator_flops(problem, "sumfac"))


class CpuStdMat:
    """Dense reference matrices through BLAS."""

    name, backend = "stdmat", "cpu"

    def build(self, problem: BlockProblem) -> NumpyKernel:
        """Build the kernel; it serves every form."""
        return NumpyKernel(problem, "stdmat")

    def cost(self, problem: BlockProblem) -> float:
        """Operations, at the speed of BLAS on data that has to be transposed."""
        return BLAS_COST * operator_flops(problem, "stdmat")


BACKENDS.add("cpu", Backend("cpu", lambda: HOST, missing))
