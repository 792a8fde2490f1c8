"""What `hpfem reproduce` does: measure, go on, merge, and write results, pages and pictures.

`hpfem.cli.reproduce` has its options and help.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hpfem.benchmarks import thread_limit
from hpfem.cli import options, output
from hpfem.cli.output import ResultFile
from hpfem.errors import ArgumentError
from hpfem.support.files import atomic_path, output_path
from hpfem.support.machine import machine_description
from hpfem.support.progress import progress

from . import (
    EXPERIMENTS,
    Experiment,
    Reproduction,
    done_of,
    draw,
    merge,
    page,
    read_reproduction,
    reproduction_document,
)
from .report import DEVICES, HEADINGS, compared, row, seen


def chosen(names: Sequence[str]) -> list[Experiment]:
    """Find experiments by name."""
    if not names:
        raise ArgumentError("give an experiment, a paper, or all; hpfem reproduce list prints their names")
    found: dict[str, Experiment] = {}
    for name in names:
        own = [e for e in EXPERIMENTS.values() if name in (e.paper.lower(), "all")] or [EXPERIMENTS[name]]
        found |= {experiment.name: experiment for experiment in own}
    return list(found.values())


def run(arguments: argparse.Namespace) -> None:
    """Run the command with its parsed options."""
    if arguments.names == ["list"]:
        listed = [
            {"id": e.name, "paper": e.paper, "figures": e.figures, "title": e.title} for e in EXPERIMENTS.values()
        ]
        width = max(len(entry["id"]) for entry in listed)
        lines = "\n".join(f"{e['id']:{width}}  {e['title']} ({e['paper']}: {e['figures']})" for e in listed)
        output.show(arguments, listed, lambda: output.say(lines))
        return
    backends = arguments.backends or tuple(DEVICES)
    if unknown := [name for name in backends if name not in DEVICES]:
        raise ArgumentError(f"unknown backend {unknown[0]!r}; valid: {', '.join(DEVICES)}")
    folder = None if arguments.output is None else options.output_folder(arguments.output)
    if arguments.page is not None:
        if folder is None:
            raise ArgumentError("--page needs -o: the page has links to the pictures")
        output_path(arguments.page)
    if arguments.merge:
        if arguments.names or arguments.resume:
            raise ArgumentError("--merge measures nothing; remove the names and --resume")
        _finish(arguments, folder, merge([read_reproduction(path) for path in arguments.merge]))
        return
    experiments = chosen(arguments.names)
    earlier = None if arguments.resume is None else read_reproduction(arguments.resume)
    if earlier is not None and earlier["quick"] != arguments.quick:
        raise ArgumentError(f"{arguments.resume} was made {'with' if earlier['quick'] else 'without'} --quick")
    result = _measured(arguments, folder, experiments, backends, earlier)
    _finish(arguments, folder, result)


def _measured(
    arguments: argparse.Namespace,
    folder: Path | None,
    experiments: Sequence[Experiment],
    backends: Sequence[str],
    earlier: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Measure the cases that are asked for and missing; returns all results."""
    began, machine, load = time.monotonic(), machine_description(), os.getloadavg()[0]
    budget = math.inf if arguments.budget is None else arguments.budget
    done = set() if earlier is None else done_of(earlier)
    with thread_limit(arguments.threads) as threads:
        reproduction = Reproduction(experiments, backends, arguments.quick, done, budget)
        total = sum(len(part[-1]) for part in reproduction.parts())
        measured = 0

        def result(complete: bool) -> dict[str, Any]:
            about = {
                "machine": machine,
                "command": f"hpfem reproduce {' '.join(arguments.names)}{' --quick' if arguments.quick else ''}",
                "rooflines": {name: limits.as_dict() for name, limits in reproduction.rooflines.items()},
                "threads": threads,
                "load": round(load, 1),
                "seconds": round(time.monotonic() - began, 1),
            }
            records = [{**record, "run": 0} for record in reproduction.records]
            made = reproduction_document([about], records, arguments.quick, complete and measured == total)
            return made if earlier is None else merge([{**earlier, "complete": True}, made])

        path = None if folder is None else folder / "reproduce.json"
        with ResultFile(path, result) as file, progress("reproducing", total=total) as step:
            for _ in reproduction.run(step):
                measured += 1
                file.save_sometimes()
        made = result(True)
    if measured < total and not arguments.json:
        output.say(f"{total - measured} of {total} cases are left; go on with --resume")
    return made


def _finish(arguments: argparse.Namespace, folder: Path | None, result: dict[str, Any]) -> None:
    """Write a result, its page and its pictures, and print it."""
    written: list[Path] = []
    if folder is not None:
        with ResultFile(folder / "reproduce.json", lambda _: result) as file:
            file.finish(arguments, _print)
        pictures = draw(result, folder)
        target = folder / "REPRODUCTION.md" if arguments.page is None else Path(arguments.page)
        links = {
            name: [Path(os.path.relpath(file, target.parent)).as_posix() for file in files]
            for name, files in pictures.items()
        }
        with atomic_path(target) as temporary:
            temporary.write_text(page(result, links), encoding="utf-8")
        written = [folder / "reproduce.json", target, *(file for files in pictures.values() for file in files)]
    else:
        output.show(arguments, result, lambda: _print(result))
    for path in written:
        if not arguments.json:
            output.say(f"written {path}")


def _print(result: Mapping[str, Any]) -> None:
    named = {record["experiment"] for record in result["results"]}
    for experiment in EXPERIMENTS.values():
        if experiment.name not in named:
            continue
        own = [record for record in result["results"] if record["experiment"] == experiment.name]
        rows = [row(experiment, published, result) for published in experiment.published]
        title = f"{experiment.name}: {experiment.title}"
        output.print_table(title, HEADINGS, rows) if rows else output.say(title)
        for statement in experiment.statements:
            verdict, text = seen(statement, own)
            output.say(f"{DEVICES[statement.backend]}: {statement.says}\n    {verdict}{f'; {text}' if text else ''}")
            output.say(f"    ratios: {compared(statement)}")
        count = sum("value" in record for record in own)
        reasons = dict.fromkeys(record["status"] for record in own if "value" not in record)
        output.say(f"{count} measurements{''.join(f'; {reason}' for reason in reasons)}")
