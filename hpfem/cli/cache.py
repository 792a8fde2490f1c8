"""`hpfem cache`: the compiled kernels and tuning results that are kept.

Kernels are compiled once for each form, shape, order and processor (kernels, found by programs) or GPU (cuda), and kept
in the user's cache folder, or in the folder named by HPFEM_CACHE_DIR. When it is full, those unused for longest are
deleted. It holds tables of multigrid (tables) and the results of hpfem tune (tuning), too.

Examples
--------
  hpfem cache info
  hpfem cache clear
  hpfem cache clear tuning
"""

from __future__ import annotations

import argparse
from typing import Any

from ..backends import BACKENDS
from ..support.cache import Cache
from ..support.tables import table_cache
from ..tuning import store
from . import output


def _caches() -> dict[str, Cache]:
    """Kinds of things that are kept, by name."""
    found = [BACKENDS[name].caches() for name in BACKENDS]
    ours = {"tables": table_cache(), "tuning": store.cache()}
    return {kind: cache for caches in found for kind, cache in caches.items()} | ours


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command; see `hpfem.cli.make_parser`."""
    parser.add_argument("action", choices=("info", "clear"), help="count the entries, or delete them")
    parser.add_argument("kind", nargs="?", choices=tuple(_caches()), help="entries of this kind only")


def run(arguments: argparse.Namespace) -> None:
    """Run the command; see `hpfem.cli.make_parser`."""
    found: dict[str, dict[str, Any]] = {}
    for kind, cache in _caches().items():
        if arguments.kind in (None, kind):
            deleted = {"deleted": cache.clear()} if arguments.action == "clear" else {}
            found[kind] = vars(cache.info()) | deleted
    if arguments.json:
        output.print_json(found)
        return
    for kind, state in found.items():
        if "deleted" in state:
            output.say(f"deleted {state['deleted']} of {kind}")
        limit = f" of {state['limit'] / 1e6:.0f}" if state["limit"] else ""
        size = f"{state['nbytes'] / 1e6:.1f}{limit} MB"
        output.say(f"{kind}: {state['entries']} files, {size} in {state['path']}")
