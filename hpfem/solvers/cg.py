"""Preconditioned conjugate gradients on host or device arrays (Hestenes & Stiefel 1952).

Vectors stay where they are: an iteration takes one application of the operator, one of the preconditioner and three
scalars. It stops as `scipy.sparse.linalg.cg` does: by the norm of the recurred residual against that of the right-hand
side.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from ..assembly.devices import add_scaled, scale_and_add
from ..errors import ArgumentError, SolverError
from ..reporting import progress


@dataclass(frozen=True, eq=False)
class SolveInfo:
    """How a solve went.

    Attributes
    ----------
    iterations : int
    residuals : list of float
        Norm of the residual over that of the right-hand side, before the first and after each iteration.
    time : float
        Seconds, all together.
    operator_time, preconditioner_time : float
        Seconds in the operator and in the preconditioner; on a device that computes on its own, the time to start them.
    set_up_time : float
        Seconds before the first iteration: boundary conditions, right-hand side, preconditioner.
    preconditioner : str
        What was used.
    size : int
        Unknowns.
    """

    iterations: int
    residuals: list[float] = field(repr=False)
    time: float
    operator_time: float = 0.0
    preconditioner_time: float = 0.0
    set_up_time: float = 0.0
    preconditioner: str = "none"
    size: int = 0


class _Timed:
    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function, self.time = function, 0.0

    def __call__(self, vector: Any) -> Any:
        start = perf_counter()
        result = self.function(vector)
        self.time += perf_counter() - start
        return result


def _silent(n: int = 1, description: str | None = None) -> None:
    """The steps of a progress bar that is not there."""


def cg(
    apply: Callable[[Any], Any],
    rhs: Any,
    precondition: Callable[[Any], Any] | None = None,
    *,
    tol: float = 1e-10,
    max_iterations: int | None = None,
    start: Any | None = None,
    name: str = "CG",
    bar: bool = True,
) -> tuple[Any, SolveInfo]:
    """Solve A x = b with a symmetric positive definite A.

    Parameters
    ----------
    apply : callable
        x -> A x, a new array.
    rhs : array, [n]
        b, of NumPy or of a device.
    precondition : callable, optional
        r -> M^-1 r, a new array or r itself; symmetric positive definite.
    tol : float
        Wanted ratio of the residual's norm to that of b, > 0.
    max_iterations : int, optional
        10 n + 100 when left out.
    start : array, [n], optional
        First guess; zero when left out.
    name : str
        For messages and the progress bar.
    bar : bool
        Whether to show one: not where a solve is one of many.

    Returns
    -------
    x : array, [n]
    SolveInfo

    Raises
    ------
    SolverError
        If it does not converge, the operator or the preconditioner is not positive definite, or a number is not finite.
    ArgumentError
        For a bad tolerance.
    """
    if not tol > 0:
        raise ArgumentError(f"the tolerance of {name} must be > 0, got {tol!r}")
    began = perf_counter()
    most = 10 * int(rhs.shape[0]) + 100 if max_iterations is None else int(max_iterations)
    A = _Timed(apply)
    M = None if precondition is None else _Timed(precondition)
    x = rhs * 0 if start is None else start * 1
    r = rhs * 1 if start is None else rhs - A(x)
    scale = float(rhs @ rhs) ** 0.5
    if not np.isfinite(scale):
        raise SolverError(f"{name}: the right-hand side is not finite; look at the data and the coefficients")
    if scale == 0:
        return rhs * 0, SolveInfo(0, [0.0], perf_counter() - began, A.time, size=int(rhs.shape[0]))
    residuals = [float(r @ r) ** 0.5 / scale]
    p, before = r, 1.0
    with progress(name) if bar else nullcontext(_silent) as advance:
        while residuals[-1] > tol:
            done = len(residuals) - 1
            if done >= most:
                raise SolverError(
                    f"{name} did not converge: residual {residuals[-1]:.2e}, wanted {tol:.1e}, after {done} iterations;"
                    " allow more iterations, take a stronger preconditioner or a larger tolerance"
                )
            z = r if M is None else M(r)
            rho = float(r @ z)
            if rho <= 0:
                raise SolverError(
                    f"{name}: the preconditioner is not positive definite (r.z = {rho:.3e} after {done} iterations);"
                    " one that is made from the operator is not where lam < 0 makes that indefinite"
                )
            if done == 0:
                p = z * 1
            else:
                scale_and_add(p, rho / before, z)
            q = A(p)
            curvature = float(p @ q)
            if not (np.isfinite(rho) and np.isfinite(curvature)):
                raise SolverError(f"{name}: a number is not finite after {done} iterations; look at the coefficients")
            if curvature <= 0:
                raise SolverError(
                    f"{name}: the operator is not positive definite (p.Ap = {curvature:.3e} after {done} iterations);"
                    " lam must be >= 0, and a pure Neumann problem with lam = 0 has a constant to take out"
                )
            add_scaled(x, rho / curvature, p)
            add_scaled(r, -rho / curvature, q)
            before = rho
            residuals.append(float(r @ r) ** 0.5 / scale)
            advance(description=f"{name} {residuals[-1]:.1e}")
    info = SolveInfo(
        len(residuals) - 1,
        residuals,
        perf_counter() - began,
        A.time,
        0.0 if M is None else M.time,
        size=int(rhs.shape[0]),
    )
    return x, info
