"""`hpfem compare`: find the fastest way to apply an operator on a mesh, and whether collocation is worth it.

Apply the Helmholtz operator in every way: by dense matrices, by sum factorisation, collocated and noncollocated, and by
what else "auto" takes. First comes the answer: which way is fastest on each shape, by how much, and what "auto" takes.
Then a table has a line for each shape and order, with --all for each way. Ways are timed in turns; a difference inside
the quartiles is none. Of blocks of few cells, copies are timed. On triangles and tets quadrature="simplex" is measured
too; on curved cells its results differ by the error of the quadrature.

Examples
--------
  hpfem compare meshes/cube_mixed.msh --order 2:8
  hpfem compare meshes/curved_mixed.msh --order 4 --all
  hpfem compare meshes/curved_mixed.msh --order 1:6 --dtype float32 -o results/
  hpfem compare meshes/curved_mixed.msh --order 1:6 -o picture.png

With -o a folder gets compare.json and the picture compare.png; a name that ends in .json, .png, .pdf or .svg is the one
file that is written.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..benchmarks import ComparisonRow, compare_algorithms, document, thread_limit
from ..benchmarks.results import COMPARE
from ..mesh import read_mesh
from ..plots import plot_results
from ..support.machine import machine_description
from ..support.progress import progress
from . import options, output, plot
from .compare_tables import print_comparison
from .result_file import ResultFile


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command; see `hpfem.cli.make_parser`."""
    parser.add_argument("mesh", metavar="MESH", help="mesh file")
    text, default = "polynomial orders: 4, 2:8 or 1,3,5 (default 2:6)", (2, 3, 4, 5, 6)
    options.add(parser, "--order --orders", options.parse_orders, "P", text, dest="orders", default=default)
    parser.add_argument("--lam", type=float, default=1.0, metavar="NUMBER", help="reaction coefficient (default 1)")
    parser.add_argument("--all", action="store_true", help="print all ways, not only the fastest")
    options.add_space_options(parser)
    options.add_precision_option(parser)
    options.add_timing_options(parser, 25)
    parser.add_argument("-o", "--output", metavar="NAME", help="a folder, a picture or a .json file")


def run(arguments: argparse.Namespace) -> None:
    """Run the command; see `hpfem.cli.make_parser`."""
    path = picture = folder = None
    if arguments.output is not None and (picture := plot.picture_file(arguments.output)) is None:
        if Path(arguments.output).suffix == ".json":
            path = options.output_file(arguments.output)
        else:
            folder = options.output_folder(arguments.output)
            path = folder / "compare.json"
    mesh = read_mesh(arguments.mesh)
    machine = machine_description()
    rows: list[ComparisonRow] = []
    with thread_limit(arguments.threads) as threads:

        def result(complete: bool) -> dict[str, Any]:
            return document(
                COMPARE,
                [row.as_dict() for row in rows],
                complete,
                mesh=arguments.mesh,
                lam=arguments.lam,
                space=options.space_options(arguments),
                precision=arguments.precision,
                threads=threads,
                machine=machine,
            )

        with ResultFile(path, result) as file, progress("comparing", total=len(arguments.orders)) as step:
            for order in arguments.orders:
                step(0, f"order {order}")
                how = {"lam": arguments.lam, "repeats": arguments.repeats, "precision": arguments.precision}
                rows += compare_algorithms(mesh, order, **how, **options.space_options(arguments))
                step()
                file.save_sometimes()
    file.finish(arguments, lambda found: print_comparison(rows, found, arguments.all))
    drawn = [] if folder is None else plot_results(result(True), folder)
    drawn += [] if picture is None else [plot.one_picture(result(True), picture)]
    for written in [*([] if path is None else [path]), *drawn]:
        if not arguments.json:
            output.say(f"written {written}")
