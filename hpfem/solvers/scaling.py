"""Vectors of any size brought near one by powers of two, so that their products neither overflow nor underflow.

Multiplying by a power of two is exact: a solution scales with its right-hand side to the last bit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ..errors import SolverError


def magnitude(vector: Any) -> float:
    """Largest absolute value of a vector, on the host, 0 without entries; a GPU is waited for."""
    return float(abs(vector).max()) if vector.size else 0.0


def exponent(vector: Any) -> int:
    """Least k with all entries of a finite vector below 2^k; 0 for zeros."""
    return math.frexp(magnitude(vector))[1]


def scaled(vector: Any, k: int) -> Any:
    """2^k times a vector, in a new array; in two steps, as 2^k itself may be out of range."""
    return vector * 2.0 ** (k // 2) * 2.0 ** (k - k // 2)


def norm(vector: Any) -> float:
    """Euclidean norm; infinite or no number if an entry is."""
    largest = magnitude(vector)
    if largest == 0 or not math.isfinite(largest):
        return largest
    k = math.frexp(largest)[1]
    unit = scaled(vector, -k)
    return float(unit @ unit) ** 0.5 * 2.0 ** (k // 2) * 2.0 ** (k - k // 2)


def unscaled(vector: Any, k: int, dtype: DTypeLike, name: str) -> Any:
    """2^k times a solution, if a type can hold it.

    Parameters
    ----------
    vector : array
    k : int
    dtype : dtype
        float64 or float32.
    name : str
        For messages.

    Raises
    ------
    SolverError
        If the largest entry is out of the type's range.
    """
    largest, limits = magnitude(vector), np.finfo(dtype)
    top = math.frexp(largest)[1] + k
    if largest and math.isfinite(largest) and not limits.minexp < top <= limits.maxexp:
        raise SolverError(
            f"{name}: the solution, about 1e{round(top * math.log10(2)):+d}, is out of the range of {np.dtype(dtype)};"
            " take other units for the data or the mesh, or float64"
        )
    return scaled(vector, k)


def default_tolerance(dtype: DTypeLike) -> float:
    """Ratio of norms at which to stop: 1e-12, or ten times the rounding of a type if that is more."""
    return max(1e-12, 10 * float(np.finfo(dtype).eps))
