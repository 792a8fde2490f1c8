"""Host/device pairs: one array with a copy on the host, on a device, or on both ([X] section 3.1, A.1).

Each side has a validity flag. An array is asked for as `read`, `write` or `readwrite` on a device; data moves only when
the asked side is stale, and every move is counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike

from .errors import ArgumentError, StateError


class Device(Protocol):
    """Where an array can live. The host is `HOST`; a backend with memory of its own provides another."""

    name: str

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Any:
        """Allocate an uninitialised C-ordered array."""

    def from_host(self, source: np.ndarray[Any, Any], out: Any) -> None:
        """Copy a host array into a device array."""

    def to_host(self, source: Any, out: np.ndarray[Any, Any]) -> None:
        """Copy a device array into a host array."""


class Host:
    """The host's memory, as a device."""

    name = "host"

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray[Any, Any]:
        """Allocate an uninitialised C-ordered array."""
        return np.empty(shape, dtype)

    def from_host(self, source: np.ndarray[Any, Any], out: Any) -> None:
        """Copy a host array."""
        np.copyto(out, source)

    def to_host(self, source: Any, out: np.ndarray[Any, Any]) -> None:
        """Copy a host array."""
        np.copyto(out, source)


HOST = Host()


@dataclass(eq=False)
class Transfers:
    """Counters of what moved between host and devices.

    Attributes
    ----------
    to_device, to_host : int
        Number of copies.
    bytes_to_device, bytes_to_host : int
        Their sizes in bytes.
    """

    to_device: int = 0
    to_host: int = 0
    bytes_to_device: int = 0
    bytes_to_host: int = 0

    @property
    def total(self) -> int:
        """Number of copies in both directions."""
        return self.to_device + self.to_host


_COUNTERS: list[Transfers] = []


@contextmanager
def count_transfers() -> Iterator[Transfers]:
    """Count the transfers made inside a `with` block.

    Yields
    ------
    Transfers
        Counters, updated as copies happen.
    """
    counter = Transfers()
    _COUNTERS.append(counter)
    try:
        yield counter
    finally:
        _COUNTERS.remove(counter)


class PairArray:
    """An array with a host side and at most one device side.

    Parameters
    ----------
    shape : tuple of int
    dtype : dtype
        float64 or float32.
    """

    def __init__(self, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        self.shape = tuple(int(n) for n in shape)
        self.dtype = np.dtype(dtype)
        self._device: Device | None = None
        self._sides: dict[str, Any] = {}
        self._valid: set[str] = set()

    @classmethod
    def of(cls, array: Any, device: Device = HOST) -> PairArray:
        """Wrap an array that lives on a device, without copying it."""
        pair = cls(array.shape, array.dtype)
        pair._sides[device.name] = array
        pair._valid.add(device.name)
        if device.name != HOST.name:
            pair._device = device
        return pair

    def __getstate__(self) -> dict[str, Any]:
        return {"shape": self.shape, "dtype": self.dtype, "host": self.read() if self._valid else None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        PairArray.__init__(self, state["shape"], state["dtype"])
        if state["host"] is not None:
            self._sides[HOST.name] = np.array(state["host"])
            self._valid.add(HOST.name)

    @property
    def nbytes(self) -> int:
        """Size of one side in bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    @property
    def device(self) -> Device | None:
        """The device other than the host that this array has been on."""
        return self._device

    def valid(self, device: Device = HOST) -> bool:
        """Whether the side on `device` holds the current values."""
        return device.name in self._valid

    @property
    def home(self) -> Device:
        """Where the values can be read without a transfer; the host if on both sides."""
        return HOST if HOST.name in self._valid or self._device is None else self._device

    def overlaps(self, other: PairArray) -> bool:
        """Whether writing to this array would change another one."""
        if self is other:
            return True
        mine, theirs = self._sides.get(HOST.name), other._sides.get(HOST.name)
        return mine is not None and theirs is not None and bool(np.may_share_memory(mine, theirs))

    def read(self, device: Device = HOST) -> Any:
        """Array on `device` with the current values, for reading.

        Raises
        ------
        StateError
            If nothing has been written yet.
        """
        side = self._side(device, written=True)
        if device.name not in self._valid:
            self._transfer(device, side)
            self._valid.add(device.name)
        if device.name == HOST.name:
            side = side.view()
            side.flags.writeable = False
        return side

    def write(self, device: Device = HOST) -> Any:
        """Array on `device` to be overwritten entirely: nothing is transferred, the other side becomes stale."""
        side = self._side(device, written=False)
        self._valid = {device.name}
        return side

    def readwrite(self, device: Device = HOST) -> Any:
        """Array on `device` with the current values, to be changed: the other side becomes stale.

        Raises
        ------
        StateError
            If nothing has been written yet.
        """
        side = self._side(device, written=True)
        if device.name not in self._valid:
            self._transfer(device, side)
        self._valid = {device.name}
        return side

    def _side(self, device: Device, written: bool) -> Any:
        if written and not self._valid:
            raise StateError("an array was read before anything was written to it")
        if device.name != HOST.name:
            if self._device is not None and self._device.name != device.name:
                raise ArgumentError(
                    f"this array lives on {self._device.name!r} and the host; copy it before using it on"
                    f" {device.name!r}"
                )
            self._device = device
        if device.name not in self._sides:
            self._sides[device.name] = device.empty(self.shape, self.dtype)
        return self._sides[device.name]

    def _transfer(self, device: Device, side: Any) -> None:
        if device.name == HOST.name:
            if self._device is None:
                raise StateError("an array is valid on a device that is gone")
            self._device.to_host(self._sides[self._device.name], side)
        else:
            device.from_host(self._sides[HOST.name], side)
        for counter in _COUNTERS:
            if device.name == HOST.name:
                counter.to_host += 1
                counter.bytes_to_host += self.nbytes
            else:
                counter.to_device += 1
                counter.bytes_to_device += self.nbytes
