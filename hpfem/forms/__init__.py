"""Pointwise functions: plain Python in physical quantities, traced once to an expression graph."""

from .graph import COMPARISONS, OPERATIONS, Expression, Graph
from .trace import Pointwise, Trace, trace
from .vectors import Gradient, Vector

__all__ = ["COMPARISONS", "OPERATIONS", "Expression", "Gradient", "Graph", "Pointwise", "Trace", "Vector", "trace"]
