"""Sum factorisation with one element per thread, ready to launch."""

from __future__ import annotations

from ....forms.form import BlockProblem
from ..codegen.prelude import program, sumfac_source
from ..codegen.tables import Levels
from ..sumfac_top.kernel import SumFacTopKernel
from ..sumfac_top.plan import LANE_THREADS, sumfac_plan


class SumFacKernel(SumFacTopKernel):
    """Sum factorisation with one element per thread, in registers ([X] Alg. 3): for small orders.

    Parameters
    ----------
    problem : BlockProblem
    """

    name, kernel_name = "sumfac", "lane"
    levels_of = staticmethod(Levels.plain)

    def __init__(self, problem: BlockProblem) -> None:
        super().__init__(problem, sumfac_plan(problem, Levels.plain(problem.tabulation)))

    def source(self) -> str:
        """Source of the kernel."""
        return program(sumfac_source(self.problem, self.levels, self.plan))

    def _sizes(self) -> tuple[int, int, int]:
        return LANE_THREADS, LANE_THREADS, LANE_THREADS * (self.levels.n_modes | 1) * self.problem.dtype.itemsize
