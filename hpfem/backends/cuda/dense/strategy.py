"""Strategy "dense" of backend "cuda": matrices of affine elements on FP64 tensor cores."""

from __future__ import annotations

from itertools import product
from typing import Any

from ....errors import NotSuitable
from ....forms.form import BlockProblem
from ..runtime.device import Limits
from ..runtime.kernel import PlannedKernel
from ..runtime.planned import ChoosingStrategy, Rounds
from .plan import DenseOptions, DensePlan, check_dense

# Options that a round of the search tries at most.
NEIGHBOURS = 8
# Tiles from which on a ring is worth trying.
RING_TILES = 80


class DenseKernel(PlannedKernel):
    """Dense matrices that the few geometric factors of an affine element multiply; see `element_matrices`."""

    plan: DensePlan
    reads_points = False

    def __init__(self, plan: DensePlan, strategy: str) -> None:
        super().__init__(plan, strategy, plan.stream().astype(plan.problem.dtype))

    def _blocks(self, applications: int) -> int:
        every, options = super()._blocks(applications), self.plan.options
        return min(every, self.device.limits.multiprocessors * options.min_blocks) if options.tiles else every


class CudaDense(ChoosingStrategy):
    """Dense matrices that an affine element's geometric factors multiply; linear forms with constant coefficients."""

    name, special = "dense", True
    options, sizes, kernel = DenseOptions, DensePlan, DenseKernel
    bandwidth, speed, checks = 2500.0, 25000.0, (check_dense,)

    def fitting(self, problem: BlockProblem, limits: Limits) -> list[DenseOptions]:
        """Options that fit, the most promising first."""
        candidates = [DenseOptions(warps, 0, 0, True, blocks) for warps in (4, 2) for blocks in (8, 6, 5, 4, 3, 2)]
        sizes = DensePlan(problem, DenseOptions(1))
        rings = [(0, 24), *([(3, 24), (2, 24), (2, 48), (3, 48)] if sizes.used_tiles >= RING_TILES else [])]
        rows = [n for n in (2, 1, 3) if n <= max(1, sizes.r_tiles)]
        numbers = product((4, 6, 8, 12, 10, 16), (1, 2), rings, (True, False), (4, 3, 2, 1), rows)
        candidates += [DenseOptions(w, m, s, kept, blocks, chunk, n) for w, m, (s, chunk), kept, blocks, n in numbers]
        plans = [plan for v in candidates if (plan := DensePlan(problem, v)).misfit(limits) is None]
        if not plans:
            raise NotSuitable(f"the matrices of {problem.n_modes} modes do not fit a block's shared memory")
        return [plan.options for plan in sorted(plans, key=_expected_speed, reverse=True)]

    def rounds(self, problem: BlockProblem, limits: Limits, default: Any) -> Rounds:
        """The default and the best of every kind of options, then twice neighbours of the fastest."""
        promising, kinds = self.fitting(problem, limits), dict[tuple[int, bool, bool], DenseOptions]()
        for options in [default, *promising]:
            kinds.setdefault((options.tiles, options.stages > 0, options.kept), options)
        timed = yield list(kinds.values())
        for _ in range(2):
            ranked = sorted(timed, key=lambda options: timed[options])
            near = [v for best in ranked[:2] for v in promising if v not in timed and _differences(best, v) <= 1]
            timed = yield list(dict.fromkeys(near))[:NEIGHBOURS]

    def flops(self, problem: BlockProblem) -> float:
        """Of the matrices that are not zero: sorted modes leave a third of the derivatives out."""
        matrices = 1 + (2 * problem.shape.dim * 2 / 3 if problem.form.gradients else 0)
        return matrices * 2.0 * problem.n_modes**2


def _differences(a: DenseOptions, b: DenseOptions) -> int:
    """How far two options are apart: fields that differ, numbers that are not next to each other twice."""
    warps, blocks = sorted((a.warps, b.warps)), abs(a.min_blocks - b.min_blocks)
    total = int((a.stages, a.chunk) != (b.stages, b.chunk))
    total += (warps[0] != warps[1]) + (warps[1] > 1.5 * warps[0])
    # The same number of warps on a multiprocessor in more or fewer blocks is one step.
    if a.warps * a.min_blocks == b.warps * b.min_blocks:
        total, blocks = min(total, 1), 0
    return total + min(blocks, 2) + abs(a.rows - b.rows) + (a.tiles != b.tiles) + (a.kept != b.kept)


def _expected_speed(plan: DensePlan) -> float:
    """Relative speed of a plan, from the resident warps and the registers that they have."""
    v, p = plan.options, plan.problem
    warps = v.warps * v.min_blocks
    # Registers that the compiler can use beyond those that it needs.
    room = plan.registers_left - plan.registers
    speed = min(1.0, 0.75 + room / 160)
    if v.tiles == 0:
        return speed * min(1.0, warps / 16) * min(1.5, 16 / p.n_modes)
    speed *= min(1.0, 0.4 + 0.6 * warps / 12) * (0.9 if v.tiles > 1 else 1.0) * (0.95 if v.rows == 1 else 1.0)
    return speed * (0.85 if v.stages else 1.0) * (1.0 if v.kept else 0.8) * (1.02 if v.stages == 3 else 1.0)
