"""What operators are, whatever their numbers: symmetric, adjoint to each other, positive, blind to constants."""

import numpy as np
import pytest

import hpfem as hp
from tests.operators.reference import random_field
from tests.operators.ways import ways
from tests.samples import NAMES, curved, skewed, straight

each_name = pytest.mark.parametrize("name", NAMES)
MESHES = {"affine": lambda name: skewed(straight(name)), "curved": curved}


@pytest.fixture(params=MESHES)
def space(request, name):
    """A space of order 3 on a mesh of each kind."""
    return hp.Space(MESHES[request.param](name), 3, quadrature="collapsed")


@each_name
def test_symmetric_operators(backend, space, name, rng):
    u, w = random_field(space, rng), random_field(space, rng)
    operators = [
        hp.Mass(space, backend=backend),
        *(hp.Laplacian(space, **way) for way in ways(backend)),
        *(hp.Helmholtz(space, lam=lambda *x: 1 + x[0] ** 2, diffusivity=3.0, **way) for way in ways(backend)),
    ]
    for operator in operators:
        v = operator(w)
        scale = u.dot(operator(u)) + w.dot(v)
        assert u.dot(v) == pytest.approx(w.dot(operator(u)), rel=1e-12, abs=1e-12 * scale)
        assert w.dot(v) > 0


@each_name
def test_laplacian_of_constants_is_zero(backend, space, name, rng):
    one = space.project(lambda *x: 1.0)
    size = max(np.abs(a).max() for a in hp.Laplacian(space, backend=backend)(random_field(space, rng)).arrays)
    for way in ways(backend):
        result = hp.Laplacian(space, **way)(one)
        assert max(np.abs(a).max() for a in result.arrays) < 1e-11 * size


@each_name
def test_advection_by_a_constant_is_the_boundary_flux(backend, space, name):
    # (v . grad u, 1) + (u, v . grad 1) of u = 1 is zero, and (grad u, grad x_i) of u = x_j the volume if i = j.
    d = space.dim
    volume = space.integrate(space.evaluate(lambda *x: 1.0))
    x = [space.project(lambda *x, i=i: x[i]) for i in range(d)]
    laplacian = hp.Laplacian(space, backend=backend)
    # On curved cells x_i is in the space of order 3 too: the geometry has order 3.
    found = np.array([[a.dot(laplacian(b)) for b in x] for a in x])
    assert found == pytest.approx(volume * np.eye(d), abs=1e-11 * volume)


@each_name
def test_transform_and_inner_product_are_adjoint(backend, space, name, rng):
    u, f = random_field(space, rng, "coeff", 2), random_field(space, rng, "phys", 2)
    values = hp.BwdTrans(space, backend=backend)(u)
    assert np.sum(space.integrate(values * f)) == pytest.approx(
        u.dot(hp.IProductWRTBase(space, backend=backend)(f)), rel=1e-12
    )


@each_name
def test_derivatives_and_inner_products_are_adjoint(backend, space, name, rng):
    u, f = random_field(space, rng, "coeff", 2), random_field(space, rng, "phys", 2 * space.dim)
    derivatives = hp.PhysDeriv(space, backend=backend)(hp.BwdTrans(space, backend=backend)(u))
    expected = np.sum(space.integrate(derivatives * f))
    for way in ways(backend):
        assert u.dot(hp.IProductWRTDerivBase(space, **way)(f)) == pytest.approx(expected, rel=1e-11), way


@each_name
def test_mass_is_the_inner_product_of_the_values(backend, space, name, rng):
    u = random_field(space, rng)
    values = hp.BwdTrans(space, backend=backend)(u)
    found, expected = hp.Mass(space, backend=backend)(u), hp.IProductWRTBase(space, backend=backend)(values)
    assert (found - expected).dot(found - expected) <= 1e-24 * found.dot(found)
    assert space.norm(u) ** 2 == pytest.approx(u.dot(found), rel=1e-12)


@each_name
def test_operators_are_linear_and_keep_what_they_got(backend, space, name, rng):
    u, w = random_field(space, rng), random_field(space, rng)
    before = [a.copy() for a in u.arrays]
    helmholtz = hp.Helmholtz(space, lam=1.0, backend=backend)
    left, right = helmholtz(2.0 * u - w), 2.0 * helmholtz(u) - helmholtz(w)
    assert (left - right).dot(left - right) <= 1e-24 * left.dot(left)
    assert all(np.array_equal(a, b) for a, b in zip(u.arrays, before, strict=True))


@each_name
def test_components_are_independent(backend, space, name, rng):
    u = random_field(space, rng, components=3)
    helmholtz = hp.Helmholtz(space, lam=1.0, backend=backend)
    found = helmholtz(u)
    for c in range(3):
        one = helmholtz(u.component(c))
        assert all(np.allclose(a[c], b[0], rtol=1e-13, atol=0) for a, b in zip(found.arrays, one.arrays, strict=True))
