"""Strategy "sumfac" of backend "cuda"."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from ....forms.form import BlockProblem
from ...strategy import Options, Strategy, no_options
from ..codegen.prelude import program
from ..codegen.tables import Levels
from ..runtime.device import architecture
from ..runtime.measured import expected_time, known_rate, shipped_rate
from ..runtime.nvrtc import start
from .kernel import SumFacKernel, check_sumfac, source


class CudaSumFac(Strategy):
    """Sum factorisation, one element per thread ([Xing] Alg. 3): small orders only."""

    name, special = "sumfac", True

    def measured(self, problem: BlockProblem) -> str | None:
        """Speed in the shipped table; see `Strategy.measured`."""
        return shipped_rate(problem, self.name)

    def prepare(self, problem: BlockProblem, options: Options = None) -> Future[Any]:
        """Begin to compile into the cache; see `Strategy.prepare`."""
        no_options(self, options)
        levels = Levels.plain(problem.tabulation)
        check_sumfac(problem, levels)
        return start(program(source(problem, levels)), architecture())

    def build(self, problem: BlockProblem, options: Options = None) -> SumFacKernel:
        """Build the kernel; see `Strategy.build`.

        Raises
        ------
        NotSuitable
            If an element does not fit a thread's registers, or the algorithm is collocated.
        """
        no_options(self, options)
        return SumFacKernel(problem)

    def cost(self, problem: BlockProblem) -> float:
        """Expected time per element in nanoseconds; others go first if unmeasured; see `Strategy.cost`."""
        unmeasured = known_rate(problem, self.name) is None
        return (3.0 if unmeasured else 1.0) * expected_time(problem, self.name)
