"""Preconditioners by name: functions r -> M^-1 r of global vectors, on the device of the operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hpfem.shapes.arguments import instance, name_of

from ..assembly import GlobalOperator
from ..errors import NotSuitable, SolverError
from ..support.log import report_once, warn
from .multigrid import Multigrid

Preconditioner = Callable[[Any], Any]

NAMES = ("auto", "none", "jacobi", "multigrid")
SMALL = 20_000


class Jacobi:
    """Division by a diagonal.

    Parameters
    ----------
    inverse : array, [n]
        One over it, where the residuals are.
    """

    name = "jacobi"

    def __init__(self, inverse: Any) -> None:
        self.inverse = inverse

    def __call__(self, r: Any) -> Any:
        """Apply to a residual."""
        return r * self.inverse


def jacobi(A: GlobalOperator) -> Jacobi:
    """Division by the diagonal, which is made without assembling.

    Parameters
    ----------
    A : GlobalOperator

    Returns
    -------
    Jacobi

    Raises
    ------
    SolverError
        If an entry of the diagonal is not positive.
    """
    diagonal = A.diagonal()
    if not np.all(diagonal > 0):
        raise SolverError("the diagonal of the operator is not positive; the operator is not positive definite")
    return Jacobi(A.vectors.from_host(1.0 / diagonal, A.dtype))


def checked_preconditioner(name: str) -> str:
    """Check the name of a preconditioner.

    Parameters
    ----------
    name : str

    Returns
    -------
    str
        What it is called now.

    Raises
    ------
    ArgumentError
        For an unknown name.

    Warns
    -----
    HpfemWarning
        For "multilevel", an old name.
    """
    if name == "multilevel":
        warn("preconditioner='multilevel' is now 'multigrid', and another method; write that")
        return "multigrid"
    return name_of(name, NAMES, "preconditioner")


def make_preconditioner(name: str, A: GlobalOperator) -> tuple[Preconditioner | None, str]:
    """Make a preconditioner.

    Parameters
    ----------
    name : str
        "none", "jacobi", "multigrid" (`Multigrid`), or "auto": multigrid where it can serve, but jacobi below 20000
        unknowns, where a solve takes less time than the set-up.
    A : GlobalOperator

    Returns
    -------
    callable or None
    str
        What "auto" stood for.

    Raises
    ------
    ArgumentError
        For an unknown name.
    NotSuitable
        If "multigrid" is asked for and cannot serve.
    SolverError
        If the operator is singular on a part of the mesh.
    """
    name = checked_preconditioner(name)
    instance(A, GlobalOperator, "the operator of a preconditioner")
    if name == "none":
        return None, name
    if name == "multigrid" or (name == "auto" and A.shape[0] > SMALL):
        try:
            return Multigrid(A), "multigrid"
        except NotSuitable as reason:
            if name == "multigrid":
                raise
            report_once(f"preconditioner/{reason}", f"preconditioner: jacobi instead of multigrid: {reason}")
    return jacobi(A), "jacobi"
