"""What `hpfem bench` does on a GPU, or with --tiled: the whole benchmark, in parts that can be merged."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ..benchmarks import read_results
from ..benchmarks.bake_off import BAKE_OFFS
from ..benchmarks.cases import SuiteSettings
from ..benchmarks.parts import merge_results, settings_of, suite_document
from ..errors import ArgumentError
from ..support.files import write_json
from . import options, output
from .bench_tables import print_suite


def parse_part(text: str) -> tuple[int, int]:
    """Read a part: "1/2" is the first of two."""
    match = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text, re.ASCII)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise ArgumentError(f"part {text!r} is not understood; write 1/2 for the first of two parts")
    return int(match[1]), int(match[2])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the whole benchmark."""
    group = parser.add_argument_group("the whole benchmark (with --backend cuda, or --tiled)")
    add = partial(options.add, group)
    text = "measure kernels alone, on copies of a few elements (always so on a GPU)"
    group.add_argument("--tiled", action="store_true", help=text)
    add(
        "--sustained",
        options.parse_seconds,
        "S",
        "run the fastest kernel for so many seconds without a pause (default 2)",
    )
    text = "measure every source of geometric factors that a strategy offers, at the largest size in the first dtype"
    group.add_argument("--sources", action="store_true", default=None, help=text)
    add("--part", parse_part, "K/N", "measure only the K-th of N parts")
    add("--budget", options.parse_seconds, "S", "start no new problem after so many seconds")
    group.add_argument("--resume", metavar="FILE.json", help="keep the results of this file and measure the rest")
    text = "measure nothing; merge the results of several parts"
    group.add_argument("--merge", nargs="+", metavar="FILE.json", help=text)


def wanted(arguments: argparse.Namespace) -> bool:
    """Say whether the whole benchmark is asked for."""
    names = ("sustained", "sources", "part", "budget", "resume")
    given = [name for name in names if getattr(arguments, name) is not None]
    if arguments.merge and given:
        raise ArgumentError(f"--merge measures nothing; remove --{given[0]}")
    bake_offs = [name for name in arguments.benchmarks or () if name in BAKE_OFFS]
    if bake_offs and (arguments.tiled or given):
        option = "tiled" if arguments.tiled else given[0]
        raise ArgumentError(f"{bake_offs[0]} is measured on whole meshes, --{option} is for bk1 and bk3; remove it")
    if arguments.tiled or arguments.merge or (arguments.backend == "cuda" and not bake_offs):
        return True
    if given:
        raise ArgumentError(f"--{given[0]} belongs to --tiled or --backend cuda")
    return False


def earlier_results(
    arguments: argparse.Namespace, settings: SuiteSettings, run: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Read the results that --resume keeps."""
    if arguments.resume is None:
        return None
    earlier = read_results(arguments.resume)
    merge_results([earlier, suite_document(settings, [run], [], [], [])])
    return earlier


def merge(arguments: argparse.Namespace, path: Path | None) -> None:
    """Merge the results of several parts into a file."""
    if path is None:
        raise ArgumentError("--merge writes a file; say which with -o FILE.json")
    merged = merge_results([read_results(name) for name in arguments.merge])
    write_json(path, merged)
    if arguments.json:
        output.print_json(merged)
        return
    print_suite(merged)
    left = f"; {merged['left']} of {len(settings_of(merged).cases())} problems are not in it"
    output.say(f"written {path}{left if merged['left'] else ''}")
