"""Preconditioned conjugate gradients on host or device arrays [HS].

Vectors stay where they are; they are scaled by powers of two, so that right-hand sides may be of any size. It stops as
`scipy.sparse.linalg.cg` does: by the norm of the recurred residual against that of the right-hand side. Rounding, and
functions that do not do what they should, part the recurred residual from the true one, b - A x: that is computed at
the end, and where it misses the tolerance by more than rounding the iteration starts once more from x.

A device that iterates without its host keeps the scalars too (`device_cg`): the host looks at them some iterations
later, and the solution, the number of iterations and the residuals are those of the iteration that met the tolerance.
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
from ..backends import vectors_of
from ..backends.vectors import HOST_VECTORS, VectorSpace, scaled
from ..errors import ArgumentError, SolverError
from ..memory import HOST
from ..support.progress import progress
from .arguments import Doubted, Iteration, checked_functions, checked_limits, checked_vector, name_of_preconditioner
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
from .scaling import default_tolerance, unscaled

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
        where that is not part of a graph.
    set_up_time : float
        Seconds before the first iteration: boundary conditions, right-hand side, preconditioner.
    preconditioner : str
        What was used: "none", "jacobi", "multigrid", or "user" for any other function.
    size : int
        Unknowns.
    residual : float
        Norm of the true residual b - A x over that of b, computed from the solution.
    incompatibility : {str: float}
        Of a problem that does not see constants: by part of the mesh (`solve_helmholtz`), the sum of the right-hand
        side over the sum of its absolute values, 0 but for rounding where there is a solution.
    phases : {str: float}
        Seconds of each part of the set-up. Printed, the record is a table of these and of the iterations.
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
    phases: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        iterating = self.time - self.set_up_time
        per = f", {1e3 * iterating / self.iterations:.3g} ms each" if self.iterations else ""
        lines = [f"{self.size} unknowns, preconditioner {self.preconditioner}, residual {self.residual:.1e}"]
        lines += [f"  {name:<18}{seconds:9.3f} s" for name, seconds in self.phases.items()]
        lines.append(f"  {'iterations':<18}{iterating:9.3f} s   {self.iterations}{per}")
        return "\n".join(lines)


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
    vectors = vectors_of(rhs)
    rhs = checked_vector(vectors, rhs, f"the right-hand side of {name}")
    if start is not None:
        start = checked_vector(vectors, start, f"the first guess of {name}")
        if start.shape != rhs.shape:
            raise ArgumentError(f"{name}: the first guess has {len(start)} entries, the right-hand side {len(rhs)}")
    checked_functions(apply, precondition, rhs, name)
    if rhs.dtype not in (np.float64, np.float32):
        raise ArgumentError(f"{name} takes vectors of float64 or float32, got {rhs.dtype}")
    wanted = default_tolerance(rhs.dtype) if tol is None else tol
    most = 10 * int(rhs.shape[0]) + 100 if max_iterations is None else max_iterations
    iteration, into, blocks = vectors.iteration, None, None
    if isinstance(apply, GlobalOperator):
        operator, there = apply, apply.vectors.has(rhs)
        if not there and vectors is not HOST_VECTORS:
            raise ArgumentError(f"{name}: {operator.operator.name} computes on the host, the vectors are on a device")
        apply = partial(operator.apply, device=operator.device if there else HOST)
        product = operator.product_on(operator.device) if iteration is not None else None
        if product is not None and product.alone and product.dtype == rhs.dtype:
            into, blocks = product.into, product.blocks
    else:
        apply = Doubted(apply, vectors, name)
    A = _Timed(f"{name}: the operator", apply, rhs)
    M = None if precondition is None else _Timed(f"{name}: the preconditioner", precondition, rhs)
    largest = vectors.max_norm(rhs)
    if not isfinite(largest):
        raise SolverError(f"{name}: the right-hand side is not finite; look at the data and the coefficients")
    residuals: list[float] = []

    def info(residual: float) -> SolveInfo:
        return SolveInfo(
            len(residuals) - 1,
            residuals,
            perf_counter() - began,
            A.time,
            0.0 if M is None else M.time,
            preconditioner=name_of_preconditioner(precondition),
            size=int(rhs.shape[0]),
            residual=residual,
        )

    unit = frexp(largest)[1]
    b = scaled(rhs, -unit)
    x = b * 0 if start is None else scaled(start.astype(rhs.dtype, copy=False), -unit)
    r = b * 1 if start is None else b - A(x)
    scale = vectors.dot(b, b) ** 0.5
    if scale == 0:
        residuals.append(0.0)
        return rhs * 0, info(0.0)
    with progress(name) if bar else nullcontext(_silent) as advance:
        run = Iteration(scale, wanted, most, name, advance, residuals)
        for _ in range(2):
            failure = None
            try:
                if iteration is None:
                    _iterate(vectors, A, M, x, r, run)
                else:
                    iterate_on_device(iteration, A if into is None else partial(A.start, into), blocks, M, x, r, run)
            except SolverError as error:
                failure = error
            r = b - A(_read_only(x))
            residual = vectors.norm(r) / scale
            if residual <= wanted:
                break
            # What rounding A x amounts to: eps times the size of the terms that cancel there, with other signs.
            mixed = x * 1
            mixed[::2] *= -1
            eps = float(np.finfo(x.dtype).eps)
            rounding = eps * vectors.norm(A(mixed)) / scale
            # After a breakdown, or far from a solution, x may be large without end, and its rounding with it.
            if residual <= min(ROUNDING * rounding, 0.1 if failure is None else eps**0.5):
                if tol is not None or residual > 100 * wanted:
                    limited_by_rounding(name, residual, wanted, rhs.dtype)
                break
            if failure is not None:
                raise failure
            residuals.pop()
        else:
            raise untrue_residual(name, residual, wanted, rounding)
    return unscaled(x, unit, rhs.dtype, name, vectors), info(residual)


def cg_of_any_size(
    apply: Callable[[Any], Any] | GlobalOperator,
    rhs: Any,
    vectors: VectorSpace,
    dtype: DTypeLike,
    *args: Any,
    start: Any | None = None,
    **options: Any,
) -> tuple[Any, SolveInfo]:
    """Solve as `cg` does, with vectors of any size in float64 whatever the type of those iterated with.

    Parameters
    ----------
    apply
        As for `cg`.
    rhs : array of float64, [n]
    vectors : VectorSpace
        Where it is, and the first guess.
    dtype : dtype
        Of the vectors that are iterated with.
    *args, **options
        Further ones of `cg`.
    start : array of float64, [n], optional
        First guess.

    Returns
    -------
    x : array of float64, [n]
    SolveInfo
    """
    unit = vectors.exponent(rhs)
    given = None if start is None else scaled(start, -unit).astype(dtype, copy=False)
    x, info = cg(apply, scaled(rhs, -unit).astype(dtype, copy=False), *args, start=given, **options)
    return scaled(x.astype(np.float64, copy=False), unit), info


def _read_only(vector: Any) -> Any:
    """A vector as functions of users see it."""
    if isinstance(vector, np.ndarray):
        vector = vector.view()
        vector.flags.writeable = False
    return vector


def _iterate(vectors: VectorSpace, A: _Timed, M: _Timed | None, x: Any, r: Any, run: Iteration) -> None:
    """Iterate with the scalars on the host, x and r in place, and add to the residuals."""
    residuals, name = run.residuals, run.name
    first = len(residuals)
    residuals.append(vectors.dot(r, r) ** 0.5 / run.scale)
    p, before = r * 1, 1.0
    seen_r, seen_p = _read_only(r), _read_only(p)
    while not residuals[-1] <= run.tol:
        done = len(residuals) - 1
        if isnan(residuals[-1]):
            raise not_finite(name, done)
        if done >= run.most:
            raise no_convergence(name, residuals[-1], run.tol, done)
        z = r if M is None else M(seen_r)
        rho = vectors.dot(r, z)
        if not 0 < rho < inf:
            raise bad_preconditioner(name, rho, done)
        p *= 0 if done == first else rho / before
        p += z
        q = A(seen_p)
        curvature = vectors.dot(p, q)
        if not 0 < curvature < inf:
            raise bad_operator(name, curvature, done) if isfinite(curvature) else not_finite(name, done)
        vectors.axpy(rho / curvature, p, x)
        vectors.axpy(-rho / curvature, q, r)
        before = rho
        residuals.append(vectors.dot(r, r) ** 0.5 / run.scale)
        run.advance(description=f"{name} {residuals[-1]:.1e}")
