"""Forms on a block as CUDA kernels, ready to launch; they take and return CuPy arrays on the current stream."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import cache, partial
from os.path import isfile
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from hpfem.shapes.cached import cached_property

from ....errors import DeviceError
from ....forms.cost import operator_flops
from ....forms.form import BlockKernel, BlockProblem, ProductKernel
from ....geometry.block_geometry import BlockGeometry
from ....support.compiling import compiling
from ..codegen.layout import stored_factors, stored_kinds
from ..codegen.prelude import arguments, program
from ..codegen.tables import Levels
from .device import architecture, current_device, upload
from .lazy import cupy
from .nvrtc import start, version
from .planned import Plan

# Factors on the devices, shared by the operators of a space: geometry -> {device and layout: array}.
_FACTORS: WeakKeyDictionary[BlockGeometry, dict[tuple[Any, ...], Any]] = WeakKeyDictionary()
# Kernels that are loaded and alive, by the geometry that they work on, and id.
_KERNELS: WeakKeyDictionary[BlockGeometry, WeakValueDictionary[int, CudaKernel]] = WeakKeyDictionary()
# Kernels that are not begun, as products take variants of them, by id.
_LATER: WeakValueDictionary[int, CudaKernel] = WeakValueDictionary()
# Kernels that this process has begun to compile, by source and architecture.
_BEGUN: dict[tuple[str, str], Future[Path]] = {}
# Factors of fewer bytes are made by NumPy, in less time than launches take.
HOST_BYTES = 1 << 18
# Entries of Jacobians that the host makes at a time: few beside all factors.
HOST_CHUNK = 1 << 19
# Entries of Jacobians that the device makes at a time, and bytes that one takes with everything that is made of it.
DEVICE_CHUNK, CHUNK_BYTES = 40_000_000, 100


def shared_factors(geometry: BlockGeometry, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    """Factors of a geometry in a layout, on the current device, made once for each."""
    known, key = _FACTORS.setdefault(geometry, {}), (current_device().name, *key)
    if key not in known:
        known[key] = make()
    return known[key]


def device_factors(problem: BlockProblem, levels: Levels, elements: int, kind: str) -> Any:
    """Stored factors on the current device, made there unless they are few."""
    geometry, number = problem.geometry, problem.stored_dtype(kind).itemsize
    nbytes = geometry.n_elements * geometry.n_factors(kind) * geometry.n_points(kind) * number
    if nbytes < HOST_BYTES:
        return upload(stored_factors(problem, levels, elements, kind, size=HOST_CHUNK))
    room = cupy.cuda.Device().mem_info[0] + cupy.get_default_memory_pool().free_bytes() - nbytes
    size = max(1, min(DEVICE_CHUNK, room // CHUNK_BYTES))
    made = stored_factors(problem, levels, elements, kind, cupy, current_device().empty, size)
    cupy.cuda.get_current_stream().synchronize()  # ready for kernels on any stream, as after an upload
    return made


def held(geometry: BlockGeometry) -> dict[str, dict[str, int]]:
    """Bytes on each device that kernels on a block keep there: factors by their kind, matrices and scratch."""
    found: dict[str, dict[str, int]] = {}
    ours = geometry.related()
    parts = [(key[0], key[1], array) for one in ours for key, array in list(_FACTORS.get(one, {}).items())]
    for kernel in [ref() for one in ours if one in _KERNELS for ref in _KERNELS[one].valuerefs()]:
        parts += [] if kernel is None else [(kernel.device.name, what, array) for what, array in kernel.arrays()]
    for device, what, array in parts:
        if array is not None:
            row = found.setdefault(device, {})
            row[what] = row.get(what, 0) + int(array.nbytes)
    return found


def loaded(cubin: Path, name: str, shared_bytes: int) -> Any:
    """Load a compiled kernel onto the current device, with so much shared memory of a block."""
    try:
        function = cupy.RawModule(path=str(cubin)).get_function(name)
        if shared_bytes > 48 * 1024:
            function.max_dynamic_shared_size_bytes = shared_bytes
    except RuntimeError as error:  # CuPy's errors of the driver
        raise DeviceError(
            f"the GPU's driver does not take the kernel {cubin} ({error}): it may be older than NVRTC"
            f" {'.'.join(map(str, version()))}; update it, or install the extra that fits it (cuda12, cuda13)"
        ) from error
    return function


@cache
def functions(source: str, device: str, *names: str, shared_bytes: int = 0) -> tuple[Any, ...]:
    """Compile kernels that belong to no form and load them onto the current device, once for each."""
    cubin = _compiled(source)
    return tuple(loaded(cubin, name, shared_bytes) for name in names)


def begin(source: str, late: bool = False) -> Future[Path]:
    """Begin to compile kernels, once in a process; what is late after all that is not."""
    key = source, architecture()
    found = _BEGUN.get(key)
    if found is None or (found.done() and found.exception()):
        _BEGUN[key] = found = start(program(source), architecture(), late=late)
    return found


def _compiled(source: str) -> Path:
    """Compiled kernels, which are still in the cache."""
    found = _waited(begin(source))
    return found if isfile(found) else _waited(start(program(source), architecture()))


def _waited(cubin: Future[Path]) -> Path:
    """A compiled kernel, with a word if that takes long."""
    if not cubin.done():
        with compiling("compiling kernels"):
            cubin.result()
    return cubin.result()


class CudaKernel(BlockKernel):
    """The common part of CUDA kernels: compilation beside others, pointwise arguments; levels in the kernel's order."""

    def __init__(self, problem: BlockProblem, strategy: str, levels: Levels) -> None:
        self.problem, self.strategy, self.levels = problem, strategy, levels
        self.flops = operator_flops(problem, strategy)
        self._fields, self._parameters, _ = arguments(problem)
        self._begun: tuple[str, str, int] | None = None  # source, name, shared memory of a block
        self.device = current_device()

    def arrays(self) -> list[tuple[str, Any]]:
        """List the arrays of its own that it keeps on the device."""
        return []

    def _compile(self, source: str, name: str, shared_bytes: int) -> None:
        """Begin to compile a kernel, or find it in the cache; `language.h` is not in its source."""
        self._begun = source, name, shared_bytes
        begin(source)

    def begin(self) -> None:
        """Begin to compile the kernel itself; see `BlockKernel.begin`."""
        if self._begun is not None and _LATER.pop(id(self), None) is not None:
            begin(self._begun[0])

    @cached_property
    def function(self) -> Any:
        """The compiled kernel on the device; None where there is none."""
        self._count()
        if self._begun is None:
            return None
        source, name, shared_bytes = self._begun
        for other in [ref() for ref in _LATER.valuerefs()] if id(self) in _LATER else ():
            if other is not None and other.alike == self.alike:
                other.begin()  # of other blocks, which are needed next
        return loaded(_compiled(source), name, shared_bytes)

    @property
    def alike(self) -> tuple[Any, ...]:
        """What kernels of an operator's blocks have in common, as a rule."""
        return self.device.name, self.problem.form.name, self.problem.dtype, self.problem.tabulation.basis.order

    def _count(self) -> None:
        """From here on all its memory exists and can be counted."""
        _KERNELS.setdefault(self.problem.geometry, WeakValueDictionary())[id(self)] = self

    def finish(self) -> None:
        """Wait for the compiler and load the kernel; see `BlockKernel.finish`."""
        _ = self.function

    @property
    def _extra(self) -> tuple[Any, ...]:
        """Fields and parameters, as the kernel takes them after its own arguments."""
        p = self.problem
        fields = [p.fields[name].values for name in self._fields]
        return (*fields, *[p.dtype.type(p.parameters[name]) for name in self._parameters])

    def _layouts(self, elements: int) -> tuple[Any, Any]:
        """Factors and points on the device, those of so many elements side by side."""
        p = self.problem
        arrays: list[Any] = []
        for kind in stored_kinds(p):
            if kind is None:
                arrays.append(np.uint64(0))
                continue
            group = elements if p.geometry.n_points(kind) > 1 or kind == "map" else 0
            make = partial(device_factors, p, self.levels, elements, kind)
            order = (self.levels.reverse, self.levels.counts[0]) if p.geometry.n_points(kind) > 1 else ()
            arrays.append(shared_factors(p.geometry, (kind, group, p.stored_dtype(kind).str, order), make))
        return arrays[0], arrays[1]


class PlannedKernel(CudaKernel):
    """A kernel that is one launch, as a plan says, with tables of its own."""

    reads_points = True

    def __init__(self, plan: Plan, strategy: str, tables: NDArray[Any] | None = None) -> None:
        super().__init__(plan.problem, strategy, plan.levels)
        self.plan, self.tables = plan, None if tables is None else upload(tables)
        form, transform = self.problem.form, self.problem.tabulation.basis.transform
        given = plan.source(), strategy.replace("-", "_"), plan.shared_bytes
        if form.from_modes and form.to_modes and transform is None:
            self._begun = given
            _LATER[id(self)] = self
        else:
            self._compile(*given)
        self.factors, self.points = self._layouts(plan.group)

    def arrays(self) -> list[tuple[str, Any]]:
        """The tables; see `CudaKernel.arrays`."""
        return [] if self.tables is None else [("matrices", self.tables)]

    def _blocks(self, applications: int) -> int:
        """Blocks of threads for each of some components, or sets of coupled ones."""
        return -(-self.problem.n_elements // self.plan.elements)

    def _launch(self, function: Any, source: Any, out: Any, *further: Any) -> None:
        """Launch the compiled kernel or a variant of it, which takes further arguments."""
        n, applications = self.problem.n_elements, len(source) // self.problem.coupled
        points, tables = [self.points] * self.reads_points, [self.tables] * (self.tables is not None)
        if n:
            function(
                (self._blocks(applications), applications),
                (self.plan.threads,),
                (np.int64(n), source, out, self.factors, *points, *tables, *self._extra, *further),
                shared_mem=self.plan.shared_bytes,
            )

    def apply(self, source: Any, out: Any) -> None:
        """Apply to one block of a field; see `BlockKernel.apply`."""
        self._launch(self.function, source, out)

    def in_product(self, restriction: Any, number: int) -> Callable[[], ProductKernel | None]:
        """Begin to compile the kernel with results entity by entity; see `BlockKernel.in_product`."""
        if not self.problem.n_elements:
            return super().in_product(restriction, number)
        function = self._variant(self._result_places(restriction, number))
        return lambda: ProductKernel(partial(self._launch, function()), False)

    @staticmethod
    def _result_places(restriction: Any, number: int) -> str:
        """The macro with which results stand entity by entity."""
        return f"HPFEM_RESULT_PLACES {', '.join(map(str, np.argsort(restriction.codes(number).modes)))}"

    def _variant(self, *macros: str) -> Callable[[], Any]:
        """Begin to compile the kernel with macros; returns what waits for the function."""
        assert self._begun is not None
        own, name, shared_bytes = self._begun
        source = "".join(f"#define {macro}\n" for macro in macros) + own
        begin(source, late=True)

        def finish() -> Any:
            self._count()
            return functions(source, self.device.name, name, shared_bytes=shared_bytes)[0]

        return finish
