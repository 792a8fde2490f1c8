"""The CUDA backend and its strategies."""

from __future__ import annotations

from ...backend import BACKENDS, Backend
from ...errors import NotSuitable
from ...kernels.cuda.device import CUDA, limits, missing
from ...kernels.cuda.kernel import DenseKernel, FiberKernel, LaneKernel
from ...kernels.cuda.tables import Levels
from ...kernels.cuda.variant import default_variants
from ...kernels.form import BlockProblem
from ...kernels.models import operator_flops

# Matrices of StdMat that are larger take longer to make than they are worth.
STDMAT_BYTES = 1 << 28

BACKENDS.add("cuda", Backend("cuda", lambda: CUDA, missing))


class CudaSumFacTop:
    """Sum factorisation, some elements per block of threads ([X] Alg. 4), 1-D lines in registers."""

    name, backend, special = "sumfac-top", "cuda", False

    def build(self, problem: BlockProblem) -> FiberKernel:
        """Build the kernel.

        Raises
        ------
        NotSuitable
            If one element does not fit a block.
        """
        return FiberKernel(problem, default_variants(problem, Levels.of(problem.tabulation), limits())[0])

    def cost(self, problem: BlockProblem) -> float:
        """Operations; the collocated algorithm has twice the barriers."""
        return float(operator_flops(problem, "sumfac"))


class CudaSumFac:
    """Sum factorisation, one element per thread ([X] Alg. 3): small orders only."""

    name, backend, special = "sumfac", "cuda", True

    def build(self, problem: BlockProblem) -> LaneKernel:
        """Build the kernel.

        Raises
        ------
        NotSuitable
            If an element does not fit a thread's registers, or the algorithm is collocated.
        """
        return LaneKernel(problem)

    def cost(self, problem: BlockProblem) -> float:
        """Operations; waiting threads are fewer than in blocks that share elements."""
        return 2.0 * operator_flops(problem, "sumfac")


class CudaStdMat:
    """Dense reference matrices and cuBLAS, all elements in one GEMM."""

    name, backend, special = "stdmat", "cuda", False

    def build(self, problem: BlockProblem) -> DenseKernel:
        """Build the kernel.

        Raises
        ------
        NotSuitable
            If its matrices are too large.
        """
        size = problem.n_points * max(problem.n_modes, problem.n_points) * (1 + problem.shape.dim) * 8
        if size > STDMAT_BYTES:
            raise NotSuitable(f"its matrices take {size / 1e6:.0f} MB, the limit is {STDMAT_BYTES / 1e6:.0f} MB")
        return DenseKernel(problem)

    def cost(self, problem: BlockProblem) -> float:
        """Operations, and the work arrays that go through memory twice."""
        return float(operator_flops(problem, "stdmat") + 100 * problem.n_points * (1 + problem.shape.dim))
