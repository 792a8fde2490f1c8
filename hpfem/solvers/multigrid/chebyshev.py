"""Chebyshev's smoother of the fourth kind with optimised weights [Lottes], and the eigenvalue that it needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import eigvalsh_tridiagonal

from ...backends.passes import Pass
from ...backends.vectors import VectorSpace

Apply = Callable[[Any], Any]

# By degree [Lottes, Table 1]. Of degree 1 it is 1.125 there, for the least bound of any operator; with 1.2 most shapes
# take one iteration less, and hexes of P = 2, 3 one more (benchmarks/MULTIGRID.md).
WEIGHTS = {
    1: (1.2,),
    2: (1.02387287570313, 1.26408905371085),
    3: (1.00842544782028, 1.08867839208730, 1.33753125909618),
}
# Steps of Lanczos' method, and the factor on its estimate, a lower bound: at least 0.93 of the value in 870 cases. The
# cycle is positive definite up to 1.25, 1.17, 1.11 times the result, for a smoother of degree 1, 2, 3. For other
# coefficients a few steps are enough if their estimate is that of before, but for this share.
_STEPS, _SAFETY, _FEW, _SAME = 15, 1.06, 4, 0.03
# A step that raises it by less ends them, after some: the last ones would raise it by 0.02, mostly.
_ENOUGH, _DONE = 5, 0.015


def first_step(largest: float, degree: int) -> float:
    """The factor of B r in the first step of the smoother."""
    return WEIGHTS[degree][0] * 4 / (3 * largest)


def chebyshev(
    residual: Callable[..., Any], B: Callable[..., Any], degree: int, r: Any, vectors: VectorSpace, onto: Any = None
) -> Any:
    """Approximate A^-1 r from a zero start, with r, x, s -> r - s A x; r, onto [n] -> [n]."""
    first, *weights = WEIGHTS[degree]
    if not weights:
        return B(r) if onto is None else B(r, onto)
    d = B(r)
    x, scale, missing = d if onto is None else onto, 1 / first, float(onto is not None)
    for i, weight in enumerate(weights, start=2):
        r = residual(r, d, scale)
        new, most = B(r), (2 * i + 1) * first
        vectors.run(_STEP, (d, new, x), (scale * (2 * i - 3) / (2 * i + 1), (6 * i - 3) / most, missing, weight))
        d, scale, missing = new, 1.0, 0.0
    return x


# A step `new` from the one before, and the sum of all, in which that one may be missing.
_STEP = Pass("d new x", "a b missing weight", "new = a d + b new", "x = x + missing d + weight new")


class Bounds(NamedTuple):
    """Estimates of a largest eigenvalue: after few steps of Lanczos' method, and after all."""

    few: float
    all: float


def largest_eigenvalue(A: Apply, B: Apply, vectors: VectorSpace, start: Any, before: Bounds | None = None) -> Bounds:
    """Estimate the largest eigenvalue of B A by Lanczos' method, with a margin; `before` is of similar operators."""
    r, few, most = start, 0.0, 0.0
    ratios, curvatures = list[float](), list[float]()
    p = z = B(r)
    rho = vectors.dot(r, z)
    for step in range(1, _STEPS + 1 if rho > 0 else 0):
        q = A(p)
        curvature = vectors.dot(p, q)
        if not curvature > 0:
            break
        curvatures.append(rho / curvature)
        if step == _FEW:
            few = _estimate(curvatures, ratios, vectors)
            if before is not None and abs(few - before.few) < _SAME * before.few:
                return Bounds(few, max(few, before.all * few / before.few))
        if step >= _ENOUGH:
            last, most = most, _estimate(curvatures, ratios, vectors)
            if most - last < _DONE * most:
                break
        r = r - curvatures[-1] * q
        z = B(r)
        ratios.append(vectors.dot(r, z) / rho)
        if ratios[-1] < 1e-12:
            break
        rho, p = rho * ratios[-1], z + ratios[-1] * p
    most = most or _estimate(curvatures, ratios, vectors)
    return Bounds(few or most, most)


def _estimate(curvatures: list[float], ratios: list[float], vectors: VectorSpace) -> float:
    """The largest eigenvalue of the matrix of Lanczos' method, with a margin."""
    a, b = np.array(curvatures), np.array(ratios[: max(0, len(curvatures) - 1)])
    diagonal = 1 / a + np.append(0, b / a[:-1]) if len(a) else np.ones(1)
    found = float(eigvalsh_tridiagonal(diagonal, np.sqrt(b) / a[:-1])[-1])
    return _SAFETY * vectors.comm.bcast(found)  # hosts of several kinds round in several ways
