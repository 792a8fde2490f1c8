"""Arrays of other libraries, used without a copy: DLPack and array interfaces."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..memory import HOST, Device, PairArray, dlpack_device
from .base import BACKENDS


def _device_types() -> dict[type[Device], None]:
    """Device types of all backends, whether or not they can run here."""
    return dict.fromkeys(BACKENDS[name].device_type for name in BACKENDS)


def _interfaces() -> list[str]:
    """Attributes of arrays on devices that give their memory, beside DLPack's."""
    return [name for device in _device_types() for name in device.interfaces]


def is_array(array: Any) -> bool:
    """Tell whether something is an array of some library; a `Field` is not."""
    if hasattr(array, "space") or isinstance(array, (type, np.generic)):
        return False
    return any(hasattr(array, name) for name in ("__dlpack_device__", "__array__", *_interfaces()))


def where_is(array: Any) -> str:
    """Describe an array and its place, for messages."""
    place, kind = dlpack_device(array), type(array)
    name = f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
    if place is not None:
        found = [text for device in _device_types() if (text := device.place(*place))]
        return f"{name} {found[0] if found else f'on a device of DLPack type {place[0]}'}"
    return f"{name} on a GPU" if any(hasattr(array, interface) for interface in _interfaces()) else name


def _ordered(array: Any, copy: bool) -> Any:
    """The array, or a copy in C order."""
    if array.flags.c_contiguous:
        return array
    if not copy:
        raise ArgumentError(
            f"got {where_is(array)} of strides {tuple(array.strides)}, which is not in C order; give"
            f" {type(array).__module__.partition('.')[0]}.ascontiguousarray(array)"
        )
    return array.copy(order="C")


def wrap(array: Any, copy: bool = False) -> PairArray:
    """Pair of any library's array, on its memory: that of the host, or of a backend's current device."""
    if not is_array(array):
        libraries = ", ".join(device.library for device in _device_types())
        raise ArgumentError(f"expected an array of {libraries} or the like, got {type(array).__name__}")
    if getattr(array, "requires_grad", False):
        raise ArgumentError(
            f"this {where_is(array)} records gradients, and this does not differentiate: give array.detach(), which"
            " makes the result a constant to autograd. hp.torch.wrap differentiates through a whole solve. To do so"
            " through a linear operator, write a torch.autograd.Function: forward applies it to the detached array,"
            " backward applies its transpose to the gradient, which for symmetric forms such as Mass and Helmholtz is"
            " the operator itself"
        )
    # Devices first: they recognise their own arrays, and DLPack's device of an array takes time.
    for backend in () if isinstance(array, np.ndarray) else [BACKENDS[name] for name in BACKENDS]:
        device = backend.device() if backend.missing() is None else HOST
        found = device.adopt(array) if device is not HOST else None
        if found is not None:
            return PairArray.of(_ordered(found, copy), device)
    found = HOST.adopt(array)
    if found is not None:
        return PairArray.of(_ordered(found, copy))
    here = ", ".join(dict.fromkeys(b.device().name for n in BACKENDS if (b := BACKENDS[n]).missing() is None))
    raise ArgumentError(
        f"got {where_is(array)}, which no backend uses here and now ({here}); copy it to one of these, or make its"
        " device the current one"
    )


def placed(vector: Any) -> tuple[Any, Device]:
    """A vector of any library, and where it is; what is no such array is for the host."""
    if isinstance(vector, np.ndarray) or not is_array(vector):
        return vector, HOST
    pair = wrap(vector, copy=True)
    return pair.read(pair.home), pair.home
