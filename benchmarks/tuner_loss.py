"""The tuner's loss: how much slower its choice is than the fastest kernel, timed in turns.

    python benchmarks/tuner_loss.py -o OUT.json [--backend cuda] [--shapes hex,tet] [--orders 1:7]
        [--geometries deformed] [--operators helmholtz,mass] [--dtype float64] [--dofs 2e7] [--tune 8] [--budget 400]
    python benchmarks/tuner_loss.py -o OUT.json --merge A.json B.json

For each case: the tuner as users run it, without earlier results; then all suitable kernels, searched without its short
cuts and on all elements; then the tuner's choice and the fastest of the others in turns, the median of at least 11
samples each. Cases come in a shuffled order, so that any part is a fair sample; a run ends before its budget does, and
goes on where OUT.json ended when it is started again with the same settings. `--merge` puts parts together.
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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hpfem.backends import options as text
from hpfem.backends.base import choose_backend
from hpfem.backends.cuda.sumfac_top import search
from hpfem.backends.cuda.sumfac_top.plan import SumFacTopOptions
from hpfem.backends.strategy import Search
from hpfem.benchmarks.cases import SOLID_FIRST
from hpfem.benchmarks.problems import BENCHMARK_OF
from hpfem.benchmarks.tiled import TiledBlock
from hpfem.cli.options import parse_names, parse_orders
from hpfem.errors import ArgumentError, NotSuitable
from hpfem.support.files import write_json
from hpfem.support.machine import machine_description
from hpfem.tuning import MARGIN, BlockTuner, Config

FORMAT = "hpfem-tuner-loss"
# What a case is.
CASE = ("operator", "shape", "order", "geometry")
# Numbers of elements per block that are tried, and of what one option more is, where the tuner tries fewer of them.
MOST, KEPT = 12, 3
# Samples of everything, and of the finalists; how many of these there are beside the tuner's choice.
SAMPLES, FINAL_SAMPLES, FINALISTS = 3, 11, 8
TARGET_MEAN, TARGET_WORST = 0.02, 0.10


def thorough_search(strategy: Any, problem: Any) -> Search:
    """All rounds of a strategy's search, wider where the strategy's own is kept short."""
    if strategy.name != "sumfac-top":
        yield from strategy.search(problem)
        return
    from hpfem.backends.cuda.codegen.tables import Levels
    from hpfem.backends.cuda.runtime.device import limits

    rounds = search.search(problem, Levels.of(problem.tabulation), limits(), MOST, kept=KEPT)
    yield from text.search_in_text(rounds, SumFacTopOptions)


def exhaust(everything: BlockTuner) -> None:
    """Time all that can serve, round by round, dropping nothing but what is slower than twice the best."""
    searches, batch = {}, []
    for group, (strategy, problem) in everything.groups.items():
        rounds = thorough_search(strategy, problem)
        try:
            batch += [group._replace(options=options) for options in next(rounds)]
            searches[group] = rounds
        except NotSuitable as reason:
            everything.unsuitable.append(f"{group}: {reason}")
    while batch:
        for name in everything.prepare([name for name in batch if name not in everything.race.runners]):
            everything.enter(name)
        everything.race.run(SAMPLES, 2.0)
        everything.race.only(4 * FINALISTS)
        seconds, batch = everything.race.seconds, []
        for group, rounds in list(searches.items()):
            try:
                timed = {c.options: t for c, t in seconds.items() if c._replace(options=None) == group}
                batch += [group._replace(options=options) for options in rounds.send(timed)]
            except StopIteration:
                del searches[group]


def measure(case: dict[str, Any], options: argparse.Namespace, deadline: float) -> dict[str, Any] | None:
    """Loss in one case; None if time is up before it is known."""
    block = TiledBlock(
        BENCHMARK_OF[case["operator"]],
        case["shape"],
        case["order"],
        case["geometry"],
        options.backend,
        dtype=options.dtype,
    )
    n = max(1, int(options.dofs / block.problem.n_modes))
    problem, backend = block.tiled(n), choose_backend(options.backend)
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
    for name in everything.prepare(list(dict.fromkeys([chosen, default]))):
        everything.enter(name)
    exhaust(everything)
    everything.race.only(FINALISTS)
    everything.race.run(FINAL_SAMPLES, math.inf)
    if everything.race.over():
        return None
    seconds = everything.race.seconds
    finalists = {name: seconds[name] for name in everything.race.active}
    best = min(finalists, key=lambda name: finalists[name])
    samples = min(len(everything.race.runners[name].samples) for name in finalists)
    found = {
        **case,
        "elements": n,
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
        "tried": len(seconds),
        "tuner_seconds": spent,
        "exhaustive_seconds": time.perf_counter() - began - spent,
        "unsuitable": sorted(set(tuned.unsuitable)),
    }
    block.free_unused_memory()
    return found


def summary(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Geometric mean and worst of the losses, and the targets."""
    if not results:
        return {"cases": 0}
    mean = {
        name: math.expm1(statistics.fmean(math.log1p(max(r[name], 0.0)) for r in results))
        for name in ("loss", "default_loss")
    }
    worst = max(results, key=lambda r: r["loss"])
    return {
        "cases": len(results),
        "geometric_mean_loss": mean["loss"],
        "worst_loss": worst["loss"],
        "worst_case": {name: worst[name] for name in CASE},
        "geometric_mean_default_loss": mean["default_loss"],
        "worst_default_loss": max(r["default_loss"] for r in results),
        "median_tuner_seconds": statistics.median(r["tuner_seconds"] for r in results),
        "target_met": mean["loss"] <= TARGET_MEAN and worst["loss"] <= TARGET_WORST,
    }


def case_key(record: dict[str, Any]) -> tuple[Any, ...]:
    """What a case is."""
    return tuple(record[name] for name in CASE)


def read(path: Path) -> dict[str, Any]:
    """A part that was written before.

    Raises
    ------
    ArgumentError
        If it is none.
    """
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
        what = f"{r['operator']:9} {r['shape']:7} P={r['order']} {r['geometry']:8}"
        print(f"{what} loss {r['loss']:6.2%}  {r['chosen']} against {r['best']}")
    for name, value in summary(results).items():
        print(f"{name}: {value:.2%}" if "loss" in name else f"{name}: {value}")


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run, or merge parts; returns the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--merge", type=Path, nargs="+", default=[])
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--shapes", type=parse_names, default=SOLID_FIRST)
    parser.add_argument("--orders", type=parse_orders, default=tuple(range(1, 8)))
    parser.add_argument("--geometries", type=parse_names, default=("deformed", "affine"))
    parser.add_argument("--operators", type=parse_names, default=tuple(BENCHMARK_OF))
    parser.add_argument("--dtype", default="float64")
    parser.add_argument("--dofs", type=float, default=2e7, help="degrees of freedom of each case")
    parser.add_argument("--tune", type=float, default=8.0, help="seconds that the tuner has for each case")
    parser.add_argument("--budget", type=float, default=400.0, help="seconds in all")
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
    settings = {"backend": options.backend, "dtype": options.dtype, "dofs": options.dofs, "tune": options.tune}
    machine = {**machine_description(), "device": choose_backend(options.backend).processor()}
    results: list[dict[str, Any]] = []
    if options.output.exists():
        before = read(options.output)
        if before["settings"] != settings:
            raise ArgumentError(f"{options.output} was made with other settings; write to another file")
        results = before["results"]
    lists = (options.operators, options.shapes, options.orders, options.geometries)
    cases = [dict(zip(CASE, values, strict=True)) for values in itertools.product(*lists)]
    random.Random(1).shuffle(cases)
    done = {case_key(r) for r in results}
    deadline, longest = began + options.budget, 0.0
    for case in [case for case in cases if case_key(case) not in done]:
        start = time.perf_counter()
        if start + longest > deadline:
            print("out of time; start again to go on")
            break
        try:
            found = measure(case, options, deadline)
        except NotSuitable as reason:
            print(f"{case}: {reason}")
            continue
        if found is None:
            print("out of time; start again to go on")
            break
        results.append(found)
        longest = max(longest, time.perf_counter() - start)
        write(options.output, settings, machine, results)
        print(
            f"{time.perf_counter() - began:4.0f} s {case_key(case)}: loss {found['loss']:.2%} ({found['chosen']}),"
            f" default {found['default_loss']:.2%}; tuner {found['tuner_seconds']:.1f} s, {found['tuner_tried']} of"
            f" {found['tried']}",
            flush=True,
        )
    report(results)
    return summary(results)


if __name__ == "__main__":
    main()
