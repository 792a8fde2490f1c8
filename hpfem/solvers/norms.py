"""Functions against fields by a rule finer than the space's: errors of solutions, moments of right-hand sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hpfem.shapes.arguments import flag, instance, integer

from ..errors import ArgumentError
from ..field import Field, check_state
from ..operators import BwdTrans, IProductWRTBase
from ..space import MAX_POINTS, Space

# Further points for functions: enough that a smooth one is integrated to rounding, so that results do not depend on
# how cells are turned.
_MORE = 6


def finer_space(space: Space, more: int) -> Space:
    """The same blocks with more points than the default rule has in each direction.

    Parameters
    ----------
    space : Space
    more : int

    Returns
    -------
    Space
    """
    # Work of the set-up, once: on the host, wherever the solver runs.
    return Space(space.mesh, space.orders, space.basis, more, space.dtype)


def moments(space: Space, function: Callable[..., Any]) -> Field:
    """Inner products of a function with every basis function, by a finer rule: a right-hand side.

    Parameters
    ----------
    space : Space
    function : callable
        Of the D coordinates.

    Returns
    -------
    Field
        State "dual".

    Raises
    ------
    ArgumentError
        If the function does not fit, or has several components.
    """
    finer = finer_space(space, _MORE)
    values = finer.evaluate(function)
    if values.components != 1:
        raise ArgumentError(f"a function of one component is wanted, this one has {values.components}")
    found = IProductWRTBase(finer)(values)
    return space.field("dual", [np.array(pair.read()) for pair in found.data])


def l2_error(field: Field, exact: Callable[..., Any], relative: bool = True, more: int = 3) -> float:
    """L2 norm of the difference of a field and a function, by a rule finer than that of the field's space.

    Parameters
    ----------
    field : Field
        State "coeff".
    exact : callable
        Of the D coordinates.
    relative : bool
        Whether to divide by the function's norm.
    more : int
        Points more than the default rule in each direction.

    Returns
    -------
    float

    Raises
    ------
    StateError
        If the field is not in state "coeff".
    ArgumentError
        If it is no field, or the function does not fit.
    """
    check_state(instance(field, Field, "the field"), "coeff", "l2_error")
    finer = finer_space(field.space, integer(more, 0, "more", MAX_POINTS))
    values = finer.evaluate(exact)
    difference = BwdTrans(finer)(finer.field("coeff", [np.array(pair.read()) for pair in field.data])) - values
    return finer.norm(difference) / (finer.norm(values) if flag(relative, "relative") else 1.0)
