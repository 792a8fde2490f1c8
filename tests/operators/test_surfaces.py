"""Operators on surfaces in space: cells of two dimensions with three coordinates."""

import numpy as np
import pytest

import hpfem as hp
from tests.operators.reference import random_field, references
from tests.operators.ways import ways
from tests.samples import NAMES_2D, norm_error, plane_in_space, sphere_patch

each_name = pytest.mark.parametrize("name", NAMES_2D)


def cylinder(name):
    """A quarter of the lateral surface of a cylinder of radius 2 and height 1, parametrised by arc length."""
    from hpfem.mesh import box

    def wrap(x):
        angle = x[:, 0] * np.pi / 2
        return np.stack([2 * np.cos(angle), 2 * np.sin(angle), x[:, 1]], axis=1)

    return box(name, (4, 2)).elevated(7).transformed(wrap)


@each_name
def test_area_and_laplacian_of_a_sphere(backend, name):
    space = hp.Space(sphere_patch(name), 7, quadrature=2)
    assert space.dim == 3
    area = 1.0
    assert space.integrate(space.evaluate(lambda x, y, z: 1.0)) == pytest.approx(area, rel=1e-8)
    z = space.project(lambda x, y, z: z)
    # |grad_S z|^2 = 1 - z^2 on the sphere: over heights -0.4 to 0.6 and longitudes 0 to 1.
    heights = 1 - (0.6**3 + 0.4**3) / 3
    for way in ways(backend):
        assert z.dot(hp.Laplacian(space, **way)(z)) == pytest.approx(heights, rel=1e-7)
    assert z.dot(hp.Mass(space, backend=backend)(z)) == pytest.approx(1 - heights, rel=1e-7)


@each_name
def test_eigenfunction_of_a_cylinder(backend, name):
    # cos(2 s / R) has the surface Laplacian -(2/R)^2 cos; no derivative across the sides s = 0 and pi R / 2.
    space = hp.Space(cylinder(name), 8)
    u = space.project(lambda x, y, z: (x**2 - y**2) / 4)
    residual = hp.Laplacian(space, backend=backend)(u) - 1.0 * hp.Mass(space, backend=backend)(u)
    for w in (lambda x, y, z: 1.0 + z, lambda x, y, z: x + y * z, lambda x, y, z: x * y):
        # Tested with continuous functions, cell boundaries cancel.
        assert abs(space.project(w).dot(residual)) < 1e-7


@each_name
def test_plane_in_space_is_affine_and_as_in_the_plane(backend, name, rng):
    from hpfem.mesh import box

    flat, tilted = hp.Space(box(name, (2, 2)), 4), hp.Space(plane_in_space(name), 4)
    assert [b.affine for b in tilted.blocks] == [True]
    u = rng.uniform(-1, 1, flat.zeros("coeff").arrays[0].shape)
    for way in ways(backend):
        found = [hp.Helmholtz(s, 1.0, **way)(s.field("coeff", [u.copy()])).arrays[0] for s in (flat, tilted)]
        assert norm_error(found[1], found[0]) < 1e-12, way


@each_name
@pytest.mark.parametrize("mesh", [plane_in_space, sphere_patch])
def test_gradients_in_space(backend, mesh, name, rng):
    space = hp.Space(mesh(name), 3)
    u, flux = random_field(space, rng, "coeff"), random_field(space, rng, "phys", 3)
    ref = references(space)[0]
    derivative = ref.trial(u.arrays[0])[1]
    derivatives = hp.PhysDeriv(space, backend=backend)(hp.BwdTrans(space, backend=backend)(u))
    assert derivatives.components == 3
    assert norm_error(derivatives.arrays[0], derivative[0]) < 1e-11
    for way in ways(backend):
        found = hp.IProductWRTDerivBase(space, **way)(flux)
        assert norm_error(found.arrays[0], ref.test(flux=flux.arrays[0][None])) < 1e-12, way
        wind = hp.AdvectionDiffusionReaction(space, lambda x, y, z: [y, -x, 0.5 + z], diffusivity=0.1, **way)
        advection = np.einsum("ieq,cieq->ceq", np.array([ref.x[1], -ref.x[0], 0.5 + ref.x[2]]), derivative)
        assert norm_error(wind(u).arrays[0], ref.test(advection, 0.1 * derivative)) < 1e-12, way
