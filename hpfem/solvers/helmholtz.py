"""Solve -div(k grad u) + lam u = f on a mesh of any shapes, matrix-free."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from hpfem.shapes.arguments import instance, is_real, name_of, real

from ..assembly import BoundaryConditions, C0Space, GlobalOperator
from ..assembly.boundary import Condition, RobinCondition
from ..assembly.devices import vector_home, vector_on
from ..errors import ArgumentError, SolverError
from ..field import Field
from ..operators import Helmholtz, IProductWRTBase
from ..operators.operator import Coefficient
from ..reporting import report_once
from ..space import Space
from .arguments import checked_limits
from .cg import SolveInfo, cg
from .coefficients import check_positive
from .norms import moments
from .preconditioners import NAMES, make_preconditioner
from .projection import domain_boundary_values

Array = NDArray[np.float64]

# Up to this order, values of one function for the whole boundary come from its projection over the domain.
_DOMAIN_ORDER = 2


class Solution(Field):
    """A field with the record of the solve that made it.

    Attributes
    ----------
    vector : ndarray, [size]
        Its global coefficients on `c0`.
    c0 : C0Space
    info : SolveInfo
    """

    vector: Array
    c0: C0Space
    info: SolveInfo

    @classmethod
    def of(cls, vector: Array, c0: C0Space, info: SolveInfo) -> Solution:
        """Make one of a global vector."""
        local = c0.scatter(vector)
        result = cls(local.space, local.state, local.data)
        result.vector, result.c0, result.info = vector, c0, info
        return result


def solve_helmholtz(
    space: Space,
    lam: Coefficient = 1.0,
    f: Callable[..., Any] | float | Field = 0.0,
    dirichlet: Condition | None = None,
    neumann: Condition | None = None,
    robin: RobinCondition | None = None,
    *,
    diffusivity: Coefficient | None = None,
    tol: float = 1e-12,
    preconditioner: str | Callable[[Any], Any] = "auto",
    max_iterations: int | None = None,
    c0: C0Space | None = None,
) -> Solution:
    """Solve -div(k grad u) + lam u = f with continuous high-order elements.

    Parameters
    ----------
    space : Space
        With the basis "modified" or "lagrange".
    lam : float, callable or Field
        Reaction coefficient, >= 0.
    f : callable, float or Field
        Right-hand side: a function of the coordinates, a number, or a field in state "phys" or "dual".
    dirichlet : callable, float or {boundary name: callable or float}, optional
        Values of u; no flux passes where nothing is given. A function alone is for all of the boundary that nothing
        else is named for. Where there is one function only, up to order 2 its values come from its L2 projection over
        the domain if that fits on the boundary (`domain_boundary_values`).
    neumann : callable, float or {boundary name: callable or float}, optional
        Outward flux k du/dn; a function of the coordinates, or of them and the outward normal (`BoundaryConditions`).
    robin : (alpha, g) or {boundary name: (alpha, g)}, optional
        k du/dn + alpha u = g.
    diffusivity : float, callable or Field, optional
        k > 0; 1 when left out.
    tol : float
        Ratio of the residual's norm to that of the right-hand side at which to stop.
    preconditioner : str or callable
        "auto", "jacobi", "multilevel", "none", or a function r -> M^-1 r of global vectors.
    max_iterations : int, optional
    c0 : C0Space, optional
        Of the space, to be made once for several solves.

    Returns
    -------
    Solution
        Field in state "coeff" with `info` (iterations, residuals, time), `vector` and `c0`. Where nothing fixes a
        constant (lam = 0, fluxes on all of the boundary) the solution of mean zero; the mean of the data is taken out.

    Raises
    ------
    SolverError
        If the operator is indefinite, or the solver does not converge.
    ArgumentError
        For boundary names, functions or options that do not fit.
    """
    began = perf_counter()
    tol, max_iterations = checked_limits(tol, max_iterations, "Helmholtz")
    c0 = C0Space(space) if c0 is None else instance(c0, C0Space, "c0")
    if c0.space is not space:
        raise ArgumentError("c0 is of another space")
    if not callable(preconditioner):
        name_of(preconditioner, NAMES, "preconditioner")
    bc = BoundaryConditions(c0, dirichlet, neumann, robin)
    operator = Helmholtz(space, lam, diffusivity)
    check_positive(operator, "diffusivity", "diffusivity")
    A = GlobalOperator(operator, c0, bc)
    values = bc.values
    function = _only_function(dirichlet)
    if function is not None and max(space.orders.values()) <= _DOMAIN_ORDER and bc.constrained.any():
        values = domain_boundary_values(c0, function, bc)
    load = c0.gather(_functional(space, f)) + bc.load
    rhs = np.asarray(load, dtype=np.float64)
    if bc.constrained.any():
        lifted = np.asarray(GlobalOperator(operator, c0).apply(values.astype(space.dtype)), dtype=np.float64)
        if bc.matrix is not None:
            lifted += bc.matrix @ values
        rhs = np.where(bc.constrained, 0.0, rhs - lifted)
    constant = _constant(A, c0, bc) if not bc.constrained.any() else None
    if constant is not None:
        weight = c0.gather(_functional(space, 1.0)).astype(np.float64)
        total = float(constant @ rhs)
        scale = float(np.abs(constant * rhs).sum())
        if abs(total) > 1e-6 * scale:
            report_once(
                "solve_helmholtz/mean",
                f"pure Neumann problem: f and the fluxes sum up to {total:.3e} (of {scale:.3e}), not to 0; their"
                " mean is taken out",
            )
        rhs = rhs - total / float(constant @ weight) * weight
    device = A.device
    precondition: Callable[[Any], Any] | None
    if callable(preconditioner):
        precondition, used = preconditioner, "user"
    else:
        precondition, used = make_preconditioner(preconditioner, A)
    start = vector_on(rhs, device, space.dtype)
    apply: Callable[[Any], Any] | GlobalOperator = A
    if constant is not None:
        # Rounding puts a little of the constant into every vector; a preconditioner may enlarge it.
        without = _without(vector_on(constant / np.linalg.norm(constant), device, space.dtype))
        inner = precondition or (lambda r: r)
        apply, start = _chain(partial(A.apply, device=device), without), without(start)
        precondition = _chain(_chain(without, inner), without)
    set_up = perf_counter() - began
    x, info = cg(
        apply,
        start,
        precondition,
        tol=tol,
        max_iterations=max_iterations,
        name="Helmholtz",
    )
    vector = vector_home(x, device).astype(np.float64) + values
    if constant is not None:
        vector -= float(weight @ vector) / float(weight @ constant) * constant
    if not np.isfinite(vector).all():
        raise SolverError("solve_helmholtz: the solution is not finite; look at the data and the coefficients")
    info = replace(info, time=perf_counter() - began, set_up_time=set_up, preconditioner=used)
    return Solution.of(vector.astype(space.dtype), c0, info)


def _only_function(condition: Condition | None) -> Callable[..., Any] | None:
    """The function of a condition that has one only, for one boundary or several."""
    given = list(condition.values()) if isinstance(condition, Mapping) else [condition]
    first = given[0] if given else None
    return first if callable(first) and all(other is first for other in given) else None


def _without(unit: Any) -> Callable[[Any], Any]:
    """What is left of a vector without its part along a unit vector."""
    return lambda vector: vector - (unit @ vector) * unit


def _chain(first: Callable[[Any], Any], then: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda vector: then(first(vector))


def _functional(space: Space, f: Callable[..., Any] | float | Field) -> Field:
    """The right-hand side as a "dual" field."""
    if isinstance(f, Field):
        if f.components != 1:
            raise ArgumentError(f"f is of one component, this field has {f.components}")
        return f if f.state == "dual" else IProductWRTBase(space)(f)
    if is_real(f):
        # By the rule of the operator, so that u = f / lam stays a solution on curved cells.
        value = real(f, "f")
        return IProductWRTBase(space)(space.evaluate(lambda *x: value))
    return moments(space, cast(Callable[..., Any], f))


def _constant(A: GlobalOperator, c0: C0Space, bc: BoundaryConditions) -> Array | None:
    """Global vector of the function 1 if the operator does not see it."""
    one = np.asarray(c0.project(1.0), dtype=np.float64)
    image = np.asarray(A.apply(one.astype(c0.space.dtype)), dtype=np.float64)
    probe = A.apply(np.random.default_rng(0).standard_normal(c0.size).astype(c0.space.dtype))
    small = 1e3 * np.finfo(c0.space.dtype).eps * float(np.abs(probe).max())
    return one if float(np.abs(image).max()) < small else None
