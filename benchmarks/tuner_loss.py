"""The tuner's loss: how much slower its choice is than the fastest kernel, timed in turns; and the shipped table.

    python -m benchmarks.tuner_loss -o OUT.json [--variants] [--shapes hex,tet] [--orders 1:7] [--table] [--help]
    python -m benchmarks.tuner_loss -o OUT.json --merge A.json B.json

First the suitable kernels of all cases, searched without most of the tuner's short cuts and on all elements. Then, for
each case, the tuner as users run it, without earlier results, though with these kernels compiled; and its choice and
the fastest of the others in turns, the median of at least 11 samples each. `--table` puts the fastest options of each
strategy and algorithm into the table that the package ships, from which the tuner then starts.

Cases come in a shuffled order, so that any part is a fair sample; a run ends before its budget does, and goes on where
OUT.json ended when it is started again with the same settings. `--merge` puts parts together. `--variants` takes the
cases of `VARIANTS`: all sources of factors, nodes on the points, symmetric rules, factors in float32.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from hpfem.backends import options as text
from hpfem.backends.base import choose_backend
from hpfem.backends.cuda.runtime import measured
from hpfem.backends.cuda.sumfac_top.plan import SumFacTopOptions
from hpfem.backends.options import source_in
from hpfem.backends.strategy import Search
from hpfem.benchmarks.cases import SOLID_FIRST
from hpfem.benchmarks.tiled import TiledProblem, few_elements
from hpfem.cli.options import parse_names, parse_orders
from hpfem.errors import ArgumentError, DeviceError, NotSuitable
from hpfem.forms.form import BlockProblem
from hpfem.forms.merged import merged_if_possible
from hpfem.geometry import GENERAL
from hpfem.operators import Helmholtz, Mass
from hpfem.space import Space
from hpfem.support.files import write_json
from hpfem.support.machine import machine_description
from hpfem.tuning import Config
from hpfem.tuning.race import MARGIN
from hpfem.tuning.tuner import BlockTuner, in_turns

FORMAT = "hpfem-tuner-loss"
# What a case is.
CASE = ("operator", "shape", "order", "geometry", "points", "precision")
POINTS: dict[str, dict[str, Any]] = {
    "default": {"quadrature": "collapsed"},
    "nodes": {"basis": "lagrange", "quadrature": "collocated"},
    "simplex": {"quadrature": "simplex"},
}
# Samples of everything, and of the finalists; how many of these there are beside the tuner's choice.
SAMPLES, FINAL_SAMPLES, FINALISTS = 3, 11, 8
# Strategies and algorithms whose best takes more than this many times the best time are not searched further.
BEHIND = 1.5
# Share of the budget in which all cases are searched.
SEARCH_SHARE = 0.7
TARGET_MEAN, TARGET_WORST = 0.02, 0.10
# Coefficients of a Helmholtz form that vary, and can be merged with the factors.
VARYING: dict[str, Any] = {
    "lam": lambda *x: 1 + 0.1 * x[0] * x[-1],
    "diffusivity": lambda *x: 1 + 0.2 * x[0] + 0.1 * x[1],
}


OPERATORS: dict[str, Any] = {
    "helmholtz": partial(Helmholtz, lam=1.0),
    "mass": Mass,
    "variable": partial(Helmholtz, **VARYING),
}

SOLIDS, SIMPLICES = ("hex", "prism", "pyramid", "tet"), ("tet", "tri")
# Lists whose products are cases.
VARIANTS: tuple[tuple[tuple[Any, ...], ...], ...] = (
    (("helmholtz",), SOLIDS[:3], (2, 4, 6), ("multilinear",), ("default",), ("full",)),
    (("helmholtz",), SOLIDS, (2, 5), ("deformed",), ("default",), ("full",)),
    (("helmholtz",), SOLIDS, (2, 4), ("deformed",), ("default",), ("mixed",)),
    (("helmholtz",), ("hex", "tet"), (3,), ("affine",), ("default",), ("full",)),
    (("variable",), SOLIDS[:3], (2, 5), ("multilinear",), ("default",), ("full",)),
    (("variable",), SOLIDS, (3,), ("deformed",), ("default",), ("full",)),
    (("mass",), SOLIDS[:3], (3,), ("multilinear",), ("default",), ("full",)),
    (("helmholtz",), ("hex",), (3, 7, 11), ("multilinear", "deformed", "affine"), ("nodes",), ("full",)),
    (("helmholtz",), ("hex",), (15,), ("deformed", "affine"), ("nodes",), ("full",)),
    (("helmholtz",), ("hex",), (7,), ("deformed",), ("nodes",), ("mixed",)),
    (("variable",), ("hex",), (7,), ("multilinear", "deformed"), ("nodes",), ("full",)),
    (("helmholtz",), SIMPLICES, (1, 2, 3, 4), ("deformed",), ("simplex",), ("full",)),
    (("helmholtz",), ("tet",), (5,), ("deformed",), ("simplex",), ("full",)),
    (("helmholtz",), ("tet",), (2, 4), ("deformed",), ("simplex",), ("mixed",)),
    (("mass",), ("tet",), (2, 4), ("deformed",), ("simplex",), ("full",)),
)

Case = dict[str, Any]


def problem_of(case: Case, dtype: str) -> BlockProblem:
    """A case's form on a few elements; an error if it is another case by another name, or there is none."""
    try:
        mesh = few_elements(case["shape"], case["geometry"])
        space = Space(mesh, case["order"], backend="numpy", dtype=dtype, **POINTS[case["points"]])
        operator = OPERATORS[case["operator"]](space, backend="numpy", precision=case["precision"])
    except ArgumentError as reason:
        raise NotSuitable(str(reason)) from None
    problem: BlockProblem = operator.choices[0].kernel.problem
    if problem.geometry.affine and case["geometry"] != "affine":
        raise NotSuitable("all of them are affine")
    if case["precision"] == "mixed" and problem.factors_dtype == problem.dtype:
        raise NotSuitable("no factors are rounded")
    return problem


def thorough_search(strategy: Any, problem: Any, most: int, kept: int) -> Search:
    """All rounds of a strategy's search, wider where the strategy's own is kept short."""
    if strategy.name != "sumfac-top":
        yield from strategy.search(problem)
        return
    from hpfem.backends.cuda.runtime.device import limits

    rounds = strategy.rounds(problem, limits(), strategy.chosen(problem, limits()), most, kept)
    yield from text.search_in_text(rounds, SumFacTopOptions)


class Searched:
    """All kernels of a case, in `seconds` of an application once they were run; compiling begins at once.

    `most` numbers of elements per block are tried, and the options of the `kept` fastest.
    """

    def __init__(self, case: Case, block: TiledProblem, everything: BlockTuner, most: int, kept: int) -> None:
        self.case, self.block, self.everything = case, block, everything
        self.seconds: dict[Config, float] = {}
        self.searches: dict[Config, Search] = {}
        self.batch: list[Config] = []
        for group, (strategy, problem) in everything.groups.items():
            rounds = thorough_search(strategy, problem, most, kept)
            try:
                self.batch += [group._replace(options=options) for options in next(rounds)]
                self.searches[group] = rounds
            except NotSuitable as reason:
                everything.unsuitable.append(f"{group}: {reason}")
        self.begun = self._begin()

    def _begin(self) -> list[Future[Any]]:
        """Compile all of a batch in the background."""
        begun = []
        for config in self.batch:
            strategy, problem = self.everything.groups[config._replace(options=None)]
            with suppress(NotSuitable, ArgumentError, DeviceError):
                begun.append(strategy.prepare(problem, config.options))
        return [future for future in begun if future is not None]

    def run(self) -> bool:
        """Time all that can serve, dropping what is slower than twice the best; -> whether there was time for all."""
        everything, race = self.everything, self.everything.race
        while self.batch:
            wait(self.begun, timeout=max(everything.deadline - time.perf_counter(), 0.0))
            for name in everything.prepare([name for name in self.batch if name not in race.runners]):
                if race.over():
                    return False
                everything.enter(name)
            race.run(SAMPLES, 2.0)
            race.only(2 * FINALISTS)
            if race.over():
                return False
            self.batch, best = [], min(race.seconds.values())
            for group, rounds in list(self.searches.items()):
                try:
                    timed = {c.options: t for c, t in race.seconds.items() if c._replace(options=None) == group}
                    if min(timed.values(), default=math.inf) > BEHIND * best:
                        del self.searches[group]
                        continue
                    self.batch += [group._replace(options=options) for options in rounds.send(timed)]
                except StopIteration:
                    del self.searches[group]
            self.begun = self._begin()
        self.seconds = race.seconds
        return bool(self.seconds)

    def free(self) -> None:
        """Let go of kernels and arrays."""
        del self.everything, self.searches, self.begun
        self.block.free_unused_memory()

    def rows(self) -> Iterator[tuple[str, tuple[float, str]]]:
        """Rows of the shipped table: key, and rate with the fastest options, of every strategy and algorithm."""
        plain = self.block.problem
        geometries = [plain.geometry.kind.name]
        # Where factors are stored, elements of a higher order are as fast as these.
        geometries += [GENERAL.name] if self.case["geometry"] == "deformed" else []
        for group in {config._replace(options=None) for config in self.seconds}:
            problem = self.block.tiled(1, group.algorithm or "collocated")
            for geometry in geometries:
                configs = [c for c in self.seconds if c._replace(options=None) == group]
                if geometry != plain.geometry.kind.name:
                    configs = [c for c in configs if not source_in(c.options or "").recomputes]
                best = min(configs, key=lambda c: self.seconds[c], default=None)
                if best is not None and (best.options is not None or group.strategy == "sumfac"):
                    key = measured.measured_key(merged_if_possible(problem), group.strategy, geometry)
                    rate = 1e-9 * self.case["elements"] * plain.n_modes / self.seconds[best]
                    yield key, (float(f"{rate:.1f}"), "stored" if best.options is None else best.options)


def put_in_table(rows: Iterable[tuple[str, tuple[float, str]]]) -> None:
    """Write rows into the table that the package ships, which is read again."""
    table = {**measured.measured_table(), **dict(rows)}
    path = Path(measured.__file__).with_name("measured.json")
    path.write_text(json.dumps(table, sort_keys=True).replace("], ", "],\n") + "\n", encoding="utf-8")
    measured.measured_table.cache_clear()


def search_all(cases: Sequence[Case], options: argparse.Namespace, deadline: float) -> list[Searched]:
    """Time all kernels of the cases; those of the next one are compiled meanwhile."""
    backend = choose_backend(options.backend)

    def begin(case: Case) -> Searched | None:
        try:
            block = TiledProblem(problem_of(case, options.dtype), options.backend)
            n = max(1, int(options.dofs / block.problem.n_modes))
            left = deadline - time.perf_counter()
            everything = BlockTuner(block.tiled(n), options.strategy, "auto", backend, left, elements=n, known=False)
            return Searched({**case, "elements": n}, block, everything, options.most, options.kept)
        except NotSuitable as reason:
            print(f"{case}: {reason}"[:160])
            return None

    done: list[Searched] = []
    following = begin(cases[0]) if cases else None
    for number in range(len(cases)):
        searched, following = following, begin(cases[number + 1]) if number + 1 < len(cases) else None
        if searched is None:
            continue
        began = time.perf_counter()
        complete = searched.run()
        searched.free()
        if not complete:
            print(f"out of time; {len(done)} of {len(cases)} cases are searched")
            break
        done.append(searched)
        seconds = time.perf_counter() - began
        print(f"{seconds:4.1f} s, {len(searched.seconds)} kernels: {case_key(searched.case)}", flush=True)
    return done


def measure(searched: Searched, options: argparse.Namespace, deadline: float) -> dict[str, Any] | None:
    """Loss in one case; None if time is up before it is known."""
    block, case, backend = searched.block, searched.case, choose_backend(options.backend)
    n = case["elements"]
    problem = block.tiled(n)
    began = time.perf_counter()
    tuned = BlockTuner(problem, "auto", "auto", backend, options.tune, known=False).run()
    spent = time.perf_counter() - began
    block.free_unused_memory()
    if tuned.record is None or time.perf_counter() > deadline:
        return None
    chosen: Config = tuned.record.winner
    left = deadline - time.perf_counter()
    everything = BlockTuner(problem, "auto", "auto", backend, left, elements=n, known=False)
    # What was chosen, and what would be without tuning, take part whatever the search finds.
    default = next(name for name in tuned.seconds)
    everything.race.incumbent = chosen
    rivals = [sorted(times, key=lambda name: times[name])[:FINALISTS] for times in (searched.seconds, tuned.seconds)]
    for name in everything.prepare(list(dict.fromkeys([chosen, default, *in_turns(rivals)]))):
        everything.enter(name)
    everything.race.only(FINALISTS)
    everything.race.run(FINAL_SAMPLES, math.inf)
    if everything.race.over():
        return None
    seconds = everything.race.seconds
    finalists = {name: seconds[name] for name in everything.race.active}
    best = min(finalists, key=lambda name: finalists[name])
    samples = min(len(everything.race.runners[name].samples) for name in finalists)
    block.free_unused_memory()
    return {
        **case,
        "chosen": str(chosen),
        "best": str(best),
        "loss": finalists[chosen] / finalists[best] - 1.0,
        "default": str(default),
        "default_loss": seconds[default] / finalists[best] - 1.0,
        "seconds": finalists[best],
        "dofs_per_second": n * problem.n_modes / finalists[best],
        "finalists": {str(name): t for name, t in finalists.items()},
        "samples": samples,
        "tuner_tried": len(tuned.seconds),
        "tried": len({*searched.seconds, *tuned.seconds}),
        "tuner_seconds": spent,
        "unsuitable": sorted(set(tuned.unsuitable)),
    }


def summary(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Geometric mean and worst of the losses, and the targets."""
    if not results:
        return {"cases": 0}

    def mean(name: str) -> float:
        return math.expm1(statistics.fmean(math.log1p(max(r[name], 0.0)) for r in results))

    worst = max(results, key=lambda r: r["loss"])
    return {
        "cases": len(results),
        "geometric_mean_loss": mean("loss"),
        "worst_loss": worst["loss"],
        "worst_case": {name: worst[name] for name in CASE},
        "geometric_mean_default_loss": mean("default_loss"),
        "worst_default_loss": max(r["default_loss"] for r in results),
        "median_tuner_seconds": statistics.median(r["tuner_seconds"] for r in results),
        "target_met": mean("loss") <= TARGET_MEAN and worst["loss"] <= TARGET_WORST,
    }


def case_key(record: dict[str, Any]) -> tuple[Any, ...]:
    """What a case is."""
    return tuple(record[name] for name in CASE)


def read(path: Path) -> dict[str, Any]:
    """A part that was written before."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ArgumentError(f"cannot read {path}: {error}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ArgumentError(f"{path} is no result of tuner_loss.py")
    return content


def write(path: Path, settings: dict[str, Any], machine: dict[str, Any], results: list[dict[str, Any]]) -> None:
    """Write results with all that is known about them."""
    content = {"format": FORMAT, "command": " ".join(sys.argv), "settings": settings, "machine": machine}
    write_json(path, {**content, "margin": MARGIN, "summary": summary(results), "results": results})


def report(results: Sequence[dict[str, Any]]) -> None:
    """Print the worst cases and the summary."""
    for r in sorted(results, key=lambda r: -r["loss"])[:10]:
        print(f"{' '.join(map(str, case_key(r))):50} loss {r['loss']:6.2%}  {r['chosen']} against {r['best']}")
    for name, value in summary(results).items():
        print(f"{name}: {value:.2%}" if "loss" in name else f"{name}: {value}")


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run, or merge parts; returns the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--merge", type=Path, nargs="+", default=[])
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--variants", action="store_true", help="the cases of VARIANTS in place of the lists")
    parser.add_argument("--operators", type=parse_names, default=("helmholtz", "mass"))
    parser.add_argument("--shapes", type=parse_names, default=SOLID_FIRST)
    parser.add_argument("--orders", type=parse_orders, default=tuple(range(1, 8)))
    parser.add_argument("--geometries", type=parse_names, default=("deformed", "affine"))
    parser.add_argument("--points", type=parse_names, default=("default",))
    parser.add_argument("--precisions", type=parse_names, default=("full",))
    parser.add_argument("--dtype", default="float64")
    parser.add_argument("--dofs", type=float, default=2e7, help="degrees of freedom of each case")
    parser.add_argument("--strategy", default="auto", help="the only one that is searched; the tuner takes any")
    parser.add_argument("--tune", type=float, default=8.0, help="seconds of the tuner for each case; 0: only search")
    parser.add_argument("--most", type=int, default=12, help="numbers of elements per block that the search tries")
    parser.add_argument("--kept", type=int, default=3, help="those of the fastest whose options it tries")
    parser.add_argument("--budget", type=float, default=400.0, help="seconds in all")
    parser.add_argument("--table", action="store_true", help="put what is found into the package's table")
    options = parser.parse_args(arguments)
    began = time.perf_counter()
    if options.merge:
        parts = [read(path) for path in options.merge]
        settings, machine = parts[0]["settings"], parts[0]["machine"]
        if any(part["settings"] != settings for part in parts):
            raise ArgumentError("the parts were made with different settings")
        merged = {case_key(r): r for part in parts for r in part["results"]}
        write(options.output, settings, machine, list(merged.values()))
        report(list(merged.values()))
        return summary(list(merged.values()))
    settings = {name: getattr(options, name) for name in ("backend", "dtype", "dofs", "tune", "most", "kept")}
    machine = {**machine_description(), "device": choose_backend(options.backend).processor()}
    results: list[dict[str, Any]] = []
    if options.output.exists():
        before = read(options.output)
        if before["settings"] != settings:
            raise ArgumentError(f"{options.output} was made with other settings; write to another file")
        results = before["results"]
    lists = (options.operators, options.shapes, options.orders, options.geometries, options.points, options.precisions)
    products = itertools.chain(*(itertools.product(*own) for own in (VARIANTS if options.variants else (lists,))))
    cases = [dict(zip(CASE, values, strict=True)) for values in products]
    random.Random(1).shuffle(cases)
    done = {case_key(r) for r in results}
    cases = [case for case in cases if case_key(case) not in done]
    deadline, longest = began + options.budget, 0.0
    searched = search_all(cases, options, began + (SEARCH_SHARE if options.tune else 1.0) * options.budget)
    if options.table:
        put_in_table(row for own in searched for row in own.rows())
    for own in searched if options.tune else ():
        start = time.perf_counter()
        if start + longest > deadline or (found := measure(own, options, deadline)) is None:
            print("out of time; start again to go on")
            break
        results.append(found)
        longest = max(longest, time.perf_counter() - start)
        write(options.output, settings, machine, results)
        print(
            f"{time.perf_counter() - began:4.0f} s {case_key(found)}: loss {found['loss']:.2%} ({found['chosen']}),"
            f" default {found['default_loss']:.2%}; tuner {found['tuner_seconds']:.1f} s, {found['tuner_tried']} of"
            f" {found['tried']}; {found['dofs_per_second'] * 1e-9:.1f} GDoF/s",
            flush=True,
        )
    report(results)
    return summary(results)


if __name__ == "__main__":
    main()
