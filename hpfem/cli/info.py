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
    """Add the command to the parser's."""
    parser = commands.add_parser(
        "info",
        help="what a mesh holds",
        description="Read a mesh and print its cells per shape, geometry orders, affine share, volume, worst cell,\n"
        "regions and boundaries.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("mesh", metavar="MESH", help="mesh file: gmsh, VTK and what else meshio reads")
    parser.add_argument("--periodic", action="store_true", help="identify the periodic sides that the file names")
    options.add_json_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Do it."""
    summary = read_mesh(arguments.mesh, periodic=arguments.periodic).summary()
    if arguments.json:
        output.print_json({**asdict(summary), "affine_share": summary.affine_share})
    else:
        output.say(str(summary))
