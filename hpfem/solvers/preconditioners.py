"""Preconditioners by name: functions r -> M^-1 r of global vectors, on the device of the operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..assembly import GlobalOperator
from ..assembly.devices import vector_on
from ..errors import ArgumentError, SolverError

Preconditioner = Callable[[Any], Any]

NAMES = ("auto", "none", "jacobi")


def jacobi(A: GlobalOperator) -> Preconditioner:
    """Division by the diagonal, which is made without assembling.

    Raises
    ------
    SolverError
        If an entry of the diagonal is not positive.
    """
    diagonal = A.diagonal()
    if not np.all(diagonal > 0):
        raise SolverError("the diagonal of the operator is not positive; the operator is not positive definite")
    inverse = vector_on(1.0 / diagonal, A.device, A.dtype)
    return lambda r: r * inverse


def make_preconditioner(name: str, A: GlobalOperator) -> tuple[Preconditioner | None, str]:
    """Make a preconditioner.

    Parameters
    ----------
    name : str
        "auto", "none", "jacobi".
    A : GlobalOperator

    Returns
    -------
    callable or None
    str
        What "auto" stood for.
    """
    if name not in NAMES:
        raise ArgumentError(f"unknown preconditioner {name!r}; valid: {', '.join(NAMES)}")
    if name == "none":
        return None, name
    return jacobi(A), "jacobi"
