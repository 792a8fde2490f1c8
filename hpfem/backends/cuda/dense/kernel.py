"""The dense kernels of affine elements, ready to launch."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....forms.form import BlockProblem
from ..codegen.tables import Levels
from ..runtime.device import limits, upload
from ..runtime.kernel import CudaKernel
from .plan import DensePlan


class DenseKernel(CudaKernel):
    """Dense matrices that the few geometric factors of an affine element multiply; see `element_matrices`.

    Parameters
    ----------
    problem : BlockProblem
    layout : DensePlan
    """

    def __init__(self, problem: BlockProblem, layout: DensePlan) -> None:
        super().__init__(problem, "dense", Levels.of(problem.tabulation))
        self.plan = layout
        self._compile(layout.program(), "dense", layout.shared_bytes)
        # Affine factors are stored alike by all kernels.
        self.factors = self._layouts(1)[0]
        self.matrices = upload(layout.stream().astype(problem.dtype))
        self.n_elements = problem.n_elements
        self._resident = limits().multiprocessors * layout.options.min_blocks

    def arrays(self) -> list[tuple[str, Any]]:
        """The matrices."""
        return [("matrices", self.matrices)]

    def apply(self, source: Any, out: Any) -> None:
        """Apply to one block of a field; see `BlockKernel.apply`."""
        blocks = -(-self.n_elements // self.plan.elements)
        if self.plan.options.tiles:
            blocks = min(blocks, self._resident)
        if blocks:
            self.function(
                (blocks, len(source)),
                (self.plan.threads,),
                (np.int64(self.n_elements), source, out, self.factors, self.matrices, *self._extra),
                shared_mem=self.plan.shared_bytes,
            )
