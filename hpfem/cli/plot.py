"""`hpfem plot`: pictures of result files."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..benchmarks import read_results
from ..plots import SUFFIXES, plot_results
from . import options, output
from .command import Command

EXAMPLES = """examples:
  hpfem plot results.json
  hpfem plot results.json -o pictures/ --format svg

Of a bench: strategies and orders per shape, affine against deformed, collocated against not, best throughput by order,
share of the roofline. Of a compare: throughput, operations and agreement by order.
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", metavar="RESULTS.json", help="written by hpfem bench or hpfem compare")
    parser.add_argument("-o", "--output", metavar="FOLDER", help="where the pictures go (default: beside the results)")
    parser.add_argument("--format", default="png", choices=[suffix[1:] for suffix in SUFFIXES], help="default png")


def _run(arguments: argparse.Namespace) -> None:
    results = read_results(arguments.results)
    folder = options.output_folder(
        str(Path(arguments.results).parent) if arguments.output is None else arguments.output
    )
    paths = plot_results(results, folder, f".{arguments.format}")
    if arguments.json:
        output.print_json({"pictures": [str(path) for path in paths]})
        return
    for path in paths:
        output.say(f"written {path}")


COMMAND = Command(
    "plot",
    "pictures of results",
    "Draw the results of hpfem bench or hpfem compare.",
    EXAMPLES,
    _add_arguments,
    _run,
)
