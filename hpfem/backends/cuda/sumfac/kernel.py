"""Sum factorisation with one element per thread, ready to launch."""

from __future__ import annotations

from ....forms.form import BlockProblem
from ..codegen.tables import Levels
from ..runtime.tree_kernel import TreeKernel
from .plan import GROUP, THREADS, check_sumfac, shared_bytes
from .source import source


class SumFacKernel(TreeKernel):
    """Sum factorisation with one element per thread, in registers ([Xing] Alg. 3): for small orders.

    Parameters
    ----------
    problem : BlockProblem

    Raises
    ------
    NotSuitable
        As `check_sumfac`.
    """

    def __init__(self, problem: BlockProblem) -> None:
        levels = Levels.plain(problem.tabulation)
        check_sumfac(problem, levels)
        block = THREADS, THREADS, shared_bytes(problem)
        super().__init__(problem, "sumfac", levels, source(problem, levels), GROUP, block)
