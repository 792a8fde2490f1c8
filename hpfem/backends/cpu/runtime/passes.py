"""Passes over vectors: linear updates and sums of products, compiled (`codegen.vectors.write_pass`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import addressof, c_double, c_float
from functools import cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ....support.threads import OPERATIONS_PER_NUMBER, THREAD_FLOPS, run_all, shares
from ..codegen.vectors import UNROLLED, VECTORS, Terms, Update, blocks_of, write_pass
from .cache import compiled
from .target import Code, host

Array = NDArray[np.floating[Any]]
_TYPES: dict[str, Callable[[int], Any]] = {"d": cache(c_double.__mul__), "f": cache(c_float.__mul__)}
_DOUBLES = _TYPES["d"]


@cache
def code_of(write: Callable[..., str], *arguments: Any) -> Code:
    """Code for this processor, compiled once."""
    return compiled(write(*arguments), host())


class Pass:
    """A pass over some vectors.

    Parameters
    ----------
    updates : sequence of (str, sequence of str)
    sums : sequence of str
        As for `write_pass`.
    """

    def __init__(self, updates: Sequence[Update], sums: Terms = ()) -> None:
        self._what = tuple((target, tuple(terms)) for target, terms in updates), tuple(sums)
        self._sums = len(sums)
        self._codes: dict[Any, Code] = {}

    def code(self, n: int, dtype: DTypeLike) -> Code:
        """Code for vectors of a size."""
        lanes = host().lanes(dtype)
        wide = n >= lanes * UNROLLED
        key = wide, dtype
        if key not in self._codes:
            shape = (lanes, UNROLLED) if wide else (1, 1)
            self._codes[key] = code_of(write_pass, *self._what, *shape, np.dtype(dtype).name)
        return self._codes[key]

    def __call__(self, vectors: Sequence[Array], numbers: Sequence[float] = (), rows: int = 1) -> list[list[float]]:
        """Run; vectors [n] -> [rows]."""
        n, dtype = vectors[-1].size, vectors[-1].dtype
        if not n:
            return [[0.0] * self._sums] * rows
        code, blocks = self.code(n, dtype), blocks_of(n)
        # Arrays of ctypes are made faster than those of NumPy, and tell their address faster.
        factors, partials = _TYPES[dtype.char](len(numbers))(*numbers), _DOUBLES(rows * blocks * self._sums)()
        places = [array.ctypes.data for array in vectors] + [0] * (len(VECTORS) - len(vectors))
        arguments = n, rows, *places, addressof(factors), addressof(partials), 0, n
        run_code(code, blocks, arguments, n * (len(vectors) + rows - 1), (vectors, factors, partials))
        if not self._sums:
            return []
        ends = range(0, len(partials), blocks * self._sums)
        return [
            [sum(partials[at + k : at + blocks * self._sums : self._sums]) for k in range(self._sums)] for at in ends
        ]


def run_code(code: Code, groups: int, arguments: Sequence[int], numbers: int, held: object) -> None:
    """Run code for groups of a vector, on several threads if it takes long."""
    bounds = shares(groups, OPERATIONS_PER_NUMBER * numbers, THREAD_FLOPS)
    if len(bounds) > 2:
        run_all([partial(_run, held, code, first, last, *arguments) for first, last in pairwise(bounds)])
    elif groups:
        code.run(0, groups, *arguments)


def _run(held: object, code: Code, *arguments: int) -> None:
    """Run a part; a task holds the arrays behind the addresses."""
    code.run(*arguments)
