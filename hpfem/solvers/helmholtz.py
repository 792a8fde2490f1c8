"""Solve -div(k grad u) + lam u = f on a mesh of any shapes, matrix-free."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpfem.shapes.arguments import instance, name_of

from ..assembly import BoundaryConditions, C0Space, GlobalOperator
from ..assembly.boundary import Condition, RobinCondition
from ..backends.vectors import HOST_VECTORS, scaled
from ..errors import ArgumentError, SolverError
from ..operators import Helmholtz
from ..operators.operator import Coefficient
from ..space.field import Field
from ..space.space import Space
from .arguments import checked_limits
from .cg import SolveInfo, cg_from_host
from .coefficients import check_positive
from .constants import hidden_constants
from .l2_projection import domain_boundary_values
from .norms import load
from .preconditioners import NAMES, make_preconditioner
from .scaling import unscaled

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
        """Make one of a global vector.

        Parameters
        ----------
        vector : ndarray, [size]
        c0 : C0Space
        info : SolveInfo

        Returns
        -------
        Solution
        """
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
    tol: float | None = None,
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
    tol : float, optional
        Ratio of the residual's norm to that of the right-hand side at which to stop; as for `cg` when left out: 1e-12,
        or 1.2e-6 in float32.
    preconditioner : str or callable
        "auto", "jacobi", "multilevel", "none", or a function r -> M^-1 r of global vectors.
    max_iterations : int, optional
    c0 : C0Space, optional
        Of the space, to be made once for several solves.

    Returns
    -------
    Solution
        Field in state "coeff" with `info` (iterations, residuals, time), `vector` and `c0`. Where nothing fixes a
        constant (lam = 0, fluxes on all of the boundary; on each connected part of the mesh by itself) the solution of
        mean zero; the mean of the data is taken out, and `info.incompatibility` tells what it was.

    Raises
    ------
    SolverError
        If the operator is indefinite, or the solver does not converge.
    ArgumentError
        For boundary names, functions or options that do not fit.

    Warns
    -----
    HpfemWarning
        If nothing fixes a constant and the data do not sum up to zero, or rounding keeps the residual above `tol`.
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
    rhs = load(c0, f) + bc.load
    if bc.constrained.any():
        unit = HOST_VECTORS.exponent(values)
        near = scaled(values, -unit)
        lifted = np.asarray(GlobalOperator(operator, c0).apply(near.astype(space.dtype)), dtype=np.float64)
        if bc.matrix is not None:
            lifted += bc.matrix @ near
        rhs = np.where(bc.constrained, 0.0, rhs - scaled(lifted, unit))
    precondition: Callable[[Any], Any] | None
    if callable(preconditioner):
        precondition, used = preconditioner, "user"
    else:
        precondition, used = make_preconditioner(preconditioner, A)
    apply: Callable[[Any], Any] | GlobalOperator = A
    incompatibility: dict[str, float] = {}
    constants = hidden_constants(A, bc)
    if constants is not None:
        incompatibility = constants.incompatibility(rhs, space.dtype)
        rhs, amounts = constants.split(rhs)
        functional, function_ = constants.projections(A.vectors, space.dtype)
        apply = _chain(partial(A.apply, device=A.device), functional)
        precondition = _chain(precondition or (lambda r: r), function_)
    set_up = perf_counter() - began
    vector, info = cg_from_host(
        apply, rhs, A.vectors, space.dtype, precondition, tol=tol, max_iterations=max_iterations, name="Helmholtz"
    )
    if constants is not None:
        vector = constants.join(vector, amounts)
    vector = vector + values
    if not np.isfinite(vector).all():
        raise SolverError("solve_helmholtz: the solution is not finite; look at the data and the coefficients")
    vector = unscaled(vector, 0, space.dtype, "Helmholtz").astype(space.dtype)
    info = replace(
        info,
        time=perf_counter() - began,
        set_up_time=set_up,
        preconditioner=used,
        incompatibility=incompatibility,
    )
    return Solution.of(vector, c0, info)


def _only_function(condition: Condition | None) -> Callable[..., Any] | None:
    """The function of a condition that has one only, for one boundary or several."""
    given = list(condition.values()) if isinstance(condition, Mapping) else [condition]
    first = given[0] if given else None
    return first if callable(first) and all(other is first for other in given) else None


def _chain(first: Callable[[Any], Any], then: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda vector: then(first(vector))
