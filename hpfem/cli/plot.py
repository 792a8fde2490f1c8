"""`hpfem plot`: pictures of results.

Draw the results of hpfem bench, hpfem compare or hpfem scale.

Examples
--------
  hpfem plot results.json
  hpfem plot results.json -o pictures/ --format svg
  hpfem plot results.json -o best.pdf
  hpfem plot cpu.json gpu.json -o gains.png

From a bench: first the fastest strategy of each shape and order, then every strategy by order and over size, affine
and deformed cells, collocated and noncollocated algorithms, share of the roofline. From a compare: throughput, and what
collocation gains, by shape and order; from several beside each other, the gains. From a scale: efficiency by number of
processes. A file gets the first picture.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

from ..benchmarks import read_results
from ..benchmarks.results import COMPARE
from ..errors import ArgumentError
from ..plots import SUFFIXES, plot_results
from . import options, output

TAKES = f"a folder, or a picture ({', '.join(SUFFIXES)})"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command; see `hpfem.cli.make_parser`."""
    text = "written by hpfem bench, compare or scale; several of compare, to see what collocation gains on each"
    parser.add_argument("results", metavar="RESULTS.json", nargs="+", help=text)
    text = "where the pictures go (default: beside the results); a file gets the first picture"
    parser.add_argument("-o", "--output", metavar="FOLDER", help=text)
    parser.add_argument("--format", choices=[suffix[1:] for suffix in SUFFIXES], help="default png")


def picture_file(name: str, asked: str | None = None) -> Path | None:
    """The file that is asked for, checked before any work; None if the name is no picture's."""
    suffix = Path(name).suffix.lower()
    if suffix not in SUFFIXES or Path(name).is_dir():
        return None
    if asked not in (None, suffix[1:]):
        raise ArgumentError(
            f"cannot draw {name!r} in the format {asked}, its name says another; a folder takes --format"
        )
    return options.output_file(name, Path(name).suffix)


def one_picture(results: dict[str, Any], target: Path) -> Path:
    """Draw the first figure of the results, the one that answers, as that file."""
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        paths = plot_results(results, folder, target.suffix.lower())
        os.replace(paths[0], target)
    return target


def run(arguments: argparse.Namespace) -> None:
    """Run the command; see `hpfem.cli.make_parser`."""
    results, *others = map(read_results, arguments.results)
    given = str(Path(arguments.results[0]).parent) if arguments.output is None else arguments.output
    target = picture_file(given, arguments.format)
    if others:
        if target is None or any(result["format"] != COMPARE for result in (results, *others)):
            raise ArgumentError("several results make one picture, of hpfem compare only; give its name to -o")
        from ..plots.comparison import plot_gains

        paths = [plot_gains([results, *others], target)]
    elif target is not None:
        paths = [one_picture(results, target)]
    else:
        paths = plot_results(results, options.output_folder(given, TAKES), f".{arguments.format or 'png'}")
    names = [str(path) for path in paths]
    output.show(arguments, {"pictures": names}, lambda: output.say("\n".join(f"written {name}" for name in names)))
