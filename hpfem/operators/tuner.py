"""The tuner: times what can serve a block on data of its own, and keeps what won for `strategy="auto"`.

Everything suitable takes part: strategies, algorithms, and configs in the rounds of `Strategy.search`, compiled side
by side. Whoever is far behind drops out; the fastest run again in turns at the end. The present choice stays unless it
is beaten clearly (`hpfem.tuning.MARGIN`), and no result counts that differs from its result.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any, Protocol

import numpy as np

from hpfem.shapes.arguments import instance, real, shown

from ..backends.base import Backend
from ..backends.strategy import Search
from ..errors import ArgumentError, DeviceError, NotSuitable
from ..forms.form import BlockKernel, BlockProblem, FieldValues
from ..memory import Device, PairArray
from ..space.space import OPERATORS, Space
from ..support.log import report_once
from ..support.progress import progress
from ..tuning import Name, Race, Record, keep
from .arrays import check_current
from .select import Choice, candidates, title, tuned, way
from .tuning_key import timed_elements, tuning_key

# Samples, and times of the best beyond which one drops out: of a round, and at the end, where so many run.
ROUND, ROUND_WITHIN = 3, 1.3
FINAL, FINAL_WITHIN, FINALISTS = 15, 1.15, 6
# Strategies and algorithms whose best is slower than this are not searched further.
SEARCH_WITHIN = 1.2
# Shares of the time left that a round may take to compile, and of all time that the end is given.
COMPILE_SHARE, FINAL_SHARE = 0.5, 0.15
# Relative difference to the present choice's result that no right kernel has.
TOLERANCE = {8: 1e-9, 4: 1e-3}


@dataclass(frozen=True)
class Tuning:
    """What the tuner found out about a block.

    Attributes
    ----------
    operator, block : str
        What was tuned.
    record : Record or None
        What is kept; None if there was no time for a single comparison.
    changed : bool
        Whether something else was chosen than before.
    seconds : dict
        Name -> seconds of one application to the timed elements, of everything that took part.
    unsuitable : tuple of str
        What could not serve, each with its reason.
    elements : int
        Elements that were timed.
    spent : float
        Seconds that it took.
    """

    operator: str
    block: str
    record: Record | None
    changed: bool
    seconds: dict[Name, float] = field(default_factory=dict)
    unsuitable: tuple[str, ...] = ()
    elements: int = 0
    spent: float = 0.0


def sample(problem: BlockProblem, n: int) -> BlockProblem:
    """The first elements of a problem, with a geometry of its own, so that layouts made for them go with it.

    Parameters
    ----------
    problem : BlockProblem
    n : int
        Number of elements.

    Returns
    -------
    BlockProblem
        Coefficient fields are copies.
    """
    fields = {
        key: FieldValues(PairArray.of(f.values[:, :n].copy(), f.device), f.device, f.vector)
        for key, f in problem.fields.items()
    }
    return replace(problem, geometry=problem.geometry.part(n), fields=fields)


class BlockTuner:
    """The tuner on one block.

    Parameters
    ----------
    problem : BlockProblem
    strategy, algorithm : str
        What may be chosen from: names, or "auto".
    backend : Backend
    seconds : float
        Time that it may take; what is being compiled or timed when it ends is finished.
    clock : callable
        () -> seconds.
    elements : int, optional
        Elements to time; as many as tell the speed of all when left out.
    known : bool
        Whether a result that is kept is the one to beat, rather than what is chosen without any.

    Attributes
    ----------
    groups : dict
        Strategy and algorithm -> (Strategy, problem on the elements that are timed).
    race : Race
    unsuitable : list of str
        What could not serve, each with its reason.
    """

    def __init__(
        self,
        problem: BlockProblem,
        strategy: str,
        algorithm: str,
        backend: Backend,
        seconds: float,
        clock: Callable[[], float] = time.perf_counter,
        elements: int | None = None,
        known: bool = True,
    ) -> None:
        self.problem, self.asked, self.backend, self.clock = problem, (strategy, algorithm), backend, clock
        self.known = known
        self.began = clock()
        self.deadline = self.began + seconds
        self.search_until = self.deadline - FINAL_SHARE * seconds
        self.elements = timed_elements(problem, backend) if elements is None else elements
        part = sample(problem, self.elements)
        self.pairs = candidates(part, strategy, algorithm, backend)
        self.groups = {way(provider.name, p, None)[:2]: (provider, p) for provider, p in self.pairs}
        self.unsuitable: list[str] = []
        device = backend.device()
        # No zeros and no pattern: some processors compute faster with those.
        values = np.random.default_rng(0).random(8191) + 0.5
        shape = (part.coupled, self.elements, part.n_input)
        self.source = device.empty(shape, part.dtype)
        device.from_host(np.resize(values, shape).astype(part.dtype), self.source)
        self.out = device.empty((part.components_out(part.coupled), self.elements, part.n_output), part.dtype)
        self.expected: Any = None
        self.race = Race(backend.timer(), self.deadline, clock=clock)

    def _refuse(self, name: Name, reason: object) -> None:
        text = f"{title((name[0], *name[2:]))}: {reason}"
        if text not in self.unsuitable:
            self.unsuitable.append(text)

    def prepare(self, names: Sequence[Name]) -> list[Name]:
        """Compile side by side what is to be timed.

        Parameters
        ----------
        names : sequence of Name
            The most promising first.

        Returns
        -------
        list of Name
            What is ready in time; at least the first that can be.
        """
        now = self.clock()
        until = now + (COMPILE_SHARE if self.race.runners else 1.0) * (self.search_until - now)
        begun: list[tuple[Name, Future[Any] | None]] = []
        for name in names:
            if begun and self.clock() >= until:
                break
            provider, problem = self.groups[name[:2]]
            try:
                begun.append((name, provider.prepare(problem, name[2])))
            except (NotSuitable, ArgumentError, DeviceError) as reason:
                self._refuse(name, reason)
        ready: list[Name] = []
        for name, future in begun:
            try:
                if future is not None:
                    future.result(timeout=max(until - self.clock(), 0.0) if ready else None)
                ready.append(name)
            except TimeoutError:
                if future is not None:
                    future.cancel()
            except (NotSuitable, ArgumentError, DeviceError) as reason:
                self._refuse(name, reason)
        return ready

    def enter(self, name: Name) -> None:
        """Build a kernel, check its result against that of the first, and let it take part.

        Parameters
        ----------
        name : Name
        """
        provider, problem = self.groups[name[:2]]
        try:
            kernel = provider.build(problem, name[2])
            self.out[...] = np.nan
            kernel.apply(self.source, self.out)
            if self.expected is None:
                self.expected = self.out.copy()
            right = self._right()
        # CUDA's own errors, of a launch that asks for too much, are RuntimeErrors.
        except (NotSuitable, ArgumentError, DeviceError, RuntimeError) as reason:
            self._refuse(name, reason)
            return
        if not right:
            self._refuse(name, "its result is wrong; please report this")
            report_once(
                f"tuner/{title(name)}", f"{self.problem.form.name}: {title(name)} gives wrong results, not used"
            )
            return
        self.race.enter(name, _application(kernel, self.source, self.out))

    def _right(self) -> bool:
        scale = float(abs(self.expected).max()) if self.expected.size else np.nan
        if not np.isfinite(scale):  # nothing, or a user's function on values that it is not made for
            return True
        return float(abs(self.out - self.expected).max()) <= TOLERANCE[self.out.dtype.itemsize] * scale

    def _incumbent(self) -> Name:
        """What is chosen now, timed first.

        Raises
        ------
        NotSuitable
            If nothing serves.
        """
        record = tuned(self.problem, *self.asked, self.backend) if self.known else None
        names = [record.winner] if record is not None and record.winner[:2] in self.groups else []
        for (strategy, algorithm), (provider, problem) in self.groups.items():
            try:
                names.append((strategy, algorithm, provider.default(problem)))
            except NotSuitable as reason:
                self._refuse((strategy, algorithm), reason)
        for name in names:
            if self.prepare([name]):
                self.enter(name)
            if name in self.race.runners:
                return name
        raise NotSuitable(f"{self.problem.form.name} on {self.problem.shape.name}: {'; '.join(self.unsuitable)}")

    def run(self) -> Tuning:
        """Tune.

        Returns
        -------
        Tuning
            Its record is not kept yet.

        Raises
        ------
        NotSuitable
            If nothing serves.
        """
        incumbent = self._incumbent()
        self.race.incumbent = incumbent
        searches: dict[Name, Search] = {}
        first: list[list[Name]] = []
        for group, (provider, problem) in self.groups.items():
            try:
                search = provider.search(problem)
                first.append([(*group, options) for options in next(search)])
                searches[group] = search
            except NotSuitable as reason:
                self._refuse(group, reason)
        batch = in_turns(first)
        while batch and self.clock() < self.search_until:
            for name in self.prepare([name for name in batch if name not in self.race.runners]):
                if self.clock() >= self.search_until:
                    break
                self.enter(name)
            self.race.run(ROUND, ROUND_WITHIN)
            self.race.only(2 * FINALISTS)
            batch = self._next_round(searches)
        self.race.only(FINALISTS)
        self.race.run(FINAL, FINAL_WITHIN)
        return self._result(incumbent)

    def _next_round(self, searches: dict[Name, Search]) -> list[Name]:
        """Options to time next, of strategies and algorithms that are still in the running."""
        seconds, batches = self.race.seconds, []
        best = min(seconds.values())
        for group, search in list(searches.items()):
            timed = {name[2]: t for name, t in seconds.items() if name[:2] == group}
            if min(timed.values(), default=np.inf) > SEARCH_WITHIN * best:
                del searches[group]
                continue
            try:
                batches.append([(*group, options) for options in search.send(timed)])
            except StopIteration:
                del searches[group]
        return in_turns(batches)

    def _result(self, incumbent: Name) -> Tuning:
        verdict, seconds = self.race.verdict(), self.race.seconds
        problem, block = self.problem, _block_text(self.problem)
        name, spent = problem.form.name, self.clock() - self.began
        unsuitable = tuple(self.unsuitable)
        about = {
            "operator": name,
            "elements": self.elements,
            "block_elements": problem.n_elements,
            "dofs_per_second": self.elements * problem.n_modes * problem.coupled / verdict.seconds,
            "gain": seconds[incumbent] / verdict.seconds,
            "before": title(incumbent),
            "unsuitable": list(unsuitable),
            "spent": round(spent, 3),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        alone = len(seconds) == 1 and self.clock() >= self.search_until
        key = tuning_key(problem, self.backend, *self.asked)
        record = Record(
            key, verdict.winner, verdict.seconds, verdict.runner_up, verdict.ratio, verdict.kept, len(seconds), about
        )
        changed = verdict.winner != incumbent
        return Tuning(name, block, None if alone else record, changed, seconds, unsuitable, self.elements, spent)


def in_turns(batches: Sequence[Sequence[Name]]) -> list[Name]:
    """The first of each batch, then the second of each, ...: if time is short, everybody has had a chance."""
    return [name for rank in zip_longest(*batches) for name in rank if name is not None]


def _application(kernel: BlockKernel, source: Any, out: Any) -> Callable[[], object]:
    return lambda: kernel.apply(source, out)


def _block_text(problem: BlockProblem) -> str:
    kind = problem.geometry.kind.name
    counts = "x".join(map(str, problem.tabulation.rule.counts))
    order = problem.tabulation.basis.order
    return f"{problem.n_elements} {kind} {problem.shape.name}, P={order}, Q={counts}, {problem.dtype.name}"


class Tunable(Protocol):
    """What an operator is seen from here."""

    name: str
    space: Space
    strategy: str
    algorithm: str
    backend: Backend
    device: Device
    choices: tuple[Choice, ...]

    def problem(self, number: int) -> BlockProblem:
        """Problem of a block."""
        ...

    def rebuild(self) -> None:
        """Choose and build all kernels."""
        ...


def tune_operators(
    operators: Sequence[Tunable], seconds: float, clock: Callable[[], float] = time.perf_counter
) -> list[Tuning]:
    """Tune the blocks of operators, keep what wins, and let the operators compute with it.

    Parameters
    ----------
    operators : sequence of Operator
    seconds : float
        Time for all of them; each block gets an equal share of what is left.
    clock : callable
        () -> seconds.

    Returns
    -------
    list of Tuning
        Of blocks that are alike, one.

    Raises
    ------
    ArgumentError
        If there are no seconds.
    DeviceError
        If another GPU is current than an operator was made on, or there is no room on it.
    """
    seconds = real(seconds, "the number of seconds of tuning", above=0)
    work: dict[str, tuple[Tunable, int]] = {}
    for operator in operators:
        check_current(operator.name, operator.device, operator.backend.device())
        for number in range(len(operator.choices)):
            key = tuning_key(operator.problem(number), operator.backend, operator.strategy, operator.algorithm)
            work.setdefault(repr(key), (operator, number))
    found: list[Tuning] = []
    deadline = clock() + seconds
    with progress("tuning", total=len(work)) as step:
        for done, (operator, number) in enumerate(work.values()):
            problem = operator.problem(number)
            step(0, f"tuning {operator.name} on {problem.shape.name}")
            share = max(deadline - clock(), 0.0) / (len(work) - done)
            tuner = BlockTuner(problem, operator.strategy, operator.algorithm, operator.backend, share, clock)
            tuning = tuner.run()
            if tuning.record is not None:
                keep(tuning.record)
            found.append(tuning)
            step()
    for operator in operators:
        operator.rebuild()
    return found


def tune(
    space: Space,
    operators: str | Tunable | Sequence[str | Tunable] = ("Mass", "Helmholtz"),
    seconds: float = 60.0,
    **options: Any,
) -> list[Tuning]:
    """Find the fastest way to compute each block of a space, and keep it for operators with `strategy="auto"`.

    Operators that are made from now on, in this process or another, take what won on blocks that are alike: of equal
    shape, order, basis, points, dtype, kind of geometry and about equal size, on the same device. Those made before
    stay as they are, but for the ones given here. `Operator.explain` says what is chosen, and why.

    Parameters
    ----------
    space : Space
    operators : str, Operator or sequence of these
        Names of operators that need no coefficients, or operators on the space.
    seconds : float
        Time for everything together; what is being compiled or timed when it ends is finished.
    **options
        strategy, algorithm, backend of `Operator`, for the names.

    Returns
    -------
    list of Tuning

    Raises
    ------
    ArgumentError
        For a name of no operator or of one that takes coefficients or cannot be tuned, or no seconds.
    DeviceError
        If the backend cannot run here, or the device has no room.
    """
    instance(space, Space, "the space to tune")
    listed = operators if isinstance(operators, (list, tuple)) else (operators,)
    made: list[Tunable] = []
    for given in listed:
        operator = given
        if isinstance(given, str):
            parameters = list(inspect.signature(OPERATORS[given]).parameters.values())[1:]
            if any(p.default is p.empty and p.kind is not p.VAR_KEYWORD for p in parameters):
                raise ArgumentError(f"{given} takes coefficients; give the operator itself to be tuned")
            operator = OPERATORS[given](space, **options)
        name = getattr(operator, "name", None) or shown(operator)
        if isinstance(operator, type) or not hasattr(operator, "choices"):
            raise ArgumentError(f"{name} cannot be tuned; give operators that apply a form: Mass, Helmholtz, ...")
        if operator.space is not space:
            raise ArgumentError(f"{name} is on another space than the one to be tuned")
        made.append(operator)
    return tune_operators(made, seconds)
