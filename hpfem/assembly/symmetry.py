"""Whether an operator is symmetric, by products with random vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ..backends.vectors import VectorSpace

# Largest difference, in units of rounding, of the products of a symmetric operator with random vectors.
_ROUNDING = 1e3


def random_pair(vectors: VectorSpace, n: int, dtype: DTypeLike) -> tuple[Any, Any]:
    """Make two random vectors [n], the same every time."""
    rng = np.random.default_rng(0)
    u, v = (vectors.agreed(vectors.xp.asarray(rng.standard_normal(n), dtype)) for _ in range(2))
    return u, v


def seems_symmetric(vectors: VectorSpace, apply: Callable[[Any], Any], n: int, dtype: DTypeLike) -> bool:
    """Tell whether an operator on vectors [n] is symmetric up to rounding; one bad cell of very many is found."""
    return asymmetry(vectors, apply, *random_pair(vectors, n, dtype)) <= _ROUNDING * float(np.finfo(dtype).eps)


def asymmetry(vectors: VectorSpace, apply: Callable[[Any], Any], u: Any, v: Any) -> float:
    """Measure |(u, A v) - (v, A u)| over |A u| + |A v|: about rounding if A is symmetric; random u, v [n]."""
    Au, Av = apply(u), apply(v)
    size = vectors.dot(Au, Au) ** 0.5 + vectors.dot(Av, Av) ** 0.5
    return abs(vectors.dot(u, Av) - vectors.dot(v, Au)) / size if size else 0.0
