"""The CUDA backend and its strategies."""

from __future__ import annotations

from ...backend import BACKENDS, Backend
from ...errors import NotSuitable
from ...kernels.cuda.device import CUDA, limits, missing
from ...kernels.cuda.kernel import DenseKernel, FiberKernel, LaneKernel
from ...kernels.cuda.tables import Levels
from ...kernels.cuda.variant import default_variants, known_variant
from ...kernels.form import BlockProblem
from ...kernels.models import operator_bytes, operator_flops

# Matrices of StdMat that are larger take longer to make than they are worth.
STDMAT_BYTES = 1 << 28

# Bytes and operations per nanosecond that kernels nobody has measured are taken to reach, and cuBLAS.
BYTES, FLOPS, DENSE_FLOPS = 3000.0, 8000.0, 25000.0

BACKENDS.add("cuda", Backend("cuda", lambda: CUDA, missing))


def expected_time(problem: BlockProblem, strategy: str) -> float:
    """Time of a sum-factorised kernel per element in nanoseconds: measured (variants.json), or by a model."""
    known = known_variant(problem, strategy)
    if known is not None:
        return problem.n_modes / known[1]
    return max(operator_bytes(problem) / BYTES, operator_flops(problem, "sumfac") / FLOPS)


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
        """Expected time per element in nanoseconds."""
        return expected_time(problem, self.name)


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
        """Expected time per element in nanoseconds; unmeasured, other strategies go first."""
        unmeasured = known_variant(problem, self.name) is None
        return (3.0 if unmeasured else 1.0) * expected_time(problem, self.name)


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
        """Expected time per element in nanoseconds: the work arrays go through memory four times."""
        slots = 8 * problem.n_points * (1 + problem.shape.dim)
        traffic = (operator_bytes(problem) + 4 * slots) / BYTES
        return traffic + operator_flops(problem, "stdmat") / DENSE_FLOPS
