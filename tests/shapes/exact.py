"""Exact facts about the reference shapes, written without using the package: what its tests compare with."""

import itertools
from fractions import Fraction
from math import comb, factorial

import numpy as np
from numpy.polynomial import chebyshev, legendre

N_MODES = {
    "segment": lambda P: P + 1, "quad": lambda P: (P + 1) ** 2, "tri": lambda P: (P + 1) * (P + 2) // 2,
    "hex": lambda P: (P + 1) ** 3, "prism": lambda P: (P + 1) ** 2 * (P + 2) // 2,
    "pyramid": lambda P: (P + 1) * (P + 2) * (2 * P + 3) // 6, "tet": lambda P: (P + 1) * (P + 2) * (P + 3) // 6,
}  # fmt: skip


def _line(a):
    return Fraction(1, a + 1)


def _simplex(*a):
    numerator = 1
    for exponent in a:
        numerator *= factorial(exponent)
    return Fraction(numerator, factorial(sum(a) + len(a)))


_UNIT_INTEGRALS = {
    "segment": _line,
    "quad": lambda a, b: _line(a) * _line(b),
    "tri": _simplex,
    "hex": lambda a, b, c: _line(a) * _line(b) * _line(c),
    "prism": lambda a, b, c: _simplex(a, b) * _line(c),
    # ∫ z^c (1-z)^(a+b+2) dz / ((a+1)(b+1))
    "pyramid": lambda a, b, c: (
        _line(a) * _line(b) * Fraction(factorial(c) * factorial(a + b + 2), factorial(a + b + c + 3))
    ),
    "tet": _simplex,
}


def integral(shape, exponents):
    """Integral of Π ((1 + ξ_k)/2)^a_k over a bi-unit shape."""
    return float(2**shape.dim * _UNIT_INTEGRALS[shape.name](*exponents))


def exponents(dim, degree):
    """All exponents of total degree up to `degree`."""
    return [a for a in itertools.product(range(degree + 1), repeat=dim) if sum(a) <= degree]


def monomial(xi, a):
    """Π ((1 + ξ_k)/2)^a_k at points [n, dim]."""
    return np.prod(((1 + xi) / 2) ** np.array(a), axis=1)


def legendre_products(xi, powers):
    """Products of Legendre polynomials of the local coordinates, [len(powers), n]: a well-conditioned span."""
    powers = np.array(powers)
    table = legendre.legvander(xi, powers.max())
    return np.prod([table[:, k, powers[:, k]] for k in range(xi.shape[1])], axis=0).T


def directional_derivatives(function, start, end, n=48):
    """Derivative of `function` along (end - start)/2 at the middles, by Chebyshev interpolation between the ends.

    `function` takes points [m, dim] and returns [k, m]; `start` and `end` are [lines, dim]; the result is [k, lines].
    """
    t = chebyshev.chebpts1(n)
    points = (start + end)[:, None] / 2 + t[:, None] * (end - start)[:, None] / 2
    values = function(points.reshape(-1, points.shape[-1]))
    values = values.reshape(len(values), len(start), n)
    coefficients = np.linalg.solve(chebyshev.chebvander(t, n - 1), np.moveaxis(values, -1, 0).reshape(n, -1))
    return chebyshev.chebval(0.0, chebyshev.chebder(coefficients)).reshape(values.shape[:2])


def edge(p, a, b):
    """Modified edge function: a b (a+b)^(p-2) P^{1,1}_{p-2}((b-a)/(a+b)), homogeneous of degree p in a and b."""
    n = p - 2
    return a * b * sum(comb(n + 1, n - s) * comb(n + 1, s) * (-a) ** s * b ** (n - s) for s in range(n + 1))


def rise(mu, r, below, top):
    """What takes a function of degree mu off the base: top (below+top)^(r-1) P^{2mu-1,1}_{r-1}, r >= 1."""
    n, alpha = r - 1, 2 * mu - 1
    return top * sum(comb(n + alpha, n - s) * comb(n + 1, s) * (-below) ** s * top ** (n - s) for s in range(n + 1))


def simplex_mode(vertices, indices, corners):
    """Modified mode of the entity with these vertices, from the barycentric coordinates of all corners [dim + 1, n].

    [KS], section 3.2.3, made homogeneous: each index raises the mode from the simplex of all
    corners before a vertex towards that vertex. An edge's p counts its first vertex as one degree.
    """
    first, *others = vertices
    value, degree = corners[first], 1
    for k, (top, index) in enumerate(zip(others, indices, strict=True)):
        r = index - 1 if k == 0 else index
        value = value * rise(degree, r, corners[:top].sum(axis=0), corners[top])
        degree += r
    return value


def barycentric(xi):
    """Barycentric coordinates of a simplex's vertices, [dim + 1, n]."""
    unit = (1 + xi.T) / 2
    return np.vstack([1 - unit.sum(axis=0), unit])
