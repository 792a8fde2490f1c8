"""Strategy "stdmat" of backend "cuda": dense reference matrices through cuBLAS."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import numpy as np

from ....errors import NotSuitable
from ....forms.cost import operator_bytes, operator_flops
from ....forms.form import BlockProblem
from ...strategy import Options, Strategy, with_source
from ..codegen.prelude import COMMON_HEADERS, constants, fill, header, program
from ..codegen.tables import Levels
from ..runtime.cublas import handle, multiply
from ..runtime.device import architecture, upload
from ..runtime.kernel import CudaKernel
from ..runtime.measured import BYTES, DENSE_FLOPS
from ..runtime.nvrtc import start
from ..runtime.scratch import StreamPool

THREADS = 256
# Largest scratch of StdMat in bytes; more elements are computed in parts.
SCRATCH_BYTES = 4 << 30


def slots(problem: BlockProblem) -> tuple[int, int]:
    """Values and derivatives of a component at a point between two products; no value if only derivatives are used."""
    form = problem.form
    used = not form.gradients or form.trial_value or form.test_value or problem.collocated or not form.trace
    return int(used), problem.shape.dim * form.gradients


def source(problem: BlockProblem, levels: Levels, name: str = "stdmat") -> str:
    """Source of the kernel, `language.h` apart."""
    own = fill("stdmat/stdmat.h", {"THREADS": THREADS, "VALUES": slots(problem)[0], "N_SLOTS": sum(slots(problem))})
    return "\n".join([constants(problem, levels, name), *map(header, COMMON_HEADERS), own])


def _has_points(problem: BlockProblem) -> bool:
    """Whether something happens at the points; evaluation alone is a product."""
    return problem.form.trace is not None or problem.form.factor_kind is not None


class StdMatKernel(CudaKernel):
    """Dense reference matrices: one GEMM for all elements, the pointwise part, one GEMM back ([Xing] Alg. 1, 2)."""

    def __init__(self, problem: BlockProblem) -> None:
        super().__init__(problem, "stdmat", Levels.plain(problem.tabulation, lines=True))
        self._scratch: StreamPool[tuple[Any, Any]] = StreamPool()
        form, tabulation, dtype = problem.form, problem.tabulation, problem.dtype
        values, derivatives = slots(problem)
        self.slots = values + derivatives
        chain = [tabulation.dense]  # matrices from the modes [n_modes, Q], or the points, to the slots
        if derivatives and problem.collocated:
            lines = np.concatenate([np.eye(len(tabulation.rule)), *tabulation.dense_differentiation])
            chain = [*(chain if form.from_modes or form.to_modes else []), lines.T]
        elif derivatives:
            chain = [np.concatenate([*chain[:values], *tabulation.dense_gradient], axis=1)]
        self._two = len(chain) > 1
        self.forward = [upload(np.ascontiguousarray(m, dtype)) for m in chain]
        handle()
        self.back = [upload(np.ascontiguousarray(m.T, dtype)) for m in reversed(chain)]
        self.factors, self.points = self._layouts(1)
        # Numbers of scratch per element: the slots of all components that go together, and values between two products.
        self.most = max(form.components, problem.given * form.to_modes)
        per_element = problem.n_points * self.most * (self.slots + self._two)
        most = max(1, SCRATCH_BYTES // (per_element * dtype.itemsize))
        parts = max(1, -(-problem.n_elements // most))
        self.chunk = -(-problem.n_elements // parts)
        if _has_points(problem):
            self._compile(source(problem, self.levels), "stdmat", 0)
            self._scratch.give(self._scratch.take(self._new_scratch))

    def _new_scratch(self) -> tuple[Any, Any]:
        """Slots of a part of the elements, and values between two products."""
        n, points, dtype = self.most, self.problem.n_points, self.problem.dtype
        work = self.device.empty((n, self.chunk, self.slots * points), dtype)
        return work, self.device.empty((n, self.chunk, points), dtype) if self._two else None

    def apply(self, source: Any, out: Any) -> None:
        """Apply to one block of a field; see `BlockKernel.apply`."""
        p = self.problem
        if not _has_points(p):
            multiply(source, self.forward[0], out)
            return
        scratch = self._scratch.take(self._new_scratch)
        try:
            for batch in range(len(source) // p.coupled):
                given = source[batch * p.coupled : (batch + 1) * p.coupled]
                wanted = out[batch * p.given : (batch + 1) * p.given]
                for first in range(0, p.n_elements, self.chunk):
                    self._part(given, wanted, first, min(self.chunk, p.n_elements - first), scratch)
        finally:
            self._scratch.give(scratch)

    def arrays(self) -> list[tuple[str, Any]]:
        """The dense matrices, and what is between two products; see `CudaKernel.arrays`."""
        matrices = [("matrices", array) for array in (*self.forward, *self.back)]
        return [*matrices, *(("scratch", array) for arrays in list(self._scratch.made) for array in arrays)]

    def _part(self, given: Any, wanted: Any, first: int, n: int, scratch: tuple[Any, Any]) -> None:
        p = self.problem
        if not n:
            return
        components = self.most
        # One component after the other: of a part of the elements, only they are side by side in memory.
        work = scratch[0].ravel()[: components * n * self.slots * p.n_points].reshape(components, n, -1)
        between: list[list[Any]] = [[] for _ in range(components)]
        if self._two:
            values = scratch[1].ravel()[: components * n * p.n_points].reshape(components, n, -1)
            between = [[own] for own in values]
        if p.form.from_modes or p.form.trial_gradient:
            for c in range(p.form.components):
                _multiply_in_turn([given[c, first : first + n], *between[c], work[c]], self.forward)
        sizes = (np.int64(number) for number in (p.n_elements, first, n))
        arrays = given, wanted, work, self.factors, self.points
        self.function((-(-n * p.n_points // THREADS),), (THREADS,), (*sizes, *arrays, *self._extra))
        if p.form.to_modes:
            for c in range(p.given):
                _multiply_in_turn([work[c], *between[c], wanted[c, first : first + n]], self.back)


def _multiply_in_turn(arrays: list[Any], matrices: list[Any]) -> None:
    """Each array is the one before it times a matrix."""
    for before, matrix, after in zip(arrays, matrices, arrays[1:]):
        multiply(before, matrix, after)


# Larger matrices of StdMat take longer to make than they save.
MATRIX_BYTES = 1 << 28


class CudaStdMat(Strategy):
    """Dense reference matrices and cuBLAS, all elements in one GEMM."""

    name, special = "stdmat", False

    def _checked(self, problem: BlockProblem, options: Options) -> BlockProblem:
        problem = with_source(self, problem, options)
        size = problem.n_points * max(problem.n_modes, problem.n_points) * (1 + problem.shape.dim) * 8
        if size > MATRIX_BYTES:
            raise NotSuitable(f"its matrices take {size / 1e6:.0f} MB, the limit is {MATRIX_BYTES / 1e6:.0f} MB")
        return problem

    def prepare(self, problem: BlockProblem, options: Options = None) -> Future[Any] | None:
        """Begin to compile the pointwise part into the cache; see `Strategy.prepare`."""
        problem = self._checked(problem, options)
        text = program(source(problem, Levels.plain(problem.tabulation, lines=True)))
        return start(text, architecture()) if _has_points(problem) else None

    def build(self, problem: BlockProblem, options: Options = None) -> StdMatKernel:
        """Build the kernel; see `Strategy.build`."""
        return StdMatKernel(self._checked(problem, options))

    def cost(self, problem: BlockProblem) -> float:
        """Expected time per element in nanoseconds, work arrays moved four times, or twice; see `Strategy.cost`."""
        moved = 4 * (1 + problem.shape.dim)
        if problem.form.trace is not None and not problem.form.to_modes:  # a product to the points, none from there
            moved = 2 * sum(slots(problem))
        traffic = (operator_bytes(problem) + 8 * problem.n_points * moved) / BYTES
        return traffic + operator_flops(problem, "stdmat") / DENSE_FLOPS
