"""The exceptions of the lowest floor; `hpfem.errors` exports them, too."""

from __future__ import annotations


class HpfemError(Exception):
    """Base of every exception that hpfem raises on purpose."""


class ArgumentError(HpfemError, ValueError):
    """An argument is out of range, of the wrong shape, or names something that does not exist."""
