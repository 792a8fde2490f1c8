"""Kernels on modes of the tree, and the transforms before and after them for other bases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....forms.form import BlockProblem
from ....memory import OutOfMemory
from ..codegen.prelude import c_type, program
from ..codegen.tables import Levels
from .cublas import handle, multiply
from .device import CudaTimer, architecture, upload
from .kernel import CudaKernel, functions
from .nvrtc import start
from .scratch import StreamPool

# Whether kernels on global vectors were faster: by source, device and approximate number of elements.
_FASTER: dict[tuple[str, str, int], bool] = {}


class TreeKernel(CudaKernel):
    """A sum-factorised kernel: from coefficients, or values at the points, to the result in one launch.

    Parameters
    ----------
    problem : BlockProblem
    strategy : str
        The kernel's name in C++ is the same, with underscores.
    levels : Levels
        Of the problem's tabulation, with the directions in the kernel's order.
    source : str
        Of the kernel, `language.h` apart.
    group : int
        Elements whose factors are stored side by side.
    block : tuple of int
        Elements, threads and bytes of shared memory of a block.
    """

    def __init__(
        self, problem: BlockProblem, strategy: str, levels: Levels, source: str, group: int, block: tuple[int, int, int]
    ) -> None:
        self.transforms: tuple[Any, Any] | None = None
        self._scratch: StreamPool[dict[tuple[str, int], Any]] = StreamPool()
        super().__init__(problem, strategy, levels)
        self.elements, self.threads, self.shared_bytes = block
        self._source = source
        self._compile(program(source), strategy.replace("-", "_"), self.shared_bytes)
        self.factors, self.points = self._layouts(group)
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

    def scattered(self, restriction: Any, number: int) -> Callable[[], Callable[[Any, Any], None] | None]:
        """Begin to compile the kernel on global vectors, which is used if its time is shorter; see `BlockKernel`."""
        if self.transforms is not None or not self.problem.form.from_modes or not self.problem.n_elements:
            return super().scattered(restriction, number)
        source = f"#define HPFEM_INDEX {c_type(restriction.block(number)[0].dtype)}\n{self._source}"
        compiling = start(program(source), architecture())

        def finish() -> Callable[[Any, Any], None] | None:
            compiling.result()
            return self._scattered(source, restriction, number)

        return finish

    def _scattered(self, source: str, restriction: Any, number: int) -> Callable[[Any, Any], None] | None:
        name = self.strategy.replace("-", "_")
        (function,) = functions(source, self.device.name, name, shared_bytes=self.shared_bytes)
        codes, *rows = restriction.block(number)
        given = np.int64(restriction.size), codes, *rows

        def kernel(vector: Any, out: Any) -> None:
            self._launch(vector, out, function, given)

        key = self._source, self.device.name, self.problem.n_elements.bit_length()
        if key not in _FASTER:
            try:
                _FASTER[key] = self._is_faster(kernel, restriction, number)
            except OutOfMemory:  # there is no room to time it
                return None
        return kernel if _FASTER[key] else None

    def _is_faster(self, kernel: Callable[[Any, Any], None], restriction: Any, number: int) -> bool:
        """Whether a kernel on global vectors takes less time than scatter and this one."""
        p, empty = self.problem, self.device.empty
        vector, local = (
            empty((p.coupled, restriction.size), p.dtype),
            empty((p.coupled, p.n_elements, p.n_modes), p.dtype),
        )
        out = empty((p.given, p.n_elements, p.n_output), p.dtype)
        vector.fill(0)
        targets = [local if other == number else None for other in range(restriction.n_blocks)]

        def apart() -> None:
            restriction.scatter(vector, targets)
            self._launch(local, out)

        ways: list[Callable[[], None]] = [lambda: kernel(vector, out), apart]
        times = [[CudaTimer().seconds(way, 2) for way in ways] for _ in range(4)]
        return bool(np.less(*np.min(times[1:], axis=0)))

    def _launch(self, source: Any, out: Any, function: Any = None, further: tuple[Any, ...] = ()) -> None:
        """The kernel alone, on modes of the tree; or another one, with further arguments."""
        n = self.problem.n_elements
        if n:
            (self.function if function is None else function)(
                (-(-n // self.elements), len(source) // self.problem.coupled),
                (self.threads,),
                (np.int64(n), source, out, self.factors, self.points, *self._extra, *further),
                shared_mem=self.shared_bytes,
            )
