"""Forms on a block as CUDA kernels, ready to launch; they take and return CuPy arrays on the current stream."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from hpfem.shapes.cached import cached_property

from ...errors import DeviceError
from ...geometry import BlockGeometry
from ...reporting import progress_if_long
from ..form import BlockKernel, BlockProblem
from ..models import operator_flops
from .cublas import handle, multiply
from .device import architecture, current_device, upload
from .layout import stored_factors, stored_kinds
from .nvrtc import start, version
from .prelude import arguments, fiber_source, lane_source, point_source, program
from .scratch import StreamPool
from .tables import Levels
from .variant import LANE_THREADS, FiberPlan, Variant, lane_plan, plan

# Factors on the devices, shared by the operators of a space: geometry -> {device and layout: array}.
_FACTORS: WeakKeyDictionary[BlockGeometry, dict[tuple[Any, ...], Any]] = WeakKeyDictionary()
# Kernels that are alive, by the geometry that they work on, and id.
_KERNELS: WeakKeyDictionary[BlockGeometry, WeakValueDictionary[int, CudaKernel]] = WeakKeyDictionary()
# Bytes of scratch that StdMat takes at most; more elements are done in parts.
STDMAT_BYTES = 4 << 30
# Factors of fewer bytes are made by NumPy: CuPy has to compile its array operations first, which takes a second.
HOST_BYTES = 32 << 20
# Entries of Jacobians that the device makes at a time, and bytes that one takes with everything that is made of it.
DEVICE_CHUNK, CHUNK_BYTES = 10_000_000, 100


def shared_factors(geometry: BlockGeometry, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    """Factors of a geometry in a layout, on the current device, made once for each."""
    known, key = _FACTORS.setdefault(geometry, {}), (current_device().name, *key)
    if key not in known:
        known[key] = make()
    return known[key]


def device_factors(problem: BlockProblem, levels: Levels, layout: FiberPlan, kind: str) -> Any:
    """Factors in the layout of a plan on the current device, made there unless they are few.

    Parameters
    ----------
    problem, levels, layout, kind
        As for `stored_factors`.

    Returns
    -------
    cupy.ndarray
    """
    import cupy

    geometry = problem.geometry
    nbytes = geometry.n_elements * geometry.n_factors(kind) * geometry.n_points(kind) * problem.dtype.itemsize
    if nbytes < HOST_BYTES:
        return upload(stored_factors(problem, levels, layout, kind))
    room = cupy.cuda.Device().mem_info[0] + cupy.get_default_memory_pool().free_bytes() - nbytes
    size = max(1, min(DEVICE_CHUNK, room // CHUNK_BYTES))
    made = stored_factors(problem, levels, layout, kind, cupy, current_device().empty, size)
    cupy.cuda.get_current_stream().synchronize()  # ready for kernels on any stream, as after an upload
    return made


def held(geometry: BlockGeometry) -> dict[str, dict[str, int]]:
    """Bytes on each device that kernels on a block keep there: factors by their kind, matrices and scratch.

    Parameters
    ----------
    geometry : BlockGeometry

    Returns
    -------
    dict
        {device name: {what: bytes}}.
    """
    found: dict[str, dict[str, int]] = {}
    parts = [(key[0], key[1], array) for key, array in list(_FACTORS.get(geometry, {}).items())]
    for kernel in [ref() for ref in _KERNELS[geometry].valuerefs()] if geometry in _KERNELS else []:
        parts += [] if kernel is None else [(kernel.device.name, what, array) for what, array in kernel.arrays()]
    for device, what, array in parts:
        if array is not None:
            row = found.setdefault(device, {})
            row[what] = row.get(what, 0) + int(array.nbytes)
    return found


def load(cubin: Path, name: str, shared_bytes: int) -> Any:
    """Load a compiled kernel onto the current device.

    Raises
    ------
    DeviceError
        If its driver does not take it.
    """
    import cupy

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


class CudaKernel(BlockKernel):
    """What CUDA kernels share: compilation beside others, pointwise arguments.

    Parameters
    ----------
    problem : BlockProblem
    strategy : str
    levels : Levels
        Of the problem's tabulation, with the directions in the kernel's order.
    """

    def __init__(self, problem: BlockProblem, strategy: str, levels: Levels) -> None:
        self.problem, self.strategy, self.levels = problem, strategy, levels
        self.flops = operator_flops(problem, strategy)
        self._fields, self._parameters, _ = arguments(problem)
        self._compiling: tuple[Future[Path], str, int] | None = None
        self.device = current_device()
        _KERNELS.setdefault(problem.geometry, WeakValueDictionary())[id(self)] = self

    def arrays(self) -> list[tuple[str, Any]]:
        """Arrays of its own that it keeps on the device, each with "matrices" or "scratch"."""
        return []

    def _compile(self, source: str, name: str, shared_bytes: int) -> None:
        """Begin to compile a kernel, or find it in the cache."""
        self._compiling = start(source, architecture()), name, shared_bytes

    @cached_property
    def function(self) -> Any:
        """The compiled kernel on the device; None where there is none."""
        if self._compiling is None:
            return None
        cubin, name, shared_bytes = self._compiling
        if not cubin.done():
            with progress_if_long("compiling kernels"):
                cubin.result()
        return load(cubin.result(), name, shared_bytes)

    def finish(self) -> None:
        """Wait for the compiler and load the kernel; see `BlockKernel.finish`."""
        _ = self.function

    @property
    def _extra(self) -> tuple[Any, ...]:
        """Fields and parameters, as the kernel takes them after its own arguments."""
        p = self.problem
        fields = [p.fields[name].values for name in self._fields]
        return (*fields, *[p.dtype.type(p.parameters[name]) for name in self._parameters])

    def _layouts(self, layout: FiberPlan) -> tuple[Any, Any]:
        """Factors and points on the device in the layout of a plan."""
        p, e = self.problem, layout.variant.elements
        arrays: list[Any] = []
        for kind in stored_kinds(p):
            if kind is None:
                arrays.append(np.uint64(0))
                continue
            lanes = e if p.geometry.n_points(kind) > 1 else 0
            make = partial(device_factors, p, self.levels, layout, kind)
            reverse = self.levels.reverse and lanes > 0
            arrays.append(shared_factors(p.geometry, (kind, lanes, p.dtype.str, reverse), make))
        return arrays[0], arrays[1]


class FiberKernel(CudaKernel):
    """Sum factorisation with the elements of a block's threads side by side, 1-D lines in registers.

    Parameters
    ----------
    problem : BlockProblem
    layout : FiberPlan
    """

    def __init__(self, problem: BlockProblem, layout: FiberPlan) -> None:
        self.transforms: tuple[Any, Any] | None = None
        self._scratch: StreamPool[dict[tuple[str, int], Any]] = StreamPool()
        super().__init__(problem, self.name, self.levels_of(problem.tabulation))
        self.plan = layout
        self.elements, self.threads, self.shared_bytes = self._sizes()
        self._compile(self.source(), self.kernel_name, self.shared_bytes)
        self.factors, self.points = self._layouts(layout)
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
        return program(fiber_source(self.problem, self.levels, self.plan))

    def _sizes(self) -> tuple[int, int, int]:
        """Elements, threads and bytes of shared memory of a block."""
        return self.plan.variant.elements, self.plan.threads, self.plan.shared_bytes

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
        stage = self.problem.form.stage
        from_modes, to_modes = stage in ("bwd_trans", "weak"), stage not in ("bwd_trans", "phys_deriv")
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


class LaneKernel(FiberKernel):
    """Sum factorisation with one element per thread, in registers ([X] Alg. 3): for small orders.

    Parameters
    ----------
    problem : BlockProblem
    """

    name, kernel_name = "sumfac", "lane"
    levels_of = staticmethod(Levels.plain)

    def __init__(self, problem: BlockProblem) -> None:
        super().__init__(problem, lane_plan(problem, Levels.plain(problem.tabulation)))

    def source(self) -> str:
        """Source of the kernel."""
        return program(lane_source(self.problem, self.levels, self.plan))

    def _sizes(self) -> tuple[int, int, int]:
        return LANE_THREADS, LANE_THREADS, LANE_THREADS * (self.levels.n_modes | 1) * self.problem.dtype.itemsize


class StdMatKernel(CudaKernel):
    """Dense reference matrices: one GEMM for all elements, the pointwise part, one GEMM back ([X] Alg. 1, 2).

    Parameters
    ----------
    problem : BlockProblem
    """

    def __init__(self, problem: BlockProblem) -> None:
        self.forward: list[Any] = []
        self.back: list[Any] = []
        self._scratch: StreamPool[tuple[Any, Any]] = StreamPool()
        super().__init__(problem, "stdmat", Levels.plain(problem.tabulation))
        form, tabulation, dtype = problem.form, problem.tabulation, problem.dtype
        dim, self.slots = problem.shape.dim, 1
        stage = form.stage
        collocated = problem.algorithm == "collocated" or stage == "phys_deriv"
        if form.uses_gradient or stage in ("phys_deriv", "iproduct_wrt_deriv_base"):
            self.slots += dim
        basis = tabulation.dense  # [n_modes, Q]
        self.chain: list[NDArray[Any]] = []  # matrices from the modes, or from the points of phys_deriv, to the slots
        if self.slots == 1:
            self.chain = [basis]
        elif collocated:
            lines = np.concatenate([np.eye(len(tabulation.rule)), *dense_differentiation(tabulation.differentiation)])
            self.chain = [lines.T] if stage == "phys_deriv" else [basis, lines.T]
        else:
            self.chain = [np.concatenate([basis, *tabulation.dense_gradient], axis=1)]
        self.forward = [upload(np.ascontiguousarray(m, dtype)) for m in self.chain]
        handle()
        self.back = [upload(np.ascontiguousarray(m.T, dtype)) for m in reversed(self.chain)]
        self.layout = plan(problem, self.levels, Variant(1))
        self.factors, self.points = self._layouts(self.layout)
        if stage != "bwd_trans":
            source = program(point_source(problem, self.levels, self.layout, self.slots))
            self._compile(source, "point", 0)
        # Numbers of scratch per element: the slots of all coupled components, and values between two products.
        per_element = problem.n_points * form.components * (self.slots + (len(self.chain) > 1))
        most = max(1, STDMAT_BYTES // (per_element * dtype.itemsize))
        parts = max(1, -(-problem.n_elements // most))
        self.chunk = -(-problem.n_elements // parts)
        if stage != "bwd_trans":
            self._scratch.give(self._scratch.take(self._new_scratch))

    def _new_scratch(self) -> tuple[Any, Any]:
        """Slots of a part of the elements, and values between two products."""
        n, points, dtype = self.problem.form.components, self.problem.n_points, self.problem.dtype
        work = self.device.empty((n, self.chunk, self.slots * points), dtype)
        return work, self.device.empty((n, self.chunk, points), dtype) if self._two else None

    def apply(self, source: Any, out: Any) -> None:
        """Apply to one block of a field; see `BlockKernel.apply`."""
        p = self.problem
        if p.form.stage == "bwd_trans":
            multiply(source, self.forward[0], out)
            return
        sinks = p.components_out(p.coupled)
        scratch = self._scratch.take(self._new_scratch)
        try:
            for batch in range(len(source) // p.coupled):
                given = source[batch * p.coupled : (batch + 1) * p.coupled]
                wanted = out[batch * sinks : (batch + 1) * sinks]
                for first in range(0, p.n_elements, self.chunk):
                    self._part(given, wanted, first, min(self.chunk, p.n_elements - first), scratch)
        finally:
            self._scratch.give(scratch)

    def arrays(self) -> list[tuple[str, Any]]:
        """The dense matrices, and what is between two products."""
        matrices = [("matrices", array) for array in (*self.forward, *self.back)]
        return [*matrices, *(("scratch", array) for arrays in list(self._scratch.made) for array in arrays)]

    def _part(self, given: Any, wanted: Any, first: int, n: int, scratch: tuple[Any, Any]) -> None:
        p, stage = self.problem, self.problem.form.stage
        components = p.form.components
        # One component after the other: of a part of the elements, only they are side by side in memory.
        work = scratch[0].ravel()[: components * n * self.slots * p.n_points].reshape(components, n, -1)
        values = scratch[1].ravel()[: components * n * p.n_points].reshape(components, n, -1) if self._two else None
        if stage in ("weak", "phys_deriv"):
            for c in range(components):
                steps = [given[c, first : first + n], *([] if values is None else [values[c]]), work[c]]
                for matrix, before, after in zip(self.forward, steps, steps[1:]):
                    multiply(before, matrix, after)
        threads = 256
        self.function(
            (-(-n * p.n_points // threads),),
            (threads,),
            (
                np.int64(p.n_elements),
                np.int64(first),
                np.int64(n),
                given,
                wanted,
                work,
                self.factors,
                self.points,
                *self._extra,
            ),
        )
        if stage != "phys_deriv":
            for c in range(components):
                steps = [work[c], *([] if values is None else [values[c]]), wanted[c, first : first + n]]
                for matrix, before, after in zip(self.back, steps, steps[1:]):
                    multiply(before, matrix, after)

    @property
    def _two(self) -> bool:
        return len(self.chain) > 1


def dense_differentiation(matrices: tuple[NDArray[np.float64], ...]) -> list[NDArray[np.float64]]:
    """Collocated differentiation in each direction as matrices of all points, [Q, Q] each."""
    out = []
    for k in range(len(matrices)):
        total = np.ones((1, 1))
        for m, matrix in enumerate(matrices):
            total = np.asarray(np.kron(total, matrix if m == k else np.eye(len(matrix))))
        out.append(total)
    return out
