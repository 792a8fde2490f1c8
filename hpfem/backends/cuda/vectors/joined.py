"""What groups are made of: parts of a graph, clusters in it (`joined.h`), and inverses of matrices (`inverse.h`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....memory import as_numpy
from ...vectors import Blocks
from ..codegen.prelude import source_with
from ..runtime.device import current_device, limits, upload
from ..runtime.kernel import functions
from ..runtime.lazy import cupy

# Threads of a block; rounds of merging after which it is asked whether pairs are left.
THREADS, ROUNDS = 128, 16


def joined_source() -> str:
    """Source of the kernels for graphs."""
    return source_with({}, {"THREADS": THREADS}, "vectors/joined.h")


def inverse_source() -> str:
    """Source of the kernel for matrices."""
    return source_with({"real": np.float64}, {"THREADS": THREADS}, "vectors/inverse.h")


def _launcher(name: str) -> Callable[..., None]:
    """What launches a kernel with a thread for each of n, its first argument."""
    (function,) = functions(joined_source(), current_device().name, name)

    def launch(n: int, *arguments: Any) -> None:
        if n:
            function((-(-n // THREADS),), (THREADS,), (np.int64(n), *arguments))

    return launch


def parts(i: Any, j: Any, n: int) -> Any:
    """Lowest of the vertices that pairs connect with each of n; i, j [pairs] -> [n]."""
    label = cupy.arange(n, dtype=np.int32)
    _launcher("join")(len(i), i.astype(np.int32, copy=False), j.astype(np.int32, copy=False), label)
    _launcher("settle")(n, label)
    return label


def clusters(i: Any, j: Any, most: Any) -> Any:
    """Lowest of the vertices that are merged with each, as `VectorSpace.clusters`; most [n] -> [n]."""
    n, ends = len(most), [own.astype(np.int32) for own in (i, j)]
    label, size, most = cupy.arange(n, dtype=np.int32), cupy.ones(n, np.int32), most.astype(np.int32)
    first = cupy.full(n, np.iinfo(np.uint64).max, np.uint64)
    propose, merge, left, number = _launcher("propose"), _launcher("merge"), len(i) > 0, 0
    while left:
        found = cupy.zeros(ROUNDS, np.int32)
        for own in range(ROUNDS):
            propose(len(i), np.uint32(number), *ends, most, label, size, first, found[own:])
            merge(len(i), np.uint32(number), *ends, first, label, size)
            number += 1
        left = bool(found[-1])
    _launcher("settle")(n, label)
    return label


def inverses(blocks: Blocks, scale: Any, rounding: float, most: float) -> tuple[Blocks, NDArray[np.int64]]:
    """Inverses in new memory; see `VectorSpace.inverses`."""
    counts, given, memory = blocks.counts, blocks.values, limits().shared_block
    out, fine, longest = cupy.empty_like(given), cupy.empty(len(counts), np.uint8), int(counts.max(initial=0))
    (invert,) = functions(inverse_source(), current_device().name, "invert", shared_bytes=memory)
    if len(counts):
        shared = min(8 * longest * (longest + 2), memory)
        room, starts = shared // 8 - 2 * longest, [np.cumsum(sizes) - sizes for sizes in (counts**2, counts)]
        numbers = np.int32(room), np.int32(longest), np.float64(rounding), np.float64(most)
        arrays = *map(upload, (counts.astype(np.int32), *starts)), given, scale, out, fine
        invert((len(counts),), (THREADS,), (*numbers, *arrays), shared_mem=shared)
    return Blocks(counts, out), np.flatnonzero(as_numpy(fine) == 0)
