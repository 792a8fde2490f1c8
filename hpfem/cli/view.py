"""`hpfem view`: a picture of a mesh or a field.

Draw a mesh with its regions and boundaries, or a field of a file that hpfem solve, hpfem apply or hp.save wrote.

Examples
--------
  hpfem view meshes/curved_mixed_2d.msh -o mesh.png
  hpfem view u.vtu -o u.png
  hpfem view run.h5 --field velocity --component 0 -o velocity.png

Matplotlib draws what lies in the plane, as .png, .pdf or .svg. pyvista (pip install 'hpfem[view]') draws solids and
surfaces in space, as .png; it needs no display.
"""

from __future__ import annotations

import argparse

from ..view import Look, file_picture
from . import options, output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command; see `hpfem.cli.make_parser`."""
    parser.add_argument("file", metavar="FILE", help="mesh, VTU file, or file of hp.save")
    parser.add_argument("-o", "--output", metavar="PICTURE", required=True, help="file to write")
    parser.add_argument("--field", metavar="NAME", help="field to draw (default: the first)")
    parser.add_argument("--component", type=int, metavar="I", help="component to draw, from 0 (default: the magnitude)")
    parser.add_argument("--cmap", default="viridis", metavar="NAME", help="colour map of matplotlib (default viridis)")
    parser.add_argument("--by", choices=("regions", "boundaries"), help="what to colour in a mesh")
    parser.add_argument("--no-edges", action="store_true", help="do not draw the edges of cells")


def run(arguments: argparse.Namespace) -> None:
    """Run the command; see `hpfem.cli.make_parser`."""
    target = options.output_file(arguments.output)
    look = Look(component=arguments.component, edges=not arguments.no_edges, cmap=arguments.cmap)
    file_picture(arguments.file, target, arguments.field, arguments.by, look)
    output.show(arguments, {"picture": str(target)}, lambda: output.say(f"written {target}"))
