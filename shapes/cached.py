"""Properties that are computed once, without a lock: a lock held by another thread at a fork is never released."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["cached_property"]


class cached_property(functools.cached_property[Any]):
    """A property whose first result is kept, also if two threads compute it; Python's own keeps the last one."""

    # What was made of the first result, such as addresses of its arrays, must stay right.

    func: Callable[[Any], Any]

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        value = self.func(instance)
        return instance.__dict__.setdefault(self.attrname, value)
