"""Properties that are computed once, without a lock: a lock held by another thread at a fork is never released."""

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
        """`functools.cached_property` as since Python 3.12: two threads may both compute, and one result is kept.

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
