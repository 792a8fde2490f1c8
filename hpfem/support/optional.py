"""Packages that only some functions need."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..errors import ArgumentError


def needed(module: str, what: str, install: str) -> Any:
    """Import a package where it is used."""
    try:
        return import_module(module)
    except ImportError:
        name = module.partition(".")[0]
        raise ArgumentError(f"{what} takes {name}, which is not installed: pip install '{install}'") from None
