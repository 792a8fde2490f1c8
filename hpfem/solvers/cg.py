"""Preconditioned conjugate gradients on host or device arrays (Hestenes & Stiefel 1952).

Vectors stay where they are. It stops as `scipy.sparse.linalg.cg` does: by the norm of the recurred residual against
that of the right-hand side. On a GPU the scalars stay there too (`device_cg`): the host looks at them some iterations
later, and the solution, the number of iterations and the residuals are those of the iteration that met the tolerance.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from hpfem.shapes.arguments import flag, instance, shown

from ..assembly import GlobalOperator
from ..assembly.devices import array_module, has_indexed
from ..errors import ArgumentError, SolverError
from ..memory import HOST
from ..reporting import progress
from .arguments import (
    Doubted,
    checked_functions,
    checked_limits,
    checked_vectors,
    name_of_preconditioner,
)
from .breakdown import bad_operator, bad_preconditioner, no_convergence, not_finite
from .device_cg import iterate_on_device


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
        Seconds in the operator and in the preconditioner; on a device that computes on its own, the time to start them
        where that is not part of a CUDA graph.
    set_up_time : float
        Seconds before the first iteration: boundary conditions, right-hand side, preconditioner.
    preconditioner : str
        What was used: "none", "jacobi", "multilevel", or "user" for any other function.
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
    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.time = function, 0.0

    def __call__(self, *arguments: Any) -> Any:
        start = perf_counter()
        result = self.function(*arguments)
        self.time += perf_counter() - start
        if len(arguments) == 1 and (
            getattr(result, "shape", None) != arguments[0].shape or result.dtype.kind not in "fiu"
        ):
            raise ArgumentError(f"a function of vectors must return vectors of real numbers, got {shown(result)}")
        return result


def _silent(n: int = 1, description: str | None = None) -> None:
    """The steps of a progress bar that is not there."""


def cg(
    apply: Callable[[Any], Any] | GlobalOperator,
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
    apply : GlobalOperator or callable
        An operator whose vectors are on its own device, which on a GPU is fastest; or x -> A x, a new array.
    rhs : array, [n]
        b, of NumPy or of a device; on a GPU of float64 or float32.
    precondition : callable, optional
        r -> M^-1 r, a new array or r itself; symmetric positive definite. On a GPU it is called for a few residuals
        more than there are iterations.
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
        If it does not converge, the operator is not symmetric, it or the preconditioner is not positive definite, or a
        number is not finite.
    ArgumentError
        For bad tolerances or numbers of iterations, what is no vector or no function of vectors, or vectors on a GPU of
        another type than float64 and float32.
    """
    began = perf_counter()
    name, bar = instance(name, str, "name"), flag(bar, "bar")
    tol, max_iterations = checked_limits(1e-10 if tol is None else tol, max_iterations, name)
    rhs, start = checked_vectors(rhs, start, name)
    checked_functions(apply, precondition, rhs, name)
    used = name_of_preconditioner(precondition)
    most = 10 * int(rhs.shape[0]) + 100 if max_iterations is None else max_iterations
    on_device = array_module(rhs) is not np
    product = None
    if isinstance(apply, GlobalOperator):
        operator, there = apply, has_indexed(apply.device)
        if on_device and not there:
            raise ArgumentError(f"{name}: {operator.operator.name} computes on the host, the vectors are on a device")
        apply = partial(operator.apply, device=operator.device if on_device or not there else HOST)
        if on_device:
            product = operator.product_on(operator.device)
            product = product if product.alone and product.dtype == rhs.dtype else None
    else:
        apply = Doubted(apply, name)
    A = _Timed(apply)
    M = None if precondition is None else _Timed(precondition)
    x = rhs * 0 if start is None else start * 1
    r = rhs * 1 if start is None else rhs - A(x)
    scale = float(rhs @ rhs) ** 0.5
    if not np.isfinite(scale):
        raise SolverError(f"{name}: the right-hand side is not finite; look at the data and the coefficients")
    if scale == 0:
        return rhs * 0, SolveInfo(0, [0.0], perf_counter() - began, A.time, preconditioner=used, size=int(rhs.shape[0]))
    with progress(name) if bar else nullcontext(_silent) as advance:
        if on_device:
            x = x.astype(r.dtype, copy=False)
            A.function = A.function if product is None else product.into
            residuals = iterate_on_device(A, product, M, x, r, scale, tol, most, name, advance)
        else:
            residuals = _iterate(A, M, x, r, scale, tol, most, name, advance)
    info = SolveInfo(
        len(residuals) - 1,
        residuals,
        perf_counter() - began,
        A.time,
        0.0 if M is None else M.time,
        preconditioner=used,
        size=int(rhs.shape[0]),
    )
    return x, info


def _iterate(
    A: _Timed,
    M: _Timed | None,
    x: Any,
    r: Any,
    scale: float,
    tol: float,
    most: int,
    name: str,
    advance: Callable[..., None],
) -> list[float]:
    """Iterate on NumPy arrays, x and r in place; returns the residuals."""
    residuals = [float(r @ r) ** 0.5 / scale]
    p, before = r, 1.0
    while not residuals[-1] <= tol:
        done = len(residuals) - 1
        if np.isnan(residuals[-1]):
            raise not_finite(name, done)
        if done >= most:
            raise no_convergence(name, residuals[-1], tol, done)
        z = r if M is None else M(r)
        rho = float(r @ z)
        if rho <= 0:
            raise bad_preconditioner(name, rho, done)
        if done == 0:
            p = z * 1
        else:
            p *= rho / before
            p += z
        q = A(p)
        curvature = float(p @ q)
        if not (np.isfinite(rho) and np.isfinite(curvature)):
            raise not_finite(name, done)
        if curvature <= 0:
            raise bad_operator(name, curvature, done)
        x += (rho / curvature) * p
        r += (-rho / curvature) * q
        before = rho
        residuals.append(float(r @ r) ** 0.5 / scale)
        advance(description=f"{name} {residuals[-1]:.1e}")
    return residuals
