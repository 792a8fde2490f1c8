"""Rows of numbers by a table of their class, for all classes in one launch (`classes.h`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ..codegen.prelude import source_with
from ..runtime.device import current_device, upload
from ..runtime.kernel import functions
from ..runtime.lazy import cupy

THREADS = 256


def source(index: DTypeLike) -> str:
    """Source of the kernels."""
    return source_with({"Index": index}, {"THREADS": THREADS}, "vectors/classes.h")


def _address(array: Any) -> int:
    return int(array.data.ptr)


def _launched(name: str, index: DTypeLike, given: Sequence[Any], tables: Sequence[Any], dtype: DTypeLike) -> list[Any]:
    """Results of a kernel, [E, m] each; given [E, depth], tables [.., m]."""
    rows, widths = [len(own) for own in given], [int(own.shape[-1]) for own in tables]
    ends = np.cumsum(np.array(rows, np.int64) * np.array(widths, np.int64))
    (function,) = functions(source(index), current_device().name, name)
    out = cupy.empty(int(ends[-1]) if len(ends) else 0, dtype)
    if out.size:
        there = [list(map(_address, some)) for some in (given, tables)]
        depths = np.array([own.shape[1] for own in given], np.int32)
        # Numbers of 8 bytes, then those of 4, in one copy.
        long, short = np.array([ends, *there], np.int64), np.array([widths, depths], np.int32)
        both = upload(np.concatenate([long.reshape(-1), short.reshape(-1).view(np.int64)]))
        arrays, (columns, each) = both[: long.size].reshape(long.shape), both[long.size :].view(np.int32).reshape(2, -1)
        depth = np.int32(depths[0]) if name == "products" else each
        arguments = np.int64(out.size), np.int32(len(ends)), depth, *arrays, columns, out
        function((-(-out.size // THREADS),), (THREADS,), arguments)
    return [out[b - n * m : b].reshape(n, m) for b, n, m in zip(ends.tolist(), rows, widths, strict=True)]


def products(given: Sequence[Any], tables: Sequence[Any]) -> list[Any]:
    """See `VectorSpace.products`."""
    return _launched("products", np.int32, [cupy.ascontiguousarray(own) for own in given], tables, np.float64)


def picked(given: Sequence[Any], tables: Sequence[Any]) -> list[Any]:
    """See `VectorSpace.picked`."""
    return _launched("picked", given[0].dtype, given, tables, given[0].dtype) if given else []
