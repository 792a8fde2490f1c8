"""Strategy "dense" of backend "cuda": matrices of affine elements on FP64 tensor cores."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import numpy as np

from ....forms.form import BlockProblem
from ... import options as text
from ...strategy import Options, Search, Strategy
from ..codegen.tables import Levels
from ..runtime.device import architecture, limits, upload
from ..runtime.kernel import SingleLaunch
from ..runtime.measured import expected_time, shipped_rate
from ..runtime.nvrtc import start
from .plan import DenseOptions, DensePlan, checked_plan
from .search import default_options, search


class DenseKernel(SingleLaunch):
    """Dense matrices that the few geometric factors of an affine element multiply; see `element_matrices`.

    Parameters
    ----------
    problem : BlockProblem
    layout : DensePlan
    """

    def __init__(self, problem: BlockProblem, layout: DensePlan) -> None:
        super().__init__(problem, "dense", Levels.of(problem.tabulation))
        self.plan = layout
        self._compile(layout.source(), "dense", layout.shared_bytes)
        # Affine factors are stored alike by all kernels.
        self.factors = self._layouts(1)[0]
        self.matrices = upload(layout.stream().astype(problem.dtype))
        self.n_elements = problem.n_elements
        self._resident = limits().multiprocessors * layout.options.min_blocks

    def arrays(self) -> list[tuple[str, Any]]:
        """The matrices; see `CudaKernel.arrays`."""
        return [("matrices", self.matrices)]

    def _launch(self, function: Any, source: Any, out: Any, *further: Any) -> None:
        blocks = -(-self.n_elements // self.plan.elements)
        if self.plan.options.tiles:
            blocks = min(blocks, self._resident)
        if blocks:
            function(
                (blocks, len(source)),
                (self.plan.threads,),
                (np.int64(self.n_elements), source, out, self.factors, self.matrices, *self._extra, *further),
                shared_mem=self.plan.shared_bytes,
            )


# Assumed bytes and operations per nanosecond of kernels without a measurement.
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
