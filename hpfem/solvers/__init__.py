"""Solvers of global problems."""

from .cg import cg
from .helmholtz import solve_helmholtz
from .info import SolveInfo
from .l2_projection import l2_project
from .march import March, march
from .multigrid import Multigrid
from .newton import NewtonInfo, newton
from .norms import h1_error, l2_error
from .preconditioners import make_preconditioner
from .problem import Problem, Solution
from .solution_map import SolutionMap
from .solve import solve
from .wave import point_source, ricker

__all__ = [
    "March",
    "Multigrid",
    "NewtonInfo",
    "Problem",
    "Solution",
    "SolutionMap",
    "SolveInfo",
    "cg",
    "h1_error",
    "l2_error",
    "l2_project",
    "make_preconditioner",
    "march",
    "newton",
    "point_source",
    "ricker",
    "solve",
    "solve_helmholtz",
]
