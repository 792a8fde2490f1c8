"""What commands print: tables for people, JSON for programs."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from ..errors import ArgumentError
from ..support.communicator import world
from ..support.files import plain

WIDE = 200


def say(text: str, end: str = "\n") -> None:
    """Print a line at once, on the first process; drop the rest if the reader has stopped (`| head -1`)."""
    if world().rank:
        return
    try:
        sys.stdout.write(text + end)
        sys.stdout.flush()
    except OSError as error:
        drop_output()
        if not isinstance(error, BrokenPipeError):
            raise ArgumentError(f"standard output cannot be written: {error.strerror}") from None


def drop_output() -> None:
    """Discard standard output from now on, with what Python has not written yet."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def print_json(obj: Any) -> None:
    """Print JSON; NumPy numbers become numbers, NaN and infinities null."""
    say(json.dumps(plain(obj), indent=1, allow_nan=False))


def show(arguments: argparse.Namespace, result: Any, table: Callable[[], None]) -> None:
    """Print a result as JSON where that is asked for, else as a table."""
    if arguments.json:
        print_json(result)
    else:
        table()


def print_pairs(pairs: Iterable[tuple[str, str]]) -> None:
    """Print pairs, one per line."""
    for name, text in pairs:
        say(f"{name:11} {text}")


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table; numbers are right-aligned."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.removeprefix(">"), justify="right" if column.startswith(">") else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else WIDE, highlight=False)
    with console.capture() as lines:
        console.print(table)
    say(lines.get(), end="")


def engineering(value: float, unit: str = "") -> str:
    """Write a number with three digits and k, M, G or m, µ, n."""
    for scale, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""), (1e-3, "m"), (1e-6, "µ")):
        if abs(value) >= scale:
            return f"{value / scale:.3g} {prefix}{unit}".strip()
    return f"{value / 1e-9:.3g} n{unit}".strip()


def flat(mapping: Mapping[str, Any]) -> str:
    """Write a mapping as `a 3, b 4`."""
    return ", ".join(f"{name} {value}" for name, value in mapping.items())
