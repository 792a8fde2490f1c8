"""Strategy "dense" of backend "cuda": matrices of affine elements on FP64 tensor cores."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from ....forms.cost import operator_bytes
from ....forms.form import BlockProblem
from ... import options as text
from ...strategy import Options, Search, Strategy
from ..runtime.device import architecture, limits
from ..runtime.measured import known_rate, shipped_rate
from ..runtime.nvrtc import start
from .element_matrices import shared_matrices
from .kernel import DenseKernel
from .plan import DenseOptions, DensePlan, check_dense, dense_plan
from .search import default_dense, dense_search, first_dense

# Bytes and operations per nanosecond that kernels nobody has measured are taken to reach.
BYTES, FLOPS = 2500.0, 25000.0


class CudaDense(Strategy):
    """Dense matrices that an affine element's geometric factors multiply; linear forms with constant coefficients."""

    name, special = "dense", True

    def default(self, problem: BlockProblem) -> Options:
        """The measured options, if there is one and it fits, else the model's best."""
        check_dense(problem)
        return text.to_text(default_dense(problem, shared_matrices(problem.tabulation), limits()))

    def measured(self, problem: BlockProblem) -> str | None:
        """Speed in the shipped table."""
        return shipped_rate(problem, self.name)

    def configs(self, problem: BlockProblem) -> Sequence[Options]:
        """The options that `build` takes by itself, and the most promising of every kind.

        Raises
        ------
        NotSuitable
            Unless elements are affine, the form is linear with constant coefficients, and a options fits.
        """
        check_dense(problem)
        return [text.to_text(v) for v in first_dense(problem, shared_matrices(problem.tabulation), limits())]

    def search(self, problem: BlockProblem) -> Search:
        """Kinds of configs, then the neighbours of the fastest, twice."""
        check_dense(problem)
        rounds = dense_search(problem, shared_matrices(problem.tabulation), limits())
        yield from text.search_in_text(rounds, DenseOptions)

    def plan(self, problem: BlockProblem, options: Options = None) -> DensePlan:
        """Sizes, matrices and source of a options.

        Parameters
        ----------
        problem : BlockProblem
        options : str, optional

        Returns
        -------
        DensePlan

        Raises
        ------
        NotSuitable
            As `build`.
        """
        check_dense(problem)
        matrices = shared_matrices(problem.tabulation)
        if options is None:
            return DensePlan(problem, matrices, default_dense(problem, matrices, limits()))
        return dense_plan(problem, matrices, text.from_text(DenseOptions, options), limits())

    def prepare(self, problem: BlockProblem, options: Options = None) -> Future[Any]:
        """Begin to compile into the cache."""
        return start(self.plan(problem, options).program(), architecture())

    def build(self, problem: BlockProblem, options: Options = None) -> DenseKernel:
        """Build the kernel.

        Raises
        ------
        NotSuitable
            Unless elements are affine, the form is linear with constant coefficients, and the options fits.
        """
        return DenseKernel(problem, self.plan(problem, options))

    def cost(self, problem: BlockProblem) -> float:
        """Expected time per element in nanoseconds: measured, or by a model of its bytes and operations."""
        rate = known_rate(problem, self.name)
        if rate is not None:
            return problem.n_modes / rate
        # Sorted modes leave a third of the derivatives out.
        matrices = 1 + (2 * problem.shape.dim * 2 / 3 if problem.form.gradients else 0)
        return max(operator_bytes(problem) / BYTES, matrices * 2.0 * problem.n_modes**2 / FLOPS)
