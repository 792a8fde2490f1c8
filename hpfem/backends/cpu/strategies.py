"""The strategies of backend "cpu": compiled sum factorisation, and dense matrices through BLAS."""

from __future__ import annotations

from ...errors import NotSuitable
from ...forms.cost import operator_flops
from ...forms.form import BlockProblem
from ..numpy.backend import NumpyStdMat, NumpySumFac
from ..numpy.pipeline import NumpyKernel
from ..strategy import Options, Strategy, no_options
from .runtime.kernel import CpuKernel

# Time per operation against collocated sum factorisation (measured on AVX-512, P = 1..7).
NONCOLLOCATED_COST = 0.9
DENSE_COST, DENSE_OVERHEAD = 1.2, 0.6
# Compiled fibers run at the processor's peak; BLAS streams its arguments and results through memory.
BLAS_COST = 4.0
NUMPY_COST = 12.0
# Points of a direction beyond which a kernel takes a minute or more to compile.
LONGEST_FIBER = 32


class CpuSumFac(Strategy):
    """Sum factorisation, one element per SIMD lane, fused over all stages ([X] Alg. 3)."""

    name, special = "sumfac", False

    def build(self, problem: BlockProblem, options: Options = None) -> CpuKernel:
        """Build the kernel; it serves every form.

        Raises
        ------
        NotSuitable
            If a direction has so many points that its unrolled fibers take minutes to compile.
        """
        no_options(self, options)
        points = max(problem.tabulation.rule.counts)
        if points > LONGEST_FIBER:
            raise NotSuitable(f"fibers of {points} points are too long to compile, the limit is {LONGEST_FIBER}")
        return CpuKernel(problem)

    def cost(self, problem: BlockProblem) -> float:
        """Operations; parity saves more of those that are not collocated."""
        share = 1.0 if problem.algorithm == "collocated" else NONCOLLOCATED_COST
        return share * operator_flops(problem, "sumfac")


class CpuPlain(Strategy):
    """Sum factorisation by NumPy, for what is too large to compile."""

    name, special = "numpy", True

    def build(self, problem: BlockProblem, options: Options = None) -> NumpyKernel:
        """Build the kernel.

        Raises
        ------
        NotSuitable
            Where compiled sum factorisation serves.
        """
        no_options(self, options)
        if max(problem.tabulation.rule.counts) <= LONGEST_FIBER:
            raise NotSuitable("compiled sum factorisation serves here")
        return NumpySumFac().build(problem)

    def cost(self, problem: BlockProblem) -> float:
        """Operations, several times slower than compiled ones."""
        return NUMPY_COST * operator_flops(problem, "sumfac")


class CpuDense(Strategy):
    """Dense reference matrices of affine elements, compiled, one element per SIMD lane: fastest at low order."""

    name, special = "dense", True

    def build(self, problem: BlockProblem, options: Options = None) -> CpuKernel:
        """Build the kernel.

        Raises
        ------
        NotSuitable
            Unless elements are affine and the form is linear with constant coefficients.
        """
        no_options(self, options)
        return CpuKernel(problem, "dense")

    def cost(self, problem: BlockProblem) -> float:
        """Operations: a matrix per geometric factor, all multiply-adds."""
        kind = problem.form.factor_kind
        matrices = problem.geometry.n_factors(kind) if kind else 1
        return (DENSE_COST * matrices + DENSE_OVERHEAD) * 2.0 * problem.n_modes**2


class CpuStdMat(Strategy):
    """Dense reference matrices through BLAS."""

    name, special = "stdmat", False

    def build(self, problem: BlockProblem, options: Options = None) -> NumpyKernel:
        """Build the kernel; it serves every form."""
        no_options(self, options)
        return NumpyStdMat().build(problem)

    def cost(self, problem: BlockProblem) -> float:
        """Operations, at the speed of BLAS on data that has to be transposed."""
        return BLAS_COST * operator_flops(problem, "stdmat")
