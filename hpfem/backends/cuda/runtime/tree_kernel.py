"""Kernels on modes of the tree, and the transforms before and after them for other bases."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ....forms.form import BlockKernel, ProductKernel
from ....memory import OutOfMemory
from ..codegen.prelude import c_type
from .cublas import handle, multiply
from .device import CudaTimer, upload
from .kernel import PlannedKernel
from .planned import Plan
from .scratch import StreamPool

# Whether kernels on global vectors were faster: by source, device and approximate number of elements.
_FASTER: dict[tuple[str, str, int], bool] = {}


class TreeKernel(PlannedKernel):
    """A sum-factorised kernel: from coefficients, or values at the points, to the result in one launch."""

    def __init__(self, plan: Plan, strategy: str) -> None:
        self.transforms: tuple[Any, Any] | None = None
        self._scratch: StreamPool[dict[tuple[str, int], Any]] = StreamPool()
        super().__init__(plan, strategy)
        problem = plan.problem
        transform = problem.tabulation.basis.transform
        if transform is not None:
            forward = np.ascontiguousarray(transform.T, problem.dtype)
            self.transforms = upload(forward), upload(np.ascontiguousarray(transform, problem.dtype))
            handle()

    def arrays(self) -> list[tuple[str, Any]]:
        """Transforms of a nodal basis, and coefficients between two products; see `CudaKernel.arrays`."""
        scratch = [array for buffers in list(self._scratch.made) for array in list(buffers.values())]
        return [*(("matrices", a) for a in self.transforms or ()), *(("scratch", a) for a in scratch)]

    def _buffer(self, scratch: dict[tuple[str, int], Any], name: str, components: int) -> Any:
        if (name, components) not in scratch:
            shape = (components, self.problem.n_elements, self.levels.n_modes)
            scratch[name, components] = self.device.empty(shape, self.problem.dtype)
        return scratch[name, components]

    def apply(self, source: Any, out: Any) -> None:
        """Apply to one block of a field; see `BlockKernel.apply`."""
        if self.transforms is None:
            self._launch(self.function, source, out)
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
            self._launch(self.function, source, out)
            if to_modes:
                multiply(out, self.transforms[1], wanted)
        finally:
            self._scratch.give(scratch)

    def in_product(self, restriction: Any, number: int) -> Callable[[], ProductKernel | None]:
        """Begin to compile the kernel with and without Q in its loads; the faster one is used; see `BlockKernel`."""
        if self.transforms is not None or not self.problem.form.from_modes or not self.problem.n_elements:
            return BlockKernel.in_product(self, restriction, number)
        codes, *rows = restriction.block(number)
        places = self._result_places(restriction, number)
        variants = self._variant(f"HPFEM_INDEX {c_type(codes.dtype)}", places), self._variant(places)

        def finish() -> ProductKernel:
            on_global, local = (variant() for variant in variants)

            def scattered(vector: Any, out: Any) -> None:
                self._launch(on_global, vector, out, np.int64(restriction.size), codes, *rows)

            apart = ProductKernel(partial(self._launch, local), False)
            key = self.plan.source(), self.device.name, self.problem.n_elements.bit_length()
            if key not in _FASTER:
                try:
                    _FASTER[key] = self._is_faster(scattered, apart.apply, restriction, number)
                except OutOfMemory:  # there is no room to time it
                    return apart
            return ProductKernel(scattered, True) if _FASTER[key] else apart

        return finish

    def _is_faster(
        self,
        scattered: Callable[[Any, Any], None],
        local: Callable[[Any, Any], None],
        restriction: Any,
        number: int,
    ) -> bool:
        """Whether a kernel on global vectors takes less time than scatter and one on local coefficients."""
        p, empty = self.problem, self.device.empty
        vector = empty((p.coupled, restriction.size), p.dtype)
        source = empty((p.coupled, p.n_elements, p.n_modes), p.dtype)
        out = empty((p.given, p.n_elements, p.n_output), p.dtype)
        vector.fill(0)
        targets = [source if other == number else None for other in range(restriction.n_blocks)]

        def apart() -> None:
            restriction.scatter(vector, targets)
            local(source, out)

        ways: list[Callable[[], None]] = [lambda: scattered(vector, out), apart]
        times = [[CudaTimer().seconds(way, 2) for way in ways] for _ in range(4)]
        return bool(np.less(*np.min(times[1:], axis=0)))
