"""The command `hpfem`: look at a mesh, apply an operator, solve, compare algorithms, measure throughput, draw it, tune.

Exit codes: 0 done, 2 bad input (one line on standard error says what), 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from .. import __version__
from ..errors import HpfemError
from . import apply, bench, cache, compare, info, plot, solve, tune

__all__ = ["main"]

EXAMPLES = """examples:
  hpfem info meshes/cube_mixed.msh
  hpfem apply meshes/cube_mixed.msh --operator helmholtz --order 4 -o helmholtz.vtu
  hpfem solve meshes/cube_mixed.msh --order 5 --dirichlet 0 -o u.vtu
  hpfem compare meshes/curved_mixed.msh --order 2:8
  hpfem bench --quick -o results.json
  hpfem plot results.json
  hpfem tune meshes/cube_mixed.msh --order 4

hpfem COMMAND --help says more.
"""


class Parser(argparse.ArgumentParser):
    """A parser whose complaints take one line."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and leave with exit code 2.

        Parameters
        ----------
        message : str

        Raises
        ------
        SystemExit
            Always.
        """
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of the whole command line.

    Returns
    -------
    ArgumentParser
    """
    parser = Parser(
        prog="hpfem",
        description="High-order finite element operators on meshes that mix element shapes.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"hpfem {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in (info, apply, solve, compare, bench, plot, tune, cache):
        module.COMMAND.add_to(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    arguments : sequence of str, optional
        Those of the process when left out.

    Returns
    -------
    int
        Exit code.

    Raises
    ------
    SystemExit
        From the parser: after --help and --version, and for arguments that it does not know.
    """
    parsed = make_parser().parse_args(arguments)
    try:
        parsed.run(parsed)
        sys.stdout.flush()
    except HpfemError as error:
        return _complain(str(error))
    except BrokenPipeError:
        # The reader has seen enough, as in `hpfem info mesh.msh | head -1`; nothing is left to be written at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _complain(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except MemoryError:
        return _complain("not enough memory; take a smaller mesh, order or size")
    except KeyboardInterrupt:
        print("hpfem: interrupted", file=sys.stderr)
        return 130
    return 0


def _complain(message: str) -> int:
    print(f"hpfem: error: {' '.join(message.split())}", file=sys.stderr)
    return 2
