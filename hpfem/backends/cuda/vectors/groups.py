"""Products with the matrices of groups of a vector's entries, in place and in one kernel (`groups.h`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ...vectors import Blocks
from ..codegen.prelude import source_with
from ..runtime.device import current_device, upload
from ..runtime.kernel import functions
from ..runtime.lazy import cupy
from .indexed import finish

# Threads of a block, those of a row, and entries that each reads at once; members of a block, but for its last group's.
THREADS, PARTS, AHEAD, MEMBERS = 256, 4, 8, 64
# Members of a group at most: one block multiplies them.
MOST = 512
ROW = np.dtype([("first", "i8"), ("begin", "i4"), ("size", "i4")])


def tables(counts: Any) -> tuple[Any, Any]:
    """What `groups.h` wants of groups of so many members, up to MOST: pieces [blocks + 1], rows [k]."""
    starts, rows = np.cumsum(counts) - counts, np.empty(counts.sum(), ROW)
    begin, size, first = (np.repeat(own, counts) for own in (starts, counts, np.cumsum(counts**2) - counts**2))
    rows["first"], rows["begin"], rows["size"] = first + np.arange(len(rows)) - begin, begin, size
    heads = starts[np.diff(starts // MEMBERS, prepend=-1) > 0]
    return np.append(heads, len(rows)).astype(np.int32), rows


def source(real: DTypeLike) -> str:
    """Source of the kernel."""
    constants = {"THREADS": THREADS, "PARTS": PARTS, "AHEAD": AHEAD}
    return source_with({"real": real}, constants, "vectors/groups.h")


class GroupProducts:
    """Multiply entries of vectors by the matrices of their groups, in place, on the current stream."""

    def __init__(self, blocks: Blocks, members: Any, dtype: DTypeLike) -> None:
        pieces, rows = tables(blocks.counts)
        self._blocks, self._room = len(pieces) - 1, np.int32(np.diff(pieces).max())
        self._function, turned = functions(source(dtype), current_device().name, "groups", "turned")
        arrays, values = (upload(pieces), upload(rows.view(np.uint8))), cupy.empty(blocks.values.shape, dtype)
        turned((self._blocks,), (THREADS,), (*arrays, cupy.asarray(blocks.values), values))
        self._shared = values.itemsize * (int(self._room) + THREADS)
        self._arrays = arrays[0], cupy.asarray(members).astype(np.int64, copy=False), arrays[1], values
        finish(cupy)

    def __call__(self, z: Any) -> None:
        """Apply to a vector, [size]."""
        self._function((self._blocks,), (THREADS,), (self._room, *self._arrays, z), shared_mem=self._shared)
