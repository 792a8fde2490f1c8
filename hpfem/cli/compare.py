"""`hpfem compare`: compare the algorithms on a mesh.

Apply the Helmholtz operator to random coefficients by dense matrices, and by collocated and noncollocated sum
factorisation. Print agreement, time, operations and bytes for each shape and order. Triangles and tets are measured
with quadrature="simplex" too; on curved cells its results differ by the error of the quadrature.

Examples
--------
  hpfem compare meshes/cube_mixed.msh --order 2:8
  hpfem compare meshes/curved_mixed.msh --order 4 --json
  hpfem compare meshes/curved_mixed.msh --order 1:6 --dtype float32 -o results/

With -o the folder gets compare.json and the picture compare.png.
"""

from __future__ import annotations

import argparse
from typing import Any

from ..benchmarks import ComparisonRow, compare_algorithms, document, thread_limit
from ..benchmarks.results import COMPARE
from ..mesh import read_mesh
from ..plots import plot_results
from ..support.machine import machine_description
from ..support.progress import progress
from . import options, output
from .result_file import ResultFile


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command; see `hpfem.cli.make_parser`."""
    parser.add_argument("mesh", metavar="MESH", help="mesh file")
    text, default = "polynomial orders: 4, 2:8 or 1,3,5 (default 2:6)", (2, 3, 4, 5, 6)
    options.add(parser, "--order --orders", options.parse_orders, "P", text, dest="orders", default=default)
    parser.add_argument("--lam", type=float, default=1.0, metavar="NUMBER", help="reaction coefficient (default 1)")
    options.add_space_options(parser)
    options.add_precision_option(parser)
    options.add_timing_options(parser, 9)
    parser.add_argument("-o", "--output", metavar="FOLDER", help="folder for compare.json and compare.png")


def run(arguments: argparse.Namespace) -> None:
    """Run the command; see `hpfem.cli.make_parser`."""
    folder = None if arguments.output is None else options.output_folder(arguments.output)
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

        path = None if folder is None else folder / "compare.json"
        with ResultFile(path, result) as file, progress("comparing", total=len(arguments.orders)) as step:
            for order in arguments.orders:
                step(0, f"order {order}")
                how = {"lam": arguments.lam, "repeats": arguments.repeats, "precision": arguments.precision}
                rows += compare_algorithms(mesh, order, **how, **options.space_options(arguments))
                step()
                file.save_sometimes()
    file.finish(arguments, lambda _: _print(rows))
    for written in [] if folder is None else [path, *plot_results(result(True), folder)]:
        if not arguments.json:
            output.say(f"written {written}")


def _print(rows: list[ComparisonRow]) -> None:
    columns = "P shape geometry >cells algorithm >time >DoF/s >flops/DoF >bytes/DoF >difference".split()
    lines = [
        (
            str(row.order),
            row.shape,
            row.geometry,
            f"{row.n_cells:,}",
            row.variant,
            output.engineering(row.seconds, "s"),
            output.engineering(row.dofs_per_second),
            f"{row.flops / row.n_dofs:.1f}",
            f"{row.nbytes / row.n_dofs:.1f}",
            f"{row.difference:.1e}",
        )
        for row in sorted(rows, key=lambda row: (row.order, row.shape, row.geometry))
    ]
    output.print_table("Helmholtz", columns, lines)
    same = [row.difference for row in rows if not row.quadrature]
    output.say(f"largest relative difference {max(same):.1e}")
    if any(row.precision_error for row in rows):
        output.say(f"relative error by factors in float32 {max(row.precision_error for row in rows):.1e}")
