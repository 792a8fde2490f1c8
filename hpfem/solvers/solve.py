"""Solve A x = b by the method that A allows: conjugate gradients, MINRES or GMRES."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from hpfem.shapes.arguments import flag, instance, integer, reals, shown

from ..assembly import GlobalOperator
from ..assembly.symmetry import seems_symmetric
from ..backends import vectors_on
from ..backends.exchange import is_array, wrap
from ..backends.vectors import VectorSpace, scaled
from ..errors import ArgumentError, NotSuitable, SolverError, StateError
from ..memory import HOST, Device, PairArray, every
from ..operators.arrays import same_kind
from ..space.field import Field, check_state
from ..support.compiling import compile_seconds
from .breakdown import BadOperator
from .cg import CG
from .constants import check_solvable
from .gmres import RESTART, gmres
from .info import SolveInfo
from .krylov import Timed, checked_functions, checked_limits, default_tolerance, name_of_preconditioner
from .minres import minres
from .preconditioners import (
    Jacobi,
    Measured,
    Preconditioner,
    checked_preconditioner,
    make_preconditioner,
    without_zeros,
)
from .problem import Solution


def check_known(symmetric: bool | None, definite: bool | None) -> None:
    """Check what a user says of an operator."""
    for what, known in (("symmetric", symmetric), ("definite", definite)):
        if known is not None:
            flag(known, what)
    if symmetric is False and definite:
        raise ArgumentError("definite=True means symmetric positive definite; remove symmetric=False or definite=True")


def solve(
    A: Any,
    b: Any,
    preconditioner: str | Callable[[Any], Any] | None = "auto",
    *,
    symmetric: bool | None = None,
    definite: bool | None = None,
    tol: float | None = None,
    max_iterations: int | None = None,
    start: Any | None = None,
    restart: int = RESTART,
    name: str = "solve",
    bar: bool = True,
) -> tuple[Any, SolveInfo]:
    """Solve A x = b: by CG if A is symmetric positive definite, else by MINRES if it is symmetric, else by GMRES.

    A is taken to be symmetric if its form is, or if random vectors show it up to rounding. It is taken to be definite
    if its coefficients are positive at every point, or if you say so; with multigrid also until CG meets a direction
    that shows that it is not, as for a negative reaction. The true residual of the solution is always computed.

    Parameters
    ----------
    A : GlobalOperator, SciPy LinearOperator, sparse matrix, array or callable
        A square operator. For vectors on a device, a LinearOperator or matrix of the device's library. A function x ->
        A x returns a new array.
    b : array_like [n], or [components, size] of a GlobalOperator, or Field
        The right-hand side: an array of NumPy, or of a library on a device; or a field in state "dual". It has the
        Dirichlet values at their unknowns, and their contributions moved to the right at the others
        (`GlobalOperator.right_hand_side`).
    preconditioner : str, callable or None
        "multigrid" or "jacobi" (the diagonal), of A if it is symmetric positive definite, else of its diffusion and
        reaction (`GlobalOperator.elliptic_part`); for a matrix, the absolute values of its diagonal. None or "none". A
        function r -> M^-1 r of vectors on the device of A, symmetric positive definite unless A is not symmetric.
        "auto": multigrid of a GlobalOperator if it is possible and a single solve is long enough to pay for it, else
        the diagonal if there is one, else none.
    symmetric, definite : bool, optional
        Whether A is symmetric, and positive definite, if you know it. A GlobalOperator mostly knows it. For other
        symmetric operators MINRES is used unless you give definite=True.
    tol : float, optional
        Wanted ratio of the residual's norm to that of b; as for `cg` when left out: 1e-12, or 1.2e-6 in float32.
    max_iterations : int, optional
        10 n + 100 when left out.
    start : like b, optional
        First guess; zero when left out. As a field it is in state "coeff".
    restart : int
        Iterations after which GMRES starts again; it keeps two vectors for each iteration.
    name : str
        For messages and the progress bar.
    bar : bool
        Whether to show one.

    Returns
    -------
    x : array, or Solution (a Field in state "coeff")
        Of the same kind as b, on the same device.
    SolveInfo
        `info.method` is "cg", "minres" or "gmres", `info.residual` the true residual's norm over that of b.

    Raises
    ------
    SolverError
        If it does not converge, A is not symmetric or definite as stated, the preconditioner does not fit, x is out of
        the type's range, or A is a GlobalOperator of a form that is not linear, or maps constants to zero and b does
        not fit.
    NotSuitable
        If "multigrid" is asked for and not possible.
    ArgumentError
        For an invalid operator, vector or option.
    StateError
        For a field in another state or of another space.

    Warns
    -----
    HpfemWarning
        If rounding keeps the true residual above the tolerance, or the diagonal serves instead of multigrid, which is
        not positive definite.

    Examples
    --------
    >>> A = GlobalOperator(AdvectionDiffusionReaction(space, [1.0, 0.5], 0.1), c0, bc)  # doctest: +SKIP
    >>> x, info = solve(A, b)  # doctest: +SKIP
    >>> info.method, info.preconditioner  # doctest: +SKIP
    ('gmres', 'multigrid')
    """
    began, compiled = perf_counter(), compile_seconds()
    check_known(symmetric, definite)
    name, restart = instance(name, str, "name"), integer(restart, 1, "restart")
    tol, max_iterations = checked_limits(tol, max_iterations, name)
    side = _RightHandSide(A, b, f"the right-hand side of {name}")
    guess = None if start is None else side.like(start, f"the first guess of {name}")
    vectors, rhs, phases = vectors_on(side.device), side.vector, dict[str, float]()
    apply = _function(A, rhs, name)
    user = preconditioner if callable(preconditioner) else None
    checked_functions(apply, user, rhs, name)
    if symmetric is None:
        product = Timed(f"{name}: the operator", apply, rhs)
        symmetric = bool(definite) or (
            A.symmetric if side.whole else seems_symmetric(vectors, product, len(rhs), rhs.dtype)
        )
    maybe = definite is None
    if definite is None:
        definite = side.whole and symmetric and A.is_positive()
    if side.whole and A.symmetric:
        check_solvable(A, rhs, vectors, default_tolerance(rhs.dtype) if tol is None else tol, name)
    phases["symmetry"] = perf_counter() - began
    maker = make_preconditioner if side.whole else partial(_of_matrix, vectors, rhs.dtype)
    chosen = Measured(checked_preconditioner(preconditioner, none=True), maker)
    chosen.make(A, definite)
    own = None if user is None else name_of_preconditioner(user)
    set_up = perf_counter() - began
    phases["preconditioner"] = set_up - phases["symmetry"]
    options: dict[str, Any] = {"tol": tol, "max_iterations": max_iterations, "start": guess, "name": name, "bar": bar}
    method = gmres if not symmetric else CG if definite else minres
    if method is gmres:
        options["restart"] = restart

    def solved(precondition: Any) -> tuple[Any, SolveInfo]:
        if method is minres and maybe and (own or chosen.used) == "multigrid":
            with suppress(BadOperator):  # negative curvature shows in the first iterations
                return CG(apply, rhs, precondition, **options)
        return method(apply, rhs, precondition, **options)

    x, info = chosen.solve(solved, vectors.comm, A, definite)
    info = replace(info, set_up_time=set_up, compile_time=compile_seconds() - compiled, phases=phases)
    info = replace(info, time=perf_counter() - began, preconditioner=own or chosen.used)
    return side.back(x, info), info


class _RightHandSide:
    """A right-hand side [n] on the operator's device, scaled by a power of two if its type is another."""

    def __init__(self, A: Any, b: Any, what: str) -> None:
        self.A, self.b, self.unit = A, b, 0
        self.whole = isinstance(A, GlobalOperator)
        if isinstance(b, Field) and not self.whole:
            raise ArgumentError(f"{what} is a field, which a GlobalOperator takes; the operator is {shown(A)}")
        self.home = HOST if isinstance(b, Field) else _pair(b, what).home
        self.device: Device = A.device if self.whole else self.home
        vector = self._gathered(b, what, "dual") if isinstance(b, Field) else self._flat(b, what)
        self.dtype = np.result_type(vector.dtype, A.dtype if self.whole else vector.dtype)
        if self.whole and vector.dtype != A.dtype:
            self.unit = vectors_on(self.device).exponent(vector)
        self.vector = self._scaled(vector)

    def like(self, start: Any, what: str) -> Any:
        """A first guess, as `vector` is."""
        if isinstance(start, Field) != isinstance(self.b, Field):
            raise ArgumentError(f"{what} is {shown(start)}; give it as the right-hand side, a field or an array")
        return self._scaled(
            self._gathered(start, what, "coeff") if isinstance(start, Field) else self._flat(start, what)
        )

    def _scaled(self, vector: Any) -> Any:
        vector = scaled(vector, -self.unit) if self.unit else vector
        return vector.astype(self.A.dtype if self.whole else vector.dtype, copy=False)

    def _flat(self, given: Any, what: str) -> Any:
        """A vector on the operator's device, from an array of any library."""
        vector = _pair(given, what).read(self.device)
        if vector.dtype.kind not in "fiu":
            raise ArgumentError(f"{what} must be of real numbers, got {vector.dtype}")
        if self.whole and vector.shape == (self.A.components, self.A.c0.size):
            vector = vector.reshape(-1)
        if vector.ndim != 1 or (self.whole and vector.shape[0] != self.A.shape[0]):
            raise ArgumentError(
                f"{what} must be an array [{self.A.shape[0] if self.whole else 'n'}], got {shown(given)}"
            )
        return vector if vector.dtype in (np.float32, np.float64) else vector.astype(np.float64)

    def _gathered(self, field: Field, what: str, state: str) -> Any:
        """A vector on the operator's device, from a field."""
        check_state(field, state, what)
        c0, components = self.A.c0, self.A.components
        if field.space is not c0.space or field.components != components:
            raise StateError(f"{what} must be a field of {components} component(s) on the operator's space")
        if state == "dual":
            return c0.gather(field, self.device).reshape(-1)
        if isinstance(field, Solution) and field.c0 is c0:
            return field.pair.read(self.device).reshape(-1)
        return vectors_on(self.device).from_host(c0.average(field).reshape(-1))

    def back(self, x: Any, info: SolveInfo) -> Any:
        """A solution of the same kind as b, on the same device."""
        if self.unit:
            x = scaled(x.astype(self.dtype, copy=False), self.unit)
        if isinstance(self.b, Field):
            n = self.A.components
            return Solution.of(x if n == 1 else x.reshape(n, -1), self.device, self.A.c0, info)
        solution = PairArray.of(x, self.device).read(self.home).astype(self.dtype, copy=False)
        return same_kind(self.b, solution.reshape(self.b.shape)) if is_array(self.b) else solution


def _pair(given: Any, what: str) -> PairArray:
    """An array of any library, on its own memory; other objects, and arrays of other numbers, become NumPy arrays."""
    if not is_array(given) or (isinstance(given, np.ndarray) and given.dtype.kind != "f"):
        given = reals(given, what)
    return wrap(given, copy=True)


def _function(A: Any, rhs: Any, name: str) -> Any:
    """The product x -> A x of an operator: a GlobalOperator itself, or a function."""
    if isinstance(A, GlobalOperator):
        return A
    n = len(rhs)
    if isinstance(A, np.ndarray):
        A = reals(A, f"the operator of {name}")
    if hasattr(A, "shape") and hasattr(A, "__matmul__"):
        if A.shape != (n, n):
            raise ArgumentError(f"the operator of {name} must be [{n}, {n}] as b has {n} entries, got {shown(A)}")

        def product(vector: Any) -> Any:
            try:
                return A @ vector
            except TypeError as error:
                what = f"{shown(A)} and vectors of {type(rhs).__module__.partition('.')[0]}"
                raise ArgumentError(f"{name}: {what} do not multiply: {error}") from error

        return product
    if callable(A):
        return A
    raise ArgumentError(
        f"the operator of {name} must be a GlobalOperator, a LinearOperator, a matrix or a function, got {shown(A)}"
    )


def _of_matrix(
    vectors: VectorSpace, dtype: Any, name: str, A: Any, *, definite: bool
) -> tuple[Preconditioner | None, str]:
    """Make a preconditioner for an operator that is not a GlobalOperator; see `make_preconditioner`."""
    diagonal_of = getattr(A, "diagonal", None)
    if name == "multigrid" or (name == "jacobi" and diagonal_of is None):
        wanted = "GlobalOperator" if diagonal_of is not None else "GlobalOperator or, for 'jacobi', a matrix"
        raise NotSuitable(f"preconditioner {name!r} is made of a {wanted}, got {shown(A)}; give a function r -> M^-1 r")
    if name == "none" or diagonal_of is None:
        return None, "none"
    diagonal = vectors.xp.asarray(diagonal_of(), dtype)
    if definite and not every(diagonal > 0):
        raise SolverError("the diagonal of the matrix is not positive; the matrix is not positive definite")
    return Jacobi(1 / without_zeros(diagonal, vectors.xp), vectors), "jacobi"
