"""Strategy "fused" of backend "cuda": dense products and points in one kernel on FP64 tensor cores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ....forms.form import BlockProblem
from ....forms.merged import merged_if_possible
from ..runtime.device import Limits
from ..runtime.kernel import PlannedKernel
from ..runtime.planned import ChoosingStrategy, Rounds
from .plan import FusedOptions, FusedPlan, check_fused, fitting_options


class FusedKernel(PlannedKernel):
    """Values and derivatives at all points, the pointwise function, and back, in one launch."""

    plan: FusedPlan

    def __init__(self, plan: FusedPlan) -> None:
        super().__init__(plan, "fused", plan.tables())

    def _blocks(self, applications: int) -> int:
        resident = self.device.limits.multiprocessors * self.plan.options.min_blocks
        return min(super()._blocks(applications), max(1, resident // applications))


class CudaFused(ChoosingStrategy):
    """Dense products with the tables of all points, and what happens there, in one kernel; rules without directions."""

    name, special = "fused", True
    options, sizes, kernel = FusedOptions, FusedPlan, FusedKernel
    bandwidth, speed = 3500.0, 22000.0

    def checked(self, problem: BlockProblem) -> BlockProblem:
        """The rule must have no directions and the form be weak; coefficients are in the factors where they can be."""
        check_fused(problem)
        return merged_if_possible(problem)

    def fitting(self, problem: BlockProblem, limits: Limits) -> list[FusedOptions]:
        """Options that fit, the most promising first."""
        return fitting_options(problem, limits)

    def rounds(self, problem: BlockProblem, limits: Limits, default: Any) -> Rounds:
        """What fits, then the fastest with fewer coefficients in registers, and with other numbers of warps."""
        timed = yield list(dict.fromkeys([default, *self.fitting(problem, limits)]))
        best = min(timed, key=lambda options: timed[options])
        near = [replace(best, kept=kept) for kept in (best.kept - 1, best.kept // 2, 0, best.kept + 1) if kept >= 0]
        near += [replace(best, warps=4, min_blocks=2), replace(best, min_blocks=2), replace(best, min_blocks=3)]
        near += [replace(best, warps=12), replace(best, warps=16), replace(best, ahead=best.ahead + 1)]
        yield [v for v in dict.fromkeys(near) if v not in timed and FusedPlan(problem, v).misfit(limits) is None]

    def flops(self, problem: BlockProblem) -> float:
        """Half of dense products: the mirror."""
        products = 2 * (1 + problem.shape.dim * problem.form.gradients)
        return float(products * problem.n_modes * problem.n_points)
