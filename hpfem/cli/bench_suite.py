"""`hpfem bench` on a GPU, or with --tiled: the whole benchmark, in parts that end in time and can be merged."""

from __future__ import annotations

import argparse
import math
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..backends.base import choose_backend
from ..benchmarks import (
    SuiteRun,
    SuiteSettings,
    Task,
    merge_results,
    read_results,
    settings_of,
    suite_document,
    suite_rooflines,
    suite_tasks,
    thread_limit,
)
from ..errors import ArgumentError, DeviceError, NotSuitable
from ..support.files import write_json
from ..support.machine import machine_description
from ..support.progress import progress
from . import options, output
from .result_file import ResultFile

# What --quick sets where nothing else was said.
QUICK = {"dofs": (1e4, 1e6), "repeats": 5, "sustained": 0.1}


def parse_part(text: str) -> tuple[int, int]:
    """Read a part: "1/2" is the first of two.

    Parameters
    ----------
    text : str

    Returns
    -------
    tuple of int
        Number and count.

    Raises
    ------
    ArgumentError
        For anything else.
    """
    match = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text, re.ASCII)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise ArgumentError(f"part {text!r} is not understood; write 1/2 for the first of two parts")
    return int(match[1]), int(match[2])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the whole benchmark.

    Parameters
    ----------
    parser : ArgumentParser
        Gets the options.
    """
    group = parser.add_argument_group("the whole benchmark (with --backend cuda, or --tiled)")
    seconds = options.checked(options.parse_seconds)
    group.add_argument(
        "--tiled", action="store_true", help="kernels alone on copies of a few elements; always so on a GPU"
    )
    group.add_argument(
        "--sustained", type=seconds, metavar="S", help="seconds of the fastest without a pause (default 2)"
    )
    group.add_argument("--part", type=options.checked(parse_part), metavar="K/N", help="the K-th of N parts only")
    group.add_argument("--budget", type=seconds, metavar="S", help="begin nothing new after so many seconds")
    group.add_argument("--resume", metavar="FILE.json", help="keep its results and measure what it lacks")
    group.add_argument(
        "--merge", nargs="+", metavar="FILE.json", help="measure nothing: put the results of parts together"
    )


def wanted(arguments: argparse.Namespace) -> bool:
    """Say whether the whole benchmark is asked for.

    Parameters
    ----------
    arguments : Namespace
        The command's.

    Returns
    -------
    bool

    Raises
    ------
    ArgumentError
        If its options are used without it.
    """
    given = [name for name in ("sustained", "part", "budget", "resume") if getattr(arguments, name) is not None]
    if arguments.merge and given:
        raise ArgumentError(f"--merge measures nothing; leave --{given[0]} away")
    if arguments.tiled or arguments.merge or arguments.backend == "cuda":
        return True
    if given:
        raise ArgumentError(f"--{given[0]} belongs to --tiled or --backend cuda")
    return False


def suite_settings(arguments: argparse.Namespace) -> SuiteSettings:
    """Make settings of the command line.

    Parameters
    ----------
    arguments : Namespace
        The command's.

    Returns
    -------
    SuiteSettings
    """
    chosen = options.bench_choices(arguments, QUICK)
    if arguments.sustained is not None:
        chosen["sustained"] = arguments.sustained
    if arguments.benchmark is not None:
        chosen["benchmarks"] = arguments.benchmark
    if arguments.dtype not in (None, "both"):
        chosen["dtypes"] = (arguments.dtype,)
    return SuiteSettings(
        backend=choose_backend(arguments.backend).name,
        basis=arguments.basis,
        quadrature=arguments.quadrature,
        **chosen,
    )


def run(arguments: argparse.Namespace) -> None:
    """Measure, or merge.

    Parameters
    ----------
    arguments : Namespace
        The command's.

    Raises
    ------
    ArgumentError, DeviceError, NotSuitable
        For settings that cannot be measured, results that do not belong together, kernels that compute something
        wrong, or if nothing could be measured.
    """
    path = None if arguments.output is None else options.output_file(arguments.output, ".json")
    if arguments.merge:
        _merge(arguments, path)
        return
    settings = suite_settings(arguments)
    part = arguments.part or (1, 1)
    earlier = None if arguments.resume is None else read_results(arguments.resume)
    began = time.monotonic()
    about = {"machine": machine_description(), "part": list(part), "quick": arguments.quick}
    done: set[Task] = set()
    if earlier is not None:
        empty = suite_document(settings, [about], [], [], [])
        known = merge_results([earlier, empty])
        done = {Task.of(entry) for name in ("results", "skipped", "wrong") for entry in known[name]}
    with thread_limit(arguments.threads) as threads:
        rooflines = suite_rooflines(settings, arguments.quick)
        budget = math.inf if arguments.budget is None else arguments.budget
        bench = SuiteRun(settings, rooflines, part, set(done), budget - (time.monotonic() - began))

        def result(complete: bool) -> dict[str, Any]:
            limits = {dtype: roofline.as_dict() for dtype, roofline in rooflines.items()}
            seconds = round(time.monotonic() - began, 1)
            this = {**about, "threads": threads, "rooflines": limits, "seconds": seconds}
            made = suite_document(settings, [this], bench.records(), bench.skipped, bench.wrong)
            return made if earlier is None else merge_results([earlier, made])

        with ResultFile(path, result) as file, progress("compiling", total=len(bench.tasks)) as step:
            bench.prepare(step)
            compiled = time.monotonic() - began
            for task in bench:
                step(1, str(task))
                file.save_sometimes()
    _check(bench)
    file.finish(arguments, _print)
    if arguments.json:
        return
    rest = [task for task in bench.tasks if task not in bench.done]
    output.say(
        f"{len(bench.tasks) - len(rest)} problems measured in {time.monotonic() - began:.0f} s"
        f" ({compiled:.0f} s of it before the first)"
    )
    if rest and path is not None:
        output.say(f"{len(rest)} problems of this part are left; go on with the same options and --resume {path}")
    elif bench.left:
        output.say(f"{len(bench.left)} problems belong to other parts; put all together with hpfem bench --merge")
    if path is not None:
        output.say(f"written {path}; draw it with: hpfem plot {path}")
    if bench.wrong:
        first = bench.wrong[0]
        raise DeviceError(f"{len(bench.wrong)} kernel(s) compute something wrong, the first: {Task.of(first)}: {first}")


def _check(bench: SuiteRun) -> None:
    """Refuse to report nothing."""
    if bench.measurements or not bench.tasks:
        return
    reasons = [entry["reason"] for entry in (*bench.wrong, *bench.skipped)]
    raise NotSuitable(f"nothing could be measured: {reasons[0] if reasons else 'the budget was too short'}")


def _merge(arguments: argparse.Namespace, path: Path | None) -> None:
    if path is None:
        raise ArgumentError("--merge writes a file; say which with -o FILE.json")
    merged = merge_results([read_results(name) for name in arguments.merge])
    write_json(path, merged)
    if arguments.json:
        output.print_json(merged)
        return
    _print(merged)
    left = f"; {merged['left']} of {len(suite_tasks(settings_of(merged)))} problems are not in it"
    output.say(f"written {path}{left if merged['left'] else ''}")


def _print(result: Mapping[str, Any]) -> None:
    """The fastest at the largest size: one line per problem but for its order, one column per order."""
    fastest: dict[tuple[str, ...], dict[int, Mapping[str, Any]]] = {}
    for record in result["results"]:
        key = (record["benchmark"], record["dtype"], record["geometry"], record["shape"])
        line = fastest.setdefault(key, {})
        best = line.get(record["order"])
        rank = (record["n_dofs"], record["dofs_per_second"])
        if best is None or rank > (best["n_dofs"], best["dofs_per_second"]):
            line[record["order"]] = record
    orders = sorted({record["order"] for record in result["results"]})
    rows = [(*key, *(_cell(line.get(order)) for order in orders)) for key, line in fastest.items()]
    names = ("benchmark", "precision", "geometry", "shape")
    title = "fastest at the largest size: GDoF/s, share of the roofline, strategy"
    output.print_table(title, (*names, *(f">P={order}" for order in orders)), rows)
    for run_ in result["runs"]:
        limits = [
            f"{dtype} {output.engineering(roof['bandwidth'], 'B/s')}, {output.engineering(roof['flops'], 'Flop/s')}"
            for dtype, roof in run_.get("rooflines", {}).items()
        ]
        output.say(f"limits measured: {'; '.join(limits)}")


def _cell(record: Mapping[str, Any] | None) -> str:
    """GDoF/s, share of the roofline, strategy in short."""
    if record is None:
        return ""
    algorithm = record["algorithm"][0] if record["benchmark"] == "bk3" else ""
    short = "".join(word[0] for word in record["strategy"].split("-"))
    return f"{record['dofs_per_second'] / 1e9:.1f} {record['fraction']:.2f} {short}{algorithm}"
