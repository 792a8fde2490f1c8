"""Operators by name, and tuning of a space for some of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Unpack

from hpfem.shapes.arguments import instance, shown

from ..errors import ArgumentError
from ..space import Space
from ..support.registry import Registry
from ..tuning import Tuning
from . import table
from .operator import Operator, OperatorOptions, tune_operators
from .sums import OperatorSum, Summable

# By name, for the command line and `tune`: those of the table.
OPERATORS: Registry[Callable[..., Any]] = Registry("operator")
for _name, _operator in vars(table).items():
    if not _name.startswith("_"):
        OPERATORS.add(_name, _operator)


def tune(
    space: Space,
    operators: str | Summable | Sequence[str | Summable] = ("Mass", "Helmholtz"),
    seconds: float = 60.0,
    **options: Unpack[OperatorOptions],
) -> list[Tuning]:
    """Find the fastest way to compute each block of a space, and keep it for operators with `strategy="auto"`.

    Operators that are made from now on, in this process or another, use the fastest kernels on similar blocks: of equal
    shape, order, basis, points, dtype, kind of geometry and about equal size, on the same device. Existing operators
    stay as they are, except those given here. `Operator.explain` shows the choices and their reasons.

    Parameters
    ----------
    space : Space
    operators : str, Operator, OperatorSum or sequence of these
        Names of operators that need no coefficients, or lam alone; or operators on the space, of a sum its part in the
        volume.
    seconds : float
        Time for everything together; a measurement that is running then is finished.
    **options
        strategy, algorithm, backend, precision of `Operator`, for the names.

    Returns
    -------
    list of Tuning

    Raises
    ------
    ArgumentError
        For an unknown operator, one that takes coefficients or cannot be tuned, or a time that is not positive.
    DeviceError
        If the backend cannot run here, or the device has no room.
    """
    instance(space, Space, "the space to tune")
    made: list[Operator] = []
    for given in operators if isinstance(operators, (list, tuple)) else (operators,):
        operator: Any = given.volume if isinstance(given, OperatorSum) else given
        if isinstance(given, str):
            kind: Any = OPERATORS[given]
            parameters = list(inspect.signature(kind).parameters.values())[1:]
            if any(p.default is p.empty and p.kind is not p.VAR_KEYWORD for p in parameters):
                raise ArgumentError(f"{given} takes coefficients; give the operator itself to be tuned")
            # Kernels are the same for all numbers.
            number: dict[str, Any] = {p.name: 1.0 for p in parameters if p.name == "lam"}
            operator = kind(space, **number, **options) if issubclass(kind, Operator) else kind
        if not isinstance(operator, Operator):
            name = getattr(operator, "name", None) or shown(operator)
            raise ArgumentError(f"{name} cannot be tuned; give operators that apply a form: Mass, Helmholtz, ...")
        if operator.space is not space:
            raise ArgumentError(f"{operator.name} is on another space than the one to be tuned")
        made.append(operator)
    return tune_operators(made, seconds)
