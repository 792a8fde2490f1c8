"""Strategy "sumfac-warp" of backend "cuda": a warp for each element, on FP64 tensor cores."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np

from ....errors import NotSuitable
from ....forms.form import BlockProblem
from ....forms.sources import nearest_source, of_source, possible_sources
from ....geometry import FactorSource
from ..codegen.prelude import COMMON_HEADERS, constants, fill, header
from ..codegen.tables import Levels
from ..runtime.device import Limits
from ..runtime.measured import known_row
from ..runtime.planned import ChoosingStrategy, Rounds
from ..runtime.tree_kernel import TreeKernel

# Points in every direction: rows and columns of the products of tensor cores.
POINTS = 8
# Blocks of a multiprocessor that are tried, and then elements of a block.
MIN_BLOCKS, ELEMENTS = (2, 3, 4), (1, 2, 8)


@dataclass(frozen=True)
class SumFacWarpOptions:
    """Free choices of the kernel."""

    elements: int = 4  # per block of threads: its warps
    min_blocks: int = 3  # per multiprocessor, that registers have to leave room for
    l2: bool = False  # whether a warp begins by asking for all its factors in the L2 cache
    source: FactorSource = FactorSource.STORED


def check_sumfac_warp(problem: BlockProblem) -> None:
    """Say why a problem is not one for the kernel."""
    rule = problem.tabulation.rule
    if not rule.tensor or rule.counts != (POINTS,) * 3:
        raise NotSuitable(f"a warp takes an element of {POINTS} points in each of three directions")
    if not problem.nodal:
        raise NotSuitable(
            "a warp takes an element whose coefficients are its values at the points, collocated: basis='lagrange',"
            " quadrature='collocated', algorithm='collocated'"
        )
    if problem.coupled > 1 or problem.given > 1:
        raise NotSuitable("a warp takes one component of an element")
    if problem.dtype != np.float64:
        raise NotSuitable("tensor cores are used in float64 only")


class SumFacWarpPlan:
    """The kernel of a problem with options, which name the source of factors."""

    group = 1

    def __init__(self, problem: BlockProblem, options: SumFacWarpOptions) -> None:
        self.options, self.elements, self.threads = options, options.elements, 32 * options.elements
        self.problem = of_source(problem, options.source)
        self.levels = Levels.plain(problem.tabulation)
        # Values of elements, if the form has gradients.
        numbers = problem.form.gradients * options.elements * problem.n_points
        self.shared_bytes = numbers * problem.dtype.itemsize

    def misfit(self, limits: Limits) -> str | None:
        """Say why the kernel does not fit a device."""
        blocks = self.options.min_blocks
        if self.threads * blocks < 1 or limits.too_many(self.threads, blocks):
            return f"{blocks} blocks of {self.elements} warps do not fit a multiprocessor"
        return limits.shared_misfit(self.shared_bytes, blocks)

    def source(self, name: str = "sumfac_warp") -> str:
        """Source of the kernel, `language.h` apart."""
        own = {"E": self.elements, "MIN_BLOCKS": self.options.min_blocks, "L2_PREFETCH": self.options.l2}
        parts = [constants(self.problem, self.levels, name), *map(header, COMMON_HEADERS)]
        return "\n".join([*parts, fill("sumfac_warp/sumfac_warp.h", own)])


class SumFacWarpKernel(TreeKernel):
    """Derivatives along two directions on tensor cores, along the third in registers."""

    def __init__(self, plan: SumFacWarpPlan) -> None:
        super().__init__(plan, "sumfac-warp")


class CudaSumFacWarp(ChoosingStrategy):
    """Sum factorisation, a warp for each element, on FP64 tensor cores ([Cao] Alg. 5): values at 8 x 8 x 8 points."""

    name, special, tensor = "sumfac-warp", True, True
    options, sizes, kernel = SumFacWarpOptions, SumFacWarpPlan, SumFacWarpKernel

    def checked(self, problem: BlockProblem) -> BlockProblem:
        """Elements must have 8 x 8 x 8 values at points, their coefficients."""
        check_sumfac_warp(problem)
        return problem

    def known(self, problem: BlockProblem) -> SumFacWarpOptions:
        """The measured options, else three blocks of four warps, with a source of factors that there is."""
        known = super().known(problem) or SumFacWarpOptions()
        return replace(known, source=nearest_source(problem, known.source))

    def fitting(self, problem: BlockProblem, limits: Limits) -> list[SumFacWarpOptions]:
        """Those above."""
        return [self.known(problem)]

    def rounds(self, problem: BlockProblem, limits: Limits, default: Any) -> Rounds:
        """Sources of factors and warps of a multiprocessor, then blocks of other sizes, and asking for factors."""
        first = list[SumFacWarpOptions]()
        for source in possible_sources(problem):
            first += [SumFacWarpOptions(min_blocks=blocks, source=source) for blocks in MIN_BLOCKS]
        timed = yield list(dict.fromkeys([default, *first]))
        best = min(timed, key=lambda options: timed[options])
        warps = best.elements * best.min_blocks
        near = [replace(best, elements=e, min_blocks=warps // e) for e in ELEMENTS if e <= warps]
        # Otherwise factors are not read at the points.
        if not (problem.geometry.affine or best.source is FactorSource.RECOMPUTED):
            near.append(replace(best, l2=not best.l2))
        yield [options for options in near if options not in timed]

    def cost(self, problem: BlockProblem) -> float:
        """Expected time per element in nanoseconds; others go first if unmeasured; see `Strategy.cost`."""
        return inf if known_row(problem, self.name) is None else super().cost(problem)
