"""`hpfem info`: what a mesh holds."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from ..mesh import read_mesh
from . import options, output

EXAMPLES = """examples:
  hpfem info meshes/cube_mixed.msh
  hpfem info meshes/curved_mixed.msh --json
"""


def add_parser(commands: Any) -> None:
    """Add the command to the parser's.

    Parameters
    ----------
    commands : argparse's subparsers
    """
    parser = options.add_command(
        commands,
        "info",
        run,
        EXAMPLES,
        help="what a mesh holds",
        description="Read a mesh and print its cells per shape, geometry orders, affine share, volume, worst cell,\n"
        "regions and boundaries.",
    )
    parser.add_argument("mesh", metavar="MESH", help="mesh file: gmsh, VTK and what else meshio reads")
    parser.add_argument("--periodic", action="store_true", help="identify the periodic sides that the file names")


def run(arguments: argparse.Namespace) -> None:
    """Run the command.

    Parameters
    ----------
    arguments : Namespace
        The command's.

    Raises
    ------
    HpfemError
        For bad input.
    """
    summary = read_mesh(arguments.mesh, periodic=arguments.periodic).summary()
    if arguments.json:
        output.print_json({**asdict(summary), "affine_share": summary.affine_share})
    else:
        output.say(str(summary))
