"""`hpfem cache`: the compiled kernels that are kept."""

from __future__ import annotations

import argparse

from ..kernels.cpu import cache_clear, cache_info
from . import output
from .command import Command

EXAMPLES = """examples:
  hpfem cache info
  hpfem cache clear
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("info", "clear"), help="count the kept kernels, or delete them")


def _run(arguments: argparse.Namespace) -> None:
    deleted = cache_clear() if arguments.action == "clear" else None
    state = cache_info()
    found = {"path": state.path, "entries": state.entries, "nbytes": state.nbytes, "limit": state.limit}
    if arguments.json:
        output.print_json(found if deleted is None else {**found, "deleted": deleted})
        return
    if deleted is not None:
        output.say(f"deleted {deleted} compiled kernels")
    output.say(f"{state.path}: {state.entries} kernels, {state.nbytes / 1e6:.1f} of {state.limit / 1e6:.0f} MB")


COMMAND = Command(
    "cache",
    "the compiled kernels that are kept",
    "Kernels are compiled once for each form, shape, order and processor, and kept in the user's cache folder\n"
    "(or the one that HPFEM_CACHE_DIR names). The least recently used go first when it is full.",
    EXAMPLES,
    _add_arguments,
    _run,
)
