"""Properties that are computed once, without a lock: one that another thread holds when a process forks stays held."""

from __future__ import annotations

import sys

__all__ = ["cached_property"]

if sys.version_info >= (3, 12):
    from functools import cached_property
else:
    import functools
    from collections.abc import Callable
    from typing import Any

    class cached_property(functools.cached_property[Any]):
        """`functools.cached_property` as it is since Python 3.12: two threads may both compute, and one result stays.

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
