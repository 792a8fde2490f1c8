"""Pointwise functions: plain Python in physical quantities, traced once to an expression graph."""

from .trace import Pointwise
from .vectors import Gradient, Vector

__all__ = ["Gradient", "Pointwise", "Vector"]
