"""Strategy "sumfac-top" of backend "cuda": some elements per block of threads."""

from __future__ import annotations

from typing import Any

from ....forms.form import BlockProblem
from ..codegen.tables import Levels, read_at_points
from ..runtime.device import Limits
from ..runtime.planned import ChoosingStrategy, Rounds
from ..runtime.tree_kernel import TreeKernel
from .plan import SumFacTopOptions, SumFacTopPlan, checked_plan, default_plans, with_nearest_source
from .search import KEPT, MOST, first_options, second_options, third_options


class CudaSumFacTop(ChoosingStrategy):
    """Sum factorisation, some elements per block of threads ([Xing] Alg. 4), 1-D lines in registers."""

    name, special, tensor = "sumfac-top", False, True
    options, kernel = SumFacTopOptions, TreeKernel

    def checked(self, problem: BlockProblem) -> BlockProblem:
        """It serves them all."""
        return problem

    def planned(self, problem: BlockProblem, options: Any, limits: Limits) -> SumFacTopPlan:
        """Plan a kernel that fits."""
        return checked_plan(problem, Levels.of(problem), options, limits)

    def known(self, problem: BlockProblem) -> SumFacTopOptions | None:
        """The measured options, with a possible source of factors."""
        if problem.tabulation.basis.tree.product and read_at_points(problem) > 1:  # what was measured read fewer
            return None
        known = super().known(problem)
        return None if known is None else with_nearest_source(problem, known)

    def fitting(self, problem: BlockProblem, limits: Limits) -> list[SumFacTopOptions]:
        """The model's best numbers of elements."""
        plans = default_plans(problem, Levels.of(problem), limits)
        return [with_nearest_source(problem, SumFacTopOptions(plan.elements)) for plan in plans]

    def rounds(self, problem: BlockProblem, limits: Limits, default: Any, most: int = MOST, kept: int = KEPT) -> Rounds:
        """Elements per block, options one by one, then those that helped together."""
        levels = Levels.of(problem)
        timed = yield first_options(problem, levels, limits, default, most)
        timed = yield second_options(problem, levels, timed, kept)
        yield third_options(timed, kept)
