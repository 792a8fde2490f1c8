"""`hpfem cache`: the compiled kernels and tuning results that are kept."""

from __future__ import annotations

import argparse
from typing import Any

from .. import tuning
from ..backends.cpu.runtime.cache import cache_clear, cache_info
from ..backends.cuda.runtime import nvrtc
from ..support.cache import CacheInfo
from . import output
from .command import Command

EXAMPLES = """examples:
  hpfem cache info
  hpfem cache clear
  hpfem cache clear tuning
"""

# What is kept: how to count it, and how to delete it.
KINDS = {
    "kernels": (cache_info, cache_clear),
    "cuda": (nvrtc.cache_info, nvrtc.cache_clear),
    "tuning": (tuning.store_info, tuning.forget),
}


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("info", "clear"), help="count what is kept, or delete it")
    parser.add_argument("kind", nargs="?", choices=tuple(KINDS), help="of one kind only")


def _run(arguments: argparse.Namespace) -> None:
    kinds = [arguments.kind] if arguments.kind else list(KINDS)
    found: dict[str, dict[str, Any]] = {}
    for kind in kinds:
        count, clear = KINDS[kind]
        deleted = clear() if arguments.action == "clear" else None
        state: CacheInfo = count()
        found[kind] = {"path": state.path, "entries": state.entries, "nbytes": state.nbytes, "limit": state.limit}
        if deleted is not None:
            found[kind]["deleted"] = deleted
    if arguments.json:
        output.print_json(found)
        return
    for kind, state_of in found.items():
        if "deleted" in state_of:
            output.say(f"deleted {state_of['deleted']} of {kind}")
        limit = f" of {state_of['limit'] / 1e6:.0f}" if state_of["limit"] else ""
        size = f"{state_of['nbytes'] / 1e6:.1f}{limit} MB"
        output.say(f"{kind}: {state_of['entries']} files, {size} in {state_of['path']}")


COMMAND = Command(
    "cache",
    "the compiled kernels and tuning results that are kept",
    "Kernels are compiled once for each form, shape, order and processor (kernels) or GPU (cuda), and kept in the\n"
    "user's cache folder (or the one that HPFEM_CACHE_DIR names); the least recently used go first when it is full.\n"
    "Results of hpfem tune (tuning) are kept beside them.",
    EXAMPLES,
    _add_arguments,
    _run,
)
