"""Solvers of global problems."""

from .cg import SolveInfo, cg
from .helmholtz import Solution, solve_helmholtz
from .norms import l2_error
from .preconditioners import make_preconditioner
from .projection import l2_project

__all__ = ["Solution", "SolveInfo", "cg", "l2_error", "l2_project", "make_preconditioner", "solve_helmholtz"]
