"""Sum factorisation with some elements per block of threads, ready to launch."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....forms.form import BlockProblem
from ..codegen.prelude import program, sumfac_top_source
from ..codegen.tables import Levels
from ..runtime.cublas import handle, multiply
from ..runtime.device import upload
from ..runtime.kernel import CudaKernel
from ..runtime.scratch import StreamPool
from .plan import SumFacTopPlan


class SumFacTopKernel(CudaKernel):
    """Sum factorisation with the elements of a block's threads side by side, 1-D lines in registers.

    Parameters
    ----------
    problem : BlockProblem
    layout : SumFacTopPlan
    """

    def __init__(self, problem: BlockProblem, layout: SumFacTopPlan) -> None:
        self.transforms: tuple[Any, Any] | None = None
        self._scratch: StreamPool[dict[tuple[str, int], Any]] = StreamPool()
        super().__init__(problem, self.name, self.levels_of(problem.tabulation))
        self.plan = layout
        self.elements, self.threads, self.shared_bytes = self._sizes()
        self._compile(self.source(), self.kernel_name, self.shared_bytes)
        self.factors, self.points = self._layouts(layout.options.elements)
        self.n_elements = problem.n_elements
        transform = problem.tabulation.basis.transform
        if transform is not None:
            forward = np.ascontiguousarray(transform.T, problem.dtype)
            self.transforms = upload(forward), upload(np.ascontiguousarray(transform, problem.dtype))
            handle()

    name, kernel_name = "sumfac-top", "fiber"
    levels_of = staticmethod(Levels.of)

    def arrays(self) -> list[tuple[str, Any]]:
        """Transforms of a nodal basis, and coefficients between two products."""
        scratch = [array for buffers in list(self._scratch.made) for array in list(buffers.values())]
        return [*(("matrices", a) for a in self.transforms or ()), *(("scratch", a) for a in scratch)]

    def source(self) -> str:
        """Source of the kernel."""
        return program(sumfac_top_source(self.problem, self.levels, self.plan))

    def _sizes(self) -> tuple[int, int, int]:
        """Elements, threads and bytes of shared memory of a block."""
        return self.plan.options.elements, self.plan.threads, self.plan.shared_bytes

    def _buffer(self, scratch: dict[tuple[str, int], Any], name: str, components: int) -> Any:
        if (name, components) not in scratch:
            shape = (components, self.n_elements, self.levels.n_modes)
            scratch[name, components] = self.device.empty(shape, self.problem.dtype)
        return scratch[name, components]

    def apply(self, source: Any, out: Any) -> None:
        """Apply to one block of a field; see `BlockKernel.apply`."""
        if self.transforms is None:
            self._launch(source, out)
            return
        from_modes, to_modes = self.problem.form.from_modes, self.problem.form.to_modes
        scratch = self._scratch.take(dict)
        given, wanted = source, out
        try:
            if from_modes:
                source = self._buffer(scratch, "in", len(given))
                multiply(given, self.transforms[0], source)
            if to_modes:
                out = self._buffer(scratch, "out", len(wanted))
            self._launch(source, out)
            if to_modes:
                multiply(out, self.transforms[1], wanted)
        finally:
            self._scratch.give(scratch)

    def _launch(self, source: Any, out: Any) -> None:
        """The kernel alone, on modes of the tree."""
        groups = -(-self.n_elements // self.elements)
        if groups:
            self.function(
                (groups, len(source) // self.problem.coupled),
                (self.threads,),
                (
                    np.int64(self.n_elements),
                    source,
                    out,
                    self.factors,
                    self.points,
                    *self._extra,
                ),
                shared_mem=self.shared_bytes,
            )
