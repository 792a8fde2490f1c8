"""Vectors of any size brought near one by powers of two, so that their products neither overflow nor underflow.

Multiplying by a power of two is exact: a solution scales with its right-hand side to the last bit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ..backends.vectors import HOST_VECTORS, VectorSpace, scaled
from ..errors import SolverError


def unscaled(vector: Any, k: int, dtype: DTypeLike, name: str, vectors: VectorSpace = HOST_VECTORS) -> Any:
    """Multiply a solution by 2^k, if a type can hold it."""
    largest, limits = vectors.max_norm(vector), np.finfo(dtype)
    top = math.frexp(largest)[1] + k
    if largest and math.isfinite(largest) and not limits.minexp < top <= limits.maxexp:
        raise SolverError(
            f"{name}: the solution, about 1e{round(top * math.log10(2)):+d}, is out of the range of {np.dtype(dtype)};"
            " use other units for the data or the mesh, or float64"
        )
    return scaled(vector, k)


def default_tolerance(dtype: DTypeLike) -> float:
    """Ratio of norms at which to stop: 1e-12, or ten times the rounding of a type if that is more."""
    return max(1e-12, 10 * float(np.finfo(dtype).eps))
