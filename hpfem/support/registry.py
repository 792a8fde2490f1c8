"""Registries: operators, bases, strategies and backends by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from hpfem.errors import ArgumentError
from hpfem.shapes.arguments import name_of

T = TypeVar("T")


class Registry(dict[str, T], Generic[T]):
    """A table from names to objects of a kind; an unknown name is an error that lists the known ones."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def add(self, name: str, obj: T) -> None:
        """Register `obj` under `name`."""
        if name in self:
            raise ArgumentError(f"{self.kind} '{name}' is registered already; choose another name")
        self[name] = obj

    def register(self, name: str) -> Callable[[T], T]:
        """Make a decorator that registers the function or class below it."""

        def decorator(obj: T) -> T:
            self.add(name, obj)
            return obj

        return decorator

    def __getitem__(self, name: str) -> T:
        """Return the object called `name`."""
        return super().__getitem__(name_of(name, self, self.kind))


# Pictures of objects on lower floors than `hpfem.view`, which registers its functions when hpfem is imported; these
# import matplotlib and pyvista when they are called.
VIEWS: Registry[Callable[..., Any]] = Registry("view")
