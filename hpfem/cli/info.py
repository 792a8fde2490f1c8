"""`hpfem info`: what a mesh holds.

Read a mesh and print its cells per shape, geometry orders, affine share, volume, worst cell,
regions and boundaries.

Examples
--------
  hpfem info meshes/cube_mixed.msh
  hpfem info meshes/curved_mixed.msh --json
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from ..mesh import read_mesh
from . import output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command; see `hpfem.cli.make_parser`."""
    parser.add_argument("mesh", metavar="MESH", help="mesh file: gmsh, VTK, or another format that meshio reads")
    parser.add_argument("--periodic", action="store_true", help="join the sides that the file declares periodic")


def run(arguments: argparse.Namespace) -> None:
    """Run the command; see `hpfem.cli.make_parser`."""
    summary = read_mesh(arguments.mesh, periodic=arguments.periodic).summary()
    result = {**asdict(summary), "affine_share": summary.affine_share}
    output.show(arguments, result, lambda: output.say(str(summary)))
