"""Integrals over boundaries: areas, divergence theorems, fields' values, on every shape; with what is refused."""

import numpy as np
import pytest

import hpfem as hp
from hpfem.mesh import Mesh, box
from hpfem.space.sides import sides_of
from tests.assembly.meshes import OURS, ours
from tests.samples import NAMES, curved, dimension, skewed, sphere_patch, straight


def with_normal(function, d):
    """A function of the coordinates and the normal, with as many arguments as it takes."""
    return (lambda x, y, a, b: function([x, y], [a, b])) if d == 2 else (
        lambda x, y, z, a, b, c: function([x, y, z], [a, b, c]))  # fmt: skip


def around(space, function):
    """Integral over all of the boundary."""
    return sum(space.integrate_boundary(function, name) for name in space.mesh.boundaries)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("basis", ["modified", "orthogonal", "lagrange"])
def test_sides_of_the_unit_box(name, basis, rng):
    d, order = dimension(name), 4
    space = hp.Space(box(name, (2,) * d), order, basis)
    powers = rng.integers(0, 3, d)

    def monomial(*x):
        return np.prod([x_i**p for x_i, p in zip(x, powers, strict=True)], axis=0)

    u = space.project(lambda *x: sum(x) ** order)
    for axis in range(d):
        for end, value in (("min", 0.0), ("max", 1.0)):
            boundary = "xyz"[axis] + end
            assert space.integrate_boundary(1.0, boundary) == pytest.approx(1.0, rel=1e-13)
            expected = value ** powers[axis] * np.prod([1 / (p + 1) for i, p in enumerate(powers) if i != axis])
            assert space.integrate_boundary(monomial, boundary) == pytest.approx(expected, rel=1e-12, abs=1e-14)
            found = space.integrate_boundary(with_normal(lambda x, n, axis=axis: n[axis] + 0 * x[0], d), boundary)
            assert found == pytest.approx(2 * value - 1, rel=1e-13)
            # The values of a field are those of the function that it is.
            exactly = space.integrate_boundary(lambda *x: sum(x) ** order, boundary)
            assert space.integrate_boundary(u, boundary) == pytest.approx(exactly, rel=1e-11)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("make", [straight, lambda name: skewed(straight(name)), lambda name: curved(name, 2)])
def test_the_divergence_theorem(name, make):
    space = hp.Space(make(name), 4, quadrature=4)
    d = space.dim

    def flux(x, n):
        return sum(x_i**2 * x[i - 1] * n_i for i, (x_i, n_i) in enumerate(zip(x, n, strict=True)))

    inside = space.integrate(space.evaluate(lambda *x: sum(2 * x[i] * x[i - 1] for i in range(d))))
    assert around(space, with_normal(flux, d)) == pytest.approx(inside, rel=1e-9)
    several = around(space, with_normal(lambda x, n: [n_i + 0 * x[0] for n_i in n], d))
    assert several == pytest.approx(np.zeros(d), abs=1e-12)


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.stem)
def test_volumes_of_our_meshes_from_their_skin(path):
    """Of meshes whose boundary is all named."""
    space = hp.Space(hp.read_mesh(path), 3)
    mesh, d = space.mesh, space.dim
    named = np.unique(np.concatenate(list(mesh.boundaries.values())))
    assert np.array_equal(named, mesh.facets.boundary)
    volume = space.integrate(space.evaluate(lambda *x: 1.0))
    found = around(space, with_normal(lambda x, n: sum(a * b for a, b in zip(x, n, strict=True)) / d, d))
    assert found == pytest.approx(volume, rel=1e-5)


@pytest.mark.parametrize("name", ["quad", "tri"])
def test_the_rim_of_a_surface_in_space(name):
    space = hp.Space(sphere_patch(name), 4)
    for boundary, z in (("ymin", -0.4), ("ymax", 0.6)):
        r = np.sqrt(1 - z**2)
        assert space.integrate_boundary(1.0, boundary) == pytest.approx(r, rel=1e-8)  # longitudes 0 to 1
        # The normal in the surface leans by the slope of the sphere.
        [side] = {id(s): s for s in sides_of(space, boundary)}.values()
        assert np.allclose(side.normals[2], np.sign(z) * r, atol=1e-5)


def test_by_region_and_with_components():
    mesh = box(("hex", "prism", "pyramid", "tet"), (4, 1, 1))
    space = hp.Space(mesh, 3)
    values = {"hex": 1.0, "prism": 2.0, "pyramid": lambda x, y, z: x, "tet": 4.0}
    expected = 0.25 * (1 + 2 + 0.625 + 4)
    assert space.integrate_boundary(values, "zmin") == pytest.approx(expected, rel=1e-12)
    found = space.integrate_boundary(lambda x, y, z: [x, 1.0], "zmax")
    assert found == pytest.approx([0.5, 1.0], rel=1e-12)
    u = space.project(lambda x, y, z: [x, y])
    assert space.integrate_boundary(u, "ymax") == pytest.approx([0.5, 1.0], rel=1e-11)
    single = hp.Space(mesh, 3, dtype="float32")
    assert single.integrate_boundary(single.project(lambda x, y, z: z), "zmax") == pytest.approx(1.0, rel=1e-5)


def test_fluxes_are_integrals_of_the_derivative(backend):
    """What a Problem says of a boundary is the integral of du/dn of a solution that is known."""
    space = hp.Space(ours("curved_mixed.msh"), 5, backend=backend)

    def exact(x, y, z):
        return np.exp(x) * np.sin(y) + z

    def flux(x, y, z, nx, ny, nz):
        return np.exp(x) * (np.sin(y) * nx + np.cos(y) * ny) + nz

    free = [name for name in space.mesh.boundaries if name not in ("xmin", "xmax")]
    problem = hp.Problem(space, 0.0, dict.fromkeys(("xmin", "xmax"), exact), neumann=dict.fromkeys(free, flux))
    u = problem.solve()
    for boundary in space.mesh.boundaries:
        assert problem.flux(u, boundary) == pytest.approx(space.integrate_boundary(flux, boundary), abs=1e-7)


def test_what_is_refused():
    points = [[0, 0], [1, 0], [2, 0], [0, 1], [1, 1], [2, 1]]
    mesh = Mesh.from_cells(points, [("quad", 1, [[0, 1, 3, 4], [1, 2, 4, 5]])], boundaries={"middle": [[[1, 4]]]})
    space = hp.Space(mesh, 2)
    assert space.integrate_boundary(lambda x, y: x, "middle") == pytest.approx(1.0)
    with pytest.raises(hp.ArgumentError, match="'middle' lies between cells in part: its normal is not unique"):
        space.integrate_boundary(lambda x, y, nx, ny: nx, "middle")
    with pytest.raises(hp.ArgumentError, match="unknown boundary 'wall'; valid: middle"):
        space.integrate_boundary(1.0, "wall")
    with pytest.raises(hp.StateError, match="takes a 'coeff' field"):
        space.integrate_boundary(space.evaluate(lambda x, y: x), "middle")
    with pytest.raises(hp.StateError, match="another space"):
        space.integrate_boundary(hp.Space(mesh, 2).zeros("coeff"), "middle")
    with pytest.raises(hp.ArgumentError, match=r"2 arguments \(x, y\).* also 4, with the components of the normal"):
        space.integrate_boundary(lambda x, y, n: x, "middle")
    for wrong in (lambda x: x, lambda x, y: 1 / (0 * x), lambda x, y: "a", "a", None):
        with pytest.raises(hp.ArgumentError):
            space.integrate_boundary(wrong, "middle")
