"""Functions against fields by a rule finer than the space's: errors of solutions, moments of right-hand sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpfem.shapes.arguments import flag, instance, integer, is_real, real, shown

from ..assembly import C0Space
from ..errors import ArgumentError, StateError
from ..operators import BwdTrans, IProductWRTBase
from ..space import Field, Space
from ..space.arguments import MAX_POINTS
from ..space.field import check_state

Array = NDArray[np.float64]

# Further points for functions: enough that a smooth one is integrated to rounding, so that results do not depend on
# how cells are rotated.
_MORE = 6


def finer_space(space: Space, more: int) -> Space:
    """The same blocks in float64, with more points than the default rule has in each direction.

    Parameters
    ----------
    space : Space
    more : int

    Returns
    -------
    Space
    """
    # Work of the set-up, once: on the host, wherever the solver runs.
    return Space(space.mesh, space.orders, space.basis, more)


def load(c0: C0Space, f: Callable[..., Any] | float | Field) -> Array:
    """The functional (f, v) on continuous functions, in float64 whatever the type of the space.

    Parameters
    ----------
    c0 : C0Space
    f : callable, float or Field
        A function of the coordinates, by a finer rule; a number, by the rule of the space; or a field in state "phys"
        or "dual".

    Returns
    -------
    ndarray, [size]

    Raises
    ------
    ArgumentError
        If f has several components.
    StateError
        For a field on another space, or in state "coeff".
    """
    space, factor = c0.space, 1.0
    if callable(f):
        finer = finer_space(space, _MORE)
        field = IProductWRTBase(finer)(finer.evaluate(f))
    else:
        double = space
        if space.dtype != np.float64:
            double = Space(space.mesh, space.orders, space.basis, space.quadrature)
        if not isinstance(f, Field):
            if not is_real(f):
                raise ArgumentError(f"f is {shown(f)}; give a finite number, a function or a field")
            factor = real(f, "f")
            field = double.evaluate(lambda *x: 1.0)  # u = f / lam stays a solution on curved cells
        elif f.space is space:
            field = double.field(f.state, [pair.read().astype(np.float64) for pair in f.data])
        else:
            raise StateError("f is a field on another space")
        field = field if field.state == "dual" else IProductWRTBase(double)(field)
    arrays = [pair.read() for pair in field.data]
    if len(arrays[0]) != 1:
        raise ArgumentError(f"f has {len(arrays[0])} components, one is wanted")
    return np.asarray(factor * (c0.matrix.T @ np.concatenate([array.ravel() for array in arrays])), dtype=np.float64)


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
    arrays = [pair.read().astype(np.float64) for pair in field.data]
    difference = BwdTrans(finer)(finer.field("coeff", arrays)) - values
    return finer.norm(difference) / (finer.norm(values) if flag(relative, "relative") else 1.0)
