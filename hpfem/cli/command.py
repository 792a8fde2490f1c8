"""What a command of `hpfem` is."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Command:
    """A command of the command line.

    Attributes
    ----------
    name : str
    help, description : str
        One line for the list of commands, and what its own help begins with.
    examples : str
        Shown below the options.
    add_arguments : callable
        Gives a parser the command's own arguments.
    run : callable
        Does the work for parsed arguments; raises `HpfemError` for bad input.
    """

    name: str
    help: str
    description: str
    examples: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], None]

    def add_to(self, commands: Any) -> None:
        """Add the command, with the option `--json`: the result on standard output, nothing else there.

        Parameters
        ----------
        commands : argparse's subparsers
        """
        parser: argparse.ArgumentParser = commands.add_parser(
            self.name,
            help=self.help,
            description=self.description,
            epilog=self.examples,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self.add_arguments(parser)
        parser.add_argument("--json", action="store_true", help="print the result as JSON instead of a table")
        parser.set_defaults(run=self.run)
