"""Parts of graphs, clusters in them, and inverses of the matrices of groups, on hosts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.linalg.lapack import dtrtri
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from hpfem.shapes.arrays import Array, Indices

from ..geometry.element_map import CACHED, chunks
from ..support.threads import in_parts

# Parts in which matrices are inverted, by their sizes, and rows up to which NumPy inverts triangles sooner than LAPACK.
_PARTS, _SMALL = 8, 10


def parts(i: Indices, j: Indices, n: int) -> Indices:
    """Number the parts by their first vertices; see `VectorSpace.parts`."""
    ends = np.append(0, np.cumsum(np.bincount(i, minlength=n)))
    found: Indices = connected_components(csr_array((np.ones(len(i)), j, ends), (n, n)), directed=False)[1]
    return found


def clusters(first: Indices, second: Indices, most: Any) -> Indices:
    """Merge at once what is the first pair of both of its clusters; see `VectorSpace.clusters`."""
    n = len(most)
    label, size, best = np.arange(n), np.ones(n, dtype=np.int64), np.empty(n, dtype=np.int32)
    for some in chunks(len(first), 4, most=CACHED):  # as one pair after the other would be
        i, j = label[first[some]], label[second[some]]
        while True:
            (possible,) = ((i != j) & (size[i] + size[j] <= most[i])).nonzero()
            if not len(possible):
                break
            i, j, rank = i[possible], j[possible], np.arange(len(possible), dtype=np.int32)
            best[i] = best[j] = len(possible)
            for ends in (i, j):
                np.minimum.at(best, ends, rank)
            (merged,) = ((best[i] == rank) & (best[j] == rank)).nonzero()
            low, high = i[merged], j[merged]
            low, high = np.minimum(low, high), np.maximum(low, high)
            label[high] = low
            size[low] += size[high]
            i, j = label[i], label[j]
        while not ((further := label[label]) == label).all():
            label = further
    return label


def scaled(found: Array, s: Array, rounding: float) -> Array:
    """Multiply rows by numbers and divide columns by them, without what is below rounding; [k, n, n], [k, n]."""
    return np.where(abs(found) > rounding, found * s[:, :, None] / s[:, None, :], 0)


def inverted(blocks: Any, scale: Any, rounding: float, most: float) -> Indices:
    """Invert in place, and tell which stay as they are; see `VectorSpace.inverses`."""
    starts, parts, left = np.cumsum(blocks.counts) - blocks.counts, list(blocks.alike()), [np.zeros(0, np.int64)]

    def invert(some: Sequence[tuple[int, slice, slice]]) -> None:
        for n, own, places in some:
            M, number = blocks.values[places].reshape(-1, n, n), np.arange(own.start, own.stop)
            try:
                root = np.linalg.cholesky(M)
            except np.linalg.LinAlgError:
                left.append(number)
                continue
            root = np.linalg.inv(root) if n <= _SMALL else np.array([dtrtri(L, lower=1)[0] for L in root])
            found = root.swapaxes(1, 2) @ root
            good = abs(found).sum(axis=1).max(axis=1) * abs(M).sum(axis=1).max(axis=1) < most  # they are symmetric
            if scale is not None:
                s = scale[starts[own.start] : starts[own.start] + len(M) * n].reshape(-1, n)
                found = scaled(found, s, rounding)
            np.copyto(M, found, where=good[:, None, None])
            left.append(number[~good])

    in_parts(invert, [parts[k::_PARTS] for k in range(_PARTS)])
    return np.concatenate(left)
