"""Modes at many points without tensor structure: the 1-D functions of a direction all at once.

They are polynomials of degree at most P, so a matrix gives all of them from the Legendre polynomials.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from .basis import Basis
from .polynomials import Array
from .quadrature import make_rule


class _Expansion(NamedTuple):
    """Legendre coefficients [n_functions, P + 1] of the functions of one direction, and of their derivatives."""

    values: Array
    derivatives: Array


def _legendre(degree: int, z: Array) -> Array:
    """Legendre polynomials, [degree + 1, n]."""
    found = np.empty((degree + 1, len(z)))
    found[0] = 1
    if degree:
        found[1] = z
    for k in range(2, degree + 1):
        np.multiply(z, found[k - 1], out=found[k])
        found[k] *= (2 * k - 1) / k
        found[k] -= (k - 1) / k * found[k - 2]
    return found


@cache
def _expansions(basis: Basis) -> tuple[_Expansion, ...]:
    degree = basis.order
    rule = make_rule("gauss", degree + 1)
    known = _legendre(degree, rule.points) * rule.weights
    known *= np.arange(0.5, degree + 1)[:, None]
    return tuple(
        _Expansion(*(basis.table(direction, rule.points, derivative) @ known.T for derivative in (0, 1)))
        for direction in range(basis.shape.dim)
    )


def modes_at(basis: Basis, eta: Array) -> Array:
    """Values of all modes; those of `Basis.evaluate_eta` up to rounding, several times as fast.

    Parameters
    ----------
    basis : Basis
    eta : ndarray, [n, dim]
        Collapsed coordinates.

    Returns
    -------
    ndarray, [n_modes, n]
    """
    legendre = [_legendre(basis.order, z) for z in eta.T]
    return basis.product([own.values @ at for own, at in zip(_expansions(basis), legendre, strict=True)])


def modes_and_gradients_at(basis: Basis, eta: Array) -> Array:
    """Values of all modes and their derivatives by collapsed coordinates.

    Parameters
    ----------
    basis : Basis
    eta : ndarray, [n, dim]
        Collapsed coordinates.

    Returns
    -------
    ndarray, [1 + dim, n_modes, n]
        Values first, then the derivatives.
    """
    dim, leaves = basis.shape.dim, basis.tree.leaf_functions
    values, slopes = [], []
    for k, own in enumerate(_expansions(basis)):
        legendre = _legendre(basis.order, eta[:, k])
        values.append((own.values @ legendre)[leaves[:, k]])
        slopes.append((own.derivatives @ legendre)[leaves[:, k]])
    # Factors left and right of the differentiated direction are multiplied once for all.
    found = slopes
    for k in range(dim):
        for other in range(dim):
            if other > k:
                found[k] = found[k] * values[other]
    product = values[0]
    for k in range(1, dim):
        found[k] = found[k] * product
        product = product * values[k]
    return np.array([basis.from_leaves(own) for own in (product, *found)])
