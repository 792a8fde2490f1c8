"""Passes over vectors, compiled (`codegen.vectors.write_pass`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import addressof, c_double, c_float, c_int64
from functools import cache, partial
from itertools import pairwise
from typing import Any

import numpy as np

from hpfem.shapes.arrays import Floats

from ....support.threads import OPERATIONS_PER_NUMBER, THREAD_FLOPS, run_all, shares
from ...passes import Pass
from ..codegen.vectors import UNROLLED, VECTORS, blocks_of, write_pass
from .cache import compiled
from .target import Code, host

_TYPES: dict[str, Callable[[int], Any]] = {"d": cache(c_double.__mul__), "f": cache(c_float.__mul__)}
_DOUBLES = _TYPES["d"]


@cache
def code_of(write: Callable[..., str], *arguments: Any) -> Code:
    """Code for this processor, compiled once."""
    return compiled(write(*arguments), host())


@cache
def code_of_pass(what: Pass, wide: bool, dtype: np.dtype[Any]) -> Code:
    """Code for vectors of a type that are long enough for several lanes, or not."""
    return compiled(write_pass(what, *((host().lanes(dtype), UNROLLED) if wide else (1, 1)), dtype), host())


def words_of_pass(what: Pass, arrays: Sequence[Floats]) -> tuple[Code, tuple[int, ...], int, Any]:
    """Code for some vectors [n], addresses of the first, that of a table of all if they are more, and the table."""
    n, dtype = arrays[-1].size, arrays[-1].dtype
    code = code_of_pass(what, n >= host().lanes(dtype) * UNROLLED, dtype)
    places = [array.ctypes.data for array in arrays]
    if len(places) > len(VECTORS):
        table = (c_int64 * len(places))(*places)
        return code, tuple(places[: len(VECTORS)]), addressof(table), table
    return code, (*places, *[0] * (len(VECTORS) - len(places))), 0, None


def run_pass(what: Pass, arrays: Sequence[Floats], numbers: Sequence[float] = (), rows: int = 1) -> list[list[float]]:
    """Run a pass over vectors, for each of some rows of the first; arrays [n] -> [rows, sums]."""
    n, dtype, sums = arrays[-1].size, arrays[-1].dtype, len(what.sums)
    if not n:
        return [[0.0] * sums] * rows
    code, places, table, held = words_of_pass(what, arrays)
    blocks = blocks_of(n)
    # Arrays of ctypes are made faster than those of NumPy, and tell their address faster.
    factors, partials = _TYPES[dtype.char](len(numbers))(*numbers), _DOUBLES(rows * blocks * sums)()
    arguments = n, rows, *places, addressof(factors), addressof(partials), table, n
    run_code(code, blocks, arguments, n * (len(arrays) + rows - 1), (arrays, factors, partials, held))
    if not sums:
        return []
    ends = range(0, len(partials), blocks * sums)
    return [[sum(partials[at + k : at + blocks * sums : sums]) for k in range(sums)] for at in ends]


def run_code(code: Code, groups: int, arguments: Sequence[int], numbers: int, held: object) -> None:
    """Run code for groups of a vector, on several threads if it takes long."""
    bounds = shares(groups, OPERATIONS_PER_NUMBER * numbers, THREAD_FLOPS)
    if len(bounds) > 2:
        run_all([partial(code.run_holding, held, first, last, *arguments) for first, last in pairwise(bounds)])
    elif groups:
        code.run(0, groups, *arguments)
