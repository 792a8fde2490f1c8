"""CuPy, imported at its first use: where it is missing, the backend says so, and what needs no GPU works."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class _Module:
    """A module that is imported when something of it is asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)


cupy, cupyx = _Module("cupy"), _Module("cupyx")
