"""Types of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]  # of float64 or float32
Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]
