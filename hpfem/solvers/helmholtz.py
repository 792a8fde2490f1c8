"""Solve -div(k grad u) + lam u = f on a mesh of any shapes, matrix-free."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import Any

from ..assembly import C0Space
from ..assembly.boundary import Condition, RobinCondition
from ..operators.operator import Coefficient
from ..operators.standard import checked_reaction
from ..space.space import Space
from ..support.compiling import compile_seconds
from .norms import Source
from .problem import Problem, Solution


def solve_helmholtz(
    space: Space,
    lam: Coefficient | None = None,
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
    lam : float, callable, mapping, array or Field
        Reaction coefficient, to be given: 0 for Poisson's problem.
    dirichlet, neumann, robin, diffusivity : optional
        Conditions and coefficient, as for `Problem`.
    f : callable, float, sequence of float, mapping, array or Field
        Right-hand side, as for `Problem.solve`.
    tol, preconditioner, max_iterations, c0, components, bar, precision : optional
        As for `Problem`.

    Returns
    -------
    Solution
        Field in state "coeff" with `info` (iterations, residuals, time), `vector` and `c0`; see `Problem.solve`, also
        for errors and warnings.
    """
    began, compiled = perf_counter(), compile_seconds()
    problem = Problem(
        space,
        checked_reaction(lam, "solve_helmholtz"),
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
    u = problem.solve(f)
    info = replace(u.info, phases={**problem.phases, **u.info.phases}, compile_time=compile_seconds() - compiled)
    u.info = replace(info, time=perf_counter() - began, set_up_time=ready + info.set_up_time)
    return u
