"""Strategy "dense" of backend "cuda": matrices of affine elements on FP64 tensor cores."""

from __future__ import annotations

from typing import Any

from ....forms.form import BlockProblem
from ..runtime.device import Limits
from ..runtime.kernel import PlannedKernel
from ..runtime.planned import ChoosingStrategy, Rounds
from .plan import DenseOptions, DensePlan, check_dense
from .search import fitting_options, search


class DenseKernel(PlannedKernel):
    """Dense matrices that the few geometric factors of an affine element multiply; see `element_matrices`."""

    plan: DensePlan
    reads_points = False

    def __init__(self, plan: DensePlan) -> None:
        super().__init__(plan, "dense", plan.stream().astype(plan.problem.dtype))

    def _blocks(self, applications: int) -> int:
        every, options = super()._blocks(applications), self.plan.options
        return min(every, self.device.limits.multiprocessors * options.min_blocks) if options.tiles else every


class CudaDense(ChoosingStrategy):
    """Dense matrices that an affine element's geometric factors multiply; linear forms with constant coefficients."""

    name, special = "dense", True
    options, sizes, kernel = DenseOptions, DensePlan, DenseKernel
    bandwidth, speed = 2500.0, 25000.0

    def checked(self, problem: BlockProblem) -> BlockProblem:
        """Elements must be affine and the form linear."""
        check_dense(problem)
        return problem

    def fitting(self, problem: BlockProblem, limits: Limits) -> list[DenseOptions]:
        """Options that fit, the most promising first."""
        return fitting_options(problem, limits)

    def rounds(self, problem: BlockProblem, limits: Limits, default: Any) -> Rounds:
        """Kinds of options, then the neighbours of the fastest, twice."""
        return search(problem, limits, default)

    def flops(self, problem: BlockProblem) -> float:
        """Of the matrices that are not zero: sorted modes leave a third of the derivatives out."""
        matrices = 1 + (2 * problem.shape.dim * 2 / 3 if problem.form.gradients else 0)
        return matrices * 2.0 * problem.n_modes**2
