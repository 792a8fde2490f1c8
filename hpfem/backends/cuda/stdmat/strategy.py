"""Strategy "stdmat" of backend "cuda"."""

from __future__ import annotations

from ....errors import NotSuitable
from ....forms.cost import operator_bytes, operator_flops
from ....forms.form import BlockProblem
from ...strategy import Options, Strategy, no_options
from ..runtime.measured import BYTES, DENSE_FLOPS
from .kernel import StdMatKernel

# Matrices of StdMat that are larger take longer to make than they are worth.
STDMAT_BYTES = 1 << 28


class CudaStdMat(Strategy):
    """Dense reference matrices and cuBLAS, all elements in one GEMM."""

    name, special = "stdmat", False

    def build(self, problem: BlockProblem, options: Options = None) -> StdMatKernel:
        """Build the kernel; see `Strategy.build`.

        Raises
        ------
        NotSuitable
            If its matrices are too large.
        """
        no_options(self, options)
        size = problem.n_points * max(problem.n_modes, problem.n_points) * (1 + problem.shape.dim) * 8
        if size > STDMAT_BYTES:
            raise NotSuitable(f"its matrices take {size / 1e6:.0f} MB, the limit is {STDMAT_BYTES / 1e6:.0f} MB")
        return StdMatKernel(problem)

    def cost(self, problem: BlockProblem) -> float:
        """Expected time per element in nanoseconds, work arrays moved four times; see `Strategy.cost`."""
        slots = 8 * problem.n_points * (1 + problem.shape.dim)
        traffic = (operator_bytes(problem) + 4 * slots) / BYTES
        return traffic + operator_flops(problem, "stdmat") / DENSE_FLOPS
