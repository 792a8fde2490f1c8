"""The frame of the scripts beside this file: options, a file with the machine that grows while they measure, tables."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpfem.support.files import write_json
from hpfem.support.machine import machine_description

Content = dict[str, Any]


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table in Markdown."""
    first, *others = ("| " + " | ".join(row) + " |" for row in (headings, *rows))
    return "\n".join([first, "|---" * len(headings) + "|", *others])


def pivot(names: Sequence[str], cells: Mapping[tuple[str, ...], Mapping[Any, str]], column: str = "{}") -> str:
    """Table in Markdown of cells by the row's names and the column."""
    columns = list(dict.fromkeys(value for row in cells.values() for value in row))
    rows = [[*key, *(row.get(value, "") for value in columns)] for key, row in cells.items()]
    return markdown_table([*names, *map(column.format, columns)], rows)


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
