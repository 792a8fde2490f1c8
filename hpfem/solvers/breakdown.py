"""Why iterative methods stop without a solution, in words."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ..backends.vectors import VectorSpace
from ..errors import SolverError
from ..support.log import warn

# A true residual up to this many times the rounding error of A x is attributed to rounding: measured up to 8.
ROUNDING = 20


def mixed_signs(vectors: VectorSpace, x: Any) -> Any:
    """A vector with other signs of half of its entries, the same every time: its product shows rounding; x [n]."""
    xp, some = vectors.xp, np.frombuffer(np.random.default_rng(0).bytes(len(x) // 8 + 1), np.uint8)
    return vectors.agreed(x * (1 - 2 * xp.unpackbits(xp.asarray(some))[: len(x)].astype(x.dtype)))


class OutOfIterations(SolverError):
    """The maximum number of iterations is reached, but not the tolerance."""


class BadPreconditioner(SolverError):
    """The preconditioner is not positive definite, or its result is no number."""


class BadOperator(SolverError):
    """The operator is not positive definite."""


def no_convergence(name: str, residual: float, tol: float, done: int) -> OutOfIterations:
    """Say that there were too many iterations."""
    return OutOfIterations(
        f"{name} did not converge: residual {residual:.2e}, wanted {tol:.1e}, after {done} iterations;"
        " allow more iterations, or use a stronger preconditioner or a larger tolerance"
    )


def bad_preconditioner(name: str, rho: float, done: int) -> BadPreconditioner:
    """Say that the residual's norm in the preconditioner is not positive, or no number."""
    if not np.isfinite(rho):
        return BadPreconditioner(
            f"{name}: the preconditioner's result is not finite (r.z = {rho} after {done} iterations)"
        )
    return BadPreconditioner(
        f"{name}: the preconditioner is not positive definite (r.z = {rho:.3e} after {done} iterations);"
        " a preconditioner made from an indefinite operator (lam < 0) is indefinite too"
    )


def bad_operator(name: str, curvature: float, done: int) -> BadOperator:
    """Say that the direction's norm in the operator is not positive."""
    return BadOperator(
        f"{name}: the operator is not positive definite (p.Ap = {curvature:.3e} after {done} iterations);"
        " lam must be >= 0, a diffusivity > 0, and a pure Neumann problem with lam = 0 leaves a constant free"
    )


def not_symmetric(name: str) -> SolverError:
    """Say that the operator differs from its transpose."""
    return SolverError(
        f"{name}: the operator is not symmetric, but this method needs a symmetric one;"
        " x, info = hpfem.solve(A, b) chooses a method that fits"
    )


def singular(name: str, residual: float, done: int) -> SolverError:
    """Say that nothing in the range of the operator is nearer to the right-hand side."""
    return SolverError(
        f"{name}: the operator is singular, or nearly, and the right-hand side is not in its range: the residual is"
        f" {residual:.2e} after {done} iterations, and rounding allows no less; is a constant left undetermined?"
    )


def standstill(name: str, residual: float, tol: float, done: int, restart: int) -> SolverError:
    """Say that a method with restarts makes no more progress."""
    return SolverError(
        f"{name} stands still: residual {residual:.2e}, wanted {tol:.1e}, after {done} iterations, the last {restart}"
        " of no use; use a stronger preconditioner, a larger restart, or more points per wave or layer"
    )


def not_finite(name: str, done: int) -> SolverError:
    """Say that a scalar is infinite or NaN."""
    return SolverError(f"{name}: a number is not finite after {done} iterations; look at the coefficients")


def or_float64(dtype: DTypeLike) -> str:
    """What else helps in float32."""
    return ", or float64" if np.dtype(dtype) == np.float32 else ""


def limited_by_rounding(name: str, residual: float, tol: float, dtype: DTypeLike) -> None:
    """Warn that the true residual cannot meet the tolerance."""
    warn(
        f"{name}: the residual b - A x is {residual:.1e}, wanted {tol:.1e}: rounding to {np.dtype(dtype)} allows no"
        f" less; take a larger tolerance{or_float64(dtype)}"
    )


def untrue_residual(name: str, residual: float, tol: float, rounding: float) -> SolverError:
    """Say that, twice, the recurred residual met the tolerance and the true residual did not."""
    if residual <= ROUNDING * rounding:
        why = "of rounding: the operator is singular, or its coefficients differ more than the type of numbers allows"
    else:
        why = "not of rounding: the operator is not linear, or it or the preconditioner changes what it is given"
    return SolverError(
        f"{name}: the residual b - A x is {residual:.2e}, though that of the iterations met {tol:.1e}; it is {why}"
    )
