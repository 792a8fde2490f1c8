"""Strategy "sumfac-warp" of backend "cuda": a warp for each element, on FP64 tensor cores."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np

from ....errors import NotSuitable
from ....forms.form import BlockProblem
from ....forms.sources import nearest_source, of_source, possible_sources
from ....geometry import FactorSource
from ... import options as text
from ...strategy import Options, Search, Strategy
from ..codegen.prelude import COMMON_HEADERS, constants, fill, header, program
from ..codegen.tables import Levels
from ..runtime.device import architecture, limits
from ..runtime.measured import expected_time, known_row, shipped_rate
from ..runtime.nvrtc import start
from ..runtime.tree_kernel import TreeKernel

# Points in every direction: rows and columns of the products of tensor cores.
POINTS = 8
# Blocks of a multiprocessor that are tried, and then elements of a block.
MIN_BLOCKS, ELEMENTS = (2, 3, 4), (1, 2, 8)


@dataclass(frozen=True)
class SumFacWarpOptions:
    """Free choices of the kernel.

    Attributes
    ----------
    elements : int
        Per block of threads: its warps.
    min_blocks : int
        Blocks per multiprocessor that registers have to leave room for.
    l2 : bool
        Whether a warp begins by asking for all its factors in the L2 cache.
    source : FactorSource
    """

    elements: int = 4
    min_blocks: int = 3
    l2: bool = False
    source: FactorSource = FactorSource.STORED

    @property
    def threads(self) -> int:
        """Of a block."""
        return 32 * self.elements


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


def shared_bytes(problem: BlockProblem, options: SumFacWarpOptions) -> int:
    """Count the shared memory of a block: the values of its elements, if the form has gradients."""
    return problem.form.gradients * options.elements * problem.n_points * problem.dtype.itemsize


def source(problem: BlockProblem, options: SumFacWarpOptions, name: str = "sumfac_warp") -> str:
    """Source of the kernel, `language.h` apart."""
    own = {"E": options.elements, "MIN_BLOCKS": options.min_blocks, "L2_PREFETCH": options.l2}
    parts = [constants(problem, Levels.plain(problem.tabulation), name), *map(header, COMMON_HEADERS)]
    return "\n".join([*parts, fill("sumfac_warp/sumfac_warp.h", own)])


class SumFacWarpKernel(TreeKernel):
    """Derivatives along two directions on tensor cores, along the third in registers.

    Parameters
    ----------
    problem : BlockProblem
        With the source of factors that the options name.
    options : SumFacWarpOptions
    """

    def __init__(self, problem: BlockProblem, options: SumFacWarpOptions) -> None:
        levels, block = Levels.plain(problem.tabulation), (options.elements, options.threads)
        own = source(problem, options)
        super().__init__(problem, "sumfac-warp", levels, own, 1, (*block, shared_bytes(problem, options)))


def _default(problem: BlockProblem) -> SumFacWarpOptions:
    """The measured options, if there are some, with a source of factors that there is."""
    row = known_row(problem, "sumfac-warp")
    known = SumFacWarpOptions() if row is None else text.from_text(SumFacWarpOptions, row[1])
    return replace(known, source=nearest_source(problem, known.source))


def _search(problem: BlockProblem) -> Generator[list[SumFacWarpOptions], Mapping[SumFacWarpOptions, float], None]:
    """Sources of factors and warps of a multiprocessor, then blocks of other sizes, and asking for factors."""
    first = list[SumFacWarpOptions]()
    for source in possible_sources(problem):
        first += [SumFacWarpOptions(min_blocks=blocks, source=source) for blocks in MIN_BLOCKS]
    timed = yield list(dict.fromkeys([_default(problem), *first]))
    best = min(timed, key=lambda options: timed[options])
    warps = best.elements * best.min_blocks
    near = [replace(best, elements=e, min_blocks=warps // e) for e in ELEMENTS if e <= warps]
    if not (
        problem.geometry.affine or best.source is FactorSource.RECOMPUTED
    ):  # otherwise factors are not read at the points
        near.append(replace(best, l2=not best.l2))
    yield [options for options in near if options not in timed]


class CudaSumFacWarp(Strategy):
    """Sum factorisation, a warp for each element, on FP64 tensor cores ([Cao] Alg. 5): values at 8 x 8 x 8 points."""

    name, special, tensor = "sumfac-warp", True, True

    def default(self, problem: BlockProblem) -> Options:
        """The measured options, else three blocks of four warps; see `Strategy.default`."""
        check_sumfac_warp(problem)
        return text.to_text(_default(problem))

    def measured(self, problem: BlockProblem) -> str | None:
        """Speed in the shipped table; see `Strategy.measured`."""
        return shipped_rate(problem, self.name)

    def search(self, problem: BlockProblem) -> Search:
        """Sources of factors, then sizes of blocks; see `Strategy.search`."""
        check_sumfac_warp(problem)
        yield from text.search_in_text(_search(problem), SumFacWarpOptions)

    def _plan(self, problem: BlockProblem, options: Options) -> tuple[BlockProblem, SumFacWarpOptions]:
        """The problem with the source of factors that options name, and the options, if a block of theirs fits."""
        check_sumfac_warp(problem)
        own = _default(problem) if options is None else text.from_text(SumFacWarpOptions, options)
        most = limits()
        if own.threads * own.min_blocks < 1 or most.too_many(own.threads, own.min_blocks):
            raise NotSuitable(f"{own.min_blocks} blocks of {own.elements} warps do not fit a multiprocessor")
        if (missing := most.shared_misfit(shared_bytes(problem, own), own.min_blocks)) is not None:
            raise NotSuitable(missing)
        return of_source(problem, own.source), own

    def prepare(self, problem: BlockProblem, options: Options = None) -> Future[Any]:
        """Begin to compile into the cache; see `Strategy.prepare`."""
        return start(program(source(*self._plan(problem, options))), architecture())

    def build(self, problem: BlockProblem, options: Options = None) -> SumFacWarpKernel:
        """Build the kernel; see `Strategy.build`."""
        return SumFacWarpKernel(*self._plan(problem, options))

    def cost(self, problem: BlockProblem) -> float:
        """Expected time per element in nanoseconds; others go first if unmeasured; see `Strategy.cost`."""
        return inf if known_row(problem, self.name) is None else expected_time(problem, self.name)
