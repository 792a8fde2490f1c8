"""Mass and stiffness against integrals known by other means: whole boxes by Gauss' rule, curved cells by fine rules.

A polynomial of degree P in x is in the space of order P on every straight cell, so that u^T M w and u^T L u are the
integrals over the domain, to rounding, where the points are enough.
"""

import numpy as np
import pytest

import hpfem as hp
from tests.cases import each_order
from tests.operators.reference import fine_integrals
from tests.samples import (
    FLAT,
    NAMES,
    SHIFT,
    SKEW,
    Polynomial,
    box_integral,
    curved,
    dimension,
    skewed,
    straight,
    tapered,
)

each_name = pytest.mark.parametrize("name", NAMES)


def integrals(rng, dim, order, matrix=None, shift=None):
    """Two random polynomials u, w of degree `order`, the integrals of u w and |grad u|^2, and the size of the first."""
    u, w = Polynomial(rng, dim, order), Polynomial(rng, dim, order)
    where = {"matrix": matrix, "shift": shift, "n": order + 1}
    mass = box_integral(lambda *x: u(*x) * w(*x), dim, **where)
    stiffness = box_integral(lambda *x: sum(u.derivative(i, *x) ** 2 for i in range(dim)), dim, **where)
    size = np.sqrt(
        box_integral(lambda *x: u(*x) ** 2, dim, **where) * box_integral(lambda *x: w(*x) ** 2, dim, **where)
    )
    return u, w, mass, stiffness, size


def errors(space, backend, u, w, mass, stiffness, size):
    """Relative errors of u^T M w and of u^T L u."""
    u, w = space.project(u), space.project(w)
    mass_error = abs(u.dot(hp.Mass(space, backend=backend)(w)) - mass) / size
    return mass_error, abs(u.dot(hp.Laplacian(space, backend=backend)(u)) / stiffness - 1)


@each_name
@each_order(range(1, 9))
def test_affine_with_default_points(backend, name, order, rng):
    d = dimension(name)
    space = hp.Space(skewed(straight(name)), order)
    exact = integrals(rng, d, order, SKEW[:d, :d], SHIFT[:d])
    assert max(errors(space, backend, *exact)) < 1e-11
    one = space.evaluate(lambda *x: 1.0)
    assert space.integrate(one) == pytest.approx(abs(np.linalg.det(SKEW[:d, :d])), rel=1e-13)


@pytest.mark.parametrize("scale", [1e-4, 1e3])
@each_name
def test_scaled_copies(backend, name, scale, rng):
    d = dimension(name)
    space = hp.Space(skewed(straight(name)).transformed(lambda x: scale * x), 3)
    u, w, mass, stiffness, size = integrals(rng, d, 3, SKEW[:d, :d], SHIFT[:d])
    found = errors(
        space,
        backend,
        lambda *x: u(*[c / scale for c in x]),
        lambda *x: w(*[c / scale for c in x]),
        mass * scale**d,
        stiffness * scale ** (d - 2),
        size * scale**d,
    )
    assert max(found) < 1e-11


@each_name
@each_order(range(1, 9))
def test_straight_cells_that_are_not_affine(backend, name, order, rng):
    d = dimension(name)
    mesh = tapered(name)
    assert name in FLAT or not any(mesh.affine(group).all() for group in mesh.cells)
    exact = integrals(rng, d, order)
    space = hp.Space(mesh, order, quadrature=1)
    assert space.integrate(space.evaluate(lambda *x: 1.0)) == pytest.approx(1, rel=1e-13)
    assert max(errors(space, backend, *exact)) < 1e-11


@each_name
@each_order([1, 2, 4, 7])
def test_straight_cells_with_default_points(backend, name, order, rng):
    exact = integrals(rng, dimension(name), order)
    mass, stiffness = errors(hp.Space(tapered(name), order), backend, *exact)
    assert stiffness < 1e-11
    # The mass has one degree more than the points integrate: small, but not rounding.
    assert mass < 0.05


@pytest.mark.parametrize("basis", ["orthogonal", "lagrange"])
@each_name
def test_other_bases(backend, name, basis, rng):
    d = dimension(name)
    space = hp.Space(skewed(straight(name)), 5, basis=basis)
    assert max(errors(space, backend, *integrals(rng, d, 5, SKEW[:d, :d], SHIFT[:d]))) < 1e-11


@each_name
@each_order([1, 3, 6])
def test_curved_cells(backend, name, order, rng):
    d = dimension(name)
    space = hp.Space(curved(name, order=3), order, quadrature=5)
    u, w = (space.project(Polynomial(rng, d, order)) for _ in range(2))
    mass, stiffness = fine_integrals(space, u, w)
    assert u.dot(hp.Mass(space, backend=backend)(w)) == pytest.approx(mass, rel=1e-11, abs=1e-12)
    # The integrand of the stiffness is rational.
    assert u.dot(hp.Laplacian(space, backend=backend)(w)) == pytest.approx(stiffness, rel=1e-5)


@each_name
def test_stiffness_of_curved_cells_converges_with_the_points(name, rng):
    d = dimension(name)
    mesh, p = curved(name, order=3), Polynomial(rng, d, 4)
    found = []
    for more in (0, 4, 8):
        space = hp.Space(mesh, 4, quadrature=more)
        u = space.project(p)
        exact = fine_integrals(space, u, u, n=15)[1]
        found.append(abs(u.dot(hp.Laplacian(space, backend="numpy")(u)) / exact - 1))
    assert found[2] < 1e-8
    assert found[1] < max(0.2 * found[0], 1e-12)


@each_name
def test_affine_factors_of_a_cell_are_those_of_its_deformed_copy(name, rng):
    # A cell of order 2 that happens to be affine takes the affine way; moved by 1e-7 it takes the other.
    mesh = skewed(straight(name)).elevated(2)
    nudged = mesh.transformed(lambda x: x + 1e-7 * np.sin(7 * x[:, ::-1]))
    spaces = [hp.Space(m, 3) for m in (mesh, nudged)]
    assert [b.affine for b in spaces[0].blocks] == [True]
    assert [b.affine for b in spaces[1].blocks] == [False]
    u = rng.uniform(-1, 1, (1, spaces[0].blocks[0].n_elements, spaces[0].blocks[0].n_modes))
    for operator in (hp.Mass, hp.Laplacian):
        found = [operator(s, backend="numpy")(s.field("coeff", [u.copy()])).arrays[0] for s in spaces]
        assert np.abs(found[0] - found[1]).max() < 1e-4 * np.abs(found[0]).max()
