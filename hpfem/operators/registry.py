"""Operators by name, for the command line and `tune`; each is registered where it is defined."""

from collections.abc import Callable
from typing import Any

from ..support.registry import Registry

OPERATORS: Registry[Callable[..., Any]] = Registry("operator")
