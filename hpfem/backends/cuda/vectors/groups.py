"""Products with the matrices of groups of a vector's entries, in place and in one kernel (`groups.h`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from ..codegen.prelude import source_with
from ..runtime.device import current_device, upload
from ..runtime.kernel import functions

# Threads of a block, those of a row, and entries that each reads at once; members of a block, but for its last group's.
THREADS, PARTS, AHEAD, MEMBERS = 256, 4, 8, 64
# Members of a group at most: one block multiplies them.
MOST = 512
ROW = np.dtype([("first", "i8"), ("begin", "i4"), ("size", "i4")])
# What `groups.h` wants: pieces [blocks + 1], members [k], rows [k], values.
Tables = tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.void], NDArray[np.floating[Any]]]


def tables(members: NDArray[np.int64], matrix: csr_array) -> Tables | None:
    """Groups of a matrix [m, size] with the rows `members` [m], large ones first; None if there are none, or too large
    ones.
    """
    place = np.full(matrix.shape[1], -1)
    place[matrix.indices] = 0
    place[members] = -1
    read = np.flatnonzero(place + 1)  # and not written: the identity's rows
    members, m = np.append(members, read), len(members)
    k = len(members)
    place[members] = np.arange(k)
    j, data = np.append(place[matrix.indices], np.arange(m, k)), np.append(matrix.data, np.ones(k - m, matrix.dtype))
    ends = np.append(matrix.indptr, matrix.nnz + np.arange(1, k - m + 1))
    _, group = connected_components(csr_array((np.ones(len(j)), j, ends), (k, k)), directed=False)
    order = np.lexsort((group, -np.bincount(group)[group]))
    rank = np.empty(k, np.int64)
    rank[order] = np.arange(k)
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    counts = np.diff(starts, append=k)
    if not 0 < counts.max(initial=0) <= MOST:
        return None
    begin, size, first = (np.repeat(own, counts) for own in (starts, counts, np.cumsum(counts**2) - counts**2))
    rows, values = np.empty(k, ROW), np.zeros((counts**2).sum(), matrix.dtype)
    rows["first"], rows["begin"], rows["size"] = first + np.arange(k) - begin, begin, size
    i, j = np.repeat(rank, np.diff(ends)), rank[j]
    values[rows["first"][i] + (j - begin[i]) * size[i]] = data
    heads = starts[np.diff(starts // MEMBERS, prepend=-1) > 0]
    return np.append(heads, k).astype(np.int32), members[order], rows, values


def source(real: DTypeLike) -> str:
    """Source of the kernel."""
    constants = {"THREADS": THREADS, "PARTS": PARTS, "AHEAD": AHEAD}
    return source_with({"real": real}, constants, "vectors/groups.h")


class GroupProducts:
    """Multiply entries of vectors by the matrices of their groups, in place, on the current stream."""

    def __init__(self, pieces: Any, members: Any, rows: Any, values: Any) -> None:
        self._blocks, self._room = len(pieces) - 1, np.int32(np.diff(pieces).max())
        self._shared = values.itemsize * (int(self._room) + THREADS)
        self._arrays = upload(pieces), upload(members), upload(rows.view(np.uint8)), upload(values)
        (self._function,) = functions(source(values.dtype), current_device().name, "groups")

    def __call__(self, z: Any) -> None:
        """Apply to a vector, [size]."""
        self._function((self._blocks,), (THREADS,), (self._room, *self._arrays, z), shared_mem=self._shared)
