"""The vector work of conjugate gradients on the device, without a scalar on the host; see `conjugate.h`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import cycle
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import DTypeLike

from ....support.communicator import Communicator
from ...sharing import Sharing
from ..codegen.prelude import source_with
from ..runtime.device import current_device, upload
from ..runtime.kernel import functions
from ..runtime.lazy import cupy, cupyx
from ..runtime.nccl import Nccl
from .indexed import MOST_SUMS, THREADS, bits_at, sum_blocks, sum_bytes

# Iterations whose numbers the device keeps: more than are under way before the host looks at them.
RING = 64

CONTROL = np.dtype(
    [(name, "f8", RING) for name in ("residual", "rho", "curvature")]
    + [(name, "f8") for name in ("scale", "tolerance")]
    + [(name, "i8") for name in ("most", "finished", "begun")]
    + [(name, "i4") for name in ("stopped", "broken", "ended")]
)


_NONE = np.uint64(0)


# An inverse diagonal in these bounds is kept in float32: half the bytes, and a preconditioner need not be exact.
_MODERATE = 1e-30, 1e30


def source(real: DTypeLike, inverse: DTypeLike, shared: bool = False, other: DTypeLike | None = None) -> str:
    """Source of the kernels for vectors of a type."""
    other = real if other is None else other
    constants = {"THREADS": THREADS, "RING": RING, "SHARED": shared}
    return source_with(
        {"real": real, "Other": other, "Inverse": inverse}, constants, "codegen/reduction.h", "vectors/conjugate.h"
    )


@cache
def _kernels(device: str, *types: Any) -> tuple[Any, ...]:
    """`dots`, `residual` and `direction` for the arguments of `source`, on the current device."""
    return functions(source(*types), device, "dots", "residual", "direction")


_OWNED: WeakKeyDictionary[Sharing, dict[int, Any]] = WeakKeyDictionary()


def owned_bits(sharing: Sharing, n: int) -> Any:
    """A bit for each entry of a vector [n] on the current device: whether this process owns it."""
    made = _OWNED.setdefault(sharing, {})
    if n not in made:
        ghosts = np.arange(0, n, max(1, sharing.size))[:, None] + sharing.ghosts
        made[n] = upload(~bits_at(ghosts.ravel(), n))
    return made[n]


def launch_dots(a: Any, b: Any, partials: Any, owned: Any = _NONE, free: Any = _NONE, stop: int = 0) -> None:
    """Sum up products of entries, which are `owned` where bits are given, by blocks; see `dots`; a, b [n]."""
    dots = _kernels(current_device().name, a.dtype, a.dtype, owned is not _NONE, b.dtype)[0]
    arguments = np.int64(a.size), a, b, free, owned, partials, np.uint64(stop)
    dots((len(partials),), (THREADS,), arguments, shared_mem=sum_bytes(1))


class DeviceSharing(NamedTuple):
    """`Sharing` of one component's entries on the GPUs of processes, and what adds up over them."""

    comm: Communicator
    of: Sharing
    between: Nccl


class Reading:
    """The control block as it was at some time; ready when `wait` returns."""

    def __init__(self, host: Any, event: Any, shared: DeviceSharing | None) -> None:
        self._host, self._event, self._shared = host, event, shared

    def wait(self) -> np.void:
        """Wait for the device to get there."""
        if self._shared is not None:
            self._shared.comm.until(lambda: bool(self._event.done))
        self._event.synchronize()
        found: np.void = self._host.view(CONTROL)[0]
        return found


class CudaConjugateVectors:
    """See `ConjugateVectors`; kernels run on the current stream, nothing is allocated after the start."""

    def __init__(
        self,
        sharing: DeviceSharing | None,
        x: Any,
        r: Any,
        inverse: Any = None,
        product_blocks: int | None = None,
    ) -> None:
        self._n = np.int64(r.size)
        self._diagonal = inverse is not None
        self._inverse, kind = _NONE, r.dtype
        if inverse is not None:
            low, high = _MODERATE
            moderate = not inverse.size or bool(float(inverse.min()) > low and float(inverse.max()) < high)
            # All processes divide what they share by the same numbers.
            if moderate if sharing is None else sharing.comm.all(moderate):
                kind = np.dtype(np.float32)
            self._inverse = cupy.ascontiguousarray(inverse, kind)
        self._sharing = sharing
        self._owned: Any = _NONE if sharing is None else owned_bits(sharing.of, int(r.size))
        self._types = r.dtype, kind, sharing is not None
        _, self._residual, self._direction = self._of(r.dtype)
        self._blocks = sum_blocks(int(r.size))
        empty = current_device().empty
        self.x, self.r = x, r
        self.p, self.q = empty(r.shape, r.dtype), empty(r.shape, r.dtype)
        self._copy: Any = _NONE, _NONE
        # Of r.r, r.z and p.q; processes have different numbers of blocks, and add up all.
        self._left, self._total = cupy.zeros((3, MOST_SUMS)), empty((2, MOST_SUMS), np.float64)
        self._rr, self._rz = self._left[:2, : self._blocks]
        self.partials = self._left[2, : product_blocks or self._blocks]
        self._control = empty((CONTROL.itemsize,), np.uint8)
        self.stop = int(self._control.data.ptr) + CONTROL.fields["stopped"][1]  # type: ignore[index]
        # Written at first, and read in turn.
        self._first, *homes = (cupyx.empty_pinned((CONTROL.itemsize,), np.uint8) for _ in range(4))
        self._homes = cycle(homes)

    def begin(self, scale: float, tolerance: float, most: int) -> None:
        """Begin a solve; see `ConjugateVectors.begin`."""
        self._first[...] = 0
        control = self._first.view(CONTROL)
        control["scale"], control["tolerance"], control["most"] = scale, tolerance, most
        self._copy_control(self._control.data.ptr, self._first.ctypes.data)
        launch_dots(self.r, self.r, self._rr, self._owned)
        if self._diagonal:
            launch_dots(self.r, self.r * self._inverse, self._rz, self._owned)

    def copy_residual(self, out: Any, taken: Any) -> None:
        """Write r to another array, too; see `ConjugateVectors.copy_residual`."""
        self._copy, self._residual = (_NONE if taken is None else taken, out), self._of(out.dtype)[1]

    def _of(self, other: np.dtype[Any]) -> tuple[Any, ...]:
        """Kernels for z, and a copy of r, of a type."""
        return _kernels(current_device().name, *self._types, other)

    def _launch(self, kernel: Any, blocks: int, sums: int, *arguments: Any) -> None:
        kernel((blocks,), (THREADS,), (self._n, *arguments), shared_mem=sum_bytes(sums))

    def _sums(self, first: Any, second: Any) -> tuple[Any, Any, Any]:
        """The numbers that the next kernel adds up: their count, and two arrays of this length."""
        if self._sharing is None:
            return np.int32(len(first)), first, second
        rows = self._left[2:] if first is self.partials else self._left[: 1 + (second is not first)]
        total = self._total[: len(rows)]
        self._sharing.between.sum(rows, total)
        return np.int32(MOST_SUMS), total[0], total[-1]

    def measure_product(self, q: Any) -> None:
        """Sums of p.q of a product that came without them; see `ConjugateVectors.measure_product`."""
        self.q = cupy.ascontiguousarray(q, self.r.dtype)
        launch_dots(self.p, self.q, self.partials, self._owned, stop=self.stop)

    def update_residual(self) -> None:
        """After a product: r -= alpha q."""
        sums = self._sums(self.partials, self.partials)[:2]
        vectors = (self.q, self._inverse, self._owned, self.r, self._rr, self._rz, *self._copy)
        self._launch(self._residual, self._blocks, 2, self._control, *sums, *vectors)

    def update_direction(self, z: Any = None, free: Any = None, agree: Callable[[], Any] | None = None) -> None:
        """After that, and at the start: x += alpha p, p = z + beta p; see `ConjugateVectors.update_direction`."""
        rz, inverse, direction = (self._rz if self._diagonal else self._rr), self._inverse, self._direction
        free = _NONE if free is None else free
        if z is None:
            z = self.r
        else:
            rz, inverse, z = self._rz, _NONE, cupy.ascontiguousarray(z)
            direction = self._of(z.dtype)[2]
            launch_dots(self.r, z, rz, self._owned, free, self.stop)
        sums = self._sums(self._rr, rz)
        if agree is not None:
            agree()
        vectors = self.r, z, free, inverse, self.x, self.p
        self._launch(direction, self._blocks, 2, self._control, *sums, *vectors)

    def stop_if_done(self) -> None:
        """Tell whether the iterations end; see `ConjugateVectors.stop_if_done`."""
        vectors = self.r, _NONE, _NONE, _NONE, self.x, self.p
        self._launch(self._direction, self._blocks, 2, self._control, *self._sums(self._rr, self._rr), *vectors)

    def finish(self) -> None:
        """Wait for all that was launched, whatever has interrupted the iterations: a signal comes after that."""
        cupy.cuda.get_current_stream().synchronize()

    def read(self) -> Reading:
        """Ask for the control block; the host goes on."""
        home, event = next(self._homes), cupy.cuda.Event(block=False, disable_timing=True)
        self._copy_control(home.ctypes.data, self._control.data.ptr)
        event.record()
        return Reading(home, event, self._sharing)

    def _copy_control(self, target: int, source: int) -> None:
        """Copy the control block from or to the host, which goes on."""
        runtime, stream = cupy.cuda.runtime, cupy.cuda.get_current_stream().ptr
        runtime.memcpyAsync(target, source, CONTROL.itemsize, runtime.memcpyDefault, stream)
