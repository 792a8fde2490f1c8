"""Numbers of an operator that may change between applications, each checked where it is set."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpy.typing import DTypeLike

from hpfem.shapes.arguments import real, shown

from ..errors import ArgumentError


def in_range(number: float, what: str, dtype: DTypeLike) -> float:
    """A number that a dtype can hold."""
    limits = np.finfo(np.dtype(dtype))
    if number and not float(limits.tiny) <= abs(number) <= float(limits.max):
        raise ArgumentError(
            f"{what} is {number}, out of the range of {limits.dtype}; take other units, or a space of float64"
        )
    return number


class Parameters(dict[str, float]):
    """The parameters of an operator by name; unknown names, and values that are not numbers, are refused.

    Parameters
    ----------
    name : str
        Of the operator, for messages.
    dtype : dtype
        Of its arithmetic.
    numbers : dict
    """

    def __init__(self, name: str, dtype: DTypeLike, numbers: dict[str, float]) -> None:
        super().__init__(numbers)
        self.name, self.dtype = name, dtype

    def __setitem__(self, key: str, value: Any) -> None:
        if key not in self:
            known = ", ".join(self) or "none"
            raise ArgumentError(f"{self.name} has no parameter {shown(key)}; it has: {known}")
        what = f"parameter {key!r} of {self.name}"
        number = float(value) if isinstance(value, (bool, np.bool_)) else real(value, what)
        super().__setitem__(key, in_range(number, what, self.dtype))

    def update(self, *given: Any, **named: Any) -> None:
        """Set several parameters; if one is refused, those before it are set."""
        for key, value in dict(*given, **named).items():
            self[key] = value

    def __ior__(self, other: Any) -> Parameters:  # type: ignore[override, misc]
        self.update(other)
        return self

    def _fixed(self, *_: Any) -> NoReturn:
        raise ArgumentError(f"the parameters of {self.name} are {', '.join(self)}; they can be set, but not removed")

    __delitem__ = pop = popitem = clear = setdefault = _fixed

    def __reduce__(self) -> tuple[Any, ...]:
        return Parameters, (self.name, self.dtype, dict(self))
