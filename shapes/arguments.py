"""Checks of arguments that every module of the package makes in the same words."""

from __future__ import annotations

import numpy as np

from .errors import ArgumentError
from .polynomials import Array


def integer(value: object, least: int, what: str) -> int:
    """An integer not below `least`, as a Python int.

    Parameters
    ----------
    value : object
        What the caller gave; booleans and floats are refused.
    least : int
        Smallest value allowed.
    what : str
        Name of the argument in the message.

    Returns
    -------
    int

    Raises
    ------
    ArgumentError
        If it is anything else.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ArgumentError(f"{what} must be an integer >= {least}, got {value!r}")
    return int(value)


def coordinates(value: Array, dim: int, shape: str) -> Array:
    """Points as an array of floats [n, dim].

    Parameters
    ----------
    value : array_like, [n, dim]
    dim : int
        Number of coordinates wanted.
    shape : str
        Name of the shape the points are for.

    Returns
    -------
    ndarray, [n, dim]

    Raises
    ------
    ArgumentError
        If the array has another shape.
    """
    points = np.asarray(value, dtype=float)
    if points.ndim != 2 or points.shape[1] != dim:
        raise ArgumentError(f"points of a {shape} are an array [n, {dim}], got one of shape {points.shape}")
    return points
