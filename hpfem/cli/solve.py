r"""`hpfem solve`: solve a Helmholtz or Poisson problem.

Solve -div(k grad u) + lam u = f with continuous high-order elements, matrix-free.

Examples
--------
  hpfem solve meshes/cube_mixed.msh --order 5 --dirichlet 0 -o u.vtu
  hpfem solve meshes/curved_mixed.msh --order 6 --source "2*pi**2*sin(pi*x)*cos(pi*y)*exp(z)" \
      --dirichlet "sin(pi*x)*cos(pi*y)*exp(z)" --exact "sin(pi*x)*cos(pi*y)*exp(z)"
  hpfem solve meshes/cube_mixed.msh --lam 0 --dirichlet "xmin: 0" --neumann "xmax: 1" --robin "zmax: 2, x"
  hpfem solve meshes/curved_mixed.msh --dirichlet 0 --diffusivity "left: 10" --diffusivity "right: 1 + x"

A coefficient or the source is a formula for the whole mesh, or NAME: FORMULA for a region. The option may be repeated;
a formula without a name is then for all other regions. Boundary conditions work in the same way, with names of
boundaries. `hpfem info` lists the names. Where no condition is given, the flux is 0; --dirichlet 0 makes u = 0 on
the whole boundary. Neumann data are k du/dn, or a vector whose normal component is taken. Robin data are alpha and g in
k du/dn + alpha u = g.
"""

from __future__ import annotations

import argparse
from typing import Any

from ..errors import ArgumentError
from ..mesh import Mesh, read_mesh
from ..solvers import l2_error, solve_helmholtz
from ..solvers.preconditioners import NAMES
from ..space.space import Space
from ..support.progress import progress
from ..vtu import write_vtu
from . import options, output
from .field_expression import FieldExpression, parse_field

COEFFICIENTS = {
    "lam": "reaction coefficient, >= 0",
    "diffusivity": "k, > 0; D expressions are a diagonal, D x D a tensor",
    "source": "f",
}
CONDITIONS = ("dirichlet", "neumann", "robin")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command; see `hpfem.cli.make_parser`."""
    parser.add_argument("mesh", metavar="MESH", help="mesh file")
    options.add_order_option(parser)
    for name, what in COEFFICIENTS.items():
        parser.add_argument(f"--{name}", action="append", metavar="[REGION:]EXPR", help=f"{what} (default 1)")
    parser.add_argument("--dirichlet", action="append", metavar="[NAME:]EXPR", help="values of u on the boundary")
    parser.add_argument("--neumann", action="append", metavar="[NAME:]EXPR", help="flux k du/dn through the boundary")
    text = "sum of flux and alpha u on the boundary"
    parser.add_argument("--robin", action="append", metavar="[NAME:]ALPHA,EXPR", help=text)
    parser.add_argument("--exact", metavar="EXPR", help="the exact solution, to print the error")
    parser.add_argument("--periodic", action="store_true", help="join the sides that the file declares periodic")
    solver = parser.add_argument_group("solver")
    solver.add_argument("--preconditioner", default="auto", choices=NAMES, help="default auto")
    text = "relative residual to reach (default 1e-12, in float32 1.2e-6)"
    solver.add_argument("--tol", type=float, metavar="T", help=text)
    options.add(solver, "--iterations", options.parse_positive, "N", "largest number of iterations")
    options.add_precision_option(solver)
    options.add_space_options(parser)
    parser.add_argument("-o", "--output", metavar="FILE.vtu", help="write the solution for ParaView")


def condition(name: str, texts: list[str] | None, mesh: Mesh) -> Any:
    """Read a boundary condition."""
    if not texts:
        return None
    dim = int(mesh.points.shape[1])
    given = options.by_name(name, texts, mesh.boundaries)
    read = _pair if name == "robin" else lambda _, text, dim: parse_field(text, dim)
    found = {boundary: read(name, text, dim) for boundary, text in given.items()}
    if None in found and len(found) > 1:
        raise ArgumentError(f"--{name}: name every boundary, or give one condition for all of it")
    return found[None] if None in found else found


def _pair(name: str, text: str, dim: int) -> tuple[FieldExpression, ...]:
    """Alpha and g of a Robin condition."""
    both = parse_field(text, dim)
    if both.components != 2:
        raise ArgumentError(f"--{name}: {text.strip()!r} is not alpha, g: two expressions with a comma between them")
    return tuple(FieldExpression(both.text, dim, (part,)) for part in both.parts)


def run(arguments: argparse.Namespace) -> None:
    """Run the command; see `hpfem.cli.make_parser`."""
    target = None if arguments.output is None else options.output_file(arguments.output, ".vtu")
    with progress("reading the mesh", total=3) as step:
        mesh = read_mesh(arguments.mesh, periodic=arguments.periodic)
        step(description="making the space")
        space = Space(mesh, arguments.order, **options.space_options(arguments))
        conditions = {name: condition(name, getattr(arguments, name), mesh) for name in CONDITIONS}
        given = {name: getattr(arguments, name) for name in COEFFICIENTS}
        coefficients: dict[str, Any] = {
            name: options.coefficient(name, texts, space) for name, texts in given.items() if texts
        }
        exact = None if arguments.exact is None else parse_field(arguments.exact, space.dim)
        if exact is not None and exact.components != 1:
            raise ArgumentError(f"--exact {arguments.exact!r} has {exact.components} components, not one")
        step(description="solving")
        how = {name: getattr(arguments, name) for name in ("tol", "preconditioner", "precision")}
        lam, source = (coefficients.pop(name, 1.0) for name in ("lam", "source"))
        how["max_iterations"] = arguments.iterations
        u = solve_helmholtz(space, lam, source, **coefficients, **conditions, **how)
        step()
    report: dict[str, Any] = {
        "mesh": arguments.mesh,
        "order": space.orders,
        "basis": space.basis,
        "cells": int(space.comm.sum(space.n_cells)),
        "unknowns": u.c0.whole_size,
        "norm": space.norm(u),
        "integral": space.integrate(u),
        **{name: getattr(u.info, name) for name in ("preconditioner", "iterations", "residuals", "residual")},
        "seconds": u.info.time,
        "set_up_seconds": u.info.set_up_time,
        "compile_seconds": u.info.compile_time,
    }
    if exact is not None:
        report["error"] = l2_error(u, exact)
    try:
        if target is not None:
            write_vtu(target, {"u": u})
            report["output"] = str(target if space.comm.size == 1 else target.with_suffix(".pvtu"))
    finally:  # the result is printed even if the file cannot be written
        output.show(arguments, report, lambda: _print(report))


def _print(report: dict[str, Any]) -> None:
    iterations = f"{report['iterations']} iterations ({report['preconditioner']})"
    seconds, set_up, compiled = (
        output.engineering(report[name], "s") for name in ("seconds", "set_up_seconds", "compile_seconds")
    )
    output.print_pairs(
        ("mesh", f"{report['mesh']}: {report['cells']:,} cells"),
        ("space", f"order {output.flat(report['order'])}, {report['basis']}, {report['unknowns']:,} unknowns"),
        ("solver", f"{iterations}, residual {report['residual']:.1e}"),
        ("solution", f"L2 norm {report['norm']:.10g}, integral {report['integral']:.10g}"),
        ("error", f"{report['error']:.3e} in L2, relative" if "error" in report else None),
        ("time", f"{seconds}, of which {set_up} before the iterations and {compiled} in compilers"),
        ("written", report.get("output")),
    )
