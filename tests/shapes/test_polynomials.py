"""One-dimensional functions against SciPy, NumPy's polynomials and their definitions."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.polynomial import Chebyshev
from scipy.special import eval_jacobi, roots_legendre

from hpfem.shapes.polynomials import (
    differentiation_matrix,
    jacobi,
    lagrange,
    lagrange_derivative,
    modified_a,
    modified_c,
    orthogonal_c,
    power,
)

Z = np.linspace(-1, 1, 41)
X, Y = (1 - Z) / 2, (1 + Z) / 2


def derivative(function, degree):
    """Derivative at Z of a polynomial function of that degree, through NumPy's polynomials."""
    z = np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1))
    return Chebyshev.fit(z, function(z), degree, domain=[-1, 1]).deriv()(Z)


@pytest.mark.parametrize("alpha", [0, 1, 2, 7, 25])
@pytest.mark.parametrize("beta", [0, 1])
def test_jacobi(alpha, beta):
    for n in range(13):
        values = eval_jacobi(n, alpha, beta, Z)
        scale = np.abs(values).max()
        np.testing.assert_allclose(jacobi(n, alpha, beta, Z), values, atol=1e-13 * scale)
        derivatives = 0.5 * (n + alpha + beta + 1) * eval_jacobi(n - 1, alpha + 1, beta + 1, Z) if n else 0 * Z
        np.testing.assert_allclose(jacobi(n, alpha, beta, Z, 1), derivatives, atol=1e-12 * scale * (n + 1) ** 2)


def test_jacobi_of_negative_degree_and_derivatives_past_the_degree_are_zero():
    assert not jacobi(-1, 1.0, 1.0, Z).any()
    assert not jacobi(3, 1.0, 1.0, Z, 4).any()


def test_power():
    np.testing.assert_array_equal(power(0, Z, 1), np.zeros_like(Z))
    np.testing.assert_allclose(power(3, Z), X**3)
    np.testing.assert_allclose(power(3, Z, 1), -1.5 * X**2)


@pytest.mark.parametrize("p", range(13))
def test_modified_a(p):
    expected = {0: X, 1: Y}.get(p, X * Y * eval_jacobi(p - 2, 1, 1, Z) if p >= 2 else None)
    np.testing.assert_allclose(modified_a(p, Z), expected, atol=1e-14)
    np.testing.assert_allclose(modified_a(p, Z, 1), derivative(lambda z: modified_a(p, z), max(p, 1)), atol=1e-11)


@pytest.mark.parametrize("mu", range(1, 13))
def test_modified_c(mu):
    for r in range(13 - mu):
        expected = X**mu * Y * eval_jacobi(r - 1, 2 * mu - 1, 1, Z) if r else X**mu
        np.testing.assert_allclose(modified_c(mu, r, Z), expected, atol=1e-13)
        found = derivative(lambda z, r=r: modified_c(mu, r, z), mu + r)
        np.testing.assert_allclose(modified_c(mu, r, Z, 1), found, atol=1e-11)


def test_a_vertex_row_of_a_collapsed_direction_is_the_family_of_an_ordinary_one():
    for p in range(2, 13):
        np.testing.assert_allclose(modified_c(1, p - 1, Z), modified_a(p, Z), atol=1e-14)


@pytest.mark.parametrize("alpha", [0, 1, 2])
def test_orthogonal_c(alpha):
    for mu in range(13):
        for r in range(13 - mu):
            expected = X**mu * eval_jacobi(r, 2 * mu + alpha, 0, Z)
            scale = np.abs(expected).max()
            np.testing.assert_allclose(orthogonal_c(mu, r, alpha, Z), expected, atol=1e-13 * scale)
            found = derivative(lambda z, mu=mu, r=r: orthogonal_c(mu, r, alpha, z), mu + r)
            np.testing.assert_allclose(orthogonal_c(mu, r, alpha, Z, 1), found, atol=1e-11 * scale)


@pytest.mark.parametrize("n", [1, 2, 5, 13, 24])
def test_lagrange_interpolates_and_differentiates_exactly(n, rng):
    nodes = roots_legendre(n)[0]
    coefficients = rng.standard_normal(n)
    polynomial = np.polynomial.Legendre(coefficients)
    values, points = polynomial(nodes), np.concatenate([Z, nodes])
    scale = np.abs(coefficients).sum() * n**2
    np.testing.assert_allclose(values @ lagrange(nodes, points), polynomial(points), atol=1e-14 * scale)
    derivatives = polynomial.deriv()(points) if n > 1 else 0 * points
    np.testing.assert_allclose(values @ lagrange_derivative(nodes, points), derivatives, atol=1e-13 * scale)
    np.testing.assert_allclose(differentiation_matrix(nodes) @ values, derivatives[len(Z) :], atol=1e-13 * scale)
    np.testing.assert_array_equal(lagrange(nodes, nodes), np.eye(n))


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=8, unique=True), st.floats(-1, 1))
@example(nodes=[0.0, 0.5], z=5e-324)
def test_lagrange_polynomials_are_finite_and_sum_to_one(nodes, z):
    nodes = np.array(nodes)
    if len(nodes) > 1 and np.diff(np.sort(nodes)).min() < 1e-3:
        nodes = nodes[:1]
    values = lagrange(nodes, np.array([z]))
    assert np.all(np.isfinite(values))
    assert values.sum() == pytest.approx(1, abs=1e-12 * np.abs(values).sum())
