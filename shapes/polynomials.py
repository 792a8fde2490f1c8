"""One-dimensional polynomials on [-1, 1]: Jacobi, the modified functions of [KS], Lagrange.

Conventions, with ``x = (1-z)/2`` and ``y = (1+z)/2``:

    A_0 = x    A_1 = y    A_p = x y P^{1,1}_{p-2}(z)               p >= 2
    C_{mu,0} = x^mu       C_{mu,r} = x^mu y P^{2mu-1,1}_{r-1}(z)   r >= 1

Every function returns values for ``derivative=0`` and the first derivative for ``derivative=1``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from .arrays import Array

_Function = Callable[[int], Array]


def jacobi(n: int, alpha: float, beta: float, z: Array, derivative: int = 0) -> Array:
    """Jacobi polynomial P_n^{alpha,beta} or one of its derivatives."""
    z = np.asarray(z, dtype=float)
    factor = 1.0
    for _ in range(derivative):
        factor *= 0.5 * (n + alpha + beta + 1)
        n, alpha, beta = n - 1, alpha + 1, beta + 1
        if n < 0:
            return np.zeros_like(z)
    if n < 0:
        return np.zeros_like(z)
    # The three-term recurrence; scipy's eval_jacobi loses digits near the ends through 2F1.
    previous = np.ones_like(z)
    if n == 0:
        return factor * previous
    current = 0.5 * (alpha - beta + (alpha + beta + 2) * z)
    for k in range(2, n + 1):
        c = 2 * k + alpha + beta
        a1 = 2 * k * (k + alpha + beta) * (c - 2)
        a2 = (c - 1) * (alpha * alpha - beta * beta)
        a3 = (c - 2) * (c - 1) * c
        a4 = 2 * (k + alpha - 1) * (k + beta - 1) * c
        previous, current = current, ((a2 + a3 * z) * current - a4 * previous) / a1
    return factor * current


def power(mu: int, z: Array, derivative: int = 0) -> Array:
    """The power ((1-z)/2)^mu."""
    x = 0.5 * (1 - np.asarray(z, dtype=float))
    if derivative == 0:
        return x**mu
    return -0.5 * mu * x ** (mu - 1) if mu > 0 else np.zeros_like(x)


def _times(f: _Function, g: _Function, derivative: int) -> Array:
    """A product, or its derivative."""
    return f(0) * g(1) + f(1) * g(0) if derivative else f(0) * g(0)


def _rising(z: Array, derivative: int) -> Array:
    """(1+z)/2."""
    return np.full_like(z, 0.5) if derivative else 0.5 * (1 + z)


def _front(mu: int, z: Array, derivative: int) -> Array:
    """((1-z)/2)^mu (1+z)/2."""
    return _times(partial(power, mu, z), partial(_rising, z), derivative)


def modified_a(p: int, z: Array, derivative: int = 0) -> Array:
    """Modified function A_p of an ordinary direction ([KS], eq. 3.1.10)."""
    z = np.asarray(z, dtype=float)
    if p == 0:
        return power(1, z, derivative)
    if p == 1:
        return _rising(z, derivative)
    return _times(partial(_front, 1, z), partial(jacobi, p - 2, 1.0, 1.0, z), derivative)


def modified_c(mu: int, r: int, z: Array, derivative: int = 0) -> Array:
    """Modified function C_{mu,r} of a collapsed direction."""
    z = np.asarray(z, dtype=float)
    if r == 0:
        return power(mu, z, derivative)
    return _times(partial(_front, mu, z), partial(jacobi, r - 1, 2.0 * mu - 1.0, 1.0, z), derivative)


def orthogonal_c(mu: int, r: int, alpha: int, z: Array, derivative: int = 0) -> Array:
    """Orthogonal function ((1-z)/2)^mu P_r^{2mu+alpha,0} of a direction whose collapse has weight (1-z)^alpha."""
    return _times(partial(power, mu, z), partial(jacobi, r, 2.0 * mu + alpha, 0.0, z), derivative)


def barycentric_weights(nodes: Array) -> Array:
    """Barycentric weights of Lagrange interpolation; nodes [n] -> [n]."""
    difference = nodes[:, None] - nodes[None, :]
    np.fill_diagonal(difference, 1.0)
    # Scaled by the capacity of [-1, 1] so that the products stay near one.
    return 1.0 / np.prod(2.0 * difference, axis=1)


def lagrange(nodes: Array, z: Array) -> Array:
    """Lagrange polynomials of a node set; nodes [n], z [m] -> [n, m]."""
    nodes, z = np.asarray(nodes, dtype=float), np.asarray(z, dtype=float)
    weights = barycentric_weights(nodes)
    difference = z[None, :] - nodes[:, None]
    hit = np.abs(difference) < 1e-200  # at a node, to where its reciprocal is safe
    terms = weights[:, None] / np.where(hit, 1.0, difference)
    values = terms / terms.sum(axis=0)
    at_node = hit.any(axis=0)
    values[:, at_node] = hit[:, at_node]
    return values


def differentiation_matrix(nodes: Array) -> Array:
    """Collocated derivative D[i, j] = l_j'(nodes[i]) ([Xing] eq. 17); nodes [n] -> [n, n]."""
    nodes = np.asarray(nodes, dtype=float)
    weights = barycentric_weights(nodes)
    difference = nodes[:, None] - nodes[None, :]
    np.fill_diagonal(difference, 1.0)
    matrix = weights[None, :] / weights[:, None] / difference
    np.fill_diagonal(matrix, 0.0)
    # The rows of an exact derivative sum to zero: constants are differentiated to rounding.
    np.fill_diagonal(matrix, -matrix.sum(axis=1))
    return matrix


def lagrange_derivative(nodes: Array, z: Array) -> Array:
    """Derivatives of the Lagrange polynomials of a node set; nodes [n], z [m] -> [n, m]."""
    return differentiation_matrix(nodes).T @ lagrange(nodes, z)
