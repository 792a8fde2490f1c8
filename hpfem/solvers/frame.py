"""The common part of iterative methods: arguments, when to stop, and the true residual of the solution.

Vectors stay where they are; they are scaled by powers of two, so that right-hand sides may be of any size. A method
stops by the norm of its recurred residual against that of the right-hand side. Because of rounding, or of wrong
functions, the recurred residual may differ from the true one, b - A x. The true residual is computed at the end, and if
it misses the tolerance by more than rounding, the method starts once more from x.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from math import frexp, isfinite, sqrt
from time import perf_counter
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hpfem.shapes.arguments import flag, instance

from ..assembly import GlobalOperator
from ..backends import vectors_of
from ..backends.vectors import VectorSpace, scaled
from ..errors import ArgumentError, SolverError
from ..memory import HOST
from ..support.progress import progress
from .arguments import Doubted, Iteration, checked_functions, checked_limits, checked_vector, name_of_preconditioner
from .breakdown import ROUNDING, OutOfIterations, limited_by_rounding, mixed_signs, not_symmetric, untrue_residual
from .constants import check_solvable
from .info import SolveInfo
from .scaling import default_tolerance, unscaled

Array = NDArray[np.float64]


class Timed:
    """A user's function of vectors, timed; its result is checked.

    Parameters
    ----------
    what : str
        For messages.
    function : callable
        x -> A x.
    like : array
        A vector.
    operator : GlobalOperator, optional
        The operator that the function applies, on its own device.
    """

    def __init__(
        self, what: str, function: Callable[..., Any], like: Any, operator: GlobalOperator | None = None
    ) -> None:
        self.what, self.function, self.time, self.operator = what, function, 0.0, operator
        self.shape, self.dtype = like.shape, like.dtype

    def start(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call another function that does the same."""
        begun = perf_counter()
        result = function(*arguments)
        self.time += perf_counter() - begun
        return result

    def __call__(self, vector: Any) -> Any:
        """Apply to a vector; the function must not write into it."""
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


class Method(Protocol):
    """The iterations of a method, from x and its residual r, which are overwritten, until one meets the tolerance."""

    def __call__(self, vectors: VectorSpace, A: Timed, M: Timed | None, x: Any, r: Any, run: Iteration) -> None:
        """Iterate, and add to the residuals of `run`."""


def _silent(n: int = 1, description: str | None = None) -> None:
    """The steps of no progress bar."""


def read_only(vector: Any) -> Any:
    """A read-only view of a vector, for users' functions."""
    if isinstance(vector, np.ndarray):
        vector = vector.view()
        vector.flags.writeable = False
    return vector


def rounding(vectors: VectorSpace, A: Timed, x: Any) -> float:
    """Size of the rounding errors of A x: eps times the size of the terms that cancel there, with other signs; x
    [n].
    """
    # Random: alternating signs would leave out the couplings of unknowns whose numbers differ by 2.
    mixed = mixed_signs(vectors, x)
    return float(np.finfo(x.dtype).eps) * vectors.norm(A(mixed))


def iterated(
    method: str,
    iterate: Method,
    apply: Callable[[Any], Any] | GlobalOperator,
    rhs: Any,
    precondition: Callable[[Any], Any] | None,
    *,
    symmetric: bool,
    tol: float | None,
    max_iterations: int | None,
    start: Any | None,
    name: str,
    bar: bool,
    shared: VectorSpace | None = None,
) -> tuple[Any, SolveInfo]:
    """Solve A x = b by the iterations of a method; see `hpfem.cg` for what it takes, returns and raises; -> x [n]."""
    began = perf_counter()
    name, bar = instance(name, str, "name"), flag(bar, "bar")
    tol, max_iterations = checked_limits(tol, max_iterations, name)
    vectors = vectors_of(rhs)
    if isinstance(apply, GlobalOperator):
        vectors = apply.c0.vectors_on(vectors.device)
    elif shared is not None:
        vectors = shared
    rhs = checked_vector(vectors, rhs, f"the right-hand side of {name}")
    if start is not None:
        start = checked_vector(vectors, start, f"the first guess of {name}")
        if start.shape != rhs.shape:
            raise ArgumentError(f"{name}: the first guess has {len(start)} entries, the right-hand side {len(rhs)}")
    checked_functions(apply, precondition, rhs, name)
    if rhs.dtype not in (np.float64, np.float32):
        raise ArgumentError(f"{name} takes vectors of float64 or float32, got {rhs.dtype}")
    wanted = default_tolerance(rhs.dtype) if tol is None else tol
    size = vectors.count(rhs)
    most = 10 * size + 100 if max_iterations is None else max_iterations
    operator: GlobalOperator | None = None
    if isinstance(apply, GlobalOperator):
        operator, there = apply, apply.vectors.has(rhs)
        if symmetric and not operator.symmetric:
            raise not_symmetric(name)
        if not there and vectors.device.name != HOST.name:
            raise ArgumentError(f"{name}: {operator.operator.name} computes on the host, the vectors are on a device")
        apply = partial(operator.apply, device=operator.device if there else HOST)
    elif symmetric:
        apply = Doubted(apply, vectors, name)
    A = Timed(f"{name}: the operator", apply, rhs, operator)
    M = None if precondition is None else Timed(f"{name}: the preconditioner", precondition, rhs)
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
            method=method,
            size=size,
            residual=residual,
        )

    unit = frexp(largest)[1]
    b = scaled(rhs, -unit)
    x = b * 0 if start is None else scaled(start.astype(rhs.dtype, copy=False), -unit)
    r = b * 1 if start is None else b - A(x)
    scale = sqrt(vectors.dot(b, b))
    if scale == 0:
        residuals.append(0.0)
        return rhs * 0, info(0.0)
    with progress(name) if bar else nullcontext(_silent) as advance:
        # The second time the tolerance is a little smaller, so that rounding does not miss it again.
        for aim in (wanted, wanted / 2):
            run, failure = Iteration(scale, aim, most, name, advance, residuals), None
            try:
                iterate(vectors, A, M, x, r, run)
            except SolverError as error:
                failure = error
            r = b - A(read_only(x))
            residual = vectors.norm(r) / scale
            if residual <= wanted:
                break
            # A few iterations that the user has asked for end without a solution, and that is no sign.
            few = isinstance(failure, OutOfIterations) and max_iterations is not None and residual < 1e3
            if operator is not None and not few:
                check_solvable(operator, b, vectors, wanted, name, failure)
            lost = rounding(vectors, A, x) / scale
            # After a breakdown, or far from a solution, x and its rounding errors may be arbitrarily large.
            eps = float(np.finfo(x.dtype).eps)
            if residual <= min(ROUNDING * lost, 0.1 if failure is None else eps**0.5):
                if vectors.comm.rank == 0 and (tol is not None or residual > 100 * wanted):
                    limited_by_rounding(name, residual, wanted, rhs.dtype)
                break
            if failure is not None:
                raise failure
            residuals.pop()
        else:
            raise untrue_residual(name, residual, wanted, lost)
    return unscaled(x, unit, rhs.dtype, name, vectors), info(residual)
