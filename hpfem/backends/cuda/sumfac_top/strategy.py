"""Strategy "sumfac-top" of backend "cuda": some elements per block of threads."""

from __future__ import annotations

import pickle
from copy import copy
from functools import lru_cache
from typing import Any

from ....forms.form import BlockProblem
from ....forms.sources import of_source
from ..codegen.tables import Levels, read_at_points
from ..runtime.device import Limits
from ..runtime.planned import ChoosingStrategy, Rounds
from ..runtime.tree_kernel import TreeKernel
from .plan import SumFacTopOptions, SumFacTopPlan, checked_plan, default_plans, with_nearest_source
from .search import KEPT, MOST, first_options, second_options, third_options


@lru_cache(maxsize=256)
def _plan(problem: bytes, options: SumFacTopOptions, limits: Limits) -> SumFacTopPlan:
    """The plan of all problems with the same code."""
    given: BlockProblem = pickle.loads(problem)
    return checked_plan(given, Levels.of(given), options, limits)


@lru_cache(maxsize=256)
def _elements(problem: bytes, limits: Limits) -> list[int]:
    """The model's numbers of elements, the best first, for all problems with the same code."""
    given: BlockProblem = pickle.loads(problem)
    return [plan.elements for plan in default_plans(given, Levels.of(given), limits)]


class CudaSumFacTop(ChoosingStrategy):
    """Sum factorisation, some elements per block of threads ([Xing] Alg. 4), 1-D lines in registers."""

    name, special, tensor = "sumfac-top", False, True
    options, kernel = SumFacTopOptions, TreeKernel

    def planned(self, problem: BlockProblem, options: Any, limits: Limits) -> SumFacTopPlan:
        """Plan a kernel that fits."""
        problem = of_source(problem, options.source)
        found = copy(_plan(problem.code_key, options, limits))
        found.problem = problem
        return found

    def known(self, problem: BlockProblem) -> SumFacTopOptions | None:
        """The measured options, with a possible source of factors."""
        if problem.tabulation.basis.tree.product and read_at_points(problem) > 1:  # what was measured read fewer
            return None
        known = super().known(problem)
        return None if known is None else with_nearest_source(problem, known)

    def fitting(self, problem: BlockProblem, limits: Limits) -> list[SumFacTopOptions]:
        """The model's best numbers of elements."""
        best = _elements(problem.code_key, limits)
        return [with_nearest_source(problem, SumFacTopOptions(elements)) for elements in best]

    def rounds(self, problem: BlockProblem, limits: Limits, default: Any, most: int = MOST, kept: int = KEPT) -> Rounds:
        """Elements per block, options one by one, then those that helped together."""
        levels = Levels.of(problem)
        timed = yield first_options(problem, levels, limits, default, most)
        timed = yield second_options(problem, levels, timed, kept)
        yield third_options(timed, kept)
