"""Strategy "fused" of backend "cuda": dense products and points in one kernel on FP64 tensor cores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ....errors import NotSuitable
from ....forms.form import BlockProblem
from ....forms.merged import merged_if_possible
from ..runtime.device import Limits
from ..runtime.kernel import PlannedKernel
from ..runtime.planned import ChoosingStrategy, Rounds
from .plan import FusedOptions, FusedPlan, check_fused


class FusedKernel(PlannedKernel):
    """Values and derivatives at all points, the pointwise function, and back, in one launch."""

    plan: FusedPlan

    def __init__(self, plan: FusedPlan, strategy: str) -> None:
        super().__init__(plan, strategy, plan.tables())

    def _blocks(self, applications: int) -> int:
        resident = self.device.limits.multiprocessors * self.plan.options.min_blocks
        return min(super()._blocks(applications), max(1, resident // applications))


class CudaFused(ChoosingStrategy):
    """Dense products with the tables of all points, and what happens there, in one kernel; rules without directions."""

    name, special = "fused", True
    options, sizes, kernel = FusedOptions, FusedPlan, FusedKernel
    bandwidth, speed, checks = 3500.0, 22000.0, (check_fused,)

    def checked(self, problem: BlockProblem) -> BlockProblem:
        """With coefficients in the factors where they can be."""
        return merged_if_possible(super().checked(problem))

    def fitting(self, problem: BlockProblem, limits: Limits) -> list[FusedOptions]:
        """Options that fit, the most promising first."""
        found: list[FusedPlan] = []
        sizes = [FusedPlan(problem, FusedOptions(mirror=mirror)) for mirror in (True, False)]
        sizes.sort(key=lambda plan: plan.n_tiles)  # a tie: with the mirror
        for plan in sizes:
            most = plan.even_tiles + plan.odd_tiles
            # Many warps, then tables in shared memory, then many factors on their way, then coefficients in registers.
            one, mirror = ((0, 4), (0, 3), (0, 2), (3, 2), (3, 1), (2, 1), (0, 1)), plan.options.mirror
            for blocks, stages, ahead in ((3, 0, 2), (2, 0, 2), *((1, *own) for own in one)):
                own = [FusedOptions(8, stages, ahead, kept, mirror, blocks) for kept in range(most, -1, -1)]
                fits = [made for v in own if (made := FusedPlan(problem, v)).misfit(limits) is None]
                found += sorted(fits, key=lambda plan: plan.registers > plan.registers_left)[:1]
        if not found:
            raise NotSuitable(f"the tables of {problem.n_modes} modes do not fit a block's shared memory")
        return [plan.options for plan in sorted(found, key=lambda plan: plan.registers > plan.registers_left)]

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
