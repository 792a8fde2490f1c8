"""Strategy "sumfac" of backend "cuda": one element per thread."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from ....errors import NotSuitable
from ....forms.form import BlockProblem
from ....forms.sources import nearest_source, of_source
from ....geometry import FactorSource
from ...options import source_in
from ...strategy import Options, Strategy, with_source
from ..codegen.prelude import COMMON_HEADERS, constants, fill, header, program
from ..codegen.tables import Levels
from ..runtime.device import architecture
from ..runtime.measured import expected_time, known_rate, known_row, shipped_rate
from ..runtime.nvrtc import start
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
    if form.components > 1:
        raise NotSuitable("one element per thread couples no components")
    numbers = levels.n_modes * (1 + levels.trivial)
    numbers += levels.n_nodes * (4 if dim > 2 and form.gradients else 2)
    numbers += 2 * levels.n_rows * (dim if form.gradients else 1)
    numbers = numbers * problem.dtype.itemsize // 8
    if problem.n_points > POINTS:
        raise NotSuitable(f"one element has {problem.n_points} points, {POINTS} are unrolled in a thread's registers")
    if numbers > NUMBERS and not spilling:
        raise NotSuitable(f"one element needs {numbers} numbers in a thread's registers, {NUMBERS} fit")


def shared_bytes(problem: BlockProblem) -> int:
    """Count the shared memory of a block: its coefficients."""
    return THREADS * (problem.n_modes | 1) * problem.dtype.itemsize


def source(problem: BlockProblem, levels: Levels, name: str = "sumfac") -> str:
    """Source of the kernel, `language.h` apart."""
    own = fill("sumfac/sumfac.h", {"THREADS": THREADS, "GROUP": GROUP})
    return "\n".join([constants(problem, levels, name, GROUP), *map(header, COMMON_HEADERS), own])


class SumFacKernel(TreeKernel):
    """Sum factorisation with one element per thread, in registers ([Xing] Alg. 3): for small orders.

    Parameters
    ----------
    problem : BlockProblem
    spilling : bool
        See `check_sumfac`.

    Raises
    ------
    NotSuitable
        As `check_sumfac`.
    """

    def __init__(self, problem: BlockProblem, spilling: bool = False) -> None:
        levels = Levels.plain(problem.tabulation)
        check_sumfac(problem, levels, spilling)
        block = THREADS, THREADS, shared_bytes(problem)
        super().__init__(problem, "sumfac", levels, source(problem, levels), GROUP, block)


class CudaSumFac(Strategy):
    """Sum factorisation, one element per thread ([Xing] Alg. 3): small orders only."""

    name, special, tensor, sources = "sumfac", True, True, tuple(FactorSource)

    def default(self, problem: BlockProblem) -> Options:
        """Where factors from another source were measured to be faster, that; see `Strategy.default`."""
        row = known_row(problem, self.name)
        source = nearest_source(problem, source_in("" if row is None else row[1]))
        return None if source is FactorSource.STORED else source.value

    def measured(self, problem: BlockProblem) -> str | None:
        """Speed in the shipped table; see `Strategy.measured`."""
        return shipped_rate(problem, self.name)

    def prepare(self, problem: BlockProblem, options: Options = None) -> Future[Any]:
        """Begin to compile into the cache; see `Strategy.prepare`."""
        problem, spilling = self._of_options(problem, options)
        levels = Levels.plain(problem.tabulation)
        check_sumfac(problem, levels, spilling)
        return start(program(source(problem, levels)), architecture())

    def build(self, problem: BlockProblem, options: Options = None) -> SumFacKernel:
        """Build the kernel; see `Strategy.build`."""
        return SumFacKernel(*self._of_options(problem, options))

    def _of_options(self, problem: BlockProblem, options: Options) -> tuple[BlockProblem, bool]:
        """The problem with the source of factors that the options name, and whether an element may spill."""
        if options == SPILLING:
            return of_source(problem, FactorSource.STORED), True
        return with_source(self, problem, options), False

    def cost(self, problem: BlockProblem) -> float:
        """Expected time per element in nanoseconds; others go first if unmeasured; see `Strategy.cost`."""
        unmeasured = known_rate(problem, self.name) is None
        return (3.0 if unmeasured else 1.0) * expected_time(problem, self.name)
