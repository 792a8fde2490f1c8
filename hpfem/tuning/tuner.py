"""The tuner: times all suitable kernels of a block on separate data, and keeps the winner for `strategy="auto"`.

Everything suitable takes part: strategies, algorithms, and options in the rounds of `Strategy.search`, compiled side
by side. Candidates that are far behind drop out; the fastest are timed again in turns at the end. The present choice
stays unless another one is clearly faster (`MARGIN`). A kernel whose result differs from that of the present choice is
excluded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np

from hpfem.shapes.arguments import real

from ..backends.base import Backend
from ..backends.strategy import Search
from ..errors import ArgumentError, DeviceError, NotSuitable
from ..forms.form import BlockProblem, FieldValues
from ..memory import PairArray
from ..support.log import report_once
from ..support.notebook import Printed
from ..support.progress import progress
from .key import timed_elements, tuning_key
from .race import Race
from .select import candidates, tuned
from .store import Config, TuningRecord, keep

# Samples, and times of the best beyond which one drops out: in a round, and at the end, with this many candidates.
ROUND, ROUND_WITHIN = 3, 1.3
FINAL, FINAL_WITHIN, FINALISTS = 15, 1.15, 6
# Strategies and algorithms whose best takes more than this many times the best time are not searched further.
SEARCH_WITHIN = 1.2
# Share of the remaining time for compiling in a round, and share of all time for the end.
COMPILE_SHARE, FINAL_SHARE = 0.5, 0.15
# Largest relative difference of a correct result from that of the present choice; where factors may be rounded, one of
# both may recompute them.
TOLERANCE, ROUNDED_TOLERANCE = {8: 1e-9, 4: 1e-3}, 1e-5


_REFUSALS = (NotSuitable, ArgumentError, DeviceError)


@dataclass(frozen=True, repr=False)
class Tuning(Printed):
    """The tuner's work on a block, and the record that it keeps."""

    operator: str
    block: str
    record: TuningRecord | None  # None if there was no time for a comparison
    changed: bool  # whether the choice changed
    seconds: dict[Config, float]  # of one application to the timed elements, for all candidates
    unsuitable: tuple[str, ...]  # what could not serve, each with its reason
    elements: int  # that were timed
    spent: float  # seconds of the tuning

    def __str__(self) -> str:
        head = f"{self.operator}, {self.block}: "
        if self.record is None:
            return head + f"nothing was compared in {self.spent:.2g} s"
        chosen = f"{self.record.winner}, {'new' if self.changed else 'as before'}"
        lines = [head + f"{chosen}; {self.elements:,} elements timed, {self.spent:.2g} s"]
        by_time = sorted(self.seconds.items(), key=lambda item: item[1])
        lines += [f"  {1e6 * seconds:10.4g} us  {config}" for config, seconds in by_time]
        return "\n".join([*lines, *(f"  not {reason}" for reason in self.unsuitable)])

    __repr__ = __str__


def sample(problem: BlockProblem, n: int) -> BlockProblem:
    """The first elements of a problem, with a geometry of its own, so that layouts made for them go with it."""
    fields = {
        key: FieldValues(PairArray.of(f.values[:, :n].copy(), f.device, f.pair.constant), f.device, f.vector)
        for key, f in problem.fields.items()
    }
    return replace(problem, geometry=problem.geometry.part(n), fields=fields)


class BlockTuner:
    """The tuner on one block, for some seconds; a measurement that is running then is finished."""

    def __init__(
        self,
        problem: BlockProblem,
        strategy: str,
        algorithm: str,
        backend: Backend,
        seconds: float,
        clock: Callable[[], float] = time.perf_counter,
        elements: int | None = None,  # that are timed; as many as represent all
        known: bool = True,  # whether an earlier result is the incumbent
    ) -> None:
        self.problem, self.known, self.clock = problem, known, clock
        self._asked = problem, strategy, algorithm, backend
        self.began = clock()
        self.deadline = self.began + seconds
        self.search_until = self.deadline - FINAL_SHARE * seconds
        self.elements = timed_elements(problem, backend) if elements is None else elements
        part = sample(problem, self.elements)
        self.groups = candidates(part, strategy, algorithm, backend)  # by configuration without options
        self.unsuitable: list[str] = []  # what could not serve, each with its reason
        device = backend.device()
        # No zeros and no pattern: some processors compute faster with those.
        values = np.random.default_rng(0).random(8191) + 0.5
        shape = (part.coupled, self.elements, part.n_input)
        self.source = device.empty(shape, part.dtype)
        device.from_host(np.resize(values, shape).astype(part.dtype), self.source)
        self.out = device.empty((part.components_out(part.coupled), self.elements, part.n_output), part.dtype)
        self.expected: Any = None
        self.race = Race(backend.timer(), self.deadline, clock=clock)

    @contextmanager
    def _unless_refused(self, config: Config, kinds: tuple[type[Exception], ...] = _REFUSALS) -> Iterator[None]:
        """Record the reason if something is not suitable, and continue."""
        try:
            yield
        except kinds as reason:
            text = f"{config._replace(algorithm=None)}: {reason}"
            if text not in self.unsuitable:
                self.unsuitable.append(text)

    def prepare(self, configs: Iterable[Config]) -> list[Config]:
        """Compile candidates in parallel, the most promising first; those ready in time, or the first that compiles."""
        now = self.clock()
        until = now + (COMPILE_SHARE if self.race.runners else 1.0) * (self.search_until - now)
        begun: list[tuple[Config, Future[Any] | None]] = []
        for config in configs:
            if begun and self.clock() >= until:
                break
            strategy, problem = self.groups[config._replace(options=None)]
            with self._unless_refused(config):
                begun.append((config, strategy.prepare(problem, config.options)))
        ready: list[Config] = []
        for config, future in begun:
            with self._unless_refused(config):
                if future is not None:
                    try:
                        future.result(timeout=max(until - self.clock(), 0.0) if ready else None)
                    except TimeoutError:
                        future.cancel()
                        continue
                ready.append(config)
        return ready

    def enter(self, config: Config) -> None:
        """Build a kernel, check its result against that of the first, and let it take part."""
        strategy, problem = self.groups[config._replace(options=None)]
        # CUDA's errors of a launch that needs too many resources are RuntimeErrors.
        with self._unless_refused(config, (*_REFUSALS, RuntimeError)):
            kernel = strategy.build(problem, config.options)
            self.out[...] = np.nan
            kernel.apply(self.source, self.out)
            if self.expected is None:
                self.expected = self.out.copy()
            self._check_result(config)
            self.race.enter(config, partial(kernel.apply, self.source, self.out))

    def _check_result(self, config: Config) -> None:
        scale = float(abs(self.expected).max()) if self.expected.size else np.nan
        if not np.isfinite(scale):  # no values, or a user's function outside its domain
            return
        rounded = self.problem.factors_dtype != self.problem.dtype
        tolerance = ROUNDED_TOLERANCE if rounded else TOLERANCE[self.out.dtype.itemsize]
        if not float(abs(self.out - self.expected).max()) <= tolerance * scale:
            report_once(f"tuner/{config}", f"{self.problem.form.name}: {config} gives wrong results, not used")
            raise NotSuitable("its result is wrong; please report this")

    def _incumbent(self) -> Config:
        """The present choice, timed first."""
        known = tuned(*self._asked) if self.known else None
        configs = [known[0]] if known is not None and known[0]._replace(options=None) in self.groups else []
        for group, (strategy, problem) in self.groups.items():
            with self._unless_refused(group):
                configs.append(group._replace(options=strategy.default(problem)))
        for config in configs:
            if self.prepare([config]):
                self.enter(config)
            if config in self.race.runners:
                return config
        raise NotSuitable(f"{self.problem.form.name} on {self.problem.shape.name}: {'; '.join(self.unsuitable)}")

    def run(self) -> Tuning:
        """Tune; the record is not kept yet."""
        self.race.incumbent = self._incumbent()
        searches: dict[Config, Search] = {}
        first: list[list[Config]] = []
        for group, (strategy, problem) in self.groups.items():
            with self._unless_refused(group):
                search = strategy.search(problem)
                first.append([group._replace(options=options) for options in next(search)])
                searches[group] = search
        batch = in_turns(first)
        while batch and self.clock() < self.search_until:
            for config in self.prepare(config for config in batch if config not in self.race.runners):
                if self.clock() >= self.search_until:
                    break
                self.enter(config)
            self.race.run(ROUND, ROUND_WITHIN)
            self.race.only(2 * FINALISTS)
            batch = self._next_round(searches)
        self.race.only(FINALISTS)
        self.race.run(FINAL, FINAL_WITHIN)
        return self._result(self.race.incumbent)

    def _next_round(self, searches: dict[Config, Search]) -> list[Config]:
        """Options to time next, for the remaining strategies and algorithms."""
        seconds, batches = self.race.seconds, []
        best = min(seconds.values())
        for group, search in list(searches.items()):
            timed = {c.options: t for c, t in seconds.items() if c._replace(options=None) == group}
            if min(timed.values(), default=np.inf) > SEARCH_WITHIN * best:
                del searches[group]
                continue
            try:
                batches.append([group._replace(options=options) for options in search.send(timed)])
            except StopIteration:
                del searches[group]
        return in_turns(batches)

    def _result(self, incumbent: Config) -> Tuning:
        problem, spent = self.problem, self.clock() - self.began
        record, seconds = self.race.record(tuning_key(*self._asked)), self.race.seconds
        about = {
            "operator": problem.form.name,
            "elements": self.elements,
            "block_elements": problem.n_elements,
            "dofs_per_second": self.elements * problem.n_modes * problem.coupled / record.seconds,
            "gain": seconds[incumbent] / record.seconds,
            "before": str(incumbent),
            "unsuitable": list(self.unsuitable),
            "spent": round(spent, 3),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        counts = "x".join(map(str, problem.tabulation.rule.counts))
        geometry, order = problem.geometry.kind.name, problem.tabulation.basis.order
        types = problem.dtype.name
        if problem.factors_dtype != problem.dtype:
            types += f", factors {problem.factors_dtype}"
        block = f"{problem.n_elements} {geometry} {problem.shape.name}, P={order}, Q={counts}, {types}"
        kept = None if len(seconds) == 1 and self.clock() >= self.search_until else replace(record, about=about)
        unfit, changed = tuple(self.unsuitable), record.winner != incumbent
        return Tuning(problem.form.name, block, kept, changed, seconds, unfit, self.elements, spent)


def in_turns(batches: Sequence[Sequence[Config]]) -> list[Config]:
    """The first of each batch, then the second of each, ...: if time is short, every batch had its turn."""
    return [config for rank in zip_longest(*batches) for config in rank if config is not None]


def tune_blocks(
    blocks: Iterable[tuple[BlockProblem, str, str, Backend]],
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Tuning]:
    """Tune blocks, as `choose` takes them, equal ones once, each for an equal share of the time; keep the fastest."""
    seconds = real(seconds, "the number of seconds of tuning", above=0)
    work: dict[str, tuple[BlockProblem, str, str, Backend]] = {}
    for asked in blocks:
        work.setdefault(repr(tuning_key(*asked)), asked)
    found: list[Tuning] = []
    deadline = clock() + seconds
    with progress("tuning", total=len(work)) as step:
        for done, asked in enumerate(work.values()):
            step(0, f"tuning {asked[0].form.name} on {asked[0].shape.name}")
            share = max(deadline - clock(), 0.0) / (len(work) - done)
            tuning = BlockTuner(*asked, share, clock).run()
            if tuning.record is not None:
                keep(tuning.record)
            found.append(tuning)
            step()
    return found
