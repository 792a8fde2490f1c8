"""Newton's method for a residual that has a linearisation: inexact steps, a line search, load steps, continuation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from hpfem.shapes.arguments import flag, instance, integer, real, reals, shown

from ..assembly import BoundaryConditions, C0Space, GlobalOperator
from ..errors import ArgumentError, HpfemError, NewtonError, NotFinite, NotSuitable, SolverError
from ..memory import every
from ..operators import Energy
from ..space.field import Field
from ..support.log import warn
from ..support.progress import progress, silent
from ..support.reuse import memory_kept
from .breakdown import ROUNDING, BadOperator, BadPreconditioner, mixed_signs
from .gmres import RESTART
from .info import SolveInfo
from .krylov import checked_limits, default_tolerance
from .norms import Loads, Source
from .preconditioners import Measured, checked_preconditioner
from .problem import Solution, first_guess
from .solve import check_known, solve

# A step of length t has to take the slope to 1 - 0.2 t of it, or the residual's norm to 1 - 1e-4 t; and the shortest.
_SLOPE, _NORM, _SHORTEST = 0.2, 1e-4, 2.0**-20
_SHORTEST_BACK = 1 / 16
# The tolerance of a linear solve is this times the square of the ratio of the last two residuals [EW].
_FORCING = 0.5
# Multigrid takes new coefficients where a solve is expected to take so many iterations more with those that it has.
# That takes the time of 3 to 15 iterations (hexes of order 6, solids of tets of order 3), and serves later steps, too.
_WORTH, _MOST = 4, 15
# Tolerances with which a solve is tried again where the linearisation is not positive definite: what conjugate
# gradients make before they meet a direction that shows it leads down, too.
_LOOSE = 0.5, 0.9
# How often the way to a stage is halved where Newton's method fails.
_HALVINGS = 6
# What the factor of the data is called in a stage; no parameter has such a name.
LOAD = "load factor"
_INDEFINITE = "the linearisation is not positive definite; start nearer, or give definite=False, which takes MINRES"

Stage = dict[str, float]


class NewtonStep(NamedTuple):
    """A step of Newton's method; see `NewtonInfo`."""

    residual: float
    iterations: int
    tolerance: float
    length: float
    multigrid: str
    stage: Stage


@dataclass(frozen=True, eq=False, repr=False)
class NewtonInfo(SolveInfo):
    """How Newton's method went; printed, it is a table of the steps.

    `iterations` are those of all linear solves; `residuals` are norms over the largest one of the first guess, of zero
    and of the data, before the first and after each step of the last stage; `residual` is the last one.

    Attributes
    ----------
    steps : list of NewtonStep
        Of all stages, each with `residual`, `iterations` and `tolerance` of the linear solve, `length`, `multigrid`
        ("made", "refreshed", "kept", or "" without) and `stage`, the numbers that `loads` and `parameters` had.
    """

    steps: list[NewtonStep] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"{self.size} unknowns, newton by {self.method}/{self.preconditioner}, residual {self.residual:.1e}",
            "  step  residual  iterations  tolerance  length  multigrid",
        ]
        for number, (residual, iterations, tol, length, multigrid, stage) in enumerate(self.steps, 1):
            numbers = f"{number:>6}   {residual:.1e}{iterations:>12}{tol:>11.1e}{length:>8.3g}"
            lines.append(f"{numbers}  {multigrid:<9}  {_said(stage)}".rstrip())
        return "\n".join([*lines, f"  {self.iterations} iterations, {self.time:.3g} s"])

    __repr__ = __str__


def _said(stage: Stage) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in stage.items())


def newton(
    residual: Any,
    c0: C0Space | None = None,
    bc: BoundaryConditions | None = None,
    start: Any | None = None,
    f: Source | None = None,
    *,
    loads: Sequence[float] | None = None,
    parameters: Mapping[str, Sequence[float]] | None = None,
    tol: float | None = None,
    max_steps: int = 25,
    forcing: float = 0.1,
    preconditioner: str | Callable[[Any], Any] | None = "auto",
    symmetric: bool | None = None,
    definite: bool | None = None,
    max_iterations: int | None = None,
    restart: int = RESTART,
    name: str = "newton",
    bar: bool = True,
) -> tuple[Solution, NewtonInfo]:
    """Solve r(u) = f for a weak form r that is not linear, by Newton's method.

    Linear systems are solved as exactly as a step can use. A step is shortened until the slope r(u) . step of the
    energy or, of a linearisation that is not symmetric positive definite, the residual's norm falls. Dirichlet values
    that the first guess does not have are continued into the domain by the linearisation. Multigrid is kept from step
    to step, and takes the coefficients of a new linearisation when that saves more iterations than it costs.

    Parameters
    ----------
    residual : weak form, OperatorSum, Energy or GlobalOperator
        With `linearised(u)`: an operator that its `at(u)` takes to other functions. A GlobalOperator has `c0` and `bc`.
    c0 : C0Space
    bc : BoundaryConditions, optional
        Dirichlet, Neumann and Robin data; the flux is that of the form.
    start : Field, array [n] or [components, size], callable, number or mapping, optional
        First guess, as for `Problem.solve`; zero when left out.
    f : callable, float, sequence of float, mapping, array or Field, optional
        The right-hand side, as for `Problem.solve`.
    loads : sequence of float, optional
        Factors of f and of the boundary data, one after the other; (1,) when left out.
    parameters : {str: sequence of float}, optional
        Numbers of the residual's `parameters`, one after the other, as many for each name, and as many as `loads`.
        Where Newton's method fails at such a stage, the way from the one before is halved, up to 6 times.
    tol : float, optional
        Ratio of the residual's norm to the largest one of the first guess, of zero and of the data at which to stop;
        1e-10 when left out, or 1e-5 in float32.
    max_steps : int
        Of a stage.
    forcing : float
        Largest tolerance of a linear solve.
    preconditioner, symmetric, definite, max_iterations, restart
        Of the linear systems, as for `solve`. A symmetric linearisation has to be positive definite, unless you say
        definite=False: then MINRES is used.
    name : str
        For messages and the progress bar.
    bar : bool
        Whether to show one.

    Returns
    -------
    Solution
        A Field in state "coeff".
    NewtonInfo
        The history.

    Raises
    ------
    NewtonError
        A SolverError that names the step: a linear system is not solved, the linearisation is not positive definite or
        not finite, no length of the step helps, or `max_steps` do not suffice. Its `u` is the last good iterate, of
        several stages the solution of the last one, and `info` the history; other exceptions, also of the keyboard, get
        these, too.
    ArgumentError
        For a residual or an option that does not fit.

    Warns
    -----
    HpfemWarning
        If rounding keeps the residual above the tolerance.

    Examples
    --------
    >>> form = WeakForm(space, lambda u, du, k: (-k * np.exp(u), du), fields={"k": 2.0})  # doctest: +SKIP
    >>> u, info = newton(form, c0, bc, parameters={"k": [2.5, 3.0, 3.4]})  # doctest: +SKIP
    """
    tol, max_iterations = checked_limits(tol, max_iterations, "newton")
    max_steps, forcing = integer(max_steps, 1, "max_steps"), real(forcing, "forcing", above=0, below=1)
    name, bar = instance(name, str, "name"), flag(bar, "bar")
    preconditioner = checked_preconditioner(preconditioner, none=True)
    check_known(symmetric, definite)
    solver = partial(solve, max_iterations=max_iterations, restart=restart, bar=False)
    equation = Equation(residual, c0, bc, f)
    stages = _stages(equation, loads, parameters)
    tangents = Tangents(equation, solver, preconditioner, symmetric, definite)
    run = Iterations(equation, tangents, tol, max_steps, forcing, name)
    return run.solve(equation.vector(start), stages, bar)


class Equation:
    """r(u) = f with boundary data, for global vectors on the device of the residual, [components * size]."""

    def __init__(self, residual: Any, c0: C0Space | None, bc: BoundaryConditions | None, f: Source | None) -> None:
        if isinstance(residual, GlobalOperator):
            if not (c0 is None or c0 is residual.c0) or not (bc is None or bc is residual.bc):
                raise ArgumentError("the GlobalOperator has another c0 or bc; leave them out")
            c0, bc = residual.c0, residual.bc
            residual = sum([term.factor * term.form for term in residual.boundary_terms], residual.operator)
        form = residual.residual if isinstance(residual, Energy) else residual
        if not callable(getattr(form, "linearised", None)) or not hasattr(form, "space"):
            raise ArgumentError(f"the residual is a weak form or an energy with `linearised`; got {shown(residual)}")
        if not isinstance(c0, C0Space) or c0.space is not form.space:
            raise ArgumentError(f"c0 is a C0Space of the space of {form.name}, got {shown(c0)}")
        self.form, self.c0, self.n = form, c0, int(getattr(form, "components", 0) or form.form.components)
        self.device, self.dtype, self.vectors = form.device, c0.space.dtype, c0.vectors_on(form.device)
        self.bc = bc = BoundaryConditions(c0, components=self.n) if bc is None else bc
        if instance(bc, BoundaryConditions, "bc").c0 is not c0:
            raise ArgumentError("the boundary conditions are for another C0Space")
        if bc.components not in (1, self.n):
            raise ArgumentError(f"the boundary conditions are for {bc.components} components, not for {self.n}")
        fixed, values, data = (np.broadcast_to(a, (self.n, c0.size)) for a in (bc.fixed(self.n), bc.values, bc.load))
        self.fixed = self.vectors.from_host(fixed).reshape(-1)
        self.values = self.vectors.from_host(values, self.dtype).reshape(-1)
        data = self.vectors.from_host(data, np.float64) + (0 if f is None else Loads(c0, self.n)(f))
        self.data = self.free(data.reshape(-1)).astype(self.dtype)
        self.robin = None if bc.matrix is None else self.vectors.sparse(bc.matrix.astype(self.dtype))
        self.load = 1.0
        self.parameters = [own.parameters for own in getattr(form, "summands", (form,)) if hasattr(own, "parameters")]

    def free(self, vector: Any) -> Any:
        """A functional without its part for prescribed values."""
        return self.vectors.xp.where(self.fixed, 0, vector)

    def vector(self, given: Any) -> Any:
        """A first guess as a vector, of its own."""
        c0, vectors = self.c0, self.vectors
        given = first_guess(0.0 if given is None else given, c0, self.n)
        given = given.pair.read(self.device) if isinstance(given, Solution) else given
        array = vectors.checked(given, "start") if vectors.has(given) else vectors.from_host(reals(given, "start"))
        if not vectors.comm.all(array.size == self.n * c0.size and every(vectors.xp.isfinite(array))):
            raise ArgumentError(f"start is {shown(given)}; give finite numbers for {self.n} x {c0.size} unknowns")
        return vectors.xp.array(array.reshape(-1), self.dtype)

    def field(self, x: Any) -> Field:
        """The function of a vector."""
        return self.c0.scatter(x.reshape(self.n, -1), device=self.device)

    def solution(self, x: Any, info: SolveInfo) -> Solution:
        """The function of a vector, as a user gets it."""
        return Solution.of(x if self.n == 1 else x.reshape(self.n, -1), self.device, self.c0, info)

    def present(self, stage: Stage) -> Stage:
        """The present numbers of those that a stage sets, without loads: from where the first stage is approached."""
        found = {LOAD: 0.0} | {name: number for own in self.parameters for name, number in own.items()}
        for name in stage:
            if name not in found:
                known = ", ".join(list(found)[1:]) or "none"
                raise ArgumentError(f"the residual has no parameter {shown(name)}; it has: {known}")
        return {name: float(found[name]) for name in stage}

    def set(self, stage: Stage) -> None:
        """Take the numbers of a stage."""
        self.load = stage.get(LOAD, 1.0)
        for own in self.parameters:
            own.update({name: number for name, number in stage.items() if name in own})

    def gathered(self, operator: Any, x: Any) -> Any:
        """The functional of a form and of Robin conditions at all unknowns; an error of one process is one of all."""
        with self.vectors.comm.together():
            local = operator(self.field(x))
        out = self.c0.gather(local, self.device).reshape(-1)
        if self.robin is not None:
            added = self.vectors.xp.stack([self.robin @ row for row in x.reshape(self.n, -1)])
            out = out + self.vectors.summed(added).reshape(-1)
        return out

    def residual(self, x: Any) -> tuple[Any, float]:
        """The residual at the free unknowns and its norm, which is infinite where it is not finite."""
        try:
            r = self.free(self.gathered(self.form, x) - self.load * self.data)
        except NotFinite:
            return x, math.inf
        norm = self.vectors.norm(r)
        return r, norm if math.isfinite(norm) else math.inf


class Tangents:
    """Linear systems with the linearisation J, step by step, and their preconditioner."""

    J: Any = None
    _JT: Any = None

    def __init__(
        self, equation: Equation, solver: Any, asked: Any, symmetric: bool | None, definite: bool | None
    ) -> None:
        self.equation, self.solver, self.preconditioner = equation, solver, Measured(asked)
        self._symmetric, self._definite = symmetric, definite
        self.positive, self.method, self.multigrid = True, "none", ""
        # Whether multigrid is for definite operators, and iterations by digit when its coefficients were new.
        self._of_definite, self._rate = False, 0.0

    def solve(self, x: Any, minus: Any, tol: float | None, name: str, transposed: bool = False) -> tuple[Any, int]:
        """Linearise at x, and solve for the right-hand side, or for what the function `minus` makes of J; with J or its
        transpose, and the same preconditioner.
        """
        own = self.equation
        with own.vectors.comm.together():
            self.J = own.form.linearised(own.field(x)) if self.J is None else self.J.at(own.field(x))
        # A new one: what a GlobalOperator remembers of its numbers may not be true of new ones.
        self.A = GlobalOperator(self.J, own.c0, own.bc, own.n)
        symmetric = self._definite or self.A.symmetric if self._symmetric is None else self._symmetric
        self.positive = symmetric and self._definite is not False
        rhs, B = minus(self.J) if callable(minus) else minus, self.A
        if transposed and not symmetric:
            with own.vectors.comm.together():
                self._JT = self.J.transposed() if self._JT is None else self._JT.at(own.field(x))
            B = GlobalOperator(self._JT, own.c0, own.bc, own.n)

        chosen, digits = self.preconditioner, -math.log10(tol or default_tolerance(own.dtype))
        refresh, d = (chosen.rate - self._rate) * digits > _WORTH, None
        run = partial(self.solver, B, rhs, symmetric=symmetric, definite=self.positive, tol=tol, name=name)
        while d is None:
            try:
                if self._serves(refresh):
                    most = self.solver.keywords["max_iterations"]
                    if self.multigrid == "kept":  # no longer than what new coefficients cost
                        most = min(int(self._rate * digits) + _MOST, math.inf if most is None else most)
                    d, info = run(chosen.M, max_iterations=most)
                else:
                    self.multigrid, self._of_definite = "", self.positive
                    chosen.make(self.A, self.positive)
                    d, info = chosen.solve(run, own.vectors.comm, self.A, self.positive)
                    self.multigrid = "made" if chosen.used == "multigrid" else ""
            except SolverError as error:
                if self.multigrid == "refreshed" and isinstance(error, BadPreconditioner):
                    chosen.used = ""  # made anew
                elif self.multigrid != "kept":
                    raise
                refresh = True
        # From the largest residual on: conjugate gradients first raise the norm.
        norms = np.asarray(info.residuals)
        largest = int(norms.argmax())
        fallen = math.log10(norms[largest] / norms[-1]) if 0 < norms[-1] < norms[largest] else digits
        self.method, chosen.rate = info.method, (info.iterations - largest) / fallen
        if self.multigrid != "kept":
            self._rate = chosen.rate
        return d, info.iterations

    def _serves(self, refresh: bool) -> bool:
        """Whether the multigrid of a system before serves the present one, with new coefficients or without."""
        own, self.multigrid = self.preconditioner, "refreshed" if refresh else "kept"
        if own.used != "multigrid" or self._of_definite != self.positive:
            return False
        with suppress(ArgumentError, NotSuitable, SolverError):
            if refresh:
                own.M.refresh(self.A if self.positive else self.A.elliptic_part())
            return True
        return False

    def rounding(self, x: Any) -> float:
        """Size of the rounding errors of a residual."""
        size = self.equation.gathered(self.J, mixed_signs(self.equation.vectors, x))
        return float(np.finfo(size.dtype).eps) * self.equation.vectors.norm(size)


def _stages(equation: Equation, loads: Any, parameters: Any) -> list[Stage]:
    """The numbers of each stage by name."""
    parameters = {} if parameters is None else parameters
    if not isinstance(parameters, Mapping):
        raise ArgumentError(f"parameters is a mapping from names to numbers, got {shown(parameters)}")
    given = {**({} if loads is None else {LOAD: loads}), **parameters}
    equation.present(given)
    rows = {name: np.atleast_1d(reals(numbers, f"the numbers of {name!r}")) for name, numbers in given.items()}
    for name, row in rows.items():
        if not np.isfinite(row).all():
            raise ArgumentError(f"the numbers of {name!r} are finite, got {shown(given[name])}")
    if len({row.shape for row in rows.values()}) > 1 or any(row.ndim > 1 or not row.size for row in rows.values()):
        counts = ", ".join(f"{name!r} {row.shape}" for name, row in rows.items())
        raise ArgumentError(f"loads and parameters have a number for each stage, all as many; got {counts}")
    columns = zip(*rows.values(), strict=True) if rows else [()]
    return [dict(zip(rows, map(float, numbers), strict=True)) for numbers in columns]


class Iterations:
    """The iteration: the present vector and the history; `advance` shows progress."""

    x: Any
    advance: Callable[..., None]
    part = math.inf  # of the first residual that may be left, where that is less than the tolerance

    def __init__(
        self, equation: Equation, tangents: Tangents, tol: float | None, most: int, forcing: float, name: str
    ) -> None:
        self.equation, self.tangents, self.most, self.forcing, self.name = equation, tangents, most, forcing, name
        self.asked, self.tol, self.began = tol, tol or (1e-10 if equation.dtype == np.float64 else 1e-5), perf_counter()
        self.residuals, self.steps, self.iterations, self.stage = list[float](), list[NewtonStep](), 0, Stage()

    def solve(self, x: Any, stages: Sequence[Stage], bar: bool) -> tuple[Solution, NewtonInfo]:
        """Solve stage by stage, from x on; see `newton`."""
        self.x = x
        try:
            with memory_kept(), nullcontext() if bar else silent(), progress(self.name) as self.advance:
                self.through(stages, len(stages[0]) > 0)
                return self.solution(), self.info()
        except BaseException as error:  # also an interrupt: nothing that was computed is lost
            with suppress(HpfemError):
                error.__dict__.update(u=self.solution(), info=self.info())
            raise

    def info(self) -> NewtonInfo:
        """The history."""
        return NewtonInfo(
            self.iterations,
            list(self.residuals),
            perf_counter() - self.began,
            preconditioner=self.tangents.preconditioner.used,
            method=self.tangents.method,
            size=self.equation.vectors.count(self.x),
            residual=self.residuals[-1] if self.residuals else math.inf,
            steps=list(self.steps),
        )

    def solution(self) -> Solution:
        """The present function."""
        return self.equation.solution(self.x, self.info())

    def _failed(self, why: str) -> NewtonError:
        history = ", ".join(f"{ratio:.1e}" for ratio in self.residuals[-8:]) or "none"
        at = f", {_said(self.stage)}" if self.stage else ""
        return NewtonError(
            f"{self.name}: step {len(self.residuals)}{at}: {why}; residuals before: {history}; the error's `u` is the"
            " last good iterate, and its `info` the history"
        )

    def through(self, stages: Sequence[Stage], halve: bool) -> None:
        """Solve stage by stage; where that fails, with stages between."""
        own, x, solved = self.equation, self.x, False
        reached = own.present(stages[0])
        for stage in stages:
            way = [stage]
            while way:
                self.stage = way[-1]
                own.set(self.stage)
                try:
                    self._solve()
                except NewtonError:
                    between = {name: (value + reached[name]) / 2 for name, value in self.stage.items()}
                    further = halve and len(way) <= _HALVINGS and between not in (reached, self.stage)
                    if further or solved:
                        self.x = x
                    if not further:
                        own.set(reached if solved else self.stage)
                        raise
                    way.append(between)
                else:
                    reached, x, solved = way.pop(), self.x, True

    def _solve(self) -> None:
        """Newton's method, from `x` on."""
        own, tangents, dot = self.equation, self.tangents, self.equation.vectors.dot
        self.residuals, last = [], None
        x = self._with_values()
        r, norm = own.residual(x)
        if norm == math.inf:
            raise self._failed("the residual of the first guess is not finite; give another start, or smaller loads")
        self.x = x
        sizes = [norm, own.residual(0 * x)[1], abs(own.load) * own.vectors.norm(own.data)]
        scale, before, tol = max(size for size in sizes if size < math.inf) or 1.0, math.inf, self.forcing
        wanted = min(self.tol * scale, max(self.part * norm, 4 * float(np.finfo(own.dtype).eps) * scale))
        self.residuals.append(norm / scale)
        while norm > wanted:
            done = len(self.residuals) - 1
            if norm > 0.5 * before and self._enough(norm, scale):
                return
            if done == self.most:
                raise self._failed(f"the residual is {norm / scale:.1e}, wanted {self.tol:.1e}, after {done} steps")
            if done:
                square = _FORCING * (norm / before) ** 2
                tol = min(self.forcing, max(square, 0.3 * wanted / norm, default_tolerance(own.dtype)))
            try:
                d, iterations, tol = self._step(r, tol)
            except NewtonError:
                # A step that led to where the linearisation is not positive definite was too long.
                if last is None or last[2] < _SHORTEST_BACK or not self._indefinite:
                    raise
                last = *last[:2], last[2] / 2
                self.x = last[0] - last[2] * last[1]
                r, norm = own.residual(self.x)
                self.residuals[-1] = norm / scale
                self.steps[-1] = self.steps[-1]._replace(residual=norm / scale, length=last[2])
                continue
            length, slope = 1.0, dot(r, d)
            if tangents.positive and not slope > 0:
                raise self._failed(_INDEFINITE)
            while True:
                trial = self.x - length * d
                new, after = own.residual(trial)
                ahead = dot(new, d) if tangents.positive and after < math.inf else math.inf
                if after <= max(wanted, 0 if tangents.positive else (1 - _NORM * length) * norm):
                    break
                if abs(ahead) <= (1 - _SLOPE * length) * slope:
                    break
                length *= 0.5  # where a slope that grows like a cubic would be zero is much too short
                if length < _SHORTEST:
                    if self._enough(norm, scale):
                        return
                    what = "is not finite" if after == math.inf else "does not fall"
                    raise self._failed(f"the residual {what} for any length of the step from 1 to {_SHORTEST:.1e}")
            last = self.x, d, length
            self.x, r, before, norm = trial, new, norm, after
            self.residuals.append(norm / scale)
            self.steps.append(NewtonStep(norm / scale, iterations, tol, length, tangents.multigrid, self.stage))
            self.advance(description=f"{self.name}: residual {norm / scale:.1e}")

    def _step(self, r: Any, tol: float) -> tuple[Any, int, float]:
        """The step for a residual, the iterations that it took, and the tolerance."""
        self._indefinite = False
        for loose in (tol, *_LOOSE):
            try:
                d, iterations = self.tangents.solve(self.x, r, loose, f"step {len(self.residuals)}")
            except NotFinite as error:
                raise self._failed(f"the linearisation is not finite: {error}") from error
            except BadOperator as error:
                found = error
            except SolverError as error:
                raise self._failed(f"the linear system was not solved ({error})") from error
            else:
                self.iterations += iterations
                return d, iterations, loose
        self._indefinite = True
        raise self._failed(f"{_INDEFINITE} ({str(found).partition(';')[0]})") from found

    def _with_values(self) -> Any:
        """The vector with the Dirichlet values, whose change the linearisation continues if it can."""
        own, vectors = self.equation, self.equation.vectors
        held = vectors.xp.where(own.fixed, own.load * own.values, self.x)
        gap = held - self.x
        if vectors.max_norm(gap) > 100 * np.finfo(own.dtype).eps * vectors.max_norm(held):
            with suppress(NotFinite, NotSuitable, SolverError):  # of a linearisation that is zero at zero, for example
                change, iterations = self.tangents.solve(
                    self.x, lambda J: -own.free(own.gathered(J, gap)), self.forcing, "boundary values"
                )
                self.iterations += iterations
                return held + change
        return held

    def _enough(self, norm: float, scale: float) -> bool:
        """Whether a residual that falls no more meets the tolerance, or is of rounding; then it says so if that is far
        from what was asked for.
        """
        if norm <= self.tol * scale:
            return True
        if norm > ROUNDING * self.tangents.rounding(self.x):
            return False
        if (self.asked is not None or norm > 100 * self.tol * scale) and self.equation.vectors.comm.rank == 0:
            warn(
                f"{self.name}: the residual is {norm / scale:.1e}, wanted {self.tol:.1e}: rounding to"
                f" {self.equation.dtype} allows no less; take a larger tolerance"
            )
        return True
