"""Strategy "fused" of backend "cuda": dense products and points in one kernel on FP64 tensor cores."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np

from ....forms.form import BlockProblem
from ....forms.merged import merged_if_possible
from ... import options as text
from ...strategy import Options, Search, Strategy
from ..codegen.tables import Levels
from ..runtime.device import architecture, limits, upload
from ..runtime.kernel import SingleLaunch
from ..runtime.measured import expected_time, known_row, shipped_rate
from ..runtime.nvrtc import start
from .plan import GROUP, FusedOptions, FusedPlan, check_fused, checked_plan, fitting_options

# Assumed bytes and operations per nanosecond of kernels without a measurement.
BYTES, FLOPS = 3500.0, 40000.0


class FusedKernel(SingleLaunch):
    """Values and derivatives at all points, the pointwise function, and back, in one launch.

    Parameters
    ----------
    problem : BlockProblem
    layout : FusedPlan
    """

    def __init__(self, problem: BlockProblem, layout: FusedPlan) -> None:
        super().__init__(problem, "fused", Levels.plain(problem.tabulation))
        self.plan = layout
        self._compile(layout.source(), "fused", layout.shared_bytes)
        self.factors, self.points = self._layouts(GROUP)
        self.tables = upload(layout.tables())
        self.n_elements = problem.n_elements
        self._resident = limits().multiprocessors * layout.options.min_blocks

    def arrays(self) -> list[tuple[str, Any]]:
        """The tables; see `CudaKernel.arrays`."""
        return [("matrices", self.tables)]

    def _launch(self, function: Any, source: Any, out: Any, *further: Any) -> None:
        blocks = min(-(-self.n_elements // self.plan.elements), max(1, self._resident // len(source)))
        arrays = self.factors, self.points, self.tables
        if blocks:
            function(
                (blocks, len(source)),
                (self.plan.threads,),
                (np.int64(self.n_elements), source, out, *arrays, *self._extra, *further),
                shared_mem=self.plan.shared_bytes,
            )


def _search(problem: BlockProblem) -> Generator[list[FusedOptions], Mapping[FusedOptions, float], None]:
    """What fits, then the fastest with fewer coefficients in registers, and with other numbers of warps."""
    timed = yield fitting_options(problem, limits())
    best = min(timed, key=lambda options: timed[options])
    near = [replace(best, kept=kept) for kept in (best.kept - 1, best.kept // 2, 0, best.kept + 1) if kept >= 0]
    near += [replace(best, warps=4, min_blocks=2), replace(best, min_blocks=2), replace(best, min_blocks=3)]
    near += [replace(best, warps=12), replace(best, warps=16), replace(best, ahead=best.ahead + 1)]
    yield [v for v in dict.fromkeys(near) if v not in timed and FusedPlan(problem, v).misfit(limits()) is None]


def _checked(problem: BlockProblem) -> BlockProblem:
    """The problem that the kernel takes, with coefficients in the factors where they can be."""
    check_fused(problem)
    return merged_if_possible(problem)


class CudaFused(Strategy):
    """Dense products with the tables of all points, and what happens there, in one kernel; rules without directions."""

    name, special = "fused", True

    def default(self, problem: BlockProblem) -> Options:
        """The measured options, if there are some and they fit, else the most promising; see `Strategy.default`."""
        problem = _checked(problem)
        promising = fitting_options(problem, limits())
        row = known_row(problem, self.name)
        known = promising[0] if row is None else text.from_text(FusedOptions, row[1])
        return text.to_text(known if FusedPlan(problem, known).misfit(limits()) is None else promising[0])

    def measured(self, problem: BlockProblem) -> str | None:
        """Speed in the shipped table; see `Strategy.measured`."""
        return shipped_rate(problem, self.name)

    def search(self, problem: BlockProblem) -> Search:
        """What fits, then neighbours of the fastest; see `Strategy.search`."""
        problem = _checked(problem)
        yield from text.search_in_text(_search(problem), FusedOptions)

    def _plan(self, problem: BlockProblem, options: Options) -> FusedPlan:
        problem = _checked(problem)
        if options is None:
            options = self.default(problem)
        return checked_plan(problem, text.from_text(FusedOptions, options or ""), limits())

    def prepare(self, problem: BlockProblem, options: Options = None) -> Future[Any]:
        """Begin to compile into the cache; see `Strategy.prepare`."""
        return start(self._plan(problem, options).program(), architecture())

    def build(self, problem: BlockProblem, options: Options = None) -> FusedKernel:
        """Build the kernel, if the rule has no directions and the form is weak; see `Strategy.build`."""
        layout = self._plan(problem, options)
        return FusedKernel(layout.problem, layout)

    def cost(self, problem: BlockProblem) -> float:
        """Expected time per element in nanoseconds: measured, or by a model; see `Strategy.cost`."""
        products = 2 * (1 + problem.shape.dim * problem.form.gradients)
        flops = products * problem.n_modes * problem.n_points  # half of dense products: the mirror
        return expected_time(problem, self.name, flops, BYTES, FLOPS)
