"""Orders in which points that are near in space are near in the order."""

from __future__ import annotations

import numpy as np

from hpfem.shapes.arrays import Array, Indices

_BITS = 20
# Cells whose unknowns fit into a cache, in any order.
_FEW = 1000


def along_curve(centres: Array) -> Indices:
    """Sort points along a Z-curve, so that neighbours are mostly near each other; centres [n, D] -> [n]."""
    if not len(centres):
        return np.empty(0, dtype=np.int64)
    low = centres.min(axis=0)
    extent = np.ptp(centres, axis=0)
    index = ((centres - low) / np.where(extent > 0, extent, 1.0) * (2**_BITS - 1)).astype(np.int64)
    dim, half = centres.shape[1], _BITS // 2
    # Spread the bits of each coordinate, with room for the bits of the other axes between them.
    numbers = np.arange(2**half)
    spread = sum(((numbers >> bit) & 1) << (dim * bit) for bit in range(half))
    code = np.zeros(len(centres), dtype=np.int64)
    for axis in range(dim):
        high, low = spread[index[:, axis] >> half], spread[index[:, axis] & (2**half - 1)]
        code |= (high << (dim * half) | low) << axis
    return np.argsort(code, kind="stable")


def is_scattered(vertices: Indices) -> bool:
    """Tell, by a sample, whether most consecutive cells share no vertex; vertices [n, n_vertices]."""
    if len(vertices) < _FEW:
        return False
    sample = np.arange(0, len(vertices) - 1, max(1, len(vertices) // 1000))
    touching = (vertices[sample][:, :, None] == vertices[sample + 1][:, None, :]).any(axis=(1, 2))
    return bool(touching.mean() < 0.5)
