"""The command `hpfem`: look at a mesh, apply an operator, solve, draw, compare algorithms, measure throughput, tune.

Exit codes: 0 done, 2 bad input (one line on standard error says what), 130 interrupted, 143 terminated.
Under mpirun, info, solve and scale work on one mesh in all processes, and the first one prints; the others refuse.

Examples
--------
  hpfem info meshes/cube_mixed.msh
  hpfem apply meshes/cube_mixed.msh --operator helmholtz --order 4 -o helmholtz.vtu
  hpfem solve meshes/cube_mixed.msh --order 5 --dirichlet 0 -o u.vtu
  hpfem view u.vtu -o u.png
  hpfem compare meshes/curved_mixed.msh --order 2:8
  hpfem bench --quick -o results.json
  hpfem plot results.json
  hpfem reproduce all --quick
  hpfem tune meshes/cube_mixed.msh --order 4

hpfem COMMAND --help lists the options of a command.
"""

from __future__ import annotations

import argparse
import io
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn

from ..errors import ArgumentError, HpfemError, HpfemWarning
from ..support.communicator import world
from ..support.ending import end_all
from ..support.files import path_text
from ..version import __version__
from . import apply, bench, cache, compare, info, output, plot, reproduce, scale, solve, tune, view

__all__ = ["main"]


class Parser(argparse.ArgumentParser):
    """A parser whose error messages take one line."""

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and exit with code 2."""
        end_all(2, lambda: self._print_message(f"{self.prog}: error: {message} (see {self.prog} --help)\n", sys.stderr))
        self.exit(2)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help, or what is wrong; help only on the first process."""
        if file is sys.stderr or world().rank == 0:
            super()._print_message(message, file)


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of the whole command line."""
    text = "High-order finite element operators on meshes that mix element shapes."
    form = argparse.RawDescriptionHelpFormatter
    parser = Parser(prog="hpfem", description=text, epilog=_told(__doc__)[2], formatter_class=form)
    parser.add_argument("--version", action="version", version=f"hpfem {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in (info, apply, solve, view, compare, bench, scale, plot, reproduce, tune, cache):
        name, (title, text, examples) = module.__name__.rpartition(".")[2], _told(module.__doc__)
        command = commands.add_parser(name, help=title, description=text, epilog=examples, formatter_class=form)
        module.add_arguments(command)
        command.add_argument("--json", action="store_true", help="print the result as JSON instead of a table")
        command.set_defaults(run=module.run, alone=module not in (info, solve, scale))
    return parser


def _told(text: str | None) -> tuple[str, str, str]:
    """The parts of a command's docstring: title, description and examples."""
    title, description, examples = (text or "\n\n\n\n").split("\n\n", 2)
    return title.partition(": ")[2].rstrip("."), description, examples.replace("Examples\n--------", "examples:")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, by default that of the process, and return the exit code; see `make_parser`."""
    if sys.stdout is None:
        return _complain("standard output is closed; send it to a file, or to /dev/null")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files need not be text
    try:
        code = _run(arguments)
    finally:
        try:
            sys.stdout.flush()
        except OSError:
            output.drop_output()
    return code


def _run(arguments: Sequence[str] | None) -> int:
    try:
        several = world().size > 1  # known before anything is said
        parsed = make_parser().parse_args(arguments)
        if several and parsed.alone:
            raise ArgumentError(
                f"hpfem {parsed.command} works in one process; start it without mpirun, which info, solve and scale use"
            )
        with _terminable(), warnings.catch_warnings():
            warnings.simplefilter("always", HpfemWarning)
            warnings.showwarning = partial(_warn, warnings.showwarning)
            parsed.run(parsed)
    except HpfemError as error:
        return _complain(str(error))
    except OSError as error:
        return _complain(f"{path_text(error.filename)}: {error.strerror}" if error.filename else str(error))
    except MemoryError:
        return _complain("not enough memory; take a smaller mesh, order or size")
    except _Terminated:
        return _say("terminated", 143)
    except KeyboardInterrupt:
        return _say("interrupted", 130)
    return 0


class _Terminated(KeyboardInterrupt):
    """The signal SIGTERM, which ends a run as SIGINT does."""


@contextmanager
def _terminable() -> Iterator[None]:
    """Raise `_Terminated` where the signal would end the process."""

    def terminate(*_: object) -> NoReturn:
        raise _Terminated

    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _warn(others: Callable[..., None], message: Warning | str, category: type[Warning], *where: Any) -> None:
    """Show our warnings as one line, and those of other libraries as usual."""
    if issubclass(category, HpfemWarning):
        print(f"hpfem: warning: {' '.join(str(message).split())}", file=sys.stderr)
    else:
        others(message, category, *where)


def _complain(message: str) -> int:
    return _say(f"error: {' '.join(message.split())}", 2)


def _say(message: str, code: int) -> int:
    """Print a message on standard error, if that is open, and end other processes; returns the exit code."""
    if sys.stderr is not None:
        end_all(code, lambda: print(f"hpfem: {message}", file=sys.stderr))
    return code
