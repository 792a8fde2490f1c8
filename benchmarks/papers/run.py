"""Runs of experiments: every series is a run of the benchmarks' engine, and its measurements become records."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpfem.backends.base import BACKENDS, Backend
from hpfem.backends.roofline import Roofline
from hpfem.benchmarks.cases import Case, Settings, SuiteSettings
from hpfem.benchmarks.problems import Application, BuiltOperator, ProblemSize
from hpfem.benchmarks.results import Measurement
from hpfem.benchmarks.runner import TOGETHER, Runner
from hpfem.errors import HpfemError
from hpfem.memory import HOST

from .experiment import Experiment, Series

# Degrees of freedom of the largest problems of a quick run, where there are smaller ones.
QUICK_DOFS = 2e4
# What is missing where a backend is.
_DEVICES = {"cuda": "GPU"}
# What tells records apart: experiment, series, backend and case.
Key = tuple[str, str, str, str]


@dataclass(frozen=True)
class PaperCase(Case):
    """A case of a series."""

    series: Series = field(kw_only=True, compare=False)
    given: Mapping[str, Any] = field(kw_only=True, compare=False)  # the case as the series lists it
    key: Key = field(kw_only=True)  # of its records

    def as_dict(self) -> dict[str, Any]:
        """Make the part of a record that the engine knows; see `Case.as_dict`."""
        return {name: getattr(self, name) for name in ("dtype", "geometry", "benchmark", "shape", "order")}

    def block(self, settings: Settings, backend: str) -> Any:
        """Make what the kernels are built on; see `Case.block`."""
        return self.series.block(self.given, backend)

    def __str__(self) -> str:
        return f"{self.key[0]}: {self.key[3]} on {self.key[2]}"


@dataclass(frozen=True)
class SeriesSettings(SuiteSettings):
    """Settings of the engine for the cases of a series."""

    listed: tuple[PaperCase, ...] = ()

    def __post_init__(self) -> None:
        """Take what experiments declare as it is: strategies may be the names of their own kernels."""

    def cases(self) -> list[Case]:
        """List what is measured; see `SuiteSettings.cases`."""
        return list(self.listed)


@dataclass
class PaperRunner(Runner):
    """The engine, which keeps what else is known of a measurement, by the number of its object."""

    known: dict[int, dict[str, Any]] = field(default_factory=dict)

    def _time(
        self, case: Case, built: BuiltOperator, n_elements: int, application: Application, **about: Any
    ) -> Measurement:
        made = super()._time(case, built, n_elements, application, **about)
        known = self.known[id(made)] = {**getattr(built, "about", {})}
        if application.timing is not None and application.timing.repeats > 1:
            known["samples"] = [float(f"{seconds:.4g}") for seconds in application.timing.samples]
        return made


def text_of(case: Mapping[str, Any]) -> str:
    """Write a case on a line."""
    words = {"order": "P={}", "d": "d={}"}
    return " ".join(words.get(name, "{}").format(value) for name, value in case.items())


def cases_of(experiment: Experiment, series: Series, backend: str, quick: bool) -> list[PaperCase]:
    """List the cases of a series on a backend."""
    found = []
    for given in series.cases(backend, quick):
        what = (given["geometry"], given["benchmark"], given["shape"], given["order"])
        key = (experiment.name, series.name, backend, text_of(given))
        size = None if "counts" not in given else ProblemSize(given["counts"], 1, math.prod(given["counts"]), 0)
        found.append(PaperCase("float64", *what, size, series=series, given=given, key=key))
    return found


@dataclass
class Reproduction:
    """A run of experiments: iterate to measure; the results so far can always be read."""

    experiments: Sequence[Experiment]
    backends: Sequence[str] = ("cuda", "cpu")  # those to measure on
    quick: bool = False
    done: set[Key] = field(default_factory=set)  # what need not be measured again
    budget: float = math.inf  # seconds after which no case is begun
    # Measurements, and what is not possible, with the reason.
    records: list[dict[str, Any]] = field(default_factory=list)
    rooflines: dict[str, Roofline] = field(default_factory=dict)  # roofline by backend, measured in this run

    def __post_init__(self) -> None:
        self._end = time.monotonic() + self.budget

    def parts(self) -> list[tuple[Experiment, Series, str, list[PaperCase]]]:
        """List experiment, series, backend and cases that are not done."""
        return [
            (experiment, series, backend, left)
            for experiment in self.experiments
            for series in experiment.series
            for backend in self.backends
            if backend in series.backends
            if (left := [c for c in cases_of(experiment, series, backend, self.quick) if c.key not in self.done])
        ]

    def run(self, step: Callable[..., None]) -> Iterator[PaperCase]:
        """Measure case by case, or refuse it; step(n, description) tells what comes next, and of each case."""
        for experiment, series, name, cases in self.parts():
            left = self._end - time.monotonic()
            if left <= 0:
                return
            backend = BACKENDS[name]
            if backend.missing():
                for case in cases:
                    self._refuse(case, f"no {_DEVICES.get(name, name)}")
                    step(1, str(case))
                    yield case
                continue
            yield from self._measure(experiment, series, backend, cases, step)

    def _measure(
        self,
        experiment: Experiment,
        series: Series,
        backend: Backend,
        cases: list[PaperCase],
        step: Callable[..., None],
    ) -> Iterator[PaperCase]:
        if backend.name not in self.rooflines:
            step(0, f"limits of {backend.processor()}")
            self.rooflines[backend.name] = backend.roofline("float64", self.quick)
        settings = SeriesSettings(
            listed=tuple(cases),
            backend=backend.name,
            dtypes=("float64",),
            strategies=series.strategies.get(backend.name, ("auto",)),
            algorithms=series.algorithms,
            repeats=3 if self.quick else series.repeats,
            dofs=(QUICK_DOFS if self.quick else 1e11,),
            sustained=0.0,
        )
        for number, case in enumerate(cases):  # one at a time, so that one that fails keeps no others from running
            runner = PaperRunner(
                settings, {"float64": self.rooflines[backend.name]}, budget=self._end - time.monotonic()
            )
            if number % TOGETHER == 0 and backend.device().name != HOST.name:
                runner.cases = list(cases[number : number + TOGETHER])
                runner.prepare(step)  # compilers for devices take long, and run beside each other
            if time.monotonic() >= self._end:
                return
            runner.cases = [case]
            step(0, str(case))
            try:
                for _ in runner:
                    pass
            except (HpfemError, MemoryError) as error:
                self._refuse(case, str(error) or "not enough memory")
            self._keep(series, case, runner)
            step(1, str(case))
            yield case

    def _keep(self, series: Series, case: PaperCase, runner: PaperRunner) -> None:
        about = self._about(case)
        applied = next((m.seconds for m in runner.measurements if m.phase == "application"), None)
        for measured in runner.measurements:
            if series.phase not in (None, measured.phase):
                continue
            if applied is not None and measured.phase == "iteration":
                about["share"] = applied / measured.seconds
            record = {**measured.as_dict(), **about, **runner.known[id(measured)]}
            record |= {"unit": series.unit, "status": series.status}
            self.records.append({**record, "value": series.value(record)})
        for entry in (*runner.skipped, *runner.wrong):
            if entry.get("phase") in (None, series.phase):
                self.records.append({**entry, **about, "status": f"not possible: {entry['reason']}"})

    def _refuse(self, case: PaperCase, reason: str) -> None:
        self.records.append({**case.as_dict(), **self._about(case), "status": f"not possible: {reason}"})

    def _about(self, case: PaperCase) -> dict[str, Any]:
        given = {name: value for name, value in case.given.items() if name != "counts"}
        names = dict(zip(("experiment", "series", "backend", "case"), case.key, strict=True))
        self.done.add(case.key)
        return {**given, **names}
