"""Source of the kernel "sumfac"."""

from __future__ import annotations

from ....forms.form import BlockProblem
from ..codegen.prelude import COMMON_HEADERS, constants, fill, header
from ..codegen.tables import Levels
from .plan import GROUP, THREADS


def source(problem: BlockProblem, levels: Levels, name: str = "sumfac") -> str:
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
    own = fill("sumfac/sumfac.h", {"THREADS": THREADS, "GROUP": GROUP})
    return "\n".join([constants(problem, levels, name, GROUP), *map(header, COMMON_HEADERS), own])
