"""Numbers of an operator that may change between applications, each checked where it is set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
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


def _checked(value: Any, what: str, dtype: DTypeLike) -> float:
    number = float(value) if isinstance(value, (bool, np.bool_)) else real(value, what)
    return in_range(number, what, dtype)


class Parameters(dict[str, float]):
    """The parameters of an operator by name; unknown names, and values that are not numbers, are refused."""

    def __init__(self, name: str, dtype: DTypeLike, numbers: dict[str, float]) -> None:
        super().__init__(numbers)
        self.name, self.dtype = name, dtype

    def __setitem__(self, key: str, value: Any) -> None:
        if key not in self:
            known = ", ".join(self) or "none"
            raise ArgumentError(f"{self.name} has no parameter {shown(key)}; it has: {known}")
        super().__setitem__(key, _checked(value, f"parameter {key!r} of {self.name}", self.dtype))

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
        return type(self), (self.name, self.dtype, dict(self))


class StoredParameters(Parameters):
    """Parameters that are in numbers stored at the points, which are made of those of a form."""

    def __setitem__(self, key: str, value: Any) -> None:
        raise ArgumentError(
            f"parameter {shown(key)} of {self.name} is in its stored numbers: set it in the form, and take the"
            " linearisation again by at(u)"
        )


class Factors(list[float]):
    """The factors of a sum, which may change between applications."""

    def __init__(self, name: str, dtype: DTypeLike, numbers: Sequence[Any]) -> None:
        self.name, self.dtype = name, dtype
        super().__init__(self._checked(number) for number in numbers)

    def _checked(self, value: Any) -> float:
        return _checked(value, f"a factor of {self.name}", self.dtype)

    def __setitem__(self, index: Any, value: Any) -> None:
        if index not in range(-len(self), len(self)):
            raise ArgumentError(f"{self.name} has {len(self)} factors, numbered from 0; got number {shown(index)}")
        super().__setitem__(index, self._checked(value))

    def _fixed(self, *_: Any) -> NoReturn:
        raise ArgumentError(f"{self.name} has {len(self)} factors; they can be set, but not added or removed")

    __delitem__ = __iadd__ = __imul__ = append = extend = _fixed
    insert = pop = remove = clear = sort = reverse = _fixed  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return Factors, (self.name, self.dtype, list(self))


class Joined(MutableMapping[str, float]):
    """Numbers that belong to several objects, under new names: name -> (the object, what it calls the number)."""

    def __init__(self, places: Mapping[str, tuple[Any, Any]]) -> None:
        self.places = places

    def __getitem__(self, name: str) -> float:
        own, key = self.places[name]
        return float(own[key])

    def __setitem__(self, name: str, value: Any) -> None:
        own, key = self.places[name]
        own[key] = value

    def __delitem__(self, name: str) -> NoReturn:
        raise ArgumentError(f"{name!r} can be set, but not removed")

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)
