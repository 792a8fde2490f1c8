"""Solve -div(k grad u) + lam u = f on a mesh of any shapes, matrix-free."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import Any

from ..assembly import C0Space
from ..assembly.boundary import Condition, RobinCondition
from ..operators.operator import Coefficient
from ..space.space import Space
from .norms import Source
from .problem import Problem, Solution


def solve_helmholtz(
    space: Space,
    lam: Coefficient = 1.0,
    f: Source = 0.0,
    dirichlet: Condition | None = None,
    neumann: Condition | None = None,
    robin: RobinCondition | None = None,
    *,
    diffusivity: Coefficient | None = None,
    tol: float | None = None,
    preconditioner: str | Callable[[Any], Any] = "auto",
    max_iterations: int | None = None,
    c0: C0Space | None = None,
    components: int = 1,
    bar: bool = True,
    precision: str = "full",
) -> Solution:
    """Solve -div(k grad u) + lam u = f with continuous high-order elements, once (`Problem` solves many times).

    Parameters
    ----------
    space : Space
        With the basis "modified" or "lagrange".
    lam : float, callable, mapping, array or Field
        Reaction coefficient, >= 0; a mapping has a number or function for each region (`by_region`), an array a number
        for each cell, as those of `Mesh.cell_data`.
    f : callable, float, sequence of float, mapping, array or Field
        Right-hand side: a function of the coordinates, a number, a number for each component, one of these for each
        region (`by_region`), or a field in state "phys" or "dual".
    dirichlet : callable, float or {boundary name: callable or float}, optional
        Values of u; without any condition the flux is zero. A function without a name is for all of the boundary that
        `neumann` and `robin` do not name. If there is only one function, then up to order 2 its boundary values come
        from its L2 projection over the domain, if that fits on the boundary (`domain_boundary_values`).
    neumann : callable, float or {boundary name: callable or float}, optional
        Outward flux k du/dn; a function of the coordinates, or of them and the outward normal (`BoundaryConditions`).
    robin : (alpha, g) or {boundary name: (alpha, g)}, optional
        k du/dn + alpha u = g.
    diffusivity : float, sequence, callable, mapping, array or Field, optional
        k > 0; 1 when left out. D numbers or components are the diagonal of a tensor, D x D a tensor: symmetric and
        positive definite.
    tol : float, optional
        Ratio of the residual's norm to that of the right-hand side at which to stop; as for `cg` when left out: 1e-12,
        or 1.2e-6 in float32.
    preconditioner : str or callable
        "auto", "jacobi", "multigrid", "none", or a function r -> M^-1 r of global vectors.
    max_iterations : int, optional
    c0 : C0Space, optional
        Of the space, to be made once for several solves.
    components : int, optional
        Number of components of u, all with the same coefficients. Functions return a value for each; a number is for
        all, and a sequence has a number for each. In a Dirichlet condition, None stands for a free component.
    bar : bool, optional
        Whether to show progress, on a terminal or in a notebook.
    precision : str, optional
        "mixed" allows geometric factors in float32, which bounds what the solution can reach (`Problem`).

    Returns
    -------
    Solution
        Field in state "coeff" with `info` (iterations, residuals, time), `vector` and `c0`. If a constant is
        undetermined (lam = 0 and fluxes on all of the boundary of a connected part of the mesh), it is the solution of
        mean zero there; the mean of the data is removed, and `info.incompatibility` has its size.

    Raises
    ------
    SolverError
        If the operator is indefinite, or the solver does not converge.
    ArgumentError
        For boundary names, functions or options that do not fit.

    Warns
    -----
    HpfemWarning
        If a constant is undetermined and the data do not sum to zero, or rounding keeps the residual above `tol`.
    """
    began = perf_counter()
    problem = Problem(
        space,
        lam,
        dirichlet,
        neumann,
        robin,
        diffusivity=diffusivity,
        tol=tol,
        preconditioner=preconditioner,
        max_iterations=max_iterations,
        c0=c0,
        components=components,
        bar=bar,
        precision=precision,
    )
    ready = perf_counter() - began
    found = problem.solve(f)
    info = found.info
    phases = {**problem.phases, **info.phases}
    found.info = replace(info, time=perf_counter() - began, set_up_time=ready + info.set_up_time, phases=phases)
    return found
