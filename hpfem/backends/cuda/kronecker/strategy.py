"""Strategy "kronecker" of backend "cuda": sparse one-dimensional matrices of affine hexes and quads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from math import inf
from typing import Any

import numpy as np

from hpfem.shapes.arrays import Array

from ....errors import NotSuitable
from ....forms.form import BlockProblem
from ....forms.kronecker import check_kronecker, functions_of, kronecker_flops, matrices_of_directions
from ..codegen.prelude import COMMON_HEADERS, constants, fill, header
from ..codegen.tables import Levels
from ..runtime.device import Limits
from ..runtime.planned import ChoosingStrategy, Rounds
from ..runtime.tree_kernel import TreeKernel

# Threads of a block and of a multiprocessor that are tried, the default first.
BLOCK_THREADS, THREADS = (128, 64, 256), (512, 768, 1024, 384)


@dataclass(frozen=True)
class KroneckerOptions:
    """Free choices of the kernel."""

    elements: int  # per block of threads
    min_blocks: int = 1  # per multiprocessor, that registers have to leave room for


def rows(of: Array) -> str:
    """Write products of matrices' rows with a line of coefficients, without zeros; of [dim, 1 or 4, N, N]."""
    lines = []
    for d, ab, m in np.ndindex(of.shape[:3]):
        row = of[d, ab, m].tolist()
        terms = [f"real({row[n]!r}) * x[{n}]" for n in np.flatnonzero(row)]
        total = " + ".join(terms or ["real(0)"])
        lines.append(f"template <> HPFEM_DEVICE real times<{d}, {ab}, {m}>(const real (&x)[N]) {{ return {total}; }}")
    return "\n".join(lines)


class KroneckerPlan:
    """Sizes of the kernel for a problem and options."""

    def __init__(self, problem: BlockProblem, options: KroneckerOptions) -> None:
        self.problem, self.options, self.elements = problem, options, options.elements
        self.levels, self.group = Levels.plain(problem.tabulation), 1
        # Functions of each direction, lines of an element along one, and lines that are handed on for each of these.
        self.functions = functions_of(problem)
        self.lines = problem.n_modes // self.functions
        self.arrays = 4 if problem.form.test_gradient else 1
        self.threads = -(-options.elements * self.lines // 32) * 32
        numbers = self.arrays * options.elements * self.lines * (self.functions | 1)
        self.shared_bytes = numbers * problem.dtype.itemsize

    def misfit(self, limits: Limits) -> str | None:
        """Say why the kernel does not fit a device."""
        blocks = self.options.min_blocks
        if min(self.elements, blocks) < 1 or self.threads > limits.threads:
            return f"{self.options.elements} elements of {self.lines} lines in {blocks} blocks"
        if limits.too_many(self.threads, blocks):
            return f"{blocks} blocks of {self.threads} threads do not fit a multiprocessor"
        return limits.shared_misfit(self.shared_bytes, blocks)

    def source(self, name: str = "kronecker") -> str:
        """Source of the kernel, `language.h` apart."""
        tabulation, gradient = self.problem.tabulation, self.problem.form.test_gradient
        own = {"E": self.elements, "N": self.functions, "rows": rows(matrices_of_directions(tabulation, gradient))}
        parts = [constants(self.problem, self.levels, name), *map(header, COMMON_HEADERS)]
        return "\n".join([*parts, header("codegen/linear.h"), fill("kronecker/kronecker.h", own, self, self.options)])


class CudaKronecker(ChoosingStrategy):
    """Sparse one-dimensional matrices of affine hexes and quads; linear forms with constant coefficients."""

    name, special, tensor = "kronecker", True, True
    options, sizes, kernel = KroneckerOptions, KroneckerPlan, TreeKernel
    bandwidth, speed, checks = 2000.0, 12000.0, (check_kronecker,)

    def fitting(self, problem: BlockProblem, limits: Limits) -> list[KroneckerOptions]:
        """Options that fit, those of blocks of about 128 threads first."""
        lines = problem.n_modes // functions_of(problem)
        found = []
        for all_of, threads in product(THREADS, BLOCK_THREADS):
            elements = max(1, threads // lines)
            options = KroneckerOptions(elements, max(1, all_of // (-(-elements * lines // 32) * 32)))
            if KroneckerPlan(problem, options).misfit(limits) is None:
                found.append(options)
        if not found:
            raise NotSuitable("one element does not fit a block")
        return list(dict.fromkeys(found))

    def rounds(self, problem: BlockProblem, limits: Limits, default: Any) -> Rounds:
        """Sizes of blocks, then more or fewer of the fastest ones on a multiprocessor."""
        timed = yield list(dict.fromkeys([default, *self.fitting(problem, limits)]))
        best = min(timed, key=lambda options: timed[options])
        near = [replace(best, min_blocks=best.min_blocks + more) for more in (-2, -1, 1, 2)]
        near += [replace(best, elements=best.elements + more) for more in (-1, 1)]
        yield [v for v in near if v not in timed and KroneckerPlan(problem, v).misfit(limits) is None]

    def flops(self, problem: BlockProblem) -> float:
        """Of entries that are not zero."""
        return float(kronecker_flops(problem))

    def cost(self, problem: BlockProblem) -> float:
        """Expected time per element in nanoseconds, if it serves; see `Strategy.cost`."""
        try:
            return super().cost(self.checked(problem))
        except NotSuitable:
            return inf
