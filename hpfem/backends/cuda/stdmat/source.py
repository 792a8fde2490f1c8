"""Source of StdMat's pointwise kernel."""

from __future__ import annotations

from ....forms.form import BlockProblem
from ..codegen.prelude import COMMON_HEADERS, constants, fill, header
from ..codegen.tables import Levels

THREADS = 256


def slots(problem: BlockProblem) -> int:
    """Numbers of a component at a point between two products: the value, and the derivatives if there are any.

    Parameters
    ----------
    problem : BlockProblem

    Returns
    -------
    int
    """
    return 1 + problem.shape.dim * problem.form.gradients


def source(problem: BlockProblem, levels: Levels, name: str = "stdmat") -> str:
    """Source of the kernel, `language.h` apart.

    Parameters
    ----------
    problem : BlockProblem
    levels : Levels
        Of the problem's tabulation, directions in its order.
    name : str
        Of the kernel in C++.

    Returns
    -------
    str
    """
    own = fill("stdmat/stdmat.h", {"THREADS": THREADS, "N_SLOTS": slots(problem)})
    return "\n".join([constants(problem, levels, name), *map(header, COMMON_HEADERS), own])
