"""Objects that are never changed: a copy is the object itself."""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")


class Immutable:
    """A base of objects that others refer to by identity, as fields to their space; copies are the object itself."""

    def __copy__(self: T) -> T:
        return self

    def __deepcopy__(self: T, memo: dict[int, Any]) -> T:
        return self
