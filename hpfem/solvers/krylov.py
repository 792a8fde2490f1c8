"""The common part of Krylov methods: arguments, when to stop, and the true residual of the solution.

Vectors stay where they are; they are scaled by powers of two, so that right-hand sides may be of any size. A method
stops by the norm of its recurred residual against that of the right-hand side. Because of rounding, or of wrong
functions, the recurred residual may differ from the true one, b - A x. The true residual is computed at the end, and if
it misses the tolerance by more than rounding, the method starts once more from x.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import count
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from hpfem.shapes.arguments import flag, instance, integer, real, shown, takes

from ..assembly import GlobalOperator
from ..assembly.symmetry import asymmetry, random_pair
from ..backends import vectors_of
from ..backends.vectors import HOST_VECTORS, VectorSpace, scaled
from ..errors import ArgumentError, SolverError
from ..memory import HOST
from ..support.compiling import compile_seconds
from ..support.progress import no_steps, progress
from .breakdown import (
    ROUNDING,
    OutOfIterations,
    limited_by_rounding,
    mixed_signs,
    not_symmetric,
    or_float64,
    untrue_residual,
)
from .constants import check_solvable
from .info import SolveInfo

# Calls of a user's function before it is tested for symmetry: most solves end before.
_DOUBTFUL = 50
# The largest entry of a vector is more than its norm divided by 2 to this power.
_SPREAD = 32


@dataclass(frozen=True, eq=False)
class Iteration:
    """When to stop, and the record of the iterations so far."""

    scale: float  # norm of the right-hand side
    tol: float
    most: int  # iterations, with earlier ones
    name: str
    advance: Callable[..., None]  # the progress bar's steps
    residuals: list[float]  # over `scale`; new ones are added
    guessed: bool = False  # whether the first residual may meet the tolerance


class Timed:
    """A user's function of vectors [n], timed; its result is checked; `operator` is what it applies on its device."""

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
        try:
            result = self.start(self.function, vector)
        except ValueError as error:
            if "read-only" not in str(error):
                raise
            raise ArgumentError(
                f"{self.what} must not write into its argument or another read-only array; let it return a new array"
            ) from error
        found, dtype = getattr(result, "shape", None), getattr(result, "dtype", None)
        if found == self.shape and dtype == self.dtype:
            return result
        if found != self.shape or getattr(dtype, "kind", "") not in "fiu":
            given = type(result).__name__ if found is None else f"{dtype} of shape {found}"
            raise ArgumentError(f"{self.what} returned {given}, wanted {self.dtype} of shape {self.shape}")
        return result.astype(self.dtype)


def checked_limits(tol: float | None, most: int | None, name: str) -> tuple[Any, int | None]:
    """Check when to stop."""
    tol = None if tol is None else real(tol, f"the tolerance of {name}", above=0, below=1)
    return tol, None if most is None else integer(most, 0, f"the number of iterations of {name}")


def default_tolerance(dtype: DTypeLike) -> float:
    """Ratio of norms at which to stop: 1e-12, or ten times the rounding of a type if that is more."""
    return max(1e-12, 10 * float(np.finfo(dtype).eps))


def _checked_vector(vectors: VectorSpace, given: Any, what: str) -> Any:
    """Take a vector of floats, where it is; given [n] -> [n]."""
    given = vectors.checked(given, what)
    if given.ndim != 1:
        raise ArgumentError(f"{what} must be an array [n], got {shown(given)}")
    return given


def checked_functions(apply: Any, precondition: Any, rhs: Any, name: str) -> None:
    """Check that operator and preconditioner are functions; rhs [n]."""
    if precondition is not None and not takes(precondition, rhs):
        raise ArgumentError(f"the preconditioner of {name} must be a function of vectors, got {shown(precondition)}")
    there = getattr(precondition, "vectors", None)
    if isinstance(there, VectorSpace) and not there.has(rhs):
        raise ArgumentError(
            f"{name}: the preconditioner is on {there.device.name}, the right-hand side is not; "
            "give A.vectors.from_host(b)"
        )
    if not isinstance(apply, GlobalOperator):
        if not takes(apply, rhs):
            raise ArgumentError(f"the operator of {name} must be a function of vectors, got {shown(apply)}")
    elif apply.shape[1] != len(rhs):
        raise ArgumentError(f"{name}: the operator takes vectors of {apply.shape[1]} entries, b has {len(rhs)}")


def _doubted(function: Callable[[Any], Any], vectors: VectorSpace, name: str) -> Callable[[Any], Any]:
    """A user's function x -> A x, refused at some call if (u, A v) and (v, A u) differ by more than rounding."""
    calls = count(1)

    def apply(vector: Any) -> Any:
        if next(calls) == _DOUBTFUL:
            u, v = random_pair(vectors, len(vector), vector.dtype)
            allowed = float(np.finfo(vector.dtype).eps) ** 0.4 * min(vectors.dot(u, u), vectors.dot(v, v)) ** 0.5
            if asymmetry(vectors, function, u, v) > allowed:
                raise not_symmetric(name)
        return function(vector)

    return apply


def name_of_preconditioner(precondition: Any) -> str:
    """Name of a preconditioner in the record of a solve."""
    own = getattr(precondition, "name", "user")
    return "none" if precondition is None else own if isinstance(own, str) else "user"


def read_only(vector: Any) -> Any:
    """A read-only view of a vector, for users' functions."""
    if isinstance(vector, np.ndarray):
        vector = vector.view()
        vector.flags.writeable = False
    return vector


def rounding(vectors: VectorSpace, A: Timed, x: Any) -> float:
    """Size of the rounding errors of A x: eps times the size of the terms that cancel there; x [n]."""
    # Random signs: alternating ones would leave out the couplings of unknowns whose numbers differ by 2.
    return float(np.finfo(x.dtype).eps) * vectors.norm(A(mixed_signs(vectors, x)))


def unscaled(
    vector: Any, k: int, dtype: DTypeLike, name: str, vectors: VectorSpace = HOST_VECTORS, norm: float = math.nan
) -> Any:
    """Multiply a solution by 2^k, which is exact, if a type can hold it: by its norm, if known, or its entries."""
    limits = np.finfo(dtype)
    if math.isfinite(norm) and limits.minexp + _SPREAD < math.frexp(norm)[1] + k <= limits.maxexp:
        return scaled(vector, k)
    largest = vectors.max_norm(vector)
    top = math.frexp(largest)[1] + k
    if largest and math.isfinite(largest) and not limits.minexp < top <= limits.maxexp:
        raise SolverError(
            f"{name}: the solution, about 1e{round(top * math.log10(2)):+d}, is out of the range of {np.dtype(dtype)};"
            f" use other units for the data or the mesh{or_float64(dtype)}"
        )
    return scaled(vector, k)


class Method(NamedTuple):
    """`iterate(vectors, A, M, x, r, run)` overwrites x and its residual r until one meets the tolerance of `run`."""

    name: str
    symmetric: bool
    iterate: Callable[..., None]

    def __call__(
        self,
        apply: Callable[[Any], Any] | GlobalOperator,
        rhs: Any,
        precondition: Callable[[Any], Any] | None = None,
        *,
        tol: float | None = None,
        max_iterations: int | None = None,
        start: Any | None = None,
        name: str | None = None,
        bar: bool = True,
        shared: VectorSpace | None = None,
        dtype: DTypeLike | None = None,
        **options: Any,
    ) -> tuple[Any, SolveInfo]:
        """Solve A x = b, see `hpfem.cg`, by iterations on vectors of `dtype`; -> x [n] of b's type."""
        began, compiled = perf_counter(), compile_seconds()
        name, bar = instance(self.name.upper() if name is None else name, str, "name"), flag(bar, "bar")
        tol, max_iterations = checked_limits(tol, max_iterations, name)
        if shared is not None:
            vectors = shared
        else:
            vectors = vectors_of(rhs)
            vectors = apply.c0.vectors_on(vectors.device) if isinstance(apply, GlobalOperator) else vectors
        rhs = _checked_vector(vectors, rhs, f"the right-hand side of {name}")
        if start is not None:
            start = _checked_vector(vectors, start, f"the first guess of {name}")
            if start.shape != rhs.shape:
                raise ArgumentError(f"{name}: the first guess has {len(start)} entries, the right-hand side {len(rhs)}")
        checked_functions(apply, precondition, rhs, name)
        dtype = np.dtype(rhs.dtype if dtype is None else dtype)
        if dtype not in (np.float64, np.float32):
            raise ArgumentError(f"{name} takes vectors of float64 or float32, got {dtype}")
        wanted = default_tolerance(dtype) if tol is None else tol
        size = apply.components * apply.c0.whole_size if isinstance(apply, GlobalOperator) else vectors.count(rhs)
        most = 10 * size + 100 if max_iterations is None else max_iterations
        operator: GlobalOperator | None = None
        if isinstance(apply, GlobalOperator):
            operator, device = apply, vectors.device
            if shared is None:  # else the vectors are the operator's own
                device = apply.device if apply.vectors.has(rhs) else HOST
            if self.symmetric and not operator.symmetric:
                raise not_symmetric(name)
            if device.name == HOST.name != vectors.device.name:
                raise ArgumentError(
                    f"{name}: {operator.operator.name} computes on the host, the vectors are on a device"
                )
            apply = partial(operator.apply, device=device)
        elif self.symmetric:
            apply = _doubted(apply, vectors, name)
        largest = norm = vectors.norm(rhs)
        if not math.isfinite(norm) and not math.isfinite(largest := vectors.max_norm(rhs)):
            raise SolverError(f"{name}: the right-hand side is not finite; look at the data and the coefficients")
        unit = math.frexp(largest)[1]
        b = scaled(rhs, -unit).astype(dtype, copy=False)
        A = Timed(f"{name}: the operator", apply, b, operator)
        M = None if precondition is None else Timed(f"{name}: the preconditioner", precondition, b)
        residuals: list[float] = []

        def info(residual: float) -> SolveInfo:
            return SolveInfo(
                len(residuals) - 1,
                residuals,
                perf_counter() - began,
                A.time,
                0.0 if M is None else M.time,
                compile_time=compile_seconds() - compiled,
                preconditioner=name_of_preconditioner(precondition),
                smoother_steps=getattr(precondition, "degree", 0),
                method=self.name,
                size=size,
                residual=residual,
            )

        x, r = vectors.xp.zeros_like(b), b.copy()
        if start is not None:
            x = scaled(start.astype(rhs.dtype, copy=False), -unit).astype(dtype, copy=False)
            r = b - A(x)
        exact = dtype == rhs.dtype and math.isfinite(norm)
        scale = float(scaled(norm, -unit)) if exact else vectors.norm(b)
        if scale == 0:
            residuals.append(0.0)
            return rhs * 0, info(0.0)
        with progress(name) if bar else nullcontext(no_steps) as advance:
            # The second time the tolerance is a little smaller, so that rounding does not miss it again.
            for aim in (wanted, wanted / 2):
                guessed = start is not None or aim < wanted
                run, failure = Iteration(scale, aim, most, name, advance, residuals, guessed), None
                try:
                    self.iterate(vectors, A, M, x, r, run, **options)
                except SolverError as error:
                    failure = error
                r = b - A(read_only(x))
                residual, norm = vectors.norms(r, x)
                residual /= scale
                if residual <= wanted:
                    break
                # A few iterations that the user has asked for end without a solution, and that is no sign.
                few = isinstance(failure, OutOfIterations) and max_iterations is not None and residual < 1e3
                if operator is not None and not few:
                    check_solvable(operator, b, vectors, wanted, name, failure)
                # After a breakdown, or far from a solution, x and its rounding errors may be arbitrarily large.
                if failure is not None and not residual <= float(np.finfo(dtype).eps) ** 0.5:
                    raise failure
                lost = rounding(vectors, A, x) / scale
                if residual <= min(ROUNDING * lost, 0.1):
                    if vectors.comm.rank == 0 and (tol is not None or residual > 100 * wanted):
                        limited_by_rounding(name, residual, wanted, dtype)
                    break
                if failure is not None:
                    raise failure
                residuals.pop()
            else:
                raise untrue_residual(name, residual, wanted, lost)
        if dtype != rhs.dtype:
            x = unscaled(x, 0, dtype, name, vectors, norm).astype(rhs.dtype)
        return unscaled(x, unit, rhs.dtype, name, vectors, norm), info(residual)
