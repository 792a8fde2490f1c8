"""Preconditioners by name: functions r -> M^-1 r of global vectors, on the device of the operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hpfem.shapes.arguments import instance, name_of

from ..assembly import GlobalOperator
from ..errors import NotSuitable, SolverError
from ..support.log import report_once
from .low_energy import low_energy

Preconditioner = Callable[[Any], Any]

NAMES = ("auto", "none", "jacobi", "multilevel")
_LARGE = 50_000


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


def make_preconditioner(name: str, A: GlobalOperator) -> tuple[Preconditioner | None, str]:
    """Make a preconditioner.

    Parameters
    ----------
    name : str
        "none", "jacobi", "multilevel" (`low_energy`), or "auto": multilevel where it can serve, up to 50000 unknowns,
        else jacobi: beyond, making it takes longer than the iterations that it saves.
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
        If "multilevel" is asked for and cannot serve.
    SolverError
        If the operator is singular on a part of the mesh.
    """
    name_of(name, NAMES, "preconditioner")
    instance(A, GlobalOperator, "the operator of a preconditioner")
    if name == "none":
        return None, name
    if name == "multilevel" or (name == "auto" and A.shape[0] <= _LARGE):
        try:
            return low_energy(A), "multilevel"
        except (np.linalg.LinAlgError, RuntimeError) as error:
            if "singular" not in str(error).lower():
                raise
            raise SolverError(
                f"{A.operator.name} is singular on a part of the mesh: is a coefficient zero there, or is there nothing"
                " that fixes the solution?"
            ) from error
        except NotSuitable as reason:
            if name == "multilevel":
                raise
            report_once(f"preconditioner/{reason}", f"preconditioner: jacobi instead of multilevel: {reason}")
    return jacobi(A), "jacobi"
