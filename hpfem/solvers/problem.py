"""A problem -div(k grad u) + lam u = f that is set up once and solved for many right-hand sides, matrix-free."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpfem.shapes.arguments import instance, reals, shown

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
from .constants import Constants, hidden_constants
from .l2_projection import domain_boundary_values
from .needs import Needs
from .norms import load
from .preconditioners import checked_preconditioner, make_preconditioner
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


class Problem:
    """Solve -div(k grad u) + lam u = f with continuous high-order elements, for one f after the other.

    Numbering, boundary conditions, kernels and preconditioner are made here, once.

    Parameters
    ----------
    space : Space
        With the basis "modified" or "lagrange".
    lam : float, callable or Field
        Reaction coefficient, >= 0.
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
        "auto", "jacobi", "multigrid", "none", or a function r -> M^-1 r of global vectors.
    max_iterations : int, optional
    c0 : C0Space, optional
        Of the space, to be made once for several problems.

    Attributes
    ----------
    space : Space
    c0 : C0Space
    conditions : BoundaryConditions
    operator : GlobalOperator
        With the conditions: what is iterated with.
    preconditioner : callable or None
    phases : {str: float}
        Seconds of each part of the set-up.
    needs : Needs
        Estimate of the memory that it takes: `needs.by_device`.

    Raises
    ------
    OutOfMemory
        If there is no room for it: the message says what needs how much. It is a `MemoryError`.
    SolverError
        If the operator is indefinite.
    ArgumentError
        For boundary names, functions or options that do not fit.

    Examples
    --------
    Several right-hand sides and another number, of which the first alone waits for the set-up:

    >>> problem = Problem(space, lam=2.0, dirichlet=0.0)  # doctest: +SKIP
    >>> first, second = problem.solve(f=1.0), problem.solve(f=lambda *x: x[0])  # doctest: +SKIP
    >>> problem.update(lam=3.0)  # doctest: +SKIP
    >>> third = problem.solve(f=1.0, start=first)  # doctest: +SKIP
    """

    def __init__(
        self,
        space: Space,
        lam: Coefficient = 1.0,
        dirichlet: Condition | None = None,
        neumann: Condition | None = None,
        robin: RobinCondition | None = None,
        *,
        diffusivity: Coefficient | None = None,
        tol: float | None = None,
        preconditioner: str | Callable[[Any], Any] = "auto",
        max_iterations: int | None = None,
        c0: C0Space | None = None,
    ) -> None:
        self._tol, self._most = checked_limits(tol, max_iterations, "Helmholtz")
        self.phases: dict[str, float] = {}
        with self._phase("continuous space"):
            c0 = C0Space(space) if c0 is None else instance(c0, C0Space, "c0")
        if c0.space is not space:
            raise ArgumentError("c0 is of another space")
        if not callable(preconditioner):
            preconditioner = checked_preconditioner(preconditioner)
        self.space, self.c0, self._asked = space, c0, preconditioner
        coefficients = {"lam": lam, "diffusivity": diffusivity}
        self.needs = Needs(c0, coefficients, preconditioner if isinstance(preconditioner, str) else "user")
        self.needs.check()
        with self._phase("conditions"):
            self.conditions = bc = BoundaryConditions(c0, dirichlet, neumann, robin)
            self._values = self._domain_values(dirichlet, bc.values)
        with self._phase("operator"):
            self._local = Helmholtz(space, lam, diffusivity)
            self.operator = GlobalOperator(self._local, c0, bc)
            self._whole = GlobalOperator(self._local, c0)
        self.update()

    def __repr__(self) -> str:
        return f"Problem({self.space!r}, {self.c0.size} dofs, preconditioner={self._used!r})"

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        began = perf_counter()
        yield
        self.phases[name] = perf_counter() - began

    def _domain_values(self, dirichlet: Condition | None, values: Array) -> Array:
        """Boundary values of a condition, from the domain where they are better."""
        function = _only_function(dirichlet)
        if function is None or max(self.space.orders.values()) > _DOMAIN_ORDER or not self.conditions.constrained.any():
            return values
        return domain_boundary_values(self.c0, function, self.conditions, values)

    def update(self, lam: float | None = None, diffusivity: float | None = None) -> None:
        """Take other numbers as coefficients, or the present values of fields; nothing is compiled anew.

        Parameters
        ----------
        lam, diffusivity : float, optional
            In place of numbers that were given before. Coefficients that are "phys" fields are read again.

        Raises
        ------
        ArgumentError
            If the coefficient was no number before.
        SolverError
            If the operator becomes indefinite.
        """
        parameters = self._local.parameters
        new = {name: value for name, value in (("lam", lam), ("diffusivity", diffusivity)) if value is not None}
        for name in new:
            if name not in parameters:
                raise ArgumentError(f"{name} of this problem is no number that can be updated; make another Problem")
        before = {name: parameters[name] for name in new}
        try:
            for name, value in new.items():
                parameters[name] = value
            check_positive(self._local, "diffusivity", "diffusivity")
        except ArgumentError:
            for name, value in before.items():
                parameters[name] = value
            raise
        with self._phase("preconditioner"):
            if callable(self._asked):
                self.preconditioner: Callable[[Any], Any] | None = self._asked
                self._used = "user"
            else:
                self.preconditioner, self._used = make_preconditioner(self._asked, self.operator)
        with self._phase("constants"):
            self._constants: Constants | None = hidden_constants(self.operator, self.conditions)

    def solve(
        self,
        f: Callable[..., Any] | float | Field = 0.0,
        dirichlet: Condition | None = None,
        start: Solution | NDArray[Any] | None = None,
    ) -> Solution:
        """Solve for a right-hand side.

        Parameters
        ----------
        f : callable, float or Field
            Right-hand side: a function of the coordinates, a number, or a field in state "phys" or "dual".
        dirichlet : optional
            Other values where the problem has some; as there.
        start : Solution or ndarray, [size], optional
            First guess, such as the solution of the step before.

        Returns
        -------
        Solution
            Field in state "coeff" with `info` (iterations, residuals, times), `vector` and `c0`. Where nothing fixes a
            constant (lam = 0, fluxes on all of the boundary; on each connected part of the mesh by itself) the solution
            of mean zero; the mean of the data is taken out, and `info.incompatibility` tells what it was.

        Raises
        ------
        SolverError
            If the solver does not converge.
        ArgumentError
            If the data do not fit.

        Warns
        -----
        HpfemWarning
            If nothing fixes a constant and the data do not sum up to zero, or rounding keeps the residual above `tol`.
        """
        began = perf_counter()
        bc, A, space = self.conditions, self.operator, self.space
        values = self._values if dirichlet is None else self._domain_values(dirichlet, bc.values_of(dirichlet))
        rhs = load(self.c0, f) + bc.load
        if bc.constrained.any():
            rhs = np.where(bc.constrained, 0.0, rhs - self._applied(values))
        guess = None
        if start is not None:
            given = reals(start.vector if isinstance(start, Solution) else start, "start").astype(np.float64)
            if given.shape != rhs.shape or not np.isfinite(given).all():
                raise ArgumentError(
                    f"start is {shown(given)} of shape {given.shape}; give a finite vector of {len(rhs)} unknowns"
                )
            guess = np.where(bc.constrained, 0.0, given - values)
        apply: Callable[[Any], Any] | GlobalOperator = A
        precondition, incompatibility = self.preconditioner, dict[str, float]()
        constants = self._constants
        if constants is not None:
            incompatibility = constants.incompatibility(rhs, space.dtype)
            rhs, amounts = constants.split(rhs)
            functional, function_ = constants.projections(A.vectors, space.dtype)
            apply = _chain(partial(A.apply, device=A.device), functional)
            precondition = _chain(precondition or (lambda r: r), function_)
        set_up = perf_counter() - began
        vector, info = cg_from_host(
            apply,
            rhs,
            A.vectors,
            space.dtype,
            precondition,
            start=guess,
            tol=self._tol,
            max_iterations=self._most,
            name="Helmholtz",
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
            preconditioner=self._used,
            incompatibility=incompatibility,
            phases={"right-hand side": set_up},
        )
        return Solution.of(vector, self.c0, info)

    def _applied(self, values: Array) -> Array:
        """The operator without the conditions, but with what Robin ones add, on values of any size."""
        unit = HOST_VECTORS.exponent(values)
        near = scaled(values, -unit)
        found = np.asarray(self._whole.apply(near.astype(self.space.dtype)), dtype=np.float64)
        if self.conditions.matrix is not None:
            found += self.conditions.matrix @ near
        return np.asarray(scaled(found, unit), dtype=np.float64)

    def flux(self, u: Solution, boundary: str, f: Callable[..., Any] | float | Field = 0.0) -> float:
        """Flux of k du/dn out through a boundary with Dirichlet values, from the residual of the weak form.

        It is as accurate as the solution's energy, unlike the integral of a derivative, and the fluxes through all
        boundaries balance the sources. What unknowns on a common edge say is shared between its boundaries.

        Parameters
        ----------
        u : Solution
            Of this problem.
        boundary : str
            Name in ``mesh.boundaries``.
        f : callable, float or Field
            The right-hand side of which it is the solution.

        Returns
        -------
        float

        Raises
        ------
        ArgumentError
            If the boundary has no Dirichlet values, or u is no solution of this problem.
        """
        if not isinstance(u, Solution) or u.c0 is not self.c0:
            raise ArgumentError("flux takes a solution of this problem")
        shares = self.conditions.shares(boundary)
        vector = np.asarray(u.vector, dtype=np.float64)
        residual = self._applied(vector) - load(self.c0, f) - self.conditions.load
        return float(shares @ residual)


def _only_function(condition: Condition | None) -> Callable[..., Any] | None:
    """The function of a condition that has one only, for one boundary or several."""
    given = list(condition.values()) if isinstance(condition, Mapping) else [condition]
    first = given[0] if given else None
    return first if callable(first) and all(other is first for other in given) else None


def _chain(first: Callable[[Any], Any], then: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda vector: then(first(vector))
