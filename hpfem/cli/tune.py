"""`hpfem tune`: find the fastest kernels for a mesh and keep them.

Measure the strategies, algorithms and kernel options that each block of a mesh can use, and keep the fastest.
The present choice stays unless another one is 5 % faster.

Examples
--------
  hpfem tune meshes/cube_mixed.msh --order 4
  hpfem tune meshes/curved_mixed.msh --order 2:6 --operator helmholtz --backend cpu --seconds 30
  hpfem tune meshes/pipe_mixed.msh --order 5 --backend cuda --dtype float32
  hpfem tune --show

Results are kept in the user's cache folder. Operators with strategy "auto" use them on blocks of the same shape, order,
basis, points, dtype and kind of geometry, of about the same size, on the same device. hpfem apply prints which
strategy and algorithm an operator uses.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from ..errors import ArgumentError
from ..mesh import read_mesh
from ..operators import OPERATORS, Tuning, tune
from ..space import Space
from ..tuning import store
from . import apply, options, output


def parse_spaces(text: str) -> tuple[int | dict[str, int], ...]:
    """Read the orders of spaces: "4", "2:6", "1,3,5", or one per shape, "hex=3,tet=4"."""
    return (options.parse_order(text),) if "=" in text else options.parse_orders(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command; see `hpfem.cli.make_parser`."""
    parser.add_argument("mesh", metavar="MESH", nargs="?", help="mesh file")
    parser.add_argument("--show", action="store_true", help="show the results kept so far; measure nothing")
    text = "polynomial orders: 4, 2:6 or 1,3,5, or one per shape: hex=3,tet=4 (default 4)"
    options.add(parser, "--order", parse_spaces, "P", text, dest="orders", default=(4,))
    text = f"some of {', '.join(OPERATORS)}, separated by commas, in any case (default mass,helmholtz)"
    default = ("mass", "helmholtz")
    options.add(parser, "--operator", options.parse_names, "NAMES", text, dest="operators", default=default)
    text = "total time (default 60); a measurement that is running then is finished"
    options.add(parser, "--seconds", options.parse_seconds, "S", text, default=60.0)
    options.add_space_options(parser)
    options.add_choice_options(parser)


def run(arguments: argparse.Namespace) -> None:
    """Run the command; see `hpfem.cli.make_parser`."""
    if arguments.show:
        _show(arguments)
        return
    if arguments.mesh is None:
        raise ArgumentError("no mesh is given; give one to tune on, or --show")
    if not arguments.seconds:
        raise ArgumentError("--seconds 0 leaves no time to tune")
    for name in arguments.operators:
        apply.operator_class(name)
    mesh = read_mesh(arguments.mesh)
    found: list[Tuning] = []
    deadline = time.monotonic() + arguments.seconds
    for done, order in enumerate(arguments.orders):
        space = Space(mesh, order, **options.space_options(arguments))
        operators = [apply.make_operator(space, name, {}, arguments) for name in arguments.operators]
        left = (deadline - time.monotonic()) / (len(arguments.orders) - done)
        # Every space gets time to compare its present choice with at least one other.
        found += tune(space, operators, max(left, 0.1))
    entries = [_entry(tuned) for tuned in found]
    output.show(arguments, entries, lambda: _print(entries))


def _entry(tuned: Tuning) -> dict[str, Any]:
    record = tuned.record
    return {
        **{name: getattr(tuned, name) for name in ("operator", "block", "changed", "elements", "spent")},
        "chosen": record and str(record.winner),
        "dofs_per_second": record and record.about["dofs_per_second"],
        "runner_up": record and record.runner_up and str(record.runner_up),
        "ratio": record and record.ratio,
        "gain": record and record.about["gain"],
        "seconds": {str(config): seconds for config, seconds in tuned.seconds.items()},
        "unsuitable": list(tuned.unsuitable),
    }


def _print(entries: list[dict[str, Any]]) -> None:
    rows = []
    for entry in entries:
        start = [entry["operator"], entry["block"]]
        if entry["chosen"] is None:
            rows.append([*start, "no time for a comparison; nothing is kept", "", "", "", ""])
            continue
        rate = output.engineering(entry["dofs_per_second"], "DoF/s")
        gain = f"{entry['gain']:.2f}" if entry["changed"] else "kept"
        rows.append([*start, entry["chosen"], rate, gain, str(len(entry["seconds"])), f"{entry['spent']:.1f} s"])
    output.print_table("tuned", ("operator", "block", "chosen", ">rate", ">gain", ">tried", ">took"), rows, keys=2)


def _show(arguments: argparse.Namespace) -> None:
    records = store.entries()
    if arguments.json:
        output.print_json([vars(record) for record in records])
        return
    if not records:
        output.say(f"nothing is tuned yet ({store.cache().folder})")
        return
    columns = "device operator shape >P geometry dtype >dofs chosen >rate >against tuned".split()
    rows = []
    for record in records:
        key, about = record.key, record.about
        rate, size = about.get("dofs_per_second"), key.get("size")
        types = dict.fromkeys(str(key.get(name)) for name in ("dtype", "factors") if key.get(name))
        rows.append(
            [
                f"{key.get('backend')}: {key.get('device')}",
                str(about.get("operator", key.get("form"))),
                *(str(key.get(name)) for name in ("shape", "order", "geometry")),
                "/".join(types),
                f"{4.0**size:.0e}" if isinstance(size, int) and 0 <= size < 64 else "",
                str(record.winner),
                output.engineering(rate, "DoF/s") if isinstance(rate, (int, float)) else "",
                f"{record.ratio:.2f}" if record.runner_up else "",
                str(about.get("date", ""))[:10],
            ]
        )
    output.print_table("kept tuning results", columns, sorted(rows), keys=4)
