"""Operators on plain arrays: of NumPy, CuPy, or any library that shares its memory."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol, overload

import numpy as np

from ..backends.base import Backend
from ..backends.exchange import is_array, where_is, wrap
from ..errors import ArgumentError, DeviceError, StateError
from ..memory import HOST, Device, PairArray
from ..space import Field, Space
from ..space.transforms import result_field

# Libraries whose arrays cannot be written to.
_IMMUTABLE = ("jax", "jaxlib")


class Array(Protocol):
    """An array that shares its memory through DLPack."""

    def __dlpack__(self) -> Any: ...


class FieldMap(ABC):
    """A map of fields on a space to fields on a target space, and of arrays to arrays."""

    space: Space
    target: Space
    name: str  # for messages
    backend: Backend
    input_state: str
    output_state: str

    @property
    def device(self) -> Device:
        """Device of arrays that are given as `out`."""
        return self.backend.device()

    def result(self, field: Field, components: int, out: Field | None) -> Field:
        """The field for a result: a new one, or the one that the caller gives, if it fits and is not the argument."""
        given, out = out, result_field(self.target, self.name, self.output_state, components, out)
        if given is not None and any(a.overlaps(b) for a, b in zip(out.data, field.data, strict=True)):
            raise StateError(f"{self.name} cannot write into its own argument; give another field as out")
        return out

    @abstractmethod
    def apply_to_field(self, field: Field, out: Field | None = None) -> Field:
        """Apply to a field; see `FieldMap.__call__`."""

    @overload
    def __call__(self, field: Field, out: Field | None = None) -> Field: ...

    @overload
    def __call__(self, field: Array | Sequence[Array], out: Any = None) -> Any: ...

    def __call__(self, field: Any, out: Any = None) -> Any:
        """Apply."""
        return self.apply_to_field(field, out) if isinstance(field, Field) else apply_to_arrays(self, field, out)


def check_current(name: str, device: Device, current: Device) -> None:
    """Check that an operator is used on the device that it was made on."""
    if device.name != current.name:
        raise DeviceError(
            f"{name} was made on {device.name}, where its kernels and factors are, and {current.name} is"
            f" the current device; use it where {device.name} is current ({device.selection}), or make another"
        )


def apply_to_arrays(operator: FieldMap, arrays: Any, out: Any = None) -> Any:
    """Apply an operator to arrays, in its input state."""
    name, device = operator.name, operator.device
    given, single = _listed(operator, arrays)
    pairs = [_pair(array, f"{name}, block {number}") for number, array in enumerate(given)]
    for pair, array in zip(pairs, given, strict=True):
        if pair.home.name not in (HOST.name, device.name):
            raise ArgumentError(
                f"{name} computes on {device.name} and got {where_is(array)}; copy it to the host, or make the operator"
                f" with backend={pair.home.backend!r}"
            )
    home = pairs[0].home
    if any(pair.home.name != home.name for pair in pairs):
        raise ArgumentError(f"{name} got arrays on the host and on {device.name}; give all of them on one of these")
    target = None if out is None else _target(operator, out, single)
    result = operator(Field(operator.space, operator.input_state, pairs), out=target)
    if out is not None:
        for pair in result.data:  # some operators compute on the host whatever the device
            pair.read(device)
        return out
    found = [same_kind(array, pair.readwrite(home)) for array, pair in zip(given, result.data, strict=True)]
    return found[0] if single else found


def _listed(operator: FieldMap, arrays: Any) -> tuple[Sequence[Any], bool]:
    """One array per block, and whether it was given without a list around it."""
    count = len(operator.space.blocks)
    listed = isinstance(arrays, (list, tuple))
    given = arrays if listed else [arrays]
    if len(given) != count or not all(is_array(array) for array in given):
        got = f"{len(given)} things" if listed and len(given) != count else type(given[0]).__name__
        wanted = "an array" if count == 1 else f"a list of {count} arrays, one per block"
        raise StateError(f"{operator.name} takes a Field on its own space, or {wanted}; got {got}")
    return given, not listed


def _pair(array: Any, what: str) -> PairArray:
    try:
        return wrap(array)
    except ArgumentError as error:
        raise ArgumentError(f"{what}: {error}") from error


def _target(operator: FieldMap, out: Any, single: bool) -> Field:
    """Field on the memory of the arrays for the results."""
    name, device = operator.name, operator.device
    count = len(operator.space.blocks)
    given = [out] if single else out
    if not isinstance(given, (list, tuple)) or len(given) != count or not all(is_array(array) for array in given):
        wanted = "an array" if single else f"a list of {count} array(s)"
        raise StateError(f"out of {name} must be {wanted} as the argument is, got {type(out).__name__}")
    pairs = []
    for number, array in enumerate(given):
        what = f"out of {name}, block {number}"
        if type(array).__module__.partition(".")[0] in _IMMUTABLE:
            raise ArgumentError(f"{what}: arrays of JAX cannot be written to; call without out=")
        pair = _pair(array, what)
        if pair.home.name != device.name:
            raise ArgumentError(
                f"{what}: {name} writes on {device.name}, got {where_is(array)};"
                " give an array there, or call without out="
            )
        inside = pair.readwrite(device)
        if device.name == HOST.name and not (inside.flags.writeable and np.may_share_memory(inside, np.asarray(array))):
            raise ArgumentError(f"{what}: {type(array).__name__} is read-only, or shares only copies of its memory")
        pairs.append(pair)
    return Field(operator.target, operator.output_state, pairs)


def same_kind(example: Any, array: Any) -> Any:
    """An array of NumPy or CuPy, converted to the library of another array without a copy."""
    if isinstance(example, type(array)):
        return array
    namespace = getattr(example, "__array_namespace__", None)
    library = namespace() if namespace else sys.modules.get(type(example).__module__.partition(".")[0])
    convert = getattr(library, "from_dlpack", None)
    return array if convert is None else convert(array)
