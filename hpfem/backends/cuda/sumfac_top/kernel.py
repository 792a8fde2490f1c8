"""Sum factorisation with some elements per block of threads, ready to launch."""

from __future__ import annotations

from ....forms.form import BlockProblem
from ..codegen.tables import Levels
from ..runtime.tree_kernel import TreeKernel
from .plan import SumFacTopPlan
from .source import source


class SumFacTopKernel(TreeKernel):
    """Sum factorisation with the elements of a block's threads side by side, 1-D lines in registers.

    Parameters
    ----------
    problem : BlockProblem
    layout : SumFacTopPlan
    """

    def __init__(self, problem: BlockProblem, layout: SumFacTopPlan) -> None:
        levels, elements = Levels.of(problem.tabulation), layout.options.elements
        block = elements, layout.threads, layout.shared_bytes
        super().__init__(problem, "sumfac-top", levels, source(problem, levels, layout), elements, block)
