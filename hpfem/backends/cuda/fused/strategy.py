"""Strategy "fused" of backend "cuda": dense products and points in one kernel on FP64 tensor cores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ....errors import NotSuitable
from ....forms.cost import operator_bytes
from ....forms.form import BlockProblem
from ....forms.merged import merged_if_possible
from ..codegen.prelude import arguments
from ..runtime.device import Limits
from ..runtime.kernel import PlannedKernel
from ..runtime.planned import ChoosingStrategy, Rounds
from .plan import FusedOptions, FusedPlan, check_fused

# Warps, blocks, stages, steps ahead, fours of pairs: many warps, then tables in shared memory, then many factors on
# their way; coefficients in registers come last.
SIZES = (
    *((8, blocks, 0, 2, 0) for blocks in (3, 2)),
    *((8, 1, *own, 0) for own in ((0, 4), (0, 3), (0, 2), (3, 2), (3, 1), (2, 1), (0, 1))),
)
# Teams in place of warps, for what coupled components make at points.
AT_POINTS = (
    *((2, 2, 0, 2), (2, 2, 0, 1), (4, 1, 0, 1), (3, 1, 0, 1)),
    *((2, 2, 2, 1), (2, 1, 0, 1), (2, 1, 2, 1), (1, 1, 2, 1)),
)
# Tiles of tables up to which teams do without the mirror.
FEW_TILES = 32


def _team_sizes(problem: BlockProblem, mirror: bool) -> list[tuple[int, ...]]:
    """As `SIZES`, where components are coupled."""
    team = problem.form.components
    if not problem.form.to_modes:
        return [(teams * team, *own, 0) for teams, *own in AT_POINTS]
    warps, fields = team * max(1, 8 // team), bool(arguments(problem)[2])
    # Fields take as much room as factors: shorter steps, more of them ahead.
    two = ((2, 0, 1, 0),) if mirror else ((2, 0, 2, 0), (2, 0, 1, 0), (1, 0, 2, 0))
    one = (*((1, 0, 2, 1),) * (fields and mirror), (1, 0, 1, 0), (1, 2, 1, 0), (1, 2, 1, 1))
    return [(warps, *own) for own in (*two, *one)] + [(team, *own) for own in one]


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
        team = problem.form.components
        # A tie: with the mirror. A team does few products without: it shares more at the points of pairs. So it makes
        # many results, which wait in shared memory for their neighbours.
        many = not problem.form.to_modes and problem.given > team
        few = team > 1 and (many or sizes[1].n_tiles <= FEW_TILES)
        sizes.sort(key=lambda plan: plan.options.mirror if few else plan.n_tiles)
        for plan in sizes:
            most, mirror = plan.even_tiles + plan.odd_tiles, plan.options.mirror
            for warps, blocks, stages, ahead, fours in _team_sizes(problem, mirror) if team > 1 else SIZES:
                own = [FusedOptions(warps, stages, ahead, kept, mirror, blocks, fours) for kept in range(most, -1, -1)]
                fits = [made for v in own if (made := FusedPlan(problem, v)).misfit(limits) is None]
                found += sorted(fits, key=lambda plan: plan.tight)[:1]
        if not found:
            raise NotSuitable(f"the tables of {problem.n_modes} modes do not fit a block's shared memory")
        return [plan.options for plan in sorted(found, key=lambda plan: plan.tight)]

    def rounds(self, problem: BlockProblem, limits: Limits, default: Any) -> Rounds:
        """What fits, then the fastest with fewer coefficients in registers, and with other numbers of warps."""
        timed = yield list(dict.fromkeys([default, *self.fitting(problem, limits)]))
        best = min(timed, key=lambda options: timed[options])
        near = [replace(best, kept=kept) for kept in (best.kept - 1, best.kept // 2, 0, best.kept + 1) if kept >= 0]
        team = problem.form.components
        few, *more = (-(-warps // team) * team for warps in (4, 12, 16))
        near += [replace(best, warps=few, min_blocks=2), *(replace(best, warps=warps) for warps in more)]
        near += [replace(best, min_blocks=2), replace(best, min_blocks=3), replace(best, ahead=best.ahead + 1)]
        near += [replace(best, fours=fours) for fours in (1, 2) if team > 1]
        yield [v for v in dict.fromkeys(near) if v not in timed and FusedPlan(problem, v).misfit(limits) is None]

    def cost(self, problem: BlockProblem) -> float:
        """Expected time; see `Strategy.cost`. Fields, which come in small pieces, count three times."""
        if problem.form.to_modes:
            return super().cost(problem)
        fields = 16 * len(arguments(problem)[2]) * problem.n_points / problem.coupled
        return (operator_bytes(problem) + fields) / 2700 + self.flops(problem) / self.speed

    def flops(self, problem: BlockProblem) -> float:
        """Half of dense products: the mirror."""
        form = problem.form
        products = (1 + form.to_modes) * (1 + problem.shape.dim * form.gradients)
        return float(products * problem.n_modes * problem.n_points)
