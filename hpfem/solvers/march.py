"""Time integration of M u' + r(t, u) = 0, or M u'', with Dirichlet data g(t): one loop for all methods of `tableaus`.

Explicit stages move what is left of u without the lifting of g, the function with these values that is M-orthogonal to
all free functions: no derivative of g is needed, and the order is that of the method. Implicit stages solve
M u + c r(u) = known for the free test functions, u = g. Only time, step and the last vectors go from step to step: a
run that continues from these has the same bits.
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from glob import escape
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from hpfem.shapes.arguments import flag, instance, name_of, real, reals, shown

from ..assembly import BoundaryConditions, C0Space, GlobalOperator
from ..backends.passes import LEAPFROG, LOW_STORAGE
from ..errors import ArgumentError, HpfemError, NotFinite, SolverError
from ..memory import every
from ..operators import WeakForm
from ..support.files import atomic_path, output_path
from ..support.log import warn
from ..support.progress import progress, silent
from ..support.reuse import memory_kept
from .breakdown import or_float64
from .cg import cg
from .info import SolveInfo
from .krylov import default_tolerance
from .newton import Equation, Iterations, Tangents
from .preconditioners import Measured, checked_preconditioner, jacobi
from .solve import solve
from .tableaus import METHODS, Method

# Of the step that the error allows; and how much a step changes at once.
_SAFETY, _LEAST, _MOST = 0.9, 0.2, 5.0
# Steps after which the host waits to see that u is finite.
_UNSEEN = 20
# Of steps: part of the whole time, and of the times themselves, which have 16 digits.
_SHORTEST, _DIGITS = 1e-10, 2.0**-48
# Times shorter steps that are looked through where all are equal, and end at several times.
_FINER = 10
# Residual at which a stage is solved, over tol and over that of u before.
_SYSTEMS = 1e-3


@dataclass(eq=False)
class March:
    """A computation in time, at its end.

    Attributes
    ----------
    u : Solution
        At `t`.
    t : float
    dt : float
        The last step asked for.
    steps, rejected : int
        Steps taken, and those repeated with a smaller dt.
    times : list of float
        Of `saved`.
    saved : list of Solution
        The functions at the times asked for.
    """

    u: Any
    t: float
    dt: float
    steps: int = 0
    rejected: int = 0
    times: list[float] = field(default_factory=list)
    saved: list[Any] = field(default_factory=list)


def march(
    residual: Any,
    u0: Any,
    times: tuple[float, float],
    c0: C0Space | None = None,
    bc: BoundaryConditions | None = None,
    *,
    method: str = "ssp3",
    dt: float | None = None,
    courant: float = 0.9,
    tol: float | None = None,
    mass: Any | None = None,
    preconditioner: str | Callable[[Any], Any] = "auto",
    parameters: Mapping[str, Callable[[float], float]] | None = None,
    dirichlet: Callable[[float], Any] | None = None,
    load: Callable[[float], Any] | None = None,
    velocity: Any | None = None,
    watch: Callable[[float, Any], None] | None = None,
    save: Sequence[float] = (),
    checkpoint: str | os.PathLike[str] | None = None,
    name: str = "march",
    bar: bool = True,
) -> March:
    """Solve M u' + r(t, u) = 0 in time, or M u'' + r(t, u) = 0.

    Where M is diagonal, as on points of quads and hexes that are the nodes (`quadrature="collocated"` of a `Space` with
    the basis "lagrange"), an explicit step is one application of the residual and a pass over vectors a stage, without
    waiting for a GPU. Elsewhere M is inverted by conjugate gradients.

    Parameters
    ----------
    residual : weak form, OperatorSum, Energy or GlobalOperator
        r, with sources; as for `newton`.
    u0 : Field in state "coeff", array [n] or [components, size], callable or number
        u at the first time.
    times : (float, float)
        The first and the last one.
    c0 : C0Space
    bc : BoundaryConditions, optional
        Dirichlet, Neumann and Robin data.
    method : str
        Explicit: "low3" and "low4", with two vectors of storage, "ssp3" and "ssp43", which preserve strong stability,
        "bs3" and "dp5", and "leapfrog" of second order for M u''. Implicit: "sdirk2", "esdirk3", "esdirk4", "bdf2" and
        "bdf3", by Newton's method. The last figure of a name is the order; of what decays much faster than a step the
        small errors fall with dt^2 only, with "bdf3" with dt^3.
    dt : float, optional
        Largest step, or the first one with `tol`; steps are equal between times of `save`, but for `tol`. Explicit
        methods estimate a stable one when it is left out.
    courant : float
        The step that is taken over the largest stable one, where dt is left out.
    tol : float, optional
        Error of a step over the norm of u; dt is changed to meet it, by the embedded method of "ssp3", "ssp43",
        "bs3", "dp5", "esdirk3" or "esdirk4".
    mass : weak form, optional
        M, symmetric positive definite, of as many components; (u, v) when left out.
    preconditioner : str or callable
        Of implicit steps, and of M in explicit ones, as for `solve`, but that "auto" is multigrid from when the
        diagonal takes many iterations.
    parameters : {str: callable}, optional
        Numbers of the residual's `parameters` as functions of t.
    dirichlet : callable, optional
        t -> data as for `BoundaryConditions`, on the boundaries that have Dirichlet values there.
    load : callable, optional
        t -> a functional that is added to -r, such as `point_source`, an array [n] where the residual computes or on
        the host, or None for zero.
    velocity : as u0, optional
        u' at the first time, for "leapfrog"; zero when left out.
    watch : callable, optional
        Called after each step with t and the vector of u where the residual computes, which is not to be written.
    save : sequence of float
        Times at which u is kept, in ascending order; a step ends at each.
    checkpoint : path, optional
        A file .npz, one for each process, written whole at each time of `save`. If it exists, the run continues from
        there, and has the same bits as one with a checkpoint that was not interrupted. Give the same arguments, and as
        many processes.
    name : str
        For messages and the progress bar.
    bar : bool
        Whether to show one.

    Returns
    -------
    March

    Raises
    ------
    SolverError
        If u is not finite, a system is not solved, steps get too small, or rounding errs by more than `tol` in implicit
        ones; it names the time. It has `march`, with the last good u, as every exception from a step has.
    ArgumentError
        For arguments that do not fit, or a checkpoint of another computation.

    Examples
    --------
    >>> run = march(Laplacian(space), u0, (0, 1), c0, bc, method="esdirk3", dt=0.01, save=[0.5])  # doctest: +SKIP
    """
    scheme = METHODS[name_of(method, METHODS, "method")]
    name, bar = instance(name, str, "name"), flag(bar, "bar")
    span = reals(times, "times")
    if span.shape != (2,) or not span[0] < span[1]:
        raise ArgumentError(f"times are the first and a later last time, got {shown(times)}")
    stops = reals(save, "save").reshape(-1)
    if not ((np.diff(stops) > 0).all() and (span[0] < stops).all() and (stops <= span[1]).all()):
        raise ArgumentError(f"save has ascending times after {span[0]:g} up to {span[1]:g}, got {shown(save)}")
    dt, courant = None if dt is None else real(dt, "dt", above=0), real(courant, "courant", above=0)
    tol = None if tol is None else real(tol, "tol", above=0)
    if tol is not None and not scheme.embedded:
        known = ", ".join(own for own, row in METHODS.items() if row.embedded)
        raise ArgumentError(f"{method!r} has no embedded method, so no tol; take one of {known}, or dt without tol")
    if dt is not None and not dt >= _shortest(span):
        raise ArgumentError(f"dt = {dt:g} is too short for times from {span[0]:g} to {span[1]:g}")
    if scheme.implicit and dt is None:
        raise ArgumentError(f"{method!r} is stable for any step; give dt")
    preconditioner = checked_preconditioner(preconditioner)
    asked = "measured" if preconditioner == "auto" else preconditioner
    if not scheme.second and velocity is not None:
        raise ArgumentError(f"{method!r} is for M u' + r = 0, where no velocity is given; take 'leapfrog'")
    for given, what in ((dirichlet, "dirichlet"), (load, "load"), (watch, "watch")):
        if not (given is None or callable(given)):
            raise ArgumentError(f"{what} is a function of t, got {shown(given)}")
    own = Equation(residual, c0, bc, None)
    system = _System(own, scheme.implicit, mass, parameters, dirichlet, load, asked, tol, name)
    run = _Run(system, method, span, stops, watch, None if checkpoint is None else output_path(checkpoint))
    run.begin(u0, velocity, dt, courant)
    with memory_kept(), nullcontext() if bar else silent(), progress(name) as advance:
        try:
            while run.todo:
                run.step()
                advance(description=f"{name}: t = {run.t:.4g}")
        except BaseException as error:  # also an interrupt: nothing that was computed is lost
            with suppress(HpfemError):
                run.finite()
                error.__dict__["march"] = run.result()
            raise
    return run.result()


class _System:
    """The equation with its data at a time, on the device of the residual."""

    def __init__(
        self, own: Equation, implicit: bool, mass: Any, parameters: Any, dirichlet: Any, load: Any,
        asked: Any, tol: Any, name: str,
    ) -> None:  # fmt: skip
        self.name, self.tol, self.asked = name, tol, asked
        self.own, self.vectors, self.xp = own, own.vectors, own.vectors.xp
        self.parameters, self.dirichlet, self.load = {} if parameters is None else parameters, dirichlet, load
        if not isinstance(self.parameters, Mapping) or not all(map(callable, self.parameters.values())):
            raise ArgumentError(f"parameters has a function of t for each name, got {shown(parameters)}")
        own.present(dict.fromkeys(self.parameters, 0.0))
        if mass is None:
            mass = WeakForm(own.c0.space, lambda u: u, components=own.n, test="value")
        if own.n != (getattr(mass, "components", 0) or getattr(getattr(mass, "form", None), "components", 0)):
            raise ArgumentError(f"mass is a weak form of {own.n} component(s), as the residual; got {shown(mass)}")
        data = copy(own.bc)
        data.matrix = None
        self.M, self.all = GlobalOperator(mass, own.c0, data, own.n), GlobalOperator(mass, own.c0, None, own.n)
        if not self.M.symmetric:
            raise ArgumentError(f"mass is a linear, symmetric weak form; {self.M.operator.name} is not")
        self.still = not self.vectors.max_norm(own.data)
        if implicit:
            known = mass + own.form
            self.kept = len(getattr(mass, "summands", (mass,)))
            self.factors = tuple(known.factors)
            self.stage = Equation(known, own.c0, copy(own.bc), None)
            self.forget()
            return
        inverse = jacobi(self.M).inverse
        # A matrix is diagonal if it only scales the entries of a random vector.
        probe = self.random(0.5)
        wrong = self.vectors.max_norm(own.free(self.mass(probe)) * inverse - probe)
        self.diagonal = wrong < 1e4 * np.finfo(own.dtype).eps
        self.weights = -own.free(inverse if self.diagonal else self.xp.ones_like(probe))
        self.preconditioner = Measured(asked)
        if not self.diagonal:
            self.preconditioner.make(self.M)
        if not self.diagonal and asked == "measured":
            _, info = cg(self.M, own.free(self.mass(probe)), self.preconditioner.M, name=f"{name}: mass", bar=False)
            self.preconditioner.rate = -info.iterations / math.log10(default_tolerance(own.dtype))
            self.preconditioner.make(self.M)
        self.product = None  # faster, of forms in the volume
        if own.form.on is None and not getattr(own.form, "boundary_forms", ()):
            self.product = GlobalOperator(own.form, own.c0, own.bc.natural, own.n).product_on(own.device)

    def random(self, least: float) -> Any:
        """Random numbers up to 1 for free functions, the same on all processes."""
        first = np.random.default_rng(0).uniform(least, 1, self.own.c0.size)
        host = np.tile(self.own.c0.vectors_on().agreed(first), self.own.n)
        return self.own.free(self.vectors.from_host(host, self.own.dtype))

    def forget(self) -> None:
        """Keep nothing of the systems solved before."""
        self.tangents = Tangents(self.stage, partial(solve, max_iterations=None, bar=False), self.asked, None, None)

    def set(self, t: float) -> None:
        """Take the parameters of a time."""
        known = {name: real(_called(given, t, f"parameter {name!r}"), name) for name, given in self.parameters.items()}
        self.own.set(known)

    def values(self, t: float) -> Any:
        """Dirichlet values, zero elsewhere."""
        if self.dirichlet is None:
            return self.own.values
        found, own = self.own.bc.values_of(_called(self.dirichlet, t, "dirichlet")), self.own
        return self.vectors.from_host(np.broadcast_to(found, (own.n, own.c0.size)), own.dtype).reshape(-1)

    def mass(self, x: Any) -> Any:
        """M x for the free test functions."""
        return self.own.free(self.all.apply(x, self.own.device))

    def inverse(self, functional: Any) -> Any:
        """M^-1 for free functions."""
        if self.diagonal:
            return -self.weights * functional
        run = partial(cg, self.M, self.own.free(functional), name=f"{self.name}: mass", bar=False)
        return self.own.free(self.preconditioner.solve(run, self.vectors.comm, self.M)[0])

    def data(self, t: float) -> list[Any]:
        """Functionals of boundary data and of the load."""
        found = [] if self.still else [self.own.data]
        given = None if self.load is None else _called(self.load, t, "load")
        if given is not None:
            with self.vectors.comm.together():
                array = self.vectors.checked(given, "load").reshape(-1)
                if array.size != self.own.data.size:
                    raise ArgumentError(f"a load has {self.own.data.size} entries, got {shown(given)}")
            found.append(array if self.vectors.has(array) else self.vectors.from_host(array, self.own.dtype))
        return found

    def pull(self, t: float, x: Any) -> Any:
        """An array whose product with `weights` is M^-1 of minus the residual; new memory."""
        self.set(t)
        out = self.own.gathered(self.own.form, x) if self.product is None else self.product(x)
        for part in self.data(t):
            out -= part
        return out if self.diagonal else self.xp.asarray(self.inverse(out), out.dtype)

    def force(self, t: float, x: Any) -> Any:
        """Minus the residual for the free test functions."""
        self.set(t)
        return self.own.free(sum(self.data(t)) - self.own.gathered(self.own.form, x))

    def summed(self, numbers: Any, arrays: Sequence[Any]) -> Any:
        """The sum of arrays times numbers, those that are not zero."""
        some, out = [k for k, number in enumerate(numbers) if number], self.xp.empty_like(arrays[0])
        self.vectors.combine([float(numbers[k]) for k in some], [arrays[k] for k in some], out)
        return out

    def lifted(self, change: Any) -> Any:
        """The function with these Dirichlet values that is M-orthogonal to all free ones."""
        return change - self.inverse(self.mass(change))

    def solved(self, t: float, c: float, known: Any, guess: Any) -> Any:
        """The u with M u + c r(t, u) = known, u = g."""
        self.set(t)
        stage, own = self.stage, self.own
        for k in range(self.kept, len(self.factors)):
            stage.form.factors[k] = c * self.factors[k]
        if own.bc.matrix is not None:
            stage.bc.matrix = c * own.bc.matrix
            stage.robin = self.vectors.sparse(stage.bc.matrix.astype(own.dtype))
        stage.values, stage.data = self.values(t), (known + c * own.free(sum(self.data(t)))).astype(own.dtype)
        run = Iterations(stage, self.tangents, None, 25, 0.01, self.name)
        run.part = _SYSTEMS  # in a short step u changes by less than the tolerance
        if self.tol is not None:
            run.tol = max(4 * float(np.finfo(own.dtype).eps), _SYSTEMS * self.tol)
        run.x, run.advance = self.xp.where(own.fixed, stage.values, guess), lambda *_, **__: None
        run.through([{}], False)
        return run.x

    def stable(self, t: float, x: Any, courant: float, scheme: Method) -> float:
        """A stable step: the spectral radius of M^-1 r'(x) by power iteration."""
        self.set(t)
        own = self.own
        with self.vectors.comm.together():
            J = own.form.linearised(own.field(x))
        y, size = self.random(-1), 0.0
        for _ in range(40):
            y = self.inverse(own.gathered(J, y))
            size = self.vectors.norm(y)
            if not 0 < size < math.inf:
                raise ArgumentError(f"{self.name} finds no stable step, the linearisation is {size:g}; give dt")
            y = y / size
        return courant * scheme.reach() / (size**0.5 if scheme.second else size)


def _shortest(span: Any) -> float:
    """The shortest step that is worth taking."""
    return float(max(_SHORTEST * (span[1] - span[0]), _DIGITS * abs(span).max()))


def _counts(lengths: Any, dt: float) -> Any:
    """Steps that times take."""
    return np.maximum(1, np.ceil(lengths / dt * (1 - 1e-10)))


def _called(function: Callable[..., Any], t: float, what: str, *more: Any) -> Any:
    """What a function of the user returns."""
    try:
        return function(t, *more)
    except TypeError as error:
        raise ArgumentError(f"{what} is a function of t {'and u' if more else 'alone'}; it raised: {error}") from error


class _Run:
    """The state: time, step and the last vectors, newest first; and what was saved."""

    seen = -math.inf  # the last time watched
    wrong: Any = None  # the functional of which the error of an implicit step is made

    def __init__(self, system: _System, method: str, span: Any, stops: Any, watch: Any, path: Path | None) -> None:
        self.system, self.scheme, self.tol, self.watch, self.path = system, METHODS[method], system.tol, watch, path
        self.careful = self.tol is not None or self.scheme.implicit  # else the host waits now and then only
        self.span, self.keep = span, set(stops.tolist())
        self.todo = [*stops[stops < span[1]].tolist(), float(span[1])]
        self.t, self.dt, self.steps, self.rejected = float(span[0]), 0.0, 0, 0
        self.last, self.saved = list[Any](), list[tuple[float, Any]]()
        self.mark = f"{method} {system.own.n} {system.own.c0.size} {system.own.dtype} {span.tolist()} {self.todo}"

    def begin(self, u0: Any, velocity: Any, dt: float | None, courant: float) -> None:
        """Take the first state, or that of the checkpoint."""
        own, comm = self.system.own, self.system.vectors.comm
        if self.path is not None:
            given = self.path
            if given.suffix != ".npz":
                raise ArgumentError(f"a checkpoint is a file .npz, got {given}")
            if comm.size > 1:
                self.path = given.with_suffix(f".{comm.rank}of{comm.size}.npz")
            if comm.any(self.path.exists()):
                return self._read()
            others = [given, *sorted(given.parent.glob(f"{escape(given.stem)}.0of*.npz"))]
            if comm.rank == 0 and (there := [path for path in others if path.exists()]):
                warn(f"{there[0]} is a checkpoint of another number of processes: the run starts anew")
        values = self.system.values(self.t)
        self.last = [self.system.xp.where(own.fixed, values, own.vector(u0))]
        if self.scheme.second:
            rate = own.vector(velocity)
            self.velocity = own.free(rate)
            if self.system.dirichlet is not None:
                self.velocity = self.velocity + self.system.inverse(self.system.mass(rate - self.velocity))
        self.good = self.t, self.steps, self.last
        self.dt = dt or self.system.stable(self.t, self.last[0], courant, self.scheme)
        if self.scheme.alpha:  # steps are equal
            lengths = np.diff([self.t, *self.todo])
            least = math.ceil(lengths[0] / self.dt)
            steps = [dt] if dt else lengths[0] / np.arange(least, _FINER * least + 1)
            found = next((h for h in steps if (abs(lengths / _counts(lengths, h) - h) <= 1e-8 * h).all()), None)
            if found is None:
                between, what = ", ".join(f"{length:g}" for length in lengths[:10]), f"a stable dt near {self.dt:.3g}"
                raise ArgumentError(
                    f"the method has equal steps, and the times between those of save, {between}, are no multiples of "
                    f"{f'dt = {dt:g}' if dt else f'{what}: give other times, or dt'}"
                )
            self.dt = float(found)

    def _read(self) -> None:
        """Continue from the checkpoint."""
        own, vectors = self.system.own, self.system.vectors
        assert self.path is not None
        with vectors.comm.together():
            try:
                with np.load(self.path, allow_pickle=False) as found:
                    given = {key: found[key] for key in found.files}
                mark, numbers = str(given["mark"]), given["numbers"].tolist()
                last, times, saved = given["last"], given["times"].tolist(), given["saved"]
            except (OSError, ValueError, KeyError, EOFError, BadZipFile, zlib.error) as error:
                raise ArgumentError(f"{self.path} is no checkpoint of march; delete it, or name another") from error
            if mark != self.mark:
                raise ArgumentError(f"{self.path} is of another computation ({mark}, now {self.mark}); name another")
        if len(set(vectors.comm.allgather(tuple(numbers)))) > 1:
            raise ArgumentError(f"the processes' checkpoints {self.path} are of different times; delete them")
        self.t, self.dt, self.steps, self.rejected = numbers[0], numbers[1], int(numbers[2]), int(numbers[3])
        self.last = [vectors.from_host(row, own.dtype) for row in last]
        self.saved = [(t, vectors.from_host(row, own.dtype)) for t, row in zip(times, saved, strict=True)]
        self.todo = [stop for stop in self.todo if stop > self.t]
        self.good = self.t, self.steps, self.last

    def _write(self) -> None:
        if self.path is None:
            return
        if self.scheme.implicit:  # a run that continues from here has no multigrid of before
            self.system.forget()
        host = self.system.vectors.to_host
        with atomic_path(self.path, comm=self.system.vectors.comm) as temporary:
            np.savez(
                temporary,
                mark=self.mark,
                numbers=np.array([self.t, self.dt, self.steps, self.rejected], np.float64),
                last=np.stack([host(x) for x in self.last]),
                times=np.array([t for t, _ in self.saved]),
                saved=np.array([host(x) for _, x in self.saved]),
            )

    def result(self) -> March:
        """What the user gets."""
        info = SolveInfo(self.steps, [], 0.0, method="march", size=self.system.vectors.count(self.last[0]))
        u, *saved = [self.system.own.solution(x, info) for x in (self.last[0], *(x for _, x in self.saved))]
        return March(u, self.t, self.dt, self.steps, self.rejected, [t for t, _ in self.saved], saved)

    def finite(self) -> None:
        """Go back to what is known to be finite, where u may not be."""
        system = self.system  # one process alone may be here
        if system.vectors.comm.size > 1 or not every(system.xp.isfinite(self.last[0])):
            self.t, self.steps, self.last = self.good

    def _failed(self, why: object) -> SolverError:
        return SolverError(f"{self.system.name}: at t = {self.t:.6g}, step {self.steps + 1}: {why}")

    def step(self) -> None:
        """Advance by a step, which ends at the next time of `save` at the latest."""
        vectors, stop, size, before = self.system.vectors, self.todo[0], 0.0, math.inf
        while True:
            left = stop - self.t
            if self.dt < _shortest(self.span):
                what = "are too long for tol" if math.isfinite(size) else "give numbers that are not finite"
                raise self._failed(f"steps of {self.dt:.1e} {what}; is the solution unbounded?")
            count = int(_counts(left, self.dt))
            h = left / count
            try:
                new, error = self._tried(h)
                size = vectors.norm(new) if self.careful or count == 1 or self.steps % _UNSEEN == 0 else 0.0
            except (NotFinite, SolverError) as found:
                if self.careful and self.tol is None:
                    raise self._failed(f"{found}; a smaller dt may help") from found
                size = math.inf
            if not math.isfinite(size):
                if not self.careful:  # again from where it was finite, one by one
                    self.careful, (self.t, self.steps, self.last) = True, self.good
                    return
                if self.tol is None:
                    raise self._failed("u is not finite; take a smaller dt")
                self.dt, self.rejected = h * _LEAST, self.rejected + 1
                continue
            if self.tol is not None:
                scale = self.tol * max(size, vectors.norm(self.last[0]))
                ratio = vectors.norm(error) / scale if scale else 0.0
                change = min(_MOST, max(_LEAST, _SAFETY * max(ratio, 1e-9) ** (-1 / self.scheme.order)))
                if not ratio <= 1:
                    if ratio >= before and (rounding := self._rounding(new, error)) > scale:
                        dtype, least = self.system.own.dtype, f"{self.tol * rounding / scale:.1e}"
                        raise self._failed(f"rounding to {dtype} errs by {least}; take a larger tol{or_float64(dtype)}")
                    self.dt, self.rejected, before = h * min(change, _SAFETY), self.rejected + 1, ratio
                    continue
                self.dt = h * change if count > 1 or change < 1 else max(self.dt, h * change)
            break
        self.last = [new, *self.last][: max(1, len(self.scheme.alpha) - 1)]
        self.steps += 1
        self.t = stop if count == 1 else self.t + h
        if size:
            self.good = self.t, self.steps, self.last
        if self.watch is not None and self.t > self.seen:
            self.seen = self.t
            _called(self.watch, self.t, "watch", new)
        if count == 1:
            self.todo.pop(0)
            if stop in self.keep:
                self.saved.append((stop, new))
                self._write()

    def _rounding(self, u: Any, error: Any) -> float:
        """A bound on what rounding adds to the error of an implicit step; 0 for other steps."""
        if self.wrong is None:
            return 0.0
        norm = self.system.vectors.norm
        return self.system.tangents.rounding(u) * norm(error) / (norm(self.wrong) or 1.0)

    def _tried(self, h: float) -> tuple[Any, Any]:
        """The next vector, and an estimate of its error where there is an embedded method."""
        system, scheme = self.system, self.scheme
        t, x, fixed = self.t, self.last[0], system.dirichlet is not None
        if scheme.second:
            old, new = len(self.last) > 1, system.pull(t, x)
            before = self.last[1] if old else x - h * self.velocity
            system.vectors.run(LEAPFROG, (new, system.weights, x, before), (2.0, h**2 if old else h**2 / 2))
            if fixed:
                change = system.values(t + h) - system.values(t)
                if old:
                    change = change - system.values(t) + system.values(t - h)
                new = new + system.lifted(change)
            return new, None
        if scheme.alpha and len(self.last) == len(scheme.alpha) - 1:
            first, *others = scheme.alpha
            known = system.mass(sum(-a / first * x for a, x in zip(others, self.last, strict=True)))
            return system.solved(t + h, h / first, known, x), None
        if scheme.first:
            scheme = METHODS[scheme.first]
        a, b = scheme.matrices()
        nodes = (t + h * a.sum(axis=1)).tolist()
        if scheme.implicit:
            start, u, rates = system.mass(x), x, list[Any]()
            for i, then in enumerate(nodes):
                if not a[i, i]:
                    rates.append(h * system.force(then, u))
                    continue
                known = start + sum(a[i, j] * rates[j] for j in range(i))
                u = system.solved(then, h * a[i, i], known, u)
                rates.append((system.mass(u) - known) / a[i, i])
            # The last stage is the new vector. Of the error the operator leaves out what decays within the step.
            if self.tol is None:
                return u, None
            self.wrong = sum(number * k for number, k in zip(b - scheme.embedded, rates, strict=True))
            return u, system.tangents.solve(u, self.wrong, 0.1, "the error of a step")[0]
        now = system.values(t)

        def lift(then: float) -> list[Any]:
            return [system.lifted(system.values(then) - now)] if fixed else []

        if scheme.low:
            q, v, u = 0 * x, x * 1, x  # in place
            for then, ahead, A, B in zip(nodes, [*nodes[1:], t + h], *scheme.low, strict=True):
                system.vectors.run(LOW_STORAGE, (v, q, system.pull(then, u), system.weights), (A, h, B))
                u = sum(lift(ahead), v)
            return u, None
        rates = list[Any]()

        def after(numbers: Any, then: float) -> Any:
            added = lift(then)
            return system.summed([1.0, *h * numbers, *[1.0 for _ in added]], [x, *rates, *added])

        for row, then in zip(a, nodes, strict=True):
            u = after(row[: len(rates)], then) if rates else x
            rates.append(system.weights * system.pull(then, u))
        wrong = None if self.tol is None else system.summed(h * (b - scheme.embedded), rates)
        return after(b, t + h), wrong
