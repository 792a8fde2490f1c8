"""Global problems: continuous spaces over elements, boundary conditions, global operators."""

from .boundary import BoundaryConditions
from .c0 import C0Space
from .global_operator import GlobalOperator

__all__ = ["BoundaryConditions", "C0Space", "GlobalOperator"]
