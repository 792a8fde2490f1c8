"""Properties that are computed once, without a lock: a lock held by another thread at a fork is never released."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["cached_property"]


class cached_property(functools.cached_property[Any]):
    """A property that is kept. Two threads may both compute it: the first result is kept, and both get it.

    Python's own keeps the last one since 3.12. What was made of the first, such as addresses of its arrays, would then
    outlive it.

    Parameters
    ----------
    func : callable
        The object -> the value.
    """

    func: Callable[[Any], Any]

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        value = self.func(instance)
        return instance.__dict__.setdefault(self.attrname, value)
