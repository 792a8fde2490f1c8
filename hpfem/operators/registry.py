"""Operators by name, for the command line and `tune`: those of the table."""

from collections.abc import Callable
from typing import Any

from ..support.registry import Registry
from . import table

OPERATORS: Registry[Callable[..., Any]] = Registry("operator")
for _name, _operator in vars(table).items():
    if not _name.startswith("_"):
        OPERATORS.add(_name, _operator)
