"""The engine of all benchmarks: every case is built with each strategy and algorithm, checked, timed and rated."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from ..backends.base import choose_backend
from ..backends.roofline import Roofline
from ..backends.timer import measure
from ..errors import ArgumentError, DeviceError, NotSuitable
from ..forms.form import ALGORITHMS
from ..support.progress import no_steps
from .cases import TOLERANCES, BenchSettings, Case, Settings, check_settings
from .problems import Application, BuiltOperator, MeshBlock
from .results import Measurement
from .tiled import TiledProblem
from .turns import gain, time_in_turns

# A case without a suitable kernel is recorded, and the run continues.
REFUSALS = (NotSuitable, ArgumentError, DeviceError)
# Cases whose kernels are compiled together: enough for all cores, and few of them for nothing if time runs out.
TOGETHER = 24
Timed = tuple[Measurement, BuiltOperator]


@dataclass
class Runner:
    """A run of a benchmark, or of a part of it: iterate to measure; the results so far can always be read.

    All strategies and algorithms of a case are measured at the largest size. Kernels alone are also measured in the
    first precision at every size, with other sources of geometric factors if asked for, and the fastest one (of each
    source) for seconds without a pause. `rooflines` by precision are of the same run, `part` is (k, n) for the k-th of
    n parts, and no case is begun after `budget` seconds. `skipped` has cases and phases that were not measured, `wrong`
    kernels that differ from NumPy and global operators that differ from their matrix, with the reason. Problems on
    meshes that do not fit in memory are refused at once.
    """

    settings: Settings
    rooflines: Mapping[str, Roofline]
    part: tuple[int, int] = (1, 1)
    done: set[Case] = field(default_factory=set)
    budget: float = math.inf
    measurements: list[Measurement] = field(default_factory=list)
    skipped: list[dict[str, Any]] = field(default_factory=list)
    wrong: list[dict[str, Any]] = field(default_factory=list)
    compiling: float = 0.0  # seconds of `prepare`

    def __post_init__(self) -> None:
        number, parts = self.part
        if not 1 <= number <= parts:
            raise ArgumentError(f"part {number} of {parts} does not exist")
        if isinstance(self.settings, BenchSettings):
            check_settings(self.settings)
        self._backend = choose_backend(self.settings.backend)
        self._timer = self._backend.timer()
        self.cases = [case for case in self.settings.cases()[number - 1 :: parts] if case not in self.done]
        benchmark = getattr(self.settings, "benchmark", None)
        self.skipped += [{"benchmark": benchmark, "shape": s, "reason": r} for s, r in self.settings.left_out.items()]
        self._end = time.monotonic() + self.budget

    @property
    def left(self) -> list[Case]:
        """Cases of all parts that are not measured."""
        return [case for case in self.settings.cases() if case not in self.done]

    def _in_time(self) -> bool:
        return time.monotonic() < self._end

    def _ways(self, case: Case, block: Any, n_elements: int) -> Iterator[tuple[str, str, list[Any]]]:
        """Strategies and algorithms, each with the block, and with it by other sources of factors than the default."""
        every = self.settings.sources and case.dtype == self.settings.dtypes[0] and isinstance(block, TiledProblem)
        for way in product(self.settings.strategies or self._backend.strategy_names, self.settings.algorithms):
            others: list[Any] = []
            if every:
                with suppress(*REFUSALS):  # Said when the default is measured.
                    others = block.sources(block.choose(*way, n_elements))
            yield *way, [block, *others]

    def prepare(self, step: Callable[..., None] = no_steps) -> None:
        """Compile kernels of the next cases on all cores, as they will be measured alone; see `TOGETHER`."""
        kernels, began = [], time.monotonic()
        for case in [case for case in self.cases if case not in self.done][:TOGETHER]:
            if case.size is not None:
                continue  # Compiled with its operators.
            if not self._in_time():
                break
            with suppress(NotSuitable):  # Said when it is measured, as below.
                block = case.block(self.settings, self._backend.name)
                if not isinstance(block, TiledProblem):
                    continue  # Compiled by other processes.
                for strategy, algorithm, problems in self._ways(case, block, 1):
                    for problem in problems:
                        with suppress(*REFUSALS):
                            kernels.append(problem.choose(strategy, algorithm, 1).kernel)
                step(0, f"compiling: {case}")
        while kernels and self._in_time():
            with suppress(DeviceError):  # Said when it is measured.
                kernels.pop(0).finish()
        self.compiling += time.monotonic() - began

    def __iter__(self) -> Iterator[Case]:
        """Measure case by case; yields each case when it is done."""
        for case in self.cases:
            if not self._in_time():
                return
            self._measure(case)
            self.done.add(case)
            yield case

    def _measure(self, case: Case) -> None:
        """Measure a case; the lists get its results when it is done."""
        s = self.settings
        try:
            block = case.block(s, self._backend.name)
        except NotSuitable as reason:
            self.skipped.append({**case.as_dict(), "reason": str(reason)})
            return
        first = case.dtype == s.dtypes[0]
        sizes = block.sizes(s.dofs if first else [max(s.dofs)])
        auto = block.auto(sizes[0])
        best: dict[str, Timed] = {}
        measurements: list[Measurement] = []
        refused: list[dict[str, Any]] = []
        wrong: list[dict[str, Any]] = []
        seen: set[tuple[str, str]] = set()
        for strategy, algorithm, problems in self._ways(case, block, sizes[0]):
            what = {**case.as_dict(), "strategy": strategy, "algorithm": algorithm}
            for problem in problems:
                # First the strategy's default source of factors at all sizes, then the others at the largest.
                first_source = problem is block
                try:
                    built = problem.build(strategy, algorithm, sizes[0])
                    chosen = (built.choice.strategy, built.choice.algorithm)
                    if first_source and chosen in seen:
                        break  # A form without gradients has one algorithm only; "auto" may take one asked for too.
                    error = built.error()
                except REFUSALS as reason:
                    refused.append({**what, "reason": str(reason)})
                    continue
                seen.add(chosen)
                source = None if first_source else built.choice.kernel.problem.source
                if error is not None and not error < TOLERANCES[case.dtype]:
                    why = f"the result differs from {built.reference} by {error:.3g}"
                    wrong.append({**what, **({} if first_source else {"source": source}), "reason": why})
                    continue
                checked = {"error": error, "chosen": None if auto is None else first_source and chosen == auto}
                for n in sizes if first_source else sizes[:1]:
                    timed = [self._time(case, built, n, phase, source=source, **checked) for phase in built.phases(n)]
                    measurements += timed
                    # The fastest; where all sources of factors are measured, the fastest of each.
                    of = built.choice.kernel.problem.source if s.sources else ""
                    if n == sizes[0] and (of not in best or timed[0].seconds < best[of][0].seconds):
                        best[of] = timed[0], built
                refused += [{**what, **phase} for phase in built.refused]
        for pair in best.values() if s.sustained and first else ():
            measurements[measurements.index(pair[0])] = self._sustain(*pair)
        largest = isinstance(s, BenchSettings) and case.size == s.sizes(case.shape, case.order, [max(s.dofs)])[0]
        if largest and isinstance(block, MeshBlock):
            self._collocate(block, measurements)
        self.measurements += measurements
        self.skipped += refused
        self.wrong += wrong

    def _collocate(self, block: MeshBlock, measurements: list[Measurement]) -> None:
        """Time the fastest strategy that differs by algorithm with each of them, in turns."""
        for measured in sorted(measurements, key=lambda m: m.seconds):
            with suppress(*REFUSALS):
                built = {name: block.build(measured.strategy, name, block.size.n_cells) for name in ALGORITHMS}
                if len({own.choice.kernel.flops for own in built.values()}) > 1:
                    calls = {name: own.on(block.size.n_cells).call for name, own in built.items()}
                    times = time_in_turns(calls, self._timer, self.settings.repeats)
                    found = gain(times["collocated"], times["noncollocated"])
                    measurements[measurements.index(measured)] = replace(measured, collocation=found)
                    return

    def _time(
        self, case: Case, built: BuiltOperator, n_elements: int, application: Application, **about: Any
    ) -> Measurement:
        s, choice, problem = self.settings, built.choice, built.choice.kernel.problem
        work = (application.call, self._timer, s.repeats, s.min_seconds, application.start, application.steps)
        timing = application.timing or measure(*work)
        n_dofs, limits = application.n_dofs, dict[str, Any]()
        if application.nbytes is not None and application.flops is not None:
            least, bound = self.rooflines[case.dtype].bound(application.nbytes, application.flops)
            limits = {"bound": bound, "fraction": least / timing.median}
        return Measurement.of(
            problem,
            timing,
            n_dofs,
            **case.as_dict(),
            **{name: getattr(choice, name) for name in ("strategy", "algorithm", "backend")},
            **{name: getattr(application, name) for name in ("phase", "iterations", "residual", "flops", "nbytes")},
            variant=choice.options if case.size is None else None,
            n_cells=n_elements,
            **limits,
            **about,
        )

    def _sustain(self, measured: Measurement, built: BuiltOperator) -> Measurement:
        # More calls than expected: without pauses kernels may run faster than one by one.
        calls = math.ceil(1.1 * self.settings.sustained / measured.seconds)
        seconds = self._timer.seconds(built.on(measured.n_cells).call, calls) / calls
        fraction = None if measured.fraction is None else measured.fraction * measured.seconds / seconds
        return replace(measured, sustained_seconds=seconds, sustained_fraction=fraction)
