"""Chebyshev's smoother of the fourth kind with optimised weights [Lottes], and the eigenvalue that it needs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

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
# cycle is positive definite up to 1.25, 1.17, 1.11 times the result, for a smoother of degree 1, 2, 3.
_STEPS, _SAFETY = 15, 1.06
# A step that raises it by less ends them, after some: the last ones would raise it by 0.02, mostly.
_ENOUGH, _DONE = 5, 0.015
# The same where they start near an eigenvector of similar operators, with as much noise. One that differs by less from
# that of before is kept; one below this part of it is made from noise as well, as few steps may miss where another part
# of the mesh has the largest now: of 67 estimates in tests the least is 0.91 of the value, without that 0.72.
_AGAIN, _DONE_AGAIN, _SAME, _LESS = 2, 0.01, 0.03, 0.9


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


class Largest(NamedTuple):
    """An estimate of a largest eigenvalue, and what B makes its eigenvector of."""

    value: float
    residual: Any


def largest_eigenvalue(A: Apply, B: Apply, vectors: VectorSpace, noise: Any, before: Largest | None = None) -> Largest:
    """Estimate the largest eigenvalue of B A by Lanczos' method, with a margin; `before` is of similar operators."""
    # From noise alone, few steps miss a part of a mesh where it has grown.
    r, enough, done = noise, _ENOUGH, _DONE
    if before is not None:
        r, enough, done = noise + before.residual, _AGAIN, _DONE_AGAIN
    value, of_held, held, steps = 0.0, np.ones(1), [r], list[float]()
    p = z = B(r)
    squares = [vectors.dot(r, z)]
    for step in range(1, _STEPS + 1 if squares[0] > 0 else 0):
        q = A(p)
        curvature = vectors.dot(p, q)
        if not curvature > 0:
            break
        steps.append(squares[-1] / curvature)
        if step >= enough:
            last, (value, of_held) = value, _estimate(steps, squares, vectors)
            if value - last < done * value:
                break
        r = r - steps[-1] * q
        z = B(r)
        square = vectors.dot(r, z)
        if square < 1e-12 * squares[-1]:
            break
        p = z + square / squares[-1] * p
        squares.append(square)
        held.append(r)
    if not value:
        value, of_held = _estimate(steps, squares, vectors)
    residual = sum(
        float(entry * (squares[0] / own) ** 0.5) * r
        for entry, own, r in zip(of_held, squares, held, strict=False)
        if own > 0
    )
    value *= _SAFETY
    if before is not None and value < _LESS * before.value:
        return max(Largest(value, residual), largest_eigenvalue(A, B, vectors, noise), key=lambda own: own.value)
    if before is not None and abs(value - before.value) < _SAME * before.value:
        value = before.value
    return Largest(value, residual)


def _estimate(steps: list[float], squares: list[float], vectors: VectorSpace) -> tuple[float, NDArray[np.float64]]:
    """The largest eigenvalue of the matrix of Lanczos' method, and its eigenvector."""
    T = np.zeros((len(steps),) * 2) if steps else np.ones((1, 1))
    for j, (a, ratio) in enumerate(zip(steps, [0.0, *(b / a for a, b in pairwise(squares))], strict=False)):
        T[j, j] = 1 / a + (ratio / steps[j - 1] if j else 0.0)
        if j:
            T[j, j - 1] = -(ratio**0.5) / steps[j - 1]
    values, of_held = np.linalg.eigh(T)
    found: tuple[float, NDArray[np.float64]] = float(values[-1]), of_held[:, -1]
    return vectors.comm.bcast(found)  # hosts of several kinds round in several ways
