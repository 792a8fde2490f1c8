"""Named things: operators, bases, strategies, backends are looked up by name in one of these."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from hpfem.errors import ArgumentError
from hpfem.shapes.arguments import name_of

__all__ = ["Registry"]

T = TypeVar("T")


class Registry(Generic[T]):
    """A table name → object in order of registration; an unknown name is an error that lists the valid ones.

    Parameters
    ----------
    kind
        What the objects are, for messages: "operator", "strategy", …
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._objects: dict[str, T] = {}

    def add(self, name: str, obj: T) -> None:
        """Register `obj` under `name`.

        Parameters
        ----------
        name : str
        obj : object

        Raises
        ------
        ArgumentError
            If the name is taken.
        """
        if name in self._objects:
            raise ArgumentError(f"{self.kind} '{name}' is registered already; choose another name")
        self._objects[name] = obj

    def register(self, name: str) -> Callable[[T], T]:
        """Make a decorator that registers the function or class below it.

        Parameters
        ----------
        name : str

        Returns
        -------
        callable
            Returns what it decorates.

        Raises
        ------
        ArgumentError
            From the decorator, if the name is taken.
        """

        def decorator(obj: T) -> T:
            self.add(name, obj)
            return obj

        return decorator

    def __getitem__(self, name: str) -> T:
        """Return the object called `name`.

        Raises
        ------
        ArgumentError
            If there is none: the message lists the valid names and the closest one.
        """
        return self._objects[name_of(name, self._objects, self.kind)]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._objects

    def __iter__(self) -> Iterator[str]:
        return iter(self._objects)

    def __len__(self) -> int:
        return len(self._objects)

    def items(self) -> Iterator[tuple[str, T]]:
        """Go through what is registered.

        Returns
        -------
        iterator of (str, object)
            In order of registration.
        """
        return iter(self._objects.items())
