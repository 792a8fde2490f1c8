"""`hpfem plot`: pictures of results.

Draw the results of hpfem bench, hpfem compare or hpfem scale.

Examples
--------
  hpfem plot results.json
  hpfem plot results.json -o pictures/ --format svg
  hpfem plot results.json -o best.pdf

From a bench: first the fastest strategy of each shape and order, then every strategy by order and over size, affine
and deformed cells, collocated and noncollocated algorithms, share of the roofline. From a compare: throughput,
operations and agreement by order. From a scale: efficiency by number of processes. A file gets the first picture.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

from ..benchmarks import read_results
from ..errors import ArgumentError
from ..plots import SUFFIXES, plot_results
from . import options, output

# Formats that other programs write.
_OTHERS = (".jpg", ".jpeg", ".gif", ".eps", ".ps", ".tif", ".tiff", ".webp", ".pgf", ".bmp")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command; see `hpfem.cli.make_parser`."""
    parser.add_argument("results", metavar="RESULTS.json", help="written by hpfem bench, compare or scale")
    text = "where the pictures go (default: beside the results); a file gets the first picture"
    parser.add_argument("-o", "--output", metavar="FOLDER", help=text)
    parser.add_argument("--format", choices=[suffix[1:] for suffix in SUFFIXES], help="default png")


def _one_picture(results: dict[str, Any], name: str, suffix: str, asked: str | None) -> Path:
    """Draw the first figure of the results, the one that answers, as the file of that name."""
    if suffix not in SUFFIXES or asked not in (None, suffix[1:]):
        raise ArgumentError(
            f"cannot draw {name!r} in the format {asked or suffix[1:]}: the name says the format, one of"
            f" {', '.join(SUFFIXES)}; a folder takes --format"
        )
    target = options.output_file(name, Path(name).suffix)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        paths = plot_results(results, folder, suffix)
        os.replace(paths[0], target)
    return target


def run(arguments: argparse.Namespace) -> None:
    """Run the command; see `hpfem.cli.make_parser`."""
    results = read_results(arguments.results)
    given = str(Path(arguments.results).parent) if arguments.output is None else arguments.output
    suffix = Path(given).suffix.lower()
    if suffix in (*SUFFIXES, *_OTHERS) and not Path(given).is_dir():
        paths = [_one_picture(results, given, suffix, arguments.format)]
    else:
        paths = plot_results(results, options.output_folder(given), f".{arguments.format or 'png'}")
    names = [str(path) for path in paths]
    output.show(arguments, {"pictures": names}, lambda: output.say("\n".join(f"written {name}" for name in names)))
