"""Packages that only some functions need."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..errors import ArgumentError


def needed(module: str, what: str, install: str) -> Any:
    """Import a package where it is used."""
    try:
        return import_module(module)
    except (ImportError, OSError) as error:  # the latter of a library of the system
        name = module.partition(".")[0]
        why = "is not installed" if isinstance(error, ImportError) else f"cannot be imported ({error})"
        raise ArgumentError(f"{what} takes {name}, which {why}: pip install '{install}'") from None
