"""Strategy "sumfac-top" of backend "cuda"."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from ....forms.form import BlockProblem
from ... import options as text
from ...strategy import Options, Search, Strategy
from ..codegen.prelude import program
from ..codegen.tables import Levels
from ..runtime.device import architecture, limits
from ..runtime.measured import expected_time, shipped_rate
from ..runtime.nvrtc import start
from .kernel import SumFacTopKernel, source
from .plan import SumFacTopOptions, SumFacTopPlan, checked_plan, default_options
from .search import search


class CudaSumFacTop(Strategy):
    """Sum factorisation, some elements per block of threads ([Xing] Alg. 4), 1-D lines in registers."""

    name, special = "sumfac-top", False

    def default(self, problem: BlockProblem) -> Options:
        """The measured options if they fit, else the model's best number of elements; see `Strategy.default`."""
        return text.to_text(default_options(problem, Levels.of(problem.tabulation), limits()))

    def measured(self, problem: BlockProblem) -> str | None:
        """Speed in the shipped table; see `Strategy.measured`."""
        return shipped_rate(problem, self.name)

    def search(self, problem: BlockProblem) -> Search:
        """Elements per block, options one by one, then those that helped together; see `Strategy.search`."""
        rounds = search(problem, Levels.of(problem.tabulation), limits())
        yield from text.search_in_text(rounds, SumFacTopOptions)

    def _plan(self, problem: BlockProblem, options: Options) -> SumFacTopPlan:
        levels = Levels.of(problem.tabulation)
        if options is None:
            return SumFacTopPlan(problem, levels, default_options(problem, levels, limits()))
        return checked_plan(problem, levels, text.from_text(SumFacTopOptions, options), limits())

    def prepare(self, problem: BlockProblem, options: Options = None) -> Future[Any]:
        """Begin to compile into the cache; see `Strategy.prepare`."""
        text_of_kernel = source(problem, Levels.of(problem.tabulation), self._plan(problem, options))
        return start(program(text_of_kernel), architecture())

    def build(self, problem: BlockProblem, options: Options = None) -> SumFacTopKernel:
        """Build the kernel; see `Strategy.build`.

        Raises
        ------
        NotSuitable
            If one element, or those of the options, do not fit a block.
        """
        return SumFacTopKernel(problem, self._plan(problem, options))

    def cost(self, problem: BlockProblem) -> float:
        """Expected time per element in nanoseconds; see `Strategy.cost`."""
        return expected_time(problem, self.name)
