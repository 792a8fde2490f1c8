"""Host/device pairs: one array with a copy on the host, on a device, or on both ([Xing] section 3.1, A.1).

Each side has a validity flag. An array is asked for as `read`, `write` or `readwrite` on a device; data moves only when
the asked side is stale, and every move is counted. Other libraries take a pair without a copy through DLPack, the CUDA
array interface or `numpy.asarray`: each counts as `readwrite` where the values are, so that the other side is stale.

Several threads may read a pair at once: they see a side only when it is filled. While a thread writes to a pair, no
other may use it, as with a NumPy array. Memory may be freed while a device still works on it: CuPy's pool uses it again
on the same stream only, and work on a stream is done in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from .errors import ArgumentError, DeviceError, StateError
from .support.machine import available_memory
from .support.threads import in_parts

T = TypeVar("T")

# Numbers that the host takes no longer for than a device for its launches.
FEW = 1 << 20
# Bytes of a page, and pieces of an array whose pages threads touch.
_PAGE, _PIECES = 4096, 8

# Device types of DLPack whose memory is the host's: plain and pinned.
_DLPACK_HOST = (1, 3)


class OutOfMemory(DeviceError, MemoryError):
    """A device has no room for an array, or for all that is going to be made there.

    Parameters
    ----------
    message : str
    needed, free, total : int
        Bytes that were asked for, that are free, and that the device has.
    """

    def __init__(self, message: str, needed: int = 0, free: int = 0, total: int = 0) -> None:
        super().__init__(message)
        self.needed, self.free, self.total = needed, free, total

    def __reduce__(self) -> tuple[Any, ...]:
        return OutOfMemory, (str(self), self.needed, self.free, self.total)


class Device(Protocol):
    """Where an array can live. The host is `HOST`; a backend with memory of its own provides another."""

    name: str
    backend: str  # name of the one that computes there
    library: str = "NumPy"  # of its arrays
    interfaces: tuple[str, ...] = ()  # attributes of its arrays by which others find the memory, beside DLPack's
    selection: str = ""  # how users select it

    @staticmethod
    def place(kind: int, number: int) -> str | None:
        """Say where arrays of DLPack's type and number are, None if not of this kind; see `dlpack_device`."""
        return None

    def free(self) -> float:
        """Tell how many bytes of memory are free; infinity if unknown."""
        return math.inf

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Any:
        """Allocate an uninitialised C-ordered array of the device's own kind."""

    def from_host(self, source: np.ndarray[Any, Any], out: Any) -> None:
        """Copy a host array into an array of the device."""

    def to_host(self, source: Any, out: np.ndarray[Any, Any]) -> None:
        """Copy an array of the device into a host array."""

    def adopt(self, array: Any) -> Any | None:
        """Wrap any library's array, None if it is elsewhere; an ArgumentError if its memory is not shared."""

    def overlap(self, first: Any, second: Any) -> bool:
        """Tell whether two of the device's arrays may share memory."""

    def wait(self, context: Any) -> None:
        """Wait for the `stream` of another library's call, or without one for the device's own."""
        return None


def dlpack_device(array: Any) -> tuple[int, int] | None:
    """Type and number of the device where DLPack says that an array is; None for an object without DLPack."""
    ask = getattr(array, "__dlpack_device__", None)
    if ask is None or isinstance(array, type):
        return None
    kind, number = ask()
    return int(kind), int(number)


class Host(Device):
    """The host's memory, as a device."""

    name, backend = "host", "cpu"

    def __reduce__(self) -> str:
        return "HOST"

    @staticmethod
    def place(kind: int, number: int) -> str | None:
        """Say that arrays are on the host."""
        return "on the host" if kind in _DLPACK_HOST else None

    def free(self) -> float:
        """Free memory of the system, or up to the limit of the process."""
        return available_memory()

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray[Any, Any]:
        """Allocate a NumPy array."""
        return np.empty(shape, dtype)

    def from_host(self, source: Any, out: Any) -> None:
        """Copy a host array."""
        np.copyto(out, source)

    to_host = from_host

    def adopt(self, array: Any) -> Any | None:
        """NumPy array on the memory of any library's array."""
        if isinstance(array, np.ndarray):
            return array
        place = dlpack_device(array)
        speaks = hasattr(array, "__array__") or hasattr(array, "__array_interface__")
        if (place is not None and place[0] not in _DLPACK_HOST) or (place is None and not speaks):
            return None
        try:
            return np.asarray(array) if speaks else np.from_dlpack(array)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise ArgumentError(f"{type(array).__name__} gives no NumPy array of its memory: {error}") from error

    def overlap(self, first: Any, second: Any) -> bool:
        """Whether two arrays may share memory."""
        return bool(np.may_share_memory(first, second))


HOST = Host()


@dataclass(eq=False)
class Transfers:
    """Counters of copies between host and devices, and of their bytes."""

    to_device: int = 0
    to_host: int = 0
    bytes_to_device: int = 0
    bytes_to_host: int = 0

    @property
    def total(self) -> int:
        """Number of copies in both directions."""
        return self.to_device + self.to_host


_COUNTERS: list[Transfers] = []


def device_of(xp: Any) -> str:
    """Name the device on which a module of arrays makes them now."""
    return home_of(xp.empty(0))


def home_of(array: Any) -> str:
    """Name the device where an array is."""
    return str(getattr(array, "device", "the only one"))


class PerDevice(Generic[T]):
    """Objects that are made once per device; a copy of this container is empty."""

    def __init__(self) -> None:
        self._made: dict[str, T] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return PerDevice, ()

    def __contains__(self, device: str) -> bool:
        return device in self._made

    def get(self, device: Device | str, make: Callable[[], T]) -> T:
        """Give the object of a device, or of its name from `device_of`; it is made the first time."""
        name = device if isinstance(device, str) else device.name
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]


def as_numpy(array: Any) -> Any:
    """Small results on the host, wherever they were computed; not counted as transfers."""
    if not hasattr(array, "get"):
        return np.asarray(array)
    if array.nbytes < 4 * FEW:
        return array.get()
    # Pages that nobody has touched are made by several threads, else by the copy, one after the other.
    out = np.empty(array.shape, array.dtype)
    pages = out.reshape(-1).view(np.uint8)[::_PAGE]
    in_parts(lambda k: pages[k * len(pages) // _PIECES : (k + 1) * len(pages) // _PIECES].fill(0), range(_PIECES))
    return array.get(out=out)


def moved(array: Any, xp: Any) -> Any:
    """An array of a module; CuPy's `asarray` takes pinned memory of that size first, which costs more than the copy."""
    there = xp is np or not isinstance(array, np.ndarray) or not array.ndim
    out: Any = None if there else xp.empty(array.shape, array.dtype)
    if not hasattr(out, "set"):  # not CuPy's
        return xp.asarray(array)
    out.set(np.ascontiguousarray(array))
    return out


def xp_for(count: int, xp: Any) -> Any:
    """Module for what is made once of so many numbers: NumPy if few, as CuPy compiles each operation for 0.1 s."""
    return np if count < FEW else xp


def every(found: Any) -> bool:
    """Whether all are true; CuPy has the minimum at hand, while its own `all` takes seconds to compile."""
    return not found.size or bool(found.ravel().view(np.uint8).min())


@contextmanager
def count_transfers() -> Iterator[Transfers]:
    """Count the transfers inside a `with` block."""
    counter = Transfers()
    _COUNTERS.append(counter)
    try:
        yield counter
    finally:
        _COUNTERS.remove(counter)


class PairArray:
    """An array of float64 or float32 with a host side and at most one device side."""

    constant = False  # whether the values can be read alone, and not be written to

    def __init__(self, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        self.shape = tuple(int(n) for n in shape)
        self.dtype = np.dtype(dtype)
        self.nbytes = math.prod(self.shape) * self.dtype.itemsize  # of one side
        self.device: Device | None = None  # the one, other than the host, on which this array has been
        self._sides: dict[str, Any] = {}
        self._valid: set[str] = set()

    @classmethod
    def of(cls, array: Any, device: Device = HOST, constant: bool = False) -> PairArray:
        """Wrap an array that lives on a device, without copying it, as for `PairArray`."""
        pair = cls(array.shape, array.dtype)
        pair._sides[device.name] = array
        pair._valid.add(device.name)
        pair.constant = constant
        if device.name != HOST.name:
            pair.device = device
        return pair

    def __getstate__(self) -> dict[str, Any]:
        host = self.read() if self._valid else None
        return {"shape": self.shape, "dtype": self.dtype, "host": host, "constant": self.constant}

    def __setstate__(self, state: dict[str, Any]) -> None:
        PairArray.__init__(self, state["shape"], state["dtype"])
        if state["host"] is not None:
            self._sides[HOST.name] = np.array(state["host"])
            self._valid.add(HOST.name)
        self.constant = state["constant"]

    def valid(self, device: Device = HOST) -> bool:
        """Tell whether the side on a device holds the current values; see `home`."""
        return device.name in self._valid

    @property
    def home(self) -> Device:
        """Where the values can be read without a transfer; the host if on both sides."""
        return HOST if HOST.name in self._valid or self.device is None else self.device

    def overlaps(self, other: PairArray) -> bool:
        """Tell whether writing to this array would change another one; see `Device.overlap`."""
        if self is other:
            return True
        for device in (HOST, self.device):
            if device is not None:
                mine, theirs = self._sides.get(device.name), other._sides.get(device.name)
                if mine is not None and theirs is not None and device.overlap(mine, theirs):
                    return True
        return False

    @property
    def held(self) -> dict[str, int]:
        """Bytes that the pair holds, by device."""
        return dict.fromkeys(self._sides, self.nbytes)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """DLPack capsule, as in the array API standard, of the side that has the values, or of a copy on the host."""
        home = self.home
        given = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
        wanted = {key: value for key, value in given.items() if value is not None}
        if dl_device is not None and int(dl_device[0]) in _DLPACK_HOST and home.name != HOST.name:
            if copy is False:
                raise BufferError(f"the values are on {home.name}: they can be copied to the host only")
            wanted.pop("stream", None)
            return np.array(self.read(HOST)).__dlpack__(**wanted)
        shared = self.read(home) * 1 if self.constant else self.readwrite(home)
        return shared.__dlpack__(**wanted)

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's type and number of where the values are."""
        kind, number = self.read(self.home).__dlpack_device__()
        return int(kind), int(number)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """An array interface of the device's side; absent if that side does not have the values."""
            if not name.endswith("_interface__"):
                raise AttributeError(f"'PairArray' object has no attribute {name!r}")
            if self.constant:
                raise AttributeError("the values are constant: ask for read(device)")
            if self.device is None or name not in self.device.interfaces or not self.valid(self.device):
                raise AttributeError("the values are not on a device: ask for readwrite(device) first")
            return getattr(self.readwrite(self.device), name)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """The host's side as for `numpy.asarray`, after a counted transfer if the values are on a device only."""
        other = dtype is not None and np.dtype(dtype) != self.dtype
        if copy is False and (other or not self.valid(HOST)):
            raise ValueError(
                f"an array of {dtype or self.dtype} on the host needs a copy of the values on {self.home.name}"
            )
        if copy or other:
            return np.array(self.read(HOST), dtype=dtype)
        side: np.ndarray[Any, Any] = self.read(HOST) if self.constant else self.readwrite(HOST)
        return side

    def read(self, device: Device = HOST) -> Any:
        """Give the values on a device, on the host not to be written to; a StateError if nothing is written yet."""
        side = self._filled(device)
        self._valid.add(device.name)
        if device.name == HOST.name:
            side = side.view()
            side.flags.writeable = False
        return side

    def write(self, device: Device = HOST) -> Any:
        """Give an array on a device to be overwritten entirely, with any content; see `read`.

        Nothing is transferred, the other side becomes stale. Values that are constant are refused by a StateError.
        """
        self._check_writable()
        self._place(device)
        side = self._sides.get(device.name)
        if side is None:
            side = self._sides[device.name] = device.empty(self.shape, self.dtype)
        self._valid = {device.name}
        return side

    def readwrite(self, device: Device = HOST) -> Any:
        """Give the values on a device, to be changed: the other side becomes stale; see `write`."""
        self._check_writable()
        side = self._filled(device)
        self._valid = {device.name}
        return side

    def _check_writable(self) -> None:
        if self.constant:
            raise StateError(
                "these values are constant: an operator made them from its coefficient, and kernels keep what follows"
                " from them; to change a coefficient, give a 'phys' field, or make another operator"
            )

    def discard(self) -> None:
        """Mark the values as lost, because writing them was interrupted. The array can be written again."""
        self._valid = set()

    def _place(self, device: Device) -> None:
        """Check that the pair can be on a device."""
        if device.name != HOST.name:
            if self.device is not None and self.device.name != device.name:
                raise ArgumentError(
                    f"this array lives on {self.device.name!r} and the host; copy it before using it on {device.name!r}"
                )
            self.device = device

    def _filled(self, device: Device) -> Any:
        """The side on a device with the current values."""
        if not self._valid:
            raise StateError(
                "an array was read before anything was written to it, or after writing to it was interrupted"
            )
        self._place(device)
        if device.name in self._valid:
            return self._sides[device.name]
        # An existing side keeps its memory, which others may be reading; it is filled with the same values for all.
        side = self._sides.get(device.name)
        if side is None:
            side = device.empty(self.shape, self.dtype)
        self._transfer(device, side)
        return self._sides.setdefault(device.name, side)

    def _transfer(self, device: Device, side: Any) -> None:
        if device.name == HOST.name:
            if self.device is None:
                raise StateError("an array is valid on a device that is gone")
            self.device.to_host(self._sides[self.device.name], side)
        else:
            device.from_host(self._sides[HOST.name], side)
        for counter in tuple(_COUNTERS):
            if device.name == HOST.name:
                counter.to_host += 1
                counter.bytes_to_host += self.nbytes
            else:
                counter.to_device += 1
                counter.bytes_to_device += self.nbytes
