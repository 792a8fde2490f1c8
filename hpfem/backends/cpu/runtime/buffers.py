"""Memory of compiled kernels."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from hpfem.shapes.arrays import Floats

_PAGE = 4096


def aligned(shape: tuple[int, ...], dtype: DTypeLike, alignment: int = _PAGE) -> Floats:
    """Make an uninitialised array that starts at a page, or with another alignment."""
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.empty(nbytes + alignment, dtype=np.uint8)
    start = -raw.ctypes.data % alignment
    return raw[start : start + nbytes].view(dtype).reshape(shape)
