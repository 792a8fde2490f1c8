"""The generalised minimal residual method for any operator, in its flexible form [Saad]: M may change, or round.

Each iteration keeps two vectors, one of them preconditioned; after a number of iterations the method starts again.
Vectors are made orthogonal by products with all earlier ones at once, twice. The norm of the residual is known at every
iteration; the host reads the new column's numbers at once, as many as there are vectors.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import hypot, isfinite, sqrt
from typing import Any

import numpy as np

from ..backends.vectors import VectorSpace
from .breakdown import no_convergence, not_finite, singular, standstill
from .krylov import Iteration, Method, Timed, read_only

RESTART = 100
# Vectors that memory is allocated for at a time; and the least reduction of the residual in a cycle.
_CHUNK, _GAIN = 10, 1e-3


class _Basis:
    """Vectors for products with all of them at once, in memory that grows with their number."""

    def __init__(self, vectors: VectorSpace, like: Any) -> None:
        self._vectors, self._shape, self._dtype = vectors, like.shape, like.dtype
        self._chunks: list[Any] = []
        self.count = 0

    def append(self, vector: Any) -> None:
        """Keep a copy."""
        number = self.count % _CHUNK
        if number == 0:
            self._chunks.append(self._vectors.device.empty((_CHUNK, *self._shape), self._dtype))
        self._chunks[-1][number] = vector
        self.count += 1

    def _filled(self) -> Iterator[tuple[int, Any]]:
        for start, chunk in zip(range(0, self.count, _CHUNK), self._chunks):
            yield start, chunk[: self.count - start]

    def products(self, vector: Any) -> Any:
        """Products of each with a vector, [count]."""
        return self._vectors.xp.concatenate([self._vectors.inner(chunk, vector) for _, chunk in self._filled()])

    def combination(self, numbers: Any) -> Any:
        """Their sum with these factors, [at most count]."""
        total: Any = 0
        for start, chunk in self._filled():
            factors = numbers[start : start + _CHUNK]
            if len(factors):
                total = total + factors @ chunk[: len(factors)]
        return total


def _iterate(
    vectors: VectorSpace, A: Timed, M: Timed | None, x: Any, r: Any, run: Iteration, restart: int = RESTART
) -> None:
    """Iterate in cycles, on x and r in place, and add to the residuals."""
    residuals, name = run.residuals, run.name
    residuals.append(sqrt(vectors.dot(r, r)) / run.scale)
    while not residuals[-1] <= run.tol:
        before, done = residuals[-1], len(residuals) - 1
        if not isfinite(before):
            raise not_finite(name, done)
        steps = min(restart, run.most - done)
        if steps <= 0:
            raise no_convergence(name, before, run.tol, done)
        whole = _cycle(vectors, A, M, x, r, run, steps)
        done = len(residuals) - 1
        if residuals[-1] > run.tol and not whole:
            raise singular(name, residuals[-1], done)
        if residuals[-1] > max(run.tol, (1 - _GAIN) * before) and steps == restart:
            raise standstill(name, residuals[-1], run.tol, done, restart)


def _cycle(vectors: VectorSpace, A: Timed, M: Timed | None, x: Any, r: Any, run: Iteration, steps: int) -> bool:
    """Iterate up to some steps; returns whether there was always a new direction."""
    residuals, xp = run.residuals, vectors.xp
    V = _Basis(vectors, r)
    Z = V if M is None else _Basis(vectors, r)
    size, eps = sqrt(vectors.dot(r, r)), float(np.finfo(r.dtype).eps)
    v = r / size
    V.append(v)
    # A Z = V H; `rotations` make H an upper triangle, `rest` is the residual of its least-squares problem.
    H, rotations, rest, whole = list[list[float]](), list[tuple[float, float]](), size, True
    for j in range(steps):
        z = v
        if M is not None:
            z = M(read_only(v))
            Z.append(z)
        p = A(read_only(z))
        h = V.products(p)
        p = p - V.combination(h)
        again = V.products(p)
        p -= V.combination(again)
        *column, square = vectors.numbers(h + again, vectors.inner(p, p))
        below = sqrt(square)
        length = hypot(*column, below)
        if not isfinite(length):
            raise not_finite(run.name, len(residuals) - 1)
        whole = below > 10 * eps * length
        H.append([*column, below if whole else 0.0])
        R = list(H[-1])
        for i, (c, s) in enumerate(rotations):
            R[i], R[i + 1] = c * R[i] + s * R[i + 1], c * R[i + 1] - s * R[i]
        diagonal = hypot(R[j], R[j + 1])
        # There is no gain if the column is a combination of the earlier ones.
        rotations.append((R[j] / diagonal, R[j + 1] / diagonal) if diagonal > eps * length else (0.0, 1.0))
        rest *= abs(rotations[-1][1])
        residuals.append(rest / run.scale)
        run.advance(description=f"{run.name} {residuals[-1]:.1e}")
        if residuals[-1] <= run.tol or not whole:
            break
        v = p / below
        V.append(v)
    matrix, rhs = np.zeros((len(H) + 1, len(H))), np.zeros(len(H) + 1)
    for j, column in enumerate(H):
        matrix[: j + 2, j] = column
    rhs[0] = size
    # Hosts of several kinds round in several ways.
    y = vectors.comm.bcast(np.linalg.lstsq(matrix, rhs, rcond=None)[0])
    left = rhs - matrix @ y
    # Larger than the value from the rotations if columns are nearly the same.
    residuals[-1] = max(residuals[-1], float(np.linalg.norm(left)) / run.scale)
    x += Z.combination(xp.asarray(y, x.dtype))
    r[...] = V.combination(xp.asarray(left[: V.count], r.dtype))
    return whole


gmres = Method("gmres", False, _iterate)
