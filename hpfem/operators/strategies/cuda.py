"""The CUDA backend and its strategies."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from ...backend import BACKENDS, Backend
from ...errors import NotSuitable
from ...kernels import variants as text
from ...kernels.cuda import variant as fiber
from ...kernels.cuda.device import architecture, current_device, limits, missing
from ...kernels.cuda.kernel import FiberKernel, LaneKernel, StdMatKernel, held
from ...kernels.cuda.measured import known_rate
from ...kernels.cuda.nvrtc import start
from ...kernels.cuda.prelude import fiber_source, lane_source, program
from ...kernels.cuda.search import MOST, first_variants, search
from ...kernels.cuda.tables import Levels
from ...kernels.form import BlockProblem
from ...kernels.models import operator_bytes, operator_flops
from .provider import Search, Strategy, Variant, no_variants

# Matrices of StdMat that are larger take longer to make than they are worth.
STDMAT_BYTES = 1 << 28

# Bytes and operations per nanosecond that kernels nobody has measured are taken to reach, and cuBLAS.
BYTES, FLOPS, DENSE_FLOPS = 3000.0, 8000.0, 25000.0

BACKENDS.add("cuda", Backend("cuda", current_device, missing, held))


def expected_time(problem: BlockProblem, strategy: str) -> float:
    """Time of a sum-factorised kernel per element in nanoseconds: measured (variants.json), or by a model."""
    rate = known_rate(problem, strategy)
    if rate is not None:
        return problem.n_modes / rate
    return max(operator_bytes(problem) / BYTES, operator_flops(problem, "sumfac") / FLOPS)


def shipped_rate(problem: BlockProblem, strategy: str) -> str | None:
    """Measured speed that the package ships for a problem; None if it was not measured."""
    rate = known_rate(problem, strategy)
    return None if rate is None else f"{rate} GDoF/s on an H200"


class CudaSumFacTop(Strategy):
    """Sum factorisation, some elements per block of threads ([X] Alg. 4), 1-D lines in registers."""

    name, backend, special = "sumfac-top", "cuda", False

    def default(self, problem: BlockProblem) -> Variant:
        """The measured variant, if there is one and it fits, else the model's best number of elements per block."""
        return text.to_text(fiber.default_variant(problem, Levels.of(problem.tabulation), limits()))

    def measured(self, problem: BlockProblem) -> str | None:
        """Speed in the shipped table."""
        return shipped_rate(problem, self.name)

    def variants(self, problem: BlockProblem) -> Sequence[Variant]:
        """The measured variant, if there is one, and numbers of elements per block in the model's order.

        Raises
        ------
        NotSuitable
            If one element does not fit a block.
        """
        found = first_variants(problem, Levels.of(problem.tabulation), limits(), MOST, table=True)
        return [text.to_text(variant) for variant in found]

    def search(self, problem: BlockProblem) -> Search:
        """Elements per block, then options one by one, then those that helped together."""
        rounds = search(problem, Levels.of(problem.tabulation), limits())
        yield from text.search_in_text(rounds, fiber.Variant)

    def _plan(self, problem: BlockProblem, variant: Variant) -> fiber.FiberPlan:
        levels = Levels.of(problem.tabulation)
        if variant is None:
            return fiber.plan(problem, levels, fiber.default_variant(problem, levels, limits()))
        return fiber.checked_plan(problem, levels, text.from_text(fiber.Variant, variant), limits())

    def prepare(self, problem: BlockProblem, variant: Variant = None) -> Future[Any]:
        """Begin to compile into the cache."""
        source = fiber_source(problem, Levels.of(problem.tabulation), self._plan(problem, variant))
        return start(program(source), architecture())

    def build(self, problem: BlockProblem, variant: Variant = None) -> FiberKernel:
        """Build the kernel.

        Raises
        ------
        NotSuitable
            If one element, or those of the variant, do not fit a block.
        """
        return FiberKernel(problem, self._plan(problem, variant))

    def cost(self, problem: BlockProblem) -> float:
        """Expected time per element in nanoseconds."""
        return expected_time(problem, self.name)


class CudaSumFac(Strategy):
    """Sum factorisation, one element per thread ([X] Alg. 3): small orders only."""

    name, backend, special = "sumfac", "cuda", True

    def measured(self, problem: BlockProblem) -> str | None:
        """Speed in the shipped table."""
        return shipped_rate(problem, self.name)

    def prepare(self, problem: BlockProblem, variant: Variant = None) -> Future[Any]:
        """Begin to compile into the cache."""
        no_variants(self, variant)
        levels = Levels.plain(problem.tabulation)
        source = lane_source(problem, levels, fiber.lane_plan(problem, levels))
        return start(program(source), architecture())

    def build(self, problem: BlockProblem, variant: Variant = None) -> LaneKernel:
        """Build the kernel.

        Raises
        ------
        NotSuitable
            If an element does not fit a thread's registers, or the algorithm is collocated.
        """
        no_variants(self, variant)
        return LaneKernel(problem)

    def cost(self, problem: BlockProblem) -> float:
        """Expected time per element in nanoseconds; unmeasured, other strategies go first."""
        unmeasured = known_rate(problem, self.name) is None
        return (3.0 if unmeasured else 1.0) * expected_time(problem, self.name)


class CudaStdMat(Strategy):
    """Dense reference matrices and cuBLAS, all elements in one GEMM."""

    name, backend, special = "stdmat", "cuda", False

    def build(self, problem: BlockProblem, variant: Variant = None) -> StdMatKernel:
        """Build the kernel.

        Raises
        ------
        NotSuitable
            If its matrices are too large.
        """
        no_variants(self, variant)
        size = problem.n_points * max(problem.n_modes, problem.n_points) * (1 + problem.shape.dim) * 8
        if size > STDMAT_BYTES:
            raise NotSuitable(f"its matrices take {size / 1e6:.0f} MB, the limit is {STDMAT_BYTES / 1e6:.0f} MB")
        return StdMatKernel(problem)

    def cost(self, problem: BlockProblem) -> float:
        """Expected time per element in nanoseconds: the work arrays go through memory four times."""
        slots = 8 * problem.n_points * (1 + problem.shape.dim)
        traffic = (operator_bytes(problem) + 4 * slots) / BYTES
        return traffic + operator_flops(problem, "stdmat") / DENSE_FLOPS
