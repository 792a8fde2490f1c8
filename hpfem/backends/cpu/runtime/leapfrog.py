"""A step of the leapfrog scheme as one pass over the vectors."""

from __future__ import annotations

from functools import cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..codegen.vectors import write_sum
from .cache import compiled
from .target import Code, host
from .threads import THREAD_FLOPS, run_all, shares

Array = NDArray[np.floating[Any]]
# Twice the present, minus the past, and the weighted force.
_TERMS, _NUMBERS = ("scaled", "minus", "weighted"), (2, 1, 1)
_FLOPS = 4


@cache
def _codes(dtype: np.dtype[Any]) -> tuple[int, Code, Code, Array]:
    """Lanes of a group; code for groups and for single entries; and the factors that both read."""
    lanes = host().lanes(dtype)
    groups, entries = (compiled(write_sum(_TERMS, length, dtype), host()) for length in (lanes, 1))
    return lanes, groups, entries, np.array(_NUMBERS, dtype)


def leapfrog(weights: Array, force: Array, now: Array, before: Array) -> None:
    """Take a step of the leapfrog scheme; see `Backend.leapfrog`.

    Parameters
    ----------
    weights, force, now, before : ndarray, [n]
        Of one type, without gaps.
    """
    lanes, groups, entries, numbers = _codes(before.dtype)
    n, rest = divmod(before.size, lanes)
    to = before.ctypes.data
    at = now.ctypes.data, to, to, weights.ctypes.data, force.ctypes.data
    others = numbers.ctypes.data, 0, 0, 0
    bounds = shares(n, _FLOPS * n * lanes, THREAD_FLOPS)
    if len(bounds) > 2:
        run_all([partial(groups.run, *part, 0, 1, *at, *others) for part in pairwise(bounds)])
    elif n:
        groups.run(0, n, 0, 1, *at, *others)
    if rest:
        skipped = n * lanes * before.itemsize
        entries.run(0, rest, 0, 1, *(address + skipped for address in at), *others)
