"""Preconditioned conjugate gradients on host or device arrays (Hestenes & Stiefel 1952).

Vectors stay where they are; they are scaled by powers of two, so that right-hand sides may be of any size. It stops as
`scipy.sparse.linalg.cg` does: by the norm of the recurred residual against that of the right-hand side. Rounding, and
functions that do not do what they should, part the recurred residual from the true one, b - A x: that is computed at
the end, and where it misses the tolerance by more than rounding the iteration starts once more from x.

On a GPU the scalars stay there too (`device_cg`): the host looks at them some iterations later, and the solution, the
number of iterations and the residuals are those of the iteration that met the tolerance.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from math import frexp, inf, isfinite, isnan
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hpfem.shapes.arguments import flag, instance

from ..assembly import GlobalOperator
from ..assembly.devices import array_module, has_indexed, vector_home, vector_on
from ..errors import ArgumentError, SolverError
from ..memory import HOST, Device
from ..support.progress import progress
from .arguments import Doubted, checked_functions, checked_limits, checked_vectors, name_of_preconditioner
from .breakdown import (
    ROUNDING,
    bad_operator,
    bad_preconditioner,
    limited_by_rounding,
    no_convergence,
    not_finite,
    untrue_residual,
)
from .device_cg import iterate_on_device
from .scaling import default_tolerance, exponent, magnitude, norm, scaled, unscaled

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SolveInfo:
    """How a solve went.

    Attributes
    ----------
    iterations : int
    residuals : list of float
        Norm of the recurred residual over that of the right-hand side, before the first and after each iteration;
        where the iteration started again, that of the true one there.
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
    residual : float
        Norm of the true residual b - A x over that of b, computed from the solution.
    incompatibility : {str: float}
        Of a problem that does not see constants: by part of the mesh (`solve_helmholtz`), the sum of the right-hand
        side over the sum of its absolute values, 0 but for rounding where there is a solution.
    """

    iterations: int
    residuals: list[float] = field(repr=False)
    time: float
    operator_time: float = 0.0
    preconditioner_time: float = 0.0
    set_up_time: float = 0.0
    preconditioner: str = "none"
    size: int = 0
    residual: float = 0.0
    incompatibility: dict[str, float] = field(default_factory=dict)


class _Timed:
    """A user's function of vectors, timed; what it returns is checked to be one."""

    def __init__(self, what: str, function: Callable[..., Any], like: Any) -> None:
        self.what, self.function, self.time = what, function, 0.0
        self.shape, self.dtype = like.shape, like.dtype

    def start(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call another function that does the same."""
        begun = perf_counter()
        result = function(*arguments)
        self.time += perf_counter() - begun
        return result

    def __call__(self, vector: Any) -> Any:
        begun = perf_counter()
        try:
            result = self.function(vector)
        except ValueError as error:
            if "read-only" not in str(error):
                raise
            raise ArgumentError(
                f"{self.what} must not write into its argument or another read-only array; let it return a new array"
            ) from error
        self.time += perf_counter() - begun
        found, dtype = getattr(result, "shape", None), getattr(result, "dtype", None)
        if found == self.shape and dtype == self.dtype:
            return result
        if found != self.shape or getattr(dtype, "kind", "") not in "fiu":
            given = type(result).__name__ if found is None else f"{dtype} of shape {found}"
            raise ArgumentError(f"{self.what} returned {given}, wanted {self.dtype} of shape {self.shape}")
        return result.astype(self.dtype)


def _silent(n: int = 1, description: str | None = None) -> None:
    """The steps of a progress bar that is not there."""


def cg(
    apply: Callable[[Any], Any] | GlobalOperator,
    rhs: Any,
    precondition: Callable[[Any], Any] | None = None,
    *,
    tol: float | None = None,
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
    tol : float, optional
        Wanted ratio of the residual's norm to that of b, > 0. When left out 1e-12, or 1.2e-6 in float32, or what
        rounding leaves up to a hundred times that.
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
        If it does not converge, the operator is not symmetric, it or the preconditioner is not positive definite, a
        number is not finite, the true residual misses the tolerance by more than rounding explains, or x is out of the
        type's range.
    ArgumentError
        For bad tolerances or numbers of iterations, vectors of another type than float64 and float32, or functions that
        write into their argument or do not return vectors.

    Warns
    -----
    HpfemWarning
        If rounding keeps the true residual above the tolerance.
    """
    began = perf_counter()
    name, bar = instance(name, str, "name"), flag(bar, "bar")
    tol, max_iterations = checked_limits(tol, max_iterations, name)
    rhs, start = checked_vectors(rhs, start, name)
    checked_functions(apply, precondition, rhs, name)
    if rhs.dtype not in (np.float64, np.float32):
        raise ArgumentError(f"{name} takes vectors of float64 or float32, got {rhs.dtype}")
    wanted = default_tolerance(rhs.dtype) if tol is None else tol
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
    A = _Timed(f"{name}: the operator", apply, rhs)
    M = None if precondition is None else _Timed(f"{name}: the preconditioner", precondition, rhs)
    largest = magnitude(rhs)
    if not isfinite(largest):
        raise SolverError(f"{name}: the right-hand side is not finite; look at the data and the coefficients")
    unit = frexp(largest)[1]
    b = scaled(rhs, -unit)
    x = b * 0 if start is None else scaled(start.astype(rhs.dtype, copy=False), -unit)
    r = b * 1 if start is None else b - A(x)
    scale = float(b @ b) ** 0.5
    if scale == 0:
        return rhs * 0, SolveInfo(0, [0.0], perf_counter() - began, A.time, preconditioner=used, size=int(rhs.shape[0]))
    residuals: list[float] = []
    with progress(name) if bar else nullcontext(_silent) as advance:
        for _ in range(2):
            failure = None
            try:
                if on_device:
                    into = A if product is None else partial(A.start, product.into)
                    iterate_on_device(into, product, M, x, r, scale, wanted, most, name, advance, residuals)
                else:
                    _iterate(A, M, x, r, scale, wanted, most, name, advance, residuals)
            except SolverError as error:
                failure = error
            r = b - A(_read_only(x))
            residual = norm(r) / scale
            if residual <= wanted:
                break
            rounding = _rounding(A, x) / scale
            # After a breakdown, or far from a solution, x may be large without end, and its rounding with it.
            if residual <= min(ROUNDING * rounding, 0.1 if failure is None else np.finfo(rhs.dtype).eps ** 0.5):
                if tol is not None or residual > 100 * wanted:
                    limited_by_rounding(name, residual, wanted, rhs.dtype)
                break
            if failure is not None:
                raise failure
            residuals.pop()
        else:
            raise untrue_residual(name, residual, wanted, rounding)
    info = SolveInfo(
        len(residuals) - 1,
        residuals,
        perf_counter() - began,
        A.time,
        0.0 if M is None else M.time,
        preconditioner=used,
        size=int(rhs.shape[0]),
        residual=residual,
    )
    return unscaled(x, unit, rhs.dtype, name), info


def cg_from_host(
    apply: Callable[[Any], Any] | GlobalOperator,
    rhs: Array,
    device: Device,
    dtype: DTypeLike,
    *args: Any,
    **options: Any,
) -> tuple[Array, SolveInfo]:
    """`cg` on a device for vectors on the host, of any size in float64 whatever the type there.

    Parameters
    ----------
    apply
        As for `cg`.
    rhs : ndarray, [n]
    device : Device
    dtype : dtype
        Of the vectors there.
    *args, **options
        Further ones of `cg`.

    Returns
    -------
    x : ndarray, [n]
    SolveInfo
    """
    unit = exponent(rhs)
    x, info = cg(apply, vector_on(scaled(rhs, -unit), device, dtype), *args, **options)
    return scaled(vector_home(x, device).astype(np.float64), unit), info


def _read_only(vector: Any) -> Any:
    """A vector as functions of users see it."""
    if isinstance(vector, np.ndarray):
        vector = vector.view()
        vector.flags.writeable = False
    return vector


def _rounding(A: _Timed, x: Any) -> float:
    """What rounding A x amounts to: eps times the size of the terms that cancel there, which other signs keep apart."""
    mixed = x * 1
    mixed[::2] *= -1
    return float(np.finfo(x.dtype).eps) * norm(A(mixed))


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
    residuals: list[float],
) -> None:
    """Iterate on NumPy arrays, x and r in place, and add to the residuals."""
    first = len(residuals)
    residuals.append(float(r @ r) ** 0.5 / scale)
    p, before = r * 1, 1.0
    seen_r, seen_p = _read_only(r), _read_only(p)
    while not residuals[-1] <= tol:
        done = len(residuals) - 1
        if isnan(residuals[-1]):
            raise not_finite(name, done)
        if done >= most:
            raise no_convergence(name, residuals[-1], tol, done)
        z = r if M is None else M(seen_r)
        rho = float(r @ z)
        if not 0 < rho < inf:
            raise bad_preconditioner(name, rho, done)
        p *= 0 if done == first else rho / before
        p += z
        q = A(seen_p)
        curvature = float(p @ q)
        if not 0 < curvature < inf:
            raise bad_operator(name, curvature, done) if isfinite(curvature) else not_finite(name, done)
        x += (rho / curvature) * p
        r += (-rho / curvature) * q
        before = rho
        residuals.append(float(r @ r) ** 0.5 / scale)
        advance(description=f"{name} {residuals[-1]:.1e}")
