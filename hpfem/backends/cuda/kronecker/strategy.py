"""Strategy "kronecker" of backend "cuda": sparse one-dimensional matrices of affine hexes and quads."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from itertools import product
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....errors import NotSuitable
from ....forms.form import BlockProblem
from ....forms.kronecker import check_kronecker, functions_of, kronecker_flops, matrices_of_directions
from ... import options as text
from ...strategy import Options, Search, Strategy
from ..codegen.prelude import COMMON_HEADERS, constants, fill, header, program
from ..codegen.tables import Levels
from ..runtime.device import architecture, limits
from ..runtime.measured import expected_time, known_row, shipped_rate
from ..runtime.nvrtc import start
from ..runtime.tree_kernel import TreeKernel

Array = NDArray[np.float64]

# Threads of a block and of a multiprocessor that are tried, the default first.
BLOCK_THREADS, THREADS = (128, 64, 256), (512, 768, 1024, 384)
# Assumed bytes and operations per nanosecond of kernels without a measurement.
BYTES, FLOPS = 2000.0, 12000.0


@dataclass(frozen=True)
class KroneckerOptions:
    """Free choices of the kernel.

    Attributes
    ----------
    elements : int
        Per block of threads.
    min_blocks : int
        Blocks per multiprocessor that registers have to leave room for.
    """

    elements: int
    min_blocks: int = 1


def rows(of: Array) -> str:
    """Write the products of the matrices' rows with a line of coefficients, without terms that are zero; of
    [dim, 1 or 4, N, N].
    """
    lines = []
    for d, ab, m in np.ndindex(of.shape[:3]):
        row = of[d, ab, m].tolist()
        terms = [f"real({row[n]!r}) * x[{n}]" for n in np.flatnonzero(row)]
        total = " + ".join(terms or ["real(0)"])
        lines.append(f"template <> HPFEM_DEVICE real times<{d}, {ab}, {m}>(const real (&x)[N]) {{ return {total}; }}")
    return "\n".join(lines)


class KroneckerPlan:
    """Sizes of the kernel for a problem and options.

    Attributes
    ----------
    problem : BlockProblem
    options : KroneckerOptions
    functions, lines : int
        Of each direction, and lines of an element along one.
    arrays : int
        Lines of numbers that are handed on for each line of coefficients.
    threads, shared_bytes : int
        Of a block.
    """

    def __init__(self, problem: BlockProblem, options: KroneckerOptions) -> None:
        self.problem, self.options = problem, options
        self.functions = functions_of(problem)
        self.lines = problem.n_modes // self.functions
        self.arrays = 4 if problem.form.test_gradient else 1
        self.threads = -(-options.elements * self.lines // 32) * 32
        numbers = self.arrays * options.elements * self.lines * (self.functions | 1)
        self.shared_bytes = numbers * problem.dtype.itemsize

    def misfit(self) -> str | None:
        """Say why the kernel does not fit the device."""
        most, blocks = limits(), self.options.min_blocks
        if min(self.options.elements, blocks) < 1 or self.threads > most.threads:
            return f"{self.options.elements} elements of {self.lines} lines in {blocks} blocks"
        if most.too_many(self.threads, blocks):
            return f"{blocks} blocks of {self.threads} threads do not fit a multiprocessor"
        return most.shared_misfit(self.shared_bytes, blocks)

    def source(self, name: str = "kronecker") -> str:
        """Source of the kernel, `language.h` apart."""
        tabulation, form = self.problem.tabulation, self.problem.form
        own = {
            "E": self.options.elements,
            "MIN_BLOCKS": self.options.min_blocks,
            "THREADS": self.threads,
            "N": self.functions,
            "rows": rows(matrices_of_directions(tabulation, form.test_gradient)),
        }
        parts = [constants(self.problem, Levels.plain(tabulation), name), *map(header, COMMON_HEADERS)]
        return "\n".join([*parts, header("codegen/linear.h"), fill("kronecker/kronecker.h", own)])


class KroneckerKernel(TreeKernel):
    """Lines of coefficients times sparse matrices, one direction after the other.

    Parameters
    ----------
    layout : KroneckerPlan
    """

    def __init__(self, layout: KroneckerPlan) -> None:
        block = layout.options.elements, layout.threads, layout.shared_bytes
        levels = Levels.plain(layout.problem.tabulation)
        super().__init__(layout.problem, "kronecker", levels, layout.source(), 1, block)


def _candidates(problem: BlockProblem) -> list[KroneckerOptions]:
    """Options that fit the device, the default first."""
    lines = problem.n_modes // functions_of(problem)
    found = []
    for all_of, threads in product(THREADS, BLOCK_THREADS):
        elements = max(1, threads // lines)
        options = KroneckerOptions(elements, max(1, all_of // (-(-elements * lines // 32) * 32)))
        if KroneckerPlan(problem, options).misfit() is None:
            found.append(options)
    if not found:
        raise NotSuitable("one element does not fit a block")
    return list(dict.fromkeys(found))


def _default(problem: BlockProblem) -> KroneckerOptions:
    """The measured options if they fit, else the first of the candidates."""
    row = known_row(problem, "kronecker")
    if row is not None:
        known = text.from_text(KroneckerOptions, row[1])
        if KroneckerPlan(problem, known).misfit() is None:
            return known
    return _candidates(problem)[0]


def _search(problem: BlockProblem) -> Generator[list[KroneckerOptions], Mapping[KroneckerOptions, float], None]:
    """Sizes of blocks, then more or fewer of the fastest ones on a multiprocessor."""
    timed = yield list(dict.fromkeys([_default(problem), *_candidates(problem)]))
    best = min(timed, key=lambda options: timed[options])
    near = [replace(best, min_blocks=best.min_blocks + more) for more in (-2, -1, 1, 2)]
    near += [replace(best, elements=best.elements + more) for more in (-1, 1)]
    yield [options for options in near if options not in timed and KroneckerPlan(problem, options).misfit() is None]


class CudaKronecker(Strategy):
    """Sparse one-dimensional matrices of affine hexes and quads; linear forms with constant coefficients."""

    name, special, tensor = "kronecker", True, True

    def default(self, problem: BlockProblem) -> Options:
        """The measured options, if they fit, else blocks of about 128 threads; see `Strategy.default`."""
        check_kronecker(problem)
        return text.to_text(_default(problem))

    def measured(self, problem: BlockProblem) -> str | None:
        """Speed in the shipped table; see `Strategy.measured`."""
        return shipped_rate(problem, self.name)

    def search(self, problem: BlockProblem) -> Search:
        """Sizes of blocks, then the neighbours of the fastest; see `Strategy.search`."""
        check_kronecker(problem)
        yield from text.search_in_text(_search(problem), KroneckerOptions)

    def _plan(self, problem: BlockProblem, options: Options) -> KroneckerPlan:
        check_kronecker(problem)
        own = _default(problem) if options is None else text.from_text(KroneckerOptions, options)
        plan = KroneckerPlan(problem, own)
        if (why := plan.misfit()) is not None:
            raise NotSuitable(f"one-dimensional matrices: {why}")
        return plan

    def prepare(self, problem: BlockProblem, options: Options = None) -> Future[Any]:
        """Begin to compile into the cache; see `Strategy.prepare`."""
        return start(program(self._plan(problem, options).source()), architecture())

    def build(self, problem: BlockProblem, options: Options = None) -> KroneckerKernel:
        """Build the kernel, if elements are affine products of lines and the form is linear; see `Strategy.build`."""
        return KroneckerKernel(self._plan(problem, options))

    def cost(self, problem: BlockProblem) -> float:
        """Expected time per element in nanoseconds: measured, or by a model; see `Strategy.cost`."""
        try:
            check_kronecker(problem)
        except NotSuitable:
            return inf
        return expected_time(problem, self.name, float(kronecker_flops(problem)), BYTES, FLOPS)
