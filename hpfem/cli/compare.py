"""`hpfem compare`: find the fastest way to apply an operator on a mesh, and whether collocation is worth it.

Apply the Helmholtz operator in every way: by dense matrices, by sum factorisation, collocated and noncollocated, and by
what else "auto" takes. First comes the answer: which way is fastest on each shape, by how much, and what "auto" takes.
Then a table has a line for each shape and order, with --all for each way. Ways are timed in turns; a difference inside
the quartiles is none. Of blocks of few cells, copies are timed. On triangles and tets quadrature="simplex" is measured
too; on curved cells its results differ by the error of the quadrature.

Examples
--------
  hpfem compare meshes/cube_mixed.msh --order 2:8
  hpfem compare meshes/curved_mixed.msh --order 4 --all
  hpfem compare meshes/curved_mixed.msh --order 1:6 --dtype float32 -o results/
  hpfem compare meshes/curved_mixed.msh --order 1:6 -o picture.png

With -o a folder gets compare.json and the picture compare.png; a name that ends in .json, .png, .pdf or .svg is the one
file that is written.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from ..benchmarks import ComparisonRow, compare_algorithms, document, thread_limit
from ..benchmarks.results import COMPARE
from ..benchmarks.turns import MARGIN
from ..mesh import read_mesh
from ..plots import plot_results
from ..support.machine import machine_description
from ..support.progress import progress
from . import options, output, plot
from .output import ResultFile

Rows = Sequence[ComparisonRow]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command; see `hpfem.cli.make_parser`."""
    parser.add_argument("mesh", metavar="MESH", help="mesh file")
    text, default = "polynomial orders: 4, 2:8 or 1,3,5 (default 2:6)", (2, 3, 4, 5, 6)
    options.add(parser, "--order --orders", options.parse_orders, "P", text, dest="orders", default=default)
    parser.add_argument("--lam", type=float, default=1.0, metavar="NUMBER", help="reaction coefficient (default 1)")
    parser.add_argument("--all", action="store_true", help="print all ways, not only the fastest")
    options.add_space_options(parser)
    options.add_precision_option(parser)
    options.add_timing_options(parser, 25)
    parser.add_argument("-o", "--output", metavar="NAME", help="a folder, a picture or a .json file")


def run(arguments: argparse.Namespace) -> None:
    """Run the command; see `hpfem.cli.make_parser`."""
    path = picture = folder = None
    if arguments.output is not None and (picture := plot.picture_file(arguments.output)) is None:
        if Path(arguments.output).suffix == ".json":
            path = options.output_file(arguments.output)
        else:
            folder = options.output_folder(arguments.output, f"{plot.TAKES}, or a .json file")
            path = folder / "compare.json"
    mesh = read_mesh(arguments.mesh)
    rows: list[ComparisonRow] = []
    how, space = {name: getattr(arguments, name) for name in ("lam", "precision")}, options.space_options(arguments)
    with thread_limit(arguments.threads) as threads:
        about = {"mesh": arguments.mesh, **how, "space": space, "threads": threads, "machine": machine_description()}

        def result(complete: bool) -> dict[str, Any]:
            return document(COMPARE, [row.as_dict() for row in rows], complete, **about)

        with ResultFile(path, result) as file, progress("comparing", total=len(arguments.orders)) as step:
            for order in arguments.orders:
                step(0, f"order {order}")
                rows += compare_algorithms(mesh, order, repeats=arguments.repeats, **how, **space)
                step()
                file.save_sometimes()
    file.finish(arguments, lambda found: print_comparison(rows, found, arguments.all))
    drawn = [] if folder is None else plot_results(result(True), folder)
    drawn += [] if picture is None else [plot.one_picture(result(True), picture)]
    for written in [*([] if path is None else [path]), *drawn]:
        if not arguments.json:
            output.say(f"written {written}")


def print_comparison(rows: Rows, result: Mapping[str, Any], everything: bool) -> None:
    """Print the answer, a line of each block or of every way on it, and what the reader must know of them."""
    by_block = sorted(rows, key=_block)
    blocks = [list(own) for _, own in groupby(by_block, _block)]
    threads = result["threads"]["limit"]
    where = f"{rows[0].backend}, {result['space']['dtype']}, {threads} thread{'s' * (threads > 1)}"
    output.say_wrapped(f"The fastest way to apply Helmholtz on {result['mesh']} ({where}):")
    for line in _answers(blocks):
        output.say_wrapped(line, "  ")
    gap, more = ("fastest over it", "|>bytes/DoF|>difference") if everything else ("over the next", "")
    heads = f"shape|geometry|>P|way|>DoF/s|>{gap}|>collocation|>time|>cells|>flops/DoF{more}".split("|")
    lines = [_line(row, own, everything)[: len(heads)] for own in blocks for row in (own if everything else own[:1])]
    output.say("")
    output.print_table("Times as fast, with quartiles", heads, lines, 4 if everything else 3)
    text = f"A difference inside the quartiles, or under {MARGIN:.0%}, is no difference."
    text += " Collocation is that of the fastest strategy with both algorithms." * (not everything)
    output.say_wrapped(text)
    if row := next((row for row in rows if row.copies > 1), None):
        text = f"Cells {row.n_cells:,} x {row.copies}: {row.copies} copies of the mesh's {row.n_cells:,} were timed, as"
        output.say_wrapped(f"{text} those alone take little longer than a call.")
    if any(row.precision_error for row in rows):
        output.say(f"relative error by factors in float32 {max(row.precision_error for row in rows):.1e}")
    output.say_wrapped(_results(rows, [own for own in blocks if own[-1].quadrature]))


def _block(row: ComparisonRow) -> tuple[str, str, int]:
    return row.shape, row.geometry, row.order


def _answers(blocks: Sequence[Rows]) -> Iterator[str]:
    """A sentence for all orders of a shape that have the same fastest way."""
    said: dict[tuple[str, str, str], list[tuple[int, float, float]]] = {}
    for first, *others in ([row for row in block if not row.quadrature] for block in blocks):
        equal = [row.way for row in others if row.behind.sign <= 0]
        auto = next(row for row in (first, *others) if row.chosen)
        names = f"no difference between {' and '.join([first.way, *equal])}" if equal else first.way
        taken = auto.way if auto is not first else "the first" if equal else "it"
        choice = f"{taken}, which takes {{}} times as long" if auto.behind.sign > 0 else taken
        gap = min((row.behind.median for row in others), default=1.0)
        key = f"{first.shape}, {first.geometry}", names, choice
        said.setdefault(key, []).append((first.order, gap, auto.behind.median))
    for (block, names, choice), found in said.items():
        orders, gaps, longer = zip(*found, strict=True)
        faster = "" if names.startswith("no ") else f", {_range(gaps)} times as fast as the next"
        auto_takes = f"auto takes {choice.format(_range(longer))}"
        yield f"{block}, P = {', '.join(map(str, orders))}: {names}{faster}; {auto_takes}."


def _range(values: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys(f"{value:.3g}" for value in (min(values), max(values))))


def _line(row: ComparisonRow, block: Rows, everything: bool) -> list[str]:
    """A line of the table: a way, or the fastest of a block, by how much, and what collocation gains there."""
    other = row if everything else block[min(1, len(block) - 1)]
    gains = [own.collocation for own in ([row] if everything else block) if own.collocation]
    return [
        row.shape, row.geometry, str(row.order), "* " * (everything and row.fastest) + row.way,
        output.engineering(row.dofs_per_second),
        "" if other.fastest or other.quadrature > row.quadrature else str(other.behind), str(gains[0]) if gains else "",
        output.engineering(row.seconds, "s"), f"{row.n_cells:,}" + f" x {row.copies}" * (row.copies > 1),
        f"{row.flops / row.n_dofs:.1f}", f"{row.nbytes / row.n_dofs:.1f}", f"{row.difference:.1e}",
    ]  # fmt: skip


def _results(rows: Rows, other: Sequence[Rows]) -> str:
    """How far results differ, and what another quadrature gains and changes, which has no collocation."""
    text = f"Largest relative difference of results {max(row.difference for row in rows if not row.quadrature):.1e}"
    best = [next(row for row in block if row.quadrature) for block in other]
    if not best:
        return text
    shapes, gains = " and ".join(sorted({row.shape for row in best})), _range([1 / row.behind.median for row in best])
    return (
        f"{text}. Collocation is compared on the collapsed rule; a symmetric one has none. With"
        f" quadrature={best[0].quadrature!r}, {shapes} run at {gains} times the speed of the fastest; results differ by"
        f" {max(row.difference for row in best):.1e}"
    )
