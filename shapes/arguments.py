"""Checks of arguments with the same messages in all modules, and texts of values for messages."""

from __future__ import annotations

import inspect
import math
from collections.abc import Collection
from difflib import get_close_matches
from functools import lru_cache
from reprlib import Repr
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .arrays import Array
from .errors import ArgumentError

T = TypeVar("T")
_signature = lru_cache(maxsize=64)(inspect.signature)

# Beyond these, tables need gigabytes, or very long to make.
MAX_ORDER, MAX_POINTS = 100, 1000


class _Short(Repr):
    """A text of bounded length for any object, even one that cannot be printed."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxlong = self.maxother = 80

    def repr_ndarray(self, array: Any, level: int) -> str:
        """An array by its kind; with its numbers only if they are few."""
        if array.size > 6:
            return f"<array {list(array.shape)} of {array.dtype}>"
        return " ".join(self.repr_instance(array, level).split())

    def repr_int(self, number: int, level: int) -> str:
        """An integer; Python prints only so many digits."""
        return f"<integer of {number.bit_length()} bits>" if number.bit_length() > 200 else repr(number)


_SHORT = _Short()


def shown(value: object) -> str:
    """A short text of any value, for messages."""
    return _SHORT.repr(value)


def integer(value: object, least: int, what: str, most: int | None = None) -> int:
    """An integer not below `least`, as a Python int."""
    fits = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not fits or value < least or (most is not None and value > most):  # type: ignore[operator]
        bounds = f">= {least}" + ("" if most is None else f" and <= {most}")
        raise ArgumentError(f"{what} must be an integer {bounds}, got {shown(value)}")
    return int(value)  # type: ignore[call-overload]


def is_real(value: object) -> bool:
    """Whether something is a real number: a Python or NumPy scalar, or an array of no dimension."""
    if isinstance(value, np.ndarray):
        return value.ndim == 0 and value.dtype.kind in "iuf"
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def real(
    value: object, what: str, least: float | None = None, above: float | None = None, below: float | None = None
) -> float:
    """A finite real number, as a Python float."""
    found = math.nan
    if is_real(value):
        try:
            found = float(value)  # type: ignore[arg-type]
        except OverflowError:  # an integer beyond all floats
            found = math.inf
    inside = (least is None or found >= least) and (above is None or found > above) and (below is None or found < below)
    if not (math.isfinite(found) and inside):
        bounds = ((">=", least), (">", above), ("<", below))
        wanted = " and ".join(f"{sign} {bound}" for sign, bound in bounds if bound is not None)
        raise ArgumentError(f"{what} must be a finite number{' ' * bool(wanted)}{wanted}, got {shown(value)}")
    return found


def takes(function: object, *arguments: object) -> bool:
    """Whether something can be called with these arguments, according to its signature."""
    if not callable(function):
        return False
    call = type(function).__call__  # of an object, whose class tells its signature once
    try:
        if inspect.isfunction(call):
            _signature(call).bind(function, *arguments)
        else:
            inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    except (ValueError, AttributeError):
        return True
    return True


def flag(value: object, what: str) -> bool:
    """A yes or no."""
    if not isinstance(value, (bool, np.bool_)):
        raise ArgumentError(f"{what} must be True or False, got {shown(value)}")
    return bool(value)


def name_of(value: object, names: Collection[str], kind: str, where: str = "") -> str:
    """One of some names."""
    if isinstance(value, str) and value in names:
        return value
    close = get_close_matches(value[:80], names, n=1, cutoff=0.75) if isinstance(value, str) else []
    hint = f" (did you mean '{close[0]}'?)" if close else ""
    raise ArgumentError(f"unknown {kind} {shown(value)}{where}{hint}; valid: {', '.join(names) or 'none'}")


def instance(value: Any, kind: type[T], what: str) -> T:
    """An object of a type."""
    if not isinstance(value, kind):
        given = f"the type {value.__name__}" if isinstance(value, type) else type(value).__name__
        raise ArgumentError(f"{what} must be a {kind.__name__}, got {given}")
    return value


def as_array(value: object, what: str, kinds: str = "buif") -> NDArray[Any]:
    """An array of numbers."""
    try:
        found = None if isinstance(value, (type, np.ma.MaskedArray)) else np.asarray(value)
    except Exception:  # noqa: BLE001 - ragged lists, and whatever the conversion of a foreign object raises
        found = None
    if found is None or (found.dtype.kind not in kinds and (found.size or found.dtype.kind not in "buif")):
        wanted = "integers" if kinds == "iu" else "real numbers"
        raise ArgumentError(f"{what} must be an array of {wanted}, got {shown(value)}")
    return found


def reals(value: object, what: str) -> Array:
    """An array of floats."""
    return as_array(value, what).astype(np.float64, copy=False)


def coordinates(value: object, dim: int, shape: str) -> Array:
    """Points as an array of floats [n, dim]."""
    points = reals(value, f"points of a {shape}")
    if points.ndim != 2 or points.shape[1] != dim:
        raise ArgumentError(f"points of a {shape} are an array [n, {dim}], got one of shape {points.shape}")
    return points
