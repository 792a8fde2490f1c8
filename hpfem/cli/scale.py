"""`hpfem scale`: scaling over processes.

Measure weak or strong scaling of conjugate gradients over the processes of this run, as the benchmark of DOLFINx does.

Examples
--------
  hpfem scale --dofs 1e6 -o scaling.json
  mpirun -n 2 hpfem scale --dofs 1e6 -o scaling.json
  mpirun -n 2 hpfem scale --backend cuda -o h200.json
  mpirun -n 2 hpfem scale --shapes hex,tet,mixed --orders 3 --dofs 1e6 --strong -o scaling.json
  mpirun -n 2 hpfem scale --alone --dofs 1e6 -o scaling.json

The problem: Laplacian, u = 0 on the boundary, random right-hand side, a fixed number of iterations without
preconditioner. The rate is unknowns * iterations / seconds. With --preconditioner it is a whole solution to 1e-8, and
the rate is unknowns / seconds. Results for other numbers of processes stay in the file; the table and the figure of
hpfem plot have all of them. With --alone each process solves a problem of its own, all at the same time.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from itertools import product
from typing import Any

from ..benchmarks import GEOMETRIES, document, machine_description, read_results
from ..benchmarks.results import SCALE
from ..benchmarks.scaling import (
    ITERATIONS,
    MESSAGE,
    MIXED,
    UNKNOWNS,
    ScalingRun,
    efficiencies,
    expected_seconds,
    merged,
)
from ..errors import ArgumentError
from ..support.communicator import world
from . import options, output
from .output import ResultFile

SHAPES = (*MIXED, "mixed")
# Numbers of processes that the model is printed for.
ON_PAPER = (8, 64, 1024)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command; see `hpfem.cli.make_parser`."""
    options.add(parser, "--shapes", options.parse_names, "NAME,...", f"{', '.join(SHAPES)} (default hex)")
    options.add(parser, "--orders", options.parse_orders, "P,...", "default 3,6")
    text = "unknowns per process, with --strong of all together (default 300e6 at order 3, else 500e6)"
    options.add(parser, "--dofs", options.parse_dofs, "N", text)
    which = parser.add_mutually_exclusive_group()
    for name in ("weak", "strong", "alone"):
        which.add_argument(f"--{name}", action="store_const", const=name, dest="scaling", default="weak")
    parser.add_argument("--geometry", choices=GEOMETRIES, default="multilinear", help="default multilinear")
    text = "default, gauss, collocated, or a number of additional points in each direction"
    options.add(parser, "--quadrature", options.parse_quadrature, "RULE", text)
    text = "measure a whole solution with it (default none: a number of iterations)"
    parser.add_argument("--preconditioner", choices=("none", "jacobi", "multigrid"), default="none", help=text)
    options.add(parser, "--iterations", options.parse_positive, "N", f"without preconditioner (default {ITERATIONS})")
    parser.add_argument("--backend", default="auto", metavar="NAME", help="auto, numpy, cpu or cuda (default auto)")
    parser.add_argument("-o", "--output", metavar="FILE.json", help="add the results to those in this file")


def run(arguments: argparse.Namespace) -> None:
    """Run the command; see `hpfem.cli.make_parser`."""
    comm, shapes = world(), arguments.shapes or ("hex",)
    for shape in shapes:
        if shape not in SHAPES:
            raise ArgumentError(f"unknown shape {shape!r}; valid: {', '.join(SHAPES)}")
    target, before = None, []
    with comm.together():
        if comm.rank == 0 and arguments.output is not None:
            target = options.output_file(arguments.output, ".json")
            before = _rows(target) if target.exists() else []
    rows: list[dict[str, Any]] = []
    about = {"machine": machine_description()}
    with ResultFile(target, lambda complete: document(SCALE, merged(before, rows), complete, **about)) as file:
        for shape, order in product(shapes, arguments.orders or (3, 6)):
            for unknowns in arguments.dofs or (UNKNOWNS.get(order, 500e6),):
                given = (shape, order, arguments.scaling, unknowns, comm, arguments.backend, arguments.geometry)
                more = arguments.iterations or ITERATIONS, arguments.quadrature, arguments.preconditioner
                rows.append(ScalingRun(*given, *more).measure())
                phases = ", ".join(f"{name} {seconds:.3g} s" for name, seconds in rows[-1]["phases"].items())
                output.say(f"{shape} P={order}, {rows[-1]['n_dofs']:,} unknowns: {phases}")
                file.save_sometimes()
    file.finish(arguments, _print)


def _rows(path: os.PathLike[str]) -> list[dict[str, Any]]:
    """Records of a file of this command."""
    found = read_results(path)
    if found["format"] != SCALE:
        raise ArgumentError(f"{os.fspath(path)!r} holds other results; give another file to -o")
    rows: list[dict[str, Any]] = found["results"]
    return rows


def _print(result: Mapping[str, Any]) -> None:
    rows, lines = result["results"], []
    for row, efficiency in zip(rows, efficiencies(rows), strict=True):
        rate, each = row["dofs_per_second"] / row["ranks"], row["n_dofs"] / row["ranks"]
        link = row["link_bytes_per_second"]
        exchange = row["sent_bytes"] / link + MESSAGE * row["messages"] if link else 0.0
        paper = [""] * len(ON_PAPER)
        solved = (preconditioner := row.get("preconditioner", "none")) != "none"
        if row["scaling"] == "weak" and row["ranks"] == 1 and not solved:
            paper = [f"{row['seconds'] / expected_seconds(row['seconds'], each, n):.2f}" for n in ON_PAPER]
        lines.append([
            row["shape"], str(row["order"]), preconditioner, row["scaling"], str(row["ranks"]),
            output.engineering(each), output.engineering(rate, "DoF/s"), f"{efficiency:.2f}",
            output.engineering(row["seconds"], "s"), "" if solved else output.engineering(exchange, "s"), *paper,
        ])  # fmt: skip
    heads = (
        "shape|>P|preconditioner|scaling|>N|>unknowns / N|>rate / N|>efficiency|>iteration, solution|>exchange, model"
    )
    output.print_table("conjugate gradients", [*heads.split("|"), *(f">on {n}" for n in ON_PAPER)], lines, 5)
