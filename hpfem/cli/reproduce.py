"""`hpfem reproduce`: experiments of the papers, from a source checkout.

Repeat the measurements of five papers with hpfem's kernels, and set the numbers beside those of the papers. Choose
experiments by name (xing-mass), by paper (xing), or all; "list" prints their names. A row says so if it cannot be
measured here, for example without a GPU. The experiments are in benchmarks/papers of the source checkout, where
python benchmarks/papers is the same command.

Examples
--------
  hpfem reproduce list
  hpfem reproduce all --quick
  hpfem reproduce xing-helmholtz --backend cpu --budget 60 -o part
  hpfem reproduce xing-helmholtz --backend cpu --budget 60 -o part --resume part/reproduce.json
  hpfem reproduce --merge part/reproduce.json gpu.json -o all --page REPRODUCTION.md

The folder of -o gets reproduce.json, REPRODUCTION.md and pictures. --merge also takes results of hpfem bench on a GPU.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

from ..errors import ArgumentError
from . import options

CHECKOUT = Path(__file__).resolve().parents[2]
COMMAND = "benchmarks.papers.command"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command; see `hpfem.cli.make_parser`."""
    parser.add_argument("names", nargs="*", metavar="ID", help="experiments or papers; list, or all")
    parser.add_argument("--quick", action="store_true", help="few cases: less than a minute on a CPU")
    add = partial(options.add, parser)
    add("--backend", lambda name: (name,), "NAME", "cuda or cpu alone (default both)", dest="backends")
    add("--budget", options.parse_seconds, "S", "start nothing new after so many seconds")
    parser.add_argument("--resume", metavar="FILE.json", help="keep the results of this file and measure the rest")
    parser.add_argument("--merge", nargs="+", metavar="FILE.json", help="measure nothing; merge several results")
    add("--threads", options.parse_positive, "N", "threads on the CPU (default 1)", default=1)
    parser.add_argument("-o", "--output", metavar="FOLDER", help="folder for reproduce.json, the page and the pictures")
    parser.add_argument("--page", metavar="FILE.md", help="write the page to this file instead")


def run(arguments: argparse.Namespace) -> None:
    """Run the command, which the checkout has; see `hpfem.cli.make_parser`."""
    if (CHECKOUT / "benchmarks" / "papers").is_dir() and str(CHECKOUT) not in sys.path:
        sys.path.insert(0, str(CHECKOUT))
    try:
        command = import_module(COMMAND)
    except ModuleNotFoundError as error:
        if not f"{COMMAND}.".startswith(f"{error.name}."):
            raise
        raise ArgumentError(
            "the papers' experiments are in the source checkout: git clone hpfem's repository, "
            "then python benchmarks/papers with the same arguments"
        ) from error
    command.run(arguments)
