"""`hpfem info`: what a mesh holds.

Read a mesh and print its cells per shape with the kinds of their geometry, its volume, worst cell, regions and
boundaries; with --order also the throughput that is expected of the Helmholtz operator on each kind of cells and on
the mesh, what it would be if cells were straight whose nodes are within 1 % of their size of that, and the quadrature
of triangles and tets, with the other rule and its gain where that is expected to be faster on this device.

Examples
--------
  hpfem info meshes/cube_mixed.msh
  hpfem info meshes/curved_mixed.msh --json
  hpfem info meshes/curved_mixed.msh --order 4
  hpfem info meshes/curved_mixed.msh --order hex=3,prism=3,pyramid=3,tet=4 --backend cuda
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from ..benchmarks.expected import DEPARTURE, expected_throughput
from ..errors import ArgumentError
from ..mesh import read_mesh
from ..mesh.summary import percent
from . import options, output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command; see `hpfem.cli.make_parser`."""
    parser.add_argument("mesh", metavar="MESH", help="mesh file: gmsh, VTK, or another format that meshio reads")
    parser.add_argument("--periodic", action="store_true", help="join the sides that the file declares periodic")
    options.add(parser, "--order", options.parse_order, "P", "also show expected throughput: 4, or hex=3,tet=4")
    text = "with --order: auto, cpu, or cuda for that of an H200, also without a GPU (default auto)"
    parser.add_argument("--backend", default="auto", metavar="NAME", help=text)


def run(arguments: argparse.Namespace) -> None:
    """Run the command; see `hpfem.cli.make_parser`."""
    mesh = read_mesh(arguments.mesh, periodic=arguments.periodic)
    summary = mesh.summary()
    result: dict[str, Any] = {**asdict(summary), "affine_share": summary.affine_share}
    if arguments.order is not None:
        result["expected"] = expected_throughput(mesh, arguments.order, arguments.backend)
    elif arguments.backend != "auto":
        raise ArgumentError("--backend is that of the throughput to expect, which takes an --order")
    output.show(arguments, result, lambda: _print(str(summary), **result))


def _print(summary: str, n_cells: int, expected: dict[str, Any] | None = None, **_: Any) -> None:
    output.say(summary)
    if expected is None:
        return
    rows, rules = [], []
    for row in expected["rows"]:
        shares = (percent(row[name], n_cells) for name in ("cells", "straightened"))
        rows.append((row["shape"], row["geometry"], *shares, row["choice"], f"{1e-9 * row['dofs_per_second']:.3g}"))
        faster = f"; {row['faster rule']}: {row['gain']:.2f} times as fast" if "gain" in row else ""
        rules += [f"{row['geometry']} {row['shape']}: {row['rule']} rule{faster}"] if "rule" in row else []
    output.say("")
    columns = ("shape", "geometry", ">cells", ">straightened", "auto takes", ">GDoF/s")
    output.print_table("Helmholtz operator, expected", columns, rows)
    for rule in rules:
        output.say(rule)
    now, then = expected["dofs_per_second"]
    text = f"on {expected['source']}\nthis mesh: {1e-9 * now:.3g} GDoF/s; "
    if moved := sum(max(row["straightened"] - row["cells"], 0) for row in expected["rows"]):
        text += f"{1e-9 * then:.3g}, {then / now:.2f} times as much, if {moved:,} nearly straight cells were\n"
        output.say(text + f"straight: their nodes would move by at most {DEPARTURE:.0%} of the cell's size")
    else:
        output.say(text + f"no curved cell is within {DEPARTURE:.0%} of its size of a straight one")
