"""`hpfem apply`: apply an operator to a field.

Project a field on a space, apply an operator, and report norms, time, strategies and algorithms.

Examples
--------
  hpfem apply meshes/cube_mixed.msh --operator helmholtz --order 4
  hpfem apply meshes/curved_mixed.msh --operator laplacian --field "exp(-x**2) * y" -o out.vtu
  hpfem apply meshes/cube_mixed.msh --operator bwdtrans --order hex=3,prism=3,pyramid=3,tet=4
  hpfem apply meshes/square_mixed.msh --operator advectiondiffusionreaction --velocity "y, -x" --diffusivity 0.1
  hpfem apply meshes/curved_mixed_2d.msh --diffusivity "left: 10" --diffusivity "right: 1 + x"
  hpfem apply meshes/cube_mixed.msh --operator mass --strategy sumfac --algorithm collocated --json

A field is a formula in x, y and z. It may use + - * / **, comparisons, pi, e, sin cos tan sinh cosh tanh exp log sqrt
abs minimum maximum where; commas separate components. The result of mass, helmholtz, ... is a functional, not a
function. For VTU files it is turned into the function that has these integrals against the basis.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..benchmarks import measure
from ..errors import ArgumentError
from ..mesh import read_mesh
from ..operators import OPERATORS, InverseMass, Operator, PhysDeriv
from ..space import Field, Space
from ..support.progress import progress
from ..tuning.select import expected_gain
from ..vtu import write_vtu
from . import options, output
from .field_expression import FieldExpression, parse_field

DEFAULT_FIELDS = {1: "sin(pi*x)", 2: "sin(pi*x)*cos(pi*y)", 3: "sin(pi*x)*cos(pi*y)*cos(pi*z)"}
COEFFICIENTS = ("lam", "velocity", "diffusivity", "reaction")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command; see `hpfem.cli.make_parser`."""
    parser.add_argument("mesh", metavar="MESH", help="mesh file")
    text = f"{', '.join(OPERATORS)}; in any case (default helmholtz)"
    parser.add_argument("--operator", default="helmholtz", metavar="NAME", help=text)
    options.add_order_option(parser)
    parser.add_argument("--field", metavar="EXPR", help="formula of the field (default: a smooth function)")
    for name in COEFFICIENTS:
        text = f"coefficient {name} of operators that have it; may be given for each region"
        parser.add_argument(f"--{name}", action="append", metavar="[REGION:]EXPR", help=text)
    options.add_space_options(parser)
    options.add_choice_options(parser)
    parser.add_argument("-o", "--output", metavar="FILE.vtu", help="write the field and the result for ParaView")


def operator_class(name: str) -> Any:
    """Look an operator up."""
    by_key = {known.lower(): known for known in OPERATORS}
    return OPERATORS[by_key.get(name.lower().replace("-", "").replace("_", ""), name)]


def make_operator(space: Space, name: str, given: Mapping[str, Sequence[str]], arguments: argparse.Namespace) -> Any:
    """Make an operator with the coefficients given."""
    cls = operator_class(name)
    takes = inspect.signature(cls).parameters
    for key in given:
        if key not in takes:
            valid = ", ".join(f"--{c}" for c in COEFFICIENTS if c in takes) or "no coefficients"
            raise ArgumentError(f"{cls.__name__} has no coefficient {key!r}; it takes {valid}")
    defaults = {"velocity": [", ".join(["1"] * space.dim)], "lam": ["1"]}
    given = {**{key: texts for key, texts in defaults.items() if key in takes}, **given}
    coefficients = {key: options.coefficient(key, texts, space) for key, texts in given.items()}
    chosen = {"strategy": arguments.strategy, "algorithm": arguments.algorithm}
    if issubclass(cls, Operator):
        chosen["precision"] = arguments.precision
    elif arguments.precision != "full":
        raise ArgumentError(f"{cls.__name__} is computed in full precision; leave --precision out")
    return cls(space, **coefficients, **chosen)


def argument_of(operator: Any, space: Space, expression: FieldExpression) -> tuple[Field, Field]:
    """Make the operator's argument of the field."""
    if operator.input_state == "coeff":
        u = space.project(expression)
        return u, u
    values = space.evaluate(expression)
    wanted = operator.form.coupled(space.dim) if isinstance(operator, Operator) else 1
    if expression.components == 1 < wanted:  # it takes the gradient of a scalar
        return values, PhysDeriv(space)(values)
    return values, values


def run(arguments: argparse.Namespace) -> None:
    """Run the command; see `hpfem.cli.make_parser`."""
    target = None if arguments.output is None else options.output_file(arguments.output, ".vtu")
    operator_class(arguments.operator)
    with progress("reading the mesh", total=4) as step:
        mesh = read_mesh(arguments.mesh)
        step(description="making the space")
        space = Space(mesh, arguments.order, **options.space_options(arguments))
        expression = parse_field(DEFAULT_FIELDS[space.dim] if arguments.field is None else arguments.field, space.dim)
        given = {name: text for name in COEFFICIENTS if (text := getattr(arguments, name)) is not None}
        operator = make_operator(space, arguments.operator, given, arguments)
        step(description="projecting the field")
        field, argument = argument_of(operator, space, expression)
        step(description=f"applying {operator.name}")
        result = operator(argument)
        timing = measure(lambda: operator(argument, out=result))
        step()
    report = _report(arguments.mesh, operator, expression.text, field, result, timing.median)
    try:
        if target is not None:
            shown = InverseMass(space)(result) if result.state == "dual" else result
            write_vtu(target, {"field": field, operator.name: shown})
            report["output"] = str(target)
    finally:  # the result is printed even if the file cannot be written
        output.show(arguments, report, lambda: _print(report, operator))


def _report(mesh: str, operator: Any, expression: str, field: Field, result: Field, seconds: float) -> dict[str, Any]:
    space = operator.space
    report: dict[str, Any] = {
        "mesh": mesh,
        "operator": operator.name,
        "field": expression,
        "order": space.orders,
        "basis": space.basis,
        "dtype": space.dtype.name,
        "cells": space.n_cells,
        "dofs": space.n_dofs,
        "field_norm": space.norm(field),
        "result_state": result.state,
        "result_components": result.components,
    }
    if result.state == "dual":
        report["result_norm"] = float(np.sqrt(result.dot(result)))
        if field.state == "coeff" and field.components == result.components:
            report["functional_of_field"] = field.dot(result)
    else:
        report["result_norm"] = space.norm(result)
    report["seconds"] = seconds
    report["dofs_per_second"] = space.n_dofs * field.components / seconds
    choices = operator.choices if isinstance(operator, Operator) else ()
    if isinstance(operator, Operator):
        report["precision_error"] = operator.precision_error
    report["blocks"] = [
        {
            "shape": block.shape.name,
            "geometry": block.geometry.kind.name,
            "order": block.order,
            "cells": block.n_elements,
            "points": list(block.rule.counts),
            **{name: getattr(choice, name) for name in ("backend", "strategy", "algorithm", "reason")},
            "gain": expected_gain(choice, operator.problem(number), operator.backend),
            "unsuitable": list(choice.unsuitable),
        }
        for number, (block, choice) in enumerate(zip(space.blocks, choices, strict=bool(choices)))
    ]
    return report


def _print(report: dict[str, Any], operator: Any) -> None:
    kind = "entries of the functional, l2" if report["result_state"] == "dual" else "L2"
    functional, time = report.get("functional_of_field"), output.engineering(report["seconds"], "s")
    output.print_pairs(
        ("mesh", f"{report['mesh']}: {report['cells']:,} cells"),
        ("space", f"order {output.flat(report['order'])}, {report['basis']}, {report['dofs']:,} degrees of freedom"),
        ("field", f"{report['field']}, L2 norm {report['field_norm']:.10g}"),
        (report["operator"], f"norm {report['result_norm']:.10g} ({kind}), {report['result_components']} component(s)"),
        ("u · v", None if functional is None else f"{functional:.12g}"),
        ("time", f"{time}, {output.engineering(report['dofs_per_second'], 'DoF/s')}"),
        ("written", report.get("output")),
    )
    output.say(operator.explain() if isinstance(operator, Operator) else repr(operator))
