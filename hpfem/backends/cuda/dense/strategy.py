"""Strategy "dense" of backend "cuda": matrices of affine elements on FP64 tensor cores."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from ....forms.form import BlockProblem
from ... import options as text
from ...strategy import Options, Search, Strategy
from ..runtime.device import architecture, limits
from ..runtime.measured import expected_time, shipped_rate
from ..runtime.nvrtc import start
from .kernel import DenseKernel
from .plan import DenseOptions, DensePlan, checked_plan
from .search import default_options, search

# Bytes and operations per nanosecond that kernels nobody has measured are taken to reach.
BYTES, FLOPS = 2500.0, 25000.0


class CudaDense(Strategy):
    """Dense matrices that an affine element's geometric factors multiply; linear forms with constant coefficients."""

    name, special = "dense", True

    def default(self, problem: BlockProblem) -> Options:
        """The measured options, if there are some and they fit, else the model's best; see `Strategy.default`."""
        return text.to_text(default_options(problem, limits()))

    def measured(self, problem: BlockProblem) -> str | None:
        """Speed in the shipped table; see `Strategy.measured`."""
        return shipped_rate(problem, self.name)

    def search(self, problem: BlockProblem) -> Search:
        """Kinds of options, then the neighbours of the fastest, twice; see `Strategy.search`."""
        yield from text.search_in_text(search(problem, limits()), DenseOptions)

    def _plan(self, problem: BlockProblem, options: Options) -> DensePlan:
        if options is None:
            return DensePlan(problem, default_options(problem, limits()))
        return checked_plan(problem, text.from_text(DenseOptions, options), limits())

    def prepare(self, problem: BlockProblem, options: Options = None) -> Future[Any]:
        """Begin to compile into the cache; see `Strategy.prepare`."""
        return start(self._plan(problem, options).program(), architecture())

    def build(self, problem: BlockProblem, options: Options = None) -> DenseKernel:
        """Build the kernel, if elements are affine and the form is linear; see `Strategy.build`."""
        return DenseKernel(problem, self._plan(problem, options))

    def cost(self, problem: BlockProblem) -> float:
        """Expected time per element in nanoseconds: measured, or by a model; see `Strategy.cost`."""
        # Sorted modes leave a third of the derivatives out.
        matrices = 1 + (2 * problem.shape.dim * 2 / 3 if problem.form.gradients else 0)
        return expected_time(problem, self.name, matrices * 2.0 * problem.n_modes**2, BYTES, FLOPS)
