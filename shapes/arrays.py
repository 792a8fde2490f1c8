"""Types of arrays, and arrays that are not written to."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]  # of float64 or float32
Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]


def frozen(array: Any) -> Any:
    """Make an array read-only."""
    array.flags.writeable = False
    return array
