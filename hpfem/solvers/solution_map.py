"""The solution of a problem as a function of its data, with derivatives forward and transposed.

For r(u, p) = b(p) with u = g at Dirichlet values, and J the derivative of r by u, a change of the data changes u by du:
J du = db - dr/dp dp for the free unknowns, and du = dg at the others. So a transposed derivative takes one linear solve
with the transpose of J, however many data there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from threading import RLock
from typing import Any

import numpy as np

from hpfem.shapes.arguments import integer, is_real, real, shown

from ..assembly import BoundaryConditions, C0Space
from ..assembly.boundary_terms import is_linear_form
from ..backends.exchange import is_array, wrap
from ..errors import ArgumentError
from ..memory import every
from ..operators.parameters import in_range
from .inputs import made_input
from .krylov import checked_limits
from .newton import Equation, Iterations, Tangents
from .norms import Source
from .preconditioners import checked_preconditioner
from .problem import Problem, Solution
from .solve import check_known, solve

# Linear solves that are kept: second derivatives take those of first ones, too.
_KEPT = 4


class SolutionMap:
    """The solution of a problem as a function of arrays: coefficients, loads and boundary values.

    Solves share kernels, preconditioner and memory, and set the numbers and fields of the weak form to the data; its
    other coefficients must not change. A linear problem takes one linear solve.

    - `solution(data)` solves; data are {name: array}, of the space's type, of any library and device.
    - `solution.forward(data, change)` is the change of the solution's global coefficients in the direction of a change
      of the data: one linear solve.
    - `solution.pullback(data, w)` is {name: array}: the derivatives by the data of the sum of w times the coefficients,
      by one linear solve. Where processes share the mesh, each gives its part of w: they are added up.
    - With ``along=other``, another change of the data, the last two are differentiated in its direction: these are
      second derivatives. `pullback(data, w, along=other)` is the Hessian of that sum times `other`, by one more pair of
      linear solves.

    Derivatives are arrays on `device`, and take the solution there as `u`, if it is known.

    Parameters
    ----------
    problem : Problem, weak form, OperatorSum, Energy or GlobalOperator
        A `Problem` of one component has its conditions and options; what else `newton` takes has `c0` and `bc`.
    inputs : {str: str or list of str}
        Name of a coefficient of the weak form, or "f", "dirichlet", "flux" or "nodes" -> what its array has. A
        coefficient is a "number", or a field in state "phys" by its values at "points", block after block, by "cells",
        by a list of names of regions, or by a continuous "function" (global coefficients); so is one of a form on a
        boundary that was made with a field. "f" is one of the latter, or a "functional". "dirichlet" is a "function",
        of which the values count where `bc` has some. "flux" and "robin" are the name of a boundary, for functions that
        are added to its Neumann or Robin data, g and alpha. "nodes" is the "mesh": its points as they are, for first
        derivatives where all loads are in the weak form (`node_gradient`).
    c0 : C0Space, optional
    bc : BoundaryConditions, optional
    f : optional
        The right-hand side, if it is no input; as for `newton`.
    start : optional
        First guess of every solve, as for `newton`.
    tol, max_steps, preconditioner, symmetric, definite, max_iterations : optional
        As for `newton`, for a linear problem as for `solve`; but "auto" is multigrid from when the diagonal takes many
        iterations.

    Attributes
    ----------
    c0 : C0Space
    device : Device
        Of the operators.
    shape : tuple of int
        Of global coefficients, [size] or [components, size].
    shapes : {str: tuple of int}
        Of the arrays of the inputs, [n] or [components, n].

    Raises
    ------
    ArgumentError
        For inputs that do not fit, or a `Problem` of several components or with an undetermined constant.

    Examples
    --------
    >>> solution = SolutionMap(Problem(space, dirichlet=0.0, diffusivity=k), {"diffusivity": "cells"})  # doctest: +SKIP
    >>> u = solution({"diffusivity": numbers})  # doctest: +SKIP
    >>> slopes = solution.pullback({"diffusivity": numbers}, u.vector - wanted)  # doctest: +SKIP
    """

    def __init__(
        self,
        problem: Any,
        inputs: Mapping[str, Any],
        c0: C0Space | None = None,
        bc: BoundaryConditions | None = None,
        f: Source | None = None,
        start: Any | None = None,
        *,
        tol: float | None = None,
        max_steps: int = 25,
        preconditioner: str | Callable[[Any], Any] | None = "auto",
        symmetric: bool | None = None,
        definite: bool | None = None,
        max_iterations: int | None = None,
    ) -> None:
        values = None
        if isinstance(problem, Problem):
            if c0 is not None or bc is not None or problem.components > 1 or any(problem._constants):
                raise ArgumentError(
                    "a SolutionMap takes a Problem of one component without an undetermined constant, which has c0 and"
                    " bc; give the weak form instead"
                )
            tol, max_iterations = tol or problem._tol, max_iterations or problem._most
            preconditioner = problem._asked if preconditioner == "auto" else preconditioner
            values, problem, c0, bc = problem._values, problem._local, problem.c0, problem.conditions
        tol, max_iterations = checked_limits(tol, max_iterations, "SolutionMap")
        preconditioner = checked_preconditioner(preconditioner, none=True)
        check_known(symmetric, definite)
        self._own = own = Equation(problem, c0, bc, f)
        own.values = own.values if values is None else values.astype(own.dtype).reshape(-1)
        solver = partial(solve, max_iterations=max_iterations, bar=False)
        asked = "measured" if preconditioner == "auto" else preconditioner  # multigrid serves many solves
        self._tangents = Tangents(own, solver, asked, symmetric, definite)
        if not isinstance(inputs, Mapping) or not inputs:
            raise ArgumentError(f"inputs are a mapping from names to what their arrays have, got {shown(inputs)}")
        self._inputs = {name: made_input(own, name, kind) for name, kind in inputs.items()}
        self.c0, self.device, self.shape = own.c0, own.device, (own.c0.size,) if own.n == 1 else (own.n, own.c0.size)
        self.shapes = {name: one.shape for name, one in self._inputs.items()}
        linear = map(is_linear_form, getattr(own.form, "summands", (own.form,)))
        self._linear = own.vectors.comm.all(all(linear))
        self._tol = tol if self._linear else None
        self._iterations = partial(Iterations, own, self._tangents, tol, integer(max_steps, 1, "max_steps"), 0.1)
        self._start, self._data = own.vector(start), own.data
        self._lock, self._taken = RLock(), dict[str, Any]()  # JAX may call from several threads at once
        self._x: Any = None
        self._kept = list[tuple[bool, Any, Any]]()  # linear solves there

    def __repr__(self) -> str:
        return f"SolutionMap({', '.join(self._inputs)}; {self._own.form!r})"

    def __call__(self, data: Mapping[str, Any]) -> Solution:
        """Solve; see `SolutionMap`. It raises a SolverError where `solve` or `newton` does."""
        with self._lock:
            return self._solve(data)

    def _solve(self, data: Mapping[str, Any]) -> Solution:
        """The solution for data, which are taken."""
        self._take(data)
        own, run, self._x, self._kept = self._own, self._iterations("SolutionMap"), None, []
        if not self._linear:
            run.solve(self._start, [{}], False)
        else:
            start = own.vectors.xp.where(own.fixed, own.values, self._start)
            r, before = own.residual(start)
            d, run.iterations = self._tangents.solve(start, r, self._tol, "SolutionMap")
            run.x = start - own.free(d)
            run.residuals = [own.residual(run.x)[1] / (before or 1.0)]
        self._x = run.x
        return run.solution()

    def forward(self, data: Any, change: Any, u: Any | None = None, along: Any | None = None) -> Any:
        """Change of the solution, or its derivative along another change; see `SolutionMap`."""
        with self._lock:
            own, x = self._own, self._at(data, u)
            found = self._pushed(x, given := self._arrays(change, "the change of "))
            if along is not None:
                changes = self._changes(x, given), self._changes(x, self._arrays(along, "along, "))
                right = self._functional(own.form.pushforward(own.field(x), *changes))
                found = -self._solved(x, own.free(right), False)  # another array than that which is kept
            return found.reshape(self.shape)

    def pullback(self, data: Any, w: Any, u: Any | None = None, along: Any | None = None) -> dict[str, Any]:
        """Derivatives by the data, or their derivatives along a change; see `SolutionMap`."""
        with self._lock:
            own, x = self._own, self._at(data, u)
            w = own.vectors.summed(self._array(w, self.shape, "w").reshape(-1))
            z, more = self._solved(x, own.free(w), True), dict[str, Any]()
            if along is not None:
                change = self._changes(x, self._arrays(along, "along, "))
                more = {name: one.pulled(x, -z, change) for name, one in self._inputs.items() if one.coefficient}
                w = -self._functional(own.form.pullback(own.field(x), own.field(z), None, change))
                z = self._solved(x, own.free(w), True)
            if any(one.held for one in self._inputs.values()):
                w = w - own.gathered(lambda z: own.form.pullback(own.field(x), z), z)
            found = {name: one.pulled(x, w if one.held else -z) for name, one in self._inputs.items()}
            asarray = own.vectors.xp.asarray
            return {name: asarray(slopes + more.get(name, 0), own.dtype) for name, slopes in found.items()}

    def _functional(self, found: Any) -> Any:
        return self._own.c0.gather(found, self._own.device).reshape(-1)

    def _changes(self, x: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        """The change of the solution and of coefficients, as forms take them."""
        for name, one in self._inputs.items():
            if one.order < 2:
                raise ArgumentError(f"there are no second derivatives of a solution with {name!r} among its inputs")
        changes = {name: one.pushed(x, given[name]) for name, one in self._inputs.items() if one.coefficient}
        return {"u": self._own.field(self._pushed(x, given)), **changes}

    def _pushed(self, x: Any, given: Mapping[str, Any]) -> Any:
        """The change of the solution along a change of the data."""
        own, held, right, changes = self._own, 0 * x, 0 * x, dict[str, Any]()
        for name, one in self._inputs.items():
            change = one.pushed(x, given[name])
            if one.coefficient:
                changes[name] = change
            elif one.held:
                held = held + change
                changes["u"] = own.field(held)
            else:
                right = right + change
        if changes:
            right = right + own.gathered(lambda _: own.form.pushforward(own.field(x), changes), held)
        return held + self._solved(x, -own.free(right), False)

    def _solved(self, x: Any, right: Any, transposed: bool) -> Any:
        """What J or its transpose makes this right-hand side of, kept of the last few."""
        for old, given, d in self._kept:
            if old == transposed and self._own.vectors.comm.all(every(given == right)):
                return d
        d, _ = self._tangents.solve(x, right, self._tol, "SolutionMap: derivative", transposed)
        self._kept = [(transposed, right, self._own.free(d)), *self._kept[: _KEPT - 1]]
        return self._kept[0][2]

    def _at(self, data: Mapping[str, Any], u: Any | None) -> Any:
        """The solution for data, which are taken."""
        new, x = self._take(data) or self._x is None, self._x
        if u is not None:
            self._x = self._array(u, self.shape, "u").reshape(-1)
            if not new and self._own.vectors.comm.all(every(self._x == x)):
                return x
            self._kept = []
        elif new:
            self._solve(data)
        return self._x

    def _take(self, data: Mapping[str, Any]) -> bool:
        """Take data, as others may have changed the fields; whether they are not those of the last solution."""
        given, own, old = self._arrays(data, ""), self._own, self._taken
        same = own.vectors.comm.all(all(name in old and every(given[name] == old[name]) for name in given))
        self._taken = {}
        added = sum([one.take(given[name]) for name, one in self._inputs.items()], 0 * self._data)
        own.data, self._taken = self._data + own.free(added).astype(own.dtype, copy=False), given
        return not same

    def _arrays(self, data: Any, what: str) -> dict[str, Any]:
        """Copies of the arrays of all inputs, on the device."""
        with self._own.vectors.comm.together():
            pairs = zip(self.shapes.items(), self.ordered(data), strict=True)
            return {name: self._array(given, shape, f"{what}{name!r}") for (name, shape), given in pairs}

    def _array(self, given: Any, shape: tuple[int, ...], what: str) -> Any:
        own = self._own
        if is_real(given) and not is_array(given):
            given = np.array(in_range(real(given, what), what, own.dtype), own.dtype)
        if not is_array(given):
            raise ArgumentError(f"{what} is an array of {own.dtype} {shape}, got {shown(given)}")
        array = wrap(given, copy=True).read(own.device)
        if array.shape != shape or array.dtype != own.dtype:
            raise ArgumentError(f"{what} is an array of {own.dtype} {shape}, got one of {array.dtype} {array.shape}")
        return own.vectors.xp.array(array)

    def ordered(self, data: Any) -> list[Any]:
        """The arrays of data in the order of `shapes`; see `SolutionMap`."""
        if not isinstance(data, Mapping) or set(data) != set(self.shapes):
            given = ", ".join(map(str, data)) if isinstance(data, Mapping) else shown(data)
            raise ArgumentError(f"the inputs are {', '.join(self.shapes)}, each with an array; got {given}")
        return [data[name] for name in self.shapes]
