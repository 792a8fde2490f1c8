"""Progress on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Timer
from typing import TYPE_CHECKING

from hpfem.shapes.arguments import instance, integer

if TYPE_CHECKING:
    from rich.progress import Progress

# Seconds after which the user is told what takes so long.
PATIENCE = 1.0
# The bar on the terminal, if there is one.
_bars: list[Progress] = []


@contextmanager
def progress(description: str, total: int | None = None) -> Iterator[Callable[..., None]]:
    """Show a progress bar on standard error while the body runs, if that is a terminal.

    Parameters
    ----------
    description : str
        What is going on, shown left of the bar.
    total : int, optional
        Number of steps, where it is known.

    Yields
    ------
    callable
        `step(n=1, description=None)`: n more steps are done, and what comes next.

    Raises
    ------
    ArgumentError
        If the description is no text, or the total no number of steps.
    """
    instance(description, str, "the description")
    total = None if total is None else integer(total, 0, "the number of steps")
    if not _on_terminal():
        yield lambda n=1, description=None: None
        return
    with ExitStack() as stack:
        if not _bars:  # another's bar gets a line more: two would write over each other
            made = _new_bar()
            _bars.append(stack.enter_context(made))
            stack.callback(_bars.remove, made)
        else:
            stack.callback(lambda: bar.remove_task(task))
        bar = _bars[0]
        task = bar.add_task(description, total=total)

        def step(n: int = 1, description: str | None = None) -> None:
            bar.update(task, advance=n, description=description)

        yield step


@contextmanager
def progress_if_long(description: str) -> Iterator[None]:
    """Show a progress bar while the body runs, from when it has run for `PATIENCE` seconds.

    Parameters
    ----------
    description
        What is going on.

    Yields
    ------
    None
    """
    if not _on_terminal():
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


def _new_bar() -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)


def _on_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()
