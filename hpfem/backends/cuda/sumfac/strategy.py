"""Strategy "sumfac" of backend "cuda": one element per thread."""

from __future__ import annotations

from ....errors import NotSuitable
from ....forms.form import BlockProblem
from ....forms.sources import nearest_source, of_source
from ....geometry import FactorSource
from ...options import source_in
from ...strategy import Options, with_source
from ..codegen.prelude import COMMON_HEADERS, constants, fill, header
from ..codegen.tables import Levels
from ..runtime.measured import known_row
from ..runtime.planned import CudaStrategy
from ..runtime.tree_kernel import TreeKernel

# Threads, and so elements, of a block, and elements whose factors are stored side by side: a warp's.
THREADS, GROUP = 64, 32
# Numbers of 8 bytes that a thread may keep in registers, and points of an element whose loops are unrolled.
NUMBERS, POINTS = 90, 150
# The option that allows more numbers per element than registers: the rest is spilled to memory. Never a default.
SPILLING = "spilling"


def check_sumfac(problem: BlockProblem, levels: Levels, spilling: bool = False) -> None:
    """Say why a problem is not one for the kernel."""
    form, dim = problem.form, problem.shape.dim
    if form.gradients and problem.collocated:
        raise NotSuitable("one element per thread is noncollocated; use algorithm='noncollocated'")
    if form.components > 1 or (form.trace is not None and problem.given > 1):
        raise NotSuitable("one element per thread couples no components")
    numbers = levels.n_modes * (1 + levels.trivial)
    numbers += levels.n_nodes * (4 if dim > 2 and form.gradients else 2)
    numbers += 2 * levels.n_rows * (dim if form.gradients else 1)
    numbers = numbers * problem.dtype.itemsize // 8
    if problem.n_points > POINTS:
        raise NotSuitable(f"one element has {problem.n_points} points, {POINTS} are unrolled in a thread's registers")
    if numbers > NUMBERS and not spilling:
        raise NotSuitable(f"one element needs {numbers} numbers in a thread's registers, {NUMBERS} fit")


class SumFacPlan:
    """The kernel of a problem; an element may spill its numbers to memory if that is asked for."""

    threads, elements, group = THREADS, THREADS, GROUP

    def __init__(self, problem: BlockProblem, spilling: bool = False) -> None:
        self.problem, self.levels = problem, Levels.plain(problem.tabulation)
        check_sumfac(problem, self.levels, spilling)
        self.shared_bytes = THREADS * (problem.n_modes | 1) * problem.dtype.itemsize  # the coefficients

    def source(self, name: str = "sumfac") -> str:
        """Source of the kernel, `language.h` apart."""
        own = fill("sumfac/sumfac.h", {"THREADS": THREADS, "GROUP": GROUP})
        return "\n".join([constants(self.problem, self.levels, name, GROUP), *map(header, COMMON_HEADERS), own])


class CudaSumFac(CudaStrategy):
    """Sum factorisation, one element per thread ([Xing] Alg. 3): small orders only."""

    name, special, tensor, sources = "sumfac", True, True, tuple(FactorSource)
    kernel = TreeKernel

    def default(self, problem: BlockProblem) -> Options:
        """Where factors from another source were measured to be faster, that; see `Strategy.default`."""
        check_sumfac(problem, Levels.plain(problem.tabulation))
        row = known_row(problem, self.name)
        source = nearest_source(problem, source_in("" if row is None else row[1]))
        return None if source is FactorSource.STORED else source.value

    def plan(self, problem: BlockProblem, options: Options) -> SumFacPlan:
        """Plan with the source of factors that options name; an element may spill if they say so."""
        if options == SPILLING:
            return SumFacPlan(of_source(problem, FactorSource.STORED), True)
        return SumFacPlan(with_source(self, problem, options))

    def cost(self, problem: BlockProblem) -> float:
        """Expected time per element in nanoseconds; others go first if unmeasured; see `Strategy.cost`."""
        return (3.0 if known_row(problem, self.name) is None else 1.0) * super().cost(problem)
