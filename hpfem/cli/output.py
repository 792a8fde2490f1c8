"""What commands print and write: tables for people, JSON for programs, files of growing results."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from ..errors import ArgumentError
from ..support.communicator import world
from ..support.ending import launched
from ..support.files import plain, write_json
from ..support.log import report_once

WIDE = 200
# A long run is saved this often.
SAVE_SECONDS = 30.0

Result = Mapping[str, Any]


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


def say_wrapped(text: str, indent: str = "") -> None:
    """Print a paragraph in lines of the reader's width."""
    say(textwrap.fill(text, width(), initial_indent=indent, subsequent_indent=indent + "  "))


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


def print_pairs(*pairs: tuple[str, str | None]) -> None:
    """Print pairs, one per line, but those without a text."""
    for name, text in pairs:
        if text is not None:
            say(f"{name:11} {text}")


def width() -> int:
    """Characters of a line: the terminal's or those of COLUMNS; what is behind a launcher is any terminal."""
    return shutil.get_terminal_size((80 if launched() else WIDE, 24)).columns


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], keys: int = 1) -> None:
    """Print a table without empty columns, numbers (">") right-aligned; if too wide, in parts that repeat `keys`."""
    terminal = sys.stdout.isatty() and not launched()
    console = Console(file=sys.stdout, width=width(), highlight=False, force_terminal=terminal)
    whole = [(name, list(cells)) for name, *cells in zip(columns, *rows, strict=True)]
    parts = [whole[:keys]]
    for own in (own for own in whole[keys:] if any(own[1])):
        if len(parts[-1]) > keys and _width_of([*parts[-1], own]) > console.width:
            parts.append(whole[:keys])
        parts[-1].append(own)
    with console.capture() as lines:
        console.print(title, style="italic")
        for number, part in enumerate(parts):
            table = Table(box=None, pad_edge=False, header_style="bold")
            for name, _ in part:
                right = name.startswith(">")
                table.add_column(name.removeprefix(">"), justify="right" if right else "left", overflow="fold")
            for row in zip(*(cells for _, cells in part), strict=True):
                table.add_row(*row)
            console.print(*[""] * (number > 0), table, sep="\n")
    say(lines.get(), end="")


def _width_of(columns: Sequence[tuple[str, list[str]]]) -> int:
    """Characters of a table."""
    return sum(max(cell_len(text) for text in (name.removeprefix(">"), *cells)) + 2 for name, cells in columns) - 2


def engineering(value: float, unit: str = "") -> str:
    """Write a number with three digits and k, M, G or m, µ, n."""
    for scale, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""), (1e-3, "m"), (1e-6, "µ")):
        if abs(value) >= scale:
            return f"{value / scale:.3g} {prefix}{unit}".strip()
    return f"{value / 1e-9:.3g} n{unit}".strip()


def flat(mapping: Mapping[str, Any]) -> str:
    """Write a mapping as `a 3, b 4`."""
    return ", ".join(f"{name} {value}" for name, value in mapping.items())


class ResultFile:
    """The file of a run's result. In a `with` block around the run, an interruption saves the result so far."""

    def __init__(self, path: Path | None, result: Callable[[bool], Result]) -> None:
        self.path = path
        self.result = result
        self._saved = time.monotonic()

    def __enter__(self) -> ResultFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and (trouble := self._save(False)):
            report_once(f"result/{self.path}", f"what was measured so far is lost: {trouble}")

    def save_sometimes(self) -> None:
        """Write the result so far, if the last time was long ago."""
        if time.monotonic() - self._saved > SAVE_SECONDS:
            self._save(False)
            self._saved = time.monotonic()

    def finish(self, arguments: argparse.Namespace, table: Callable[[Result], None]) -> None:
        """Write the result, and print it even if that failed."""
        trouble = self._save(True)
        result = self.result(True)
        show(arguments, result, lambda: table(result))
        if trouble is not None:
            raise trouble

    def _save(self, complete: bool) -> ArgumentError | None:
        result = self.result(complete)
        try:
            if self.path is not None and result["results"]:
                write_json(self.path, result)
        except ArgumentError as error:
            return error
        return None
