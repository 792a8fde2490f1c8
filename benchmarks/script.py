"""The frame of the scripts beside this file: options, a file with the machine that grows while they measure, tables."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hpfem.support.communicator import world
from hpfem.support.files import write_json
from hpfem.support.machine import machine_description

Content = dict[str, Any]
Cases = Callable[..., Iterator[Any]]


class Tables(dict[str, tuple[str, Cases]]):
    """Titles and cases of a script's tables, by the names of the functions that yield the cases."""

    def add(self, function: Cases) -> Cases:
        """Register a table by the name of its function; the docstring is its title."""
        self[function.__name__] = str(function.__doc__).rstrip("."), function
        return function

    def add_option(self, parser: argparse.ArgumentParser) -> None:
        """Add the argument that chooses tables."""
        parser.add_argument("tables", nargs="*", type=self._name, metavar="TABLE", help=", ".join(self))

    def asked(self, given: argparse.Namespace, content: Content) -> Iterator[tuple[Cases, Callable[[Content], None]]]:
        """Begin the chosen tables, or all, one after the other: what yields the cases, and what keeps a record."""
        content["tables"] = {}
        for name in given.tables or self:
            title, cases = self[name]
            content["tables"][name] = {"title": title, "cases": []}
            yield cases, partial(self._keep, name, content)

    def _keep(self, name: str, content: Content, record: Content) -> None:
        content["tables"][name]["cases"].append(record)
        if world().rank == 0:
            print(name, record, file=sys.stderr, flush=True)

    def _name(self, text: str) -> str:
        if text not in self:
            raise argparse.ArgumentTypeError(f"no table {text}; there are {', '.join(self)}")
        return text


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table in Markdown."""
    first, *others = ("| " + " | ".join(row) + " |" for row in (headings, *rows))
    return "\n".join([first, "|---" * len(headings) + "|", *others])


def pivot(names: Sequence[str], cells: Mapping[tuple[str, ...], Mapping[Any, str]], column: str = "{}") -> str:
    """Table in Markdown of cells by the row's names and the column."""
    columns = list(dict.fromkeys(value for row in cells.values() for value in row))
    rows = [[*key, *(row.get(value, "") for value in columns)] for key, row in cells.items()]
    return markdown_table([*names, *map(column.format, columns)], rows)


def by_tables(content: Content, cell: Callable[[Content], str]) -> str:
    """The tables of a file with their titles, a row's cell for each column, and behind them what failed."""
    lines: list[str] = []
    for found in content["tables"].values():
        cells: dict[tuple[str, ...], dict[str, str]] = {}
        for one in found["cases"]:
            cells.setdefault((one["row"],), {})[one["column"]] = cell(one)
        failed = [f"- {one['row']}, {one['column']}: {one['failed']}" for one in found["cases"] if "failed" in one]
        lines += [f"## {found['title']}", "", pivot([""], cells), "", *failed]
    return "\n".join(lines)


def count_of(one: Content) -> str:
    """The iterations of a case, "x" where no solution came."""
    return "x" if one["iterations"] is None else str(one["iterations"])


def run(
    description: str | None,
    measure: Callable[[argparse.Namespace, Content], Iterator[object]],
    text_of: Callable[[Content], str],
    arguments: Sequence[str] | None,
    backends: Sequence[str] = (),
    add_options: Callable[[argparse.ArgumentParser], object] = lambda parser: None,
) -> Content:
    """Measure, print and write: `measure` fills the content of the file, which is written whenever it yields."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    if backends:
        parser.add_argument("--backend", choices=backends, default="cpu")
    parser.add_argument("--small", action="store_true", help="small problems, to try the script")
    parser.add_argument("--show", metavar="FILE", help="measure nothing, print the tables of a file")
    parser.add_argument("-o", "--output", metavar="FILE", help="JSON file to write")
    given = parser.parse_args(arguments)
    if given.show:
        content: Content = json.loads(Path(given.show).read_text(encoding="utf-8"))
    else:
        content = {"machine": machine_description()}
        for _ in measure(given, content):
            if given.output:
                write_json(given.output, content)
    print(text_of(content))
    return content
