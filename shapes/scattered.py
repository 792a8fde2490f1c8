"""Modes at many points without tensor structure: the 1-D functions of a direction all at once.

They are polynomials of degree at most P, so a matrix gives all of them from the Legendre polynomials.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from .arrays import Array
from .basis import Basis
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
    """Values of all modes, up to rounding, faster than `Basis.evaluate_eta`; eta [n, dim] -> [n_modes, n]."""
    legendre = [_legendre(basis.order, z) for z in eta.T]
    return basis.product([own.values @ at for own, at in zip(_expansions(basis), legendre, strict=True)])


def gradients_at(basis: Basis, eta: Array) -> Array:
    """Derivatives of all modes by collapsed coordinates, likewise; eta [n, dim] -> [dim, n_modes, n]."""
    own = _expansions(basis)
    legendre = [_legendre(basis.order, z) for z in eta.T]
    values = [at.values @ known for at, known in zip(own, legendre, strict=True)]
    found = np.empty((basis.shape.dim, basis.n_modes, len(eta)))
    for k, slot in enumerate(found):
        slot[...] = basis.product([*values[:k], own[k].derivatives @ legendre[k], *values[k + 1 :]])
    return found
