"""Progress on a terminal or in a notebook."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from threading import Event, Thread, Timer
from time import perf_counter
from typing import Any

from hpfem.shapes.arguments import instance, integer

from .communicator import world

# Seconds after which progress is shown.
PATIENCE = 1.0
# Seconds between two updates of a line of text; shorter work shows nothing.
PERIOD = 0.5
# The present display of progress, or None; and the number of requests for silence.
_bars: list[Any] = []
_silent: list[object] = []


@contextmanager
def progress(description: str, total: int | None = None) -> Iterator[Callable[..., None]]:
    """Show progress while the body runs: a bar on standard error if that is a terminal, a line of text in a notebook.

    Parameters
    ----------
    description : str
        Text to the left of the bar.
    total : int, optional
        Number of steps, if known.

    Yields
    ------
    callable
        `step(n=1, description=None)`: n more steps are done; a new text.

    Raises
    ------
    ArgumentError
        If the description is not a text, or the total not a number of steps.
    """
    instance(description, str, "the description")
    total = None if total is None else integer(total, 0, "the number of steps")
    if not _shown():
        yield no_steps
        return
    with ExitStack() as stack:
        if not _bars:  # an outer bar gets one more line: two bars would overwrite each other
            made = stack.enter_context(_terminal_bars() if _on_terminal() else _Line())
            _bars.append(made)
            stack.callback(_bars.remove, made)
        else:
            stack.callback(lambda: bar.remove_task(task))
        bar = _bars[0]
        task = bar.add_task(description, total=total)

        def step(n: int = 1, description: str | None = None) -> None:
            bar.update(task, advance=n, description=description)

        yield step


def no_steps(n: int = 1, description: str | None = None) -> None:
    """The steps of no bar."""


@contextmanager
def progress_if_long(description: str) -> Iterator[None]:
    """Show progress while the body runs, after it has run for `PATIENCE` seconds."""
    if not _shown():
        yield
        return
    with ExitStack() as stack:
        timer = Timer(PATIENCE, lambda: stack.enter_context(progress(description)))
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()


@contextmanager
def silent() -> Iterator[None]:
    """Show no progress of work that begins in the body."""
    mine = object()
    _silent.append(mine)
    try:
        yield
    finally:
        _silent.remove(mine)


class _Line:
    """One line of text about all running work, rewritten from time to time and removed at the end."""

    def __init__(self) -> None:
        self._tasks: dict[int, dict[str, Any]] = {}
        self._numbers, self._stream, self._width = count(), sys.stdout, 0
        self._over = Event()
        self._thread = Thread(target=self._repeat, daemon=True)

    def __enter__(self) -> _Line:
        self._thread.start()
        return self

    def __exit__(self, *what: object) -> None:
        self._over.set()
        self._thread.join()
        if self._width:
            self._write("")
            self._stream.write("\r")

    def add_task(self, description: str, total: int | None) -> int:
        """Begin a piece of work; returns its number."""
        number = next(self._numbers)
        self._tasks[number] = {"what": description, "total": total, "done": 0, "began": perf_counter()}
        return number

    def update(self, number: int, advance: int, description: str | None) -> None:
        """Count steps."""
        task = self._tasks[number]
        task["done"] += advance
        task["what"] = task["what"] if description is None else description

    def remove_task(self, number: int) -> None:
        """End something."""
        del self._tasks[number]

    def _repeat(self) -> None:
        while not self._over.wait(PERIOD):
            self._write("; ".join(self._said(task) for task in list(self._tasks.values())))

    @staticmethod
    def _said(task: dict[str, Any]) -> str:
        done, total = task["done"], task["total"]
        steps = f", {done}/{total}" if total else f", {done}" if done else ""
        return f"{task['what']}{steps}, {perf_counter() - task['began']:.0f} s"

    def _write(self, text: str) -> None:
        self._stream.write("\r" + text.ljust(self._width))
        self._stream.flush()
        self._width = len(text)


def _terminal_bars() -> Any:
    from rich import progress as bars
    from rich.console import Console

    counts = bars.BarColumn(), bars.MofNCompleteColumn(), bars.TimeElapsedColumn(), bars.TimeRemainingColumn()
    return bars.Progress(bars.TextColumn("{task.description}"), *counts, console=Console(stderr=True), transient=True)


def _shown() -> bool:
    """Whether progress is shown: there is a display, no request for silence, and this is the first process."""
    return not _silent and (_on_terminal() or _in_notebook()) and world().rank == 0


def _on_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _in_notebook() -> bool:
    """Whether the program runs in a kernel of IPython, whose output takes carriage returns."""
    ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return sys.stdout is not None and ipython is not None and hasattr(ipython(), "kernel")
