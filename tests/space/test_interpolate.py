"""Fields as functions: values at coordinates, and fields of other meshes, orders and bases."""

import numpy as np
import pytest

import hpfem as hp
from hpfem.errors import ArgumentError, StateError
from hpfem.mesh import read_mesh
from hpfem.shapes import BASES
from tests import samples


def smooth(*x):
    return np.sin(1.3 * x[0] + 0.2) * np.cos(0.9 * x[1]) + (x[2] ** 2 if len(x) == 3 else 0)


def random_field(space, rng, components=1):
    return space.field("coeff", [rng.normal(size=(components, b.n_elements, b.n_modes)) for b in space.blocks])


@pytest.mark.parametrize("name", samples.NAMES)
def test_a_field_is_a_function_of_the_coordinates(name, rng):
    space = hp.Space(samples.curved(name, 2), 3)
    u = random_field(space, rng, 2)
    points = space.mesh.points.mean(axis=0) + rng.uniform(-0.2, 0.2, (12, space.dim))
    assert np.array_equal(u(points), u.at(points))
    grid = points.reshape(3, 4, space.dim)
    assert np.array_equal(u(*np.moveaxis(grid, -1, 0)), u.at(points).reshape(2, 3, 4))
    one = u[1](*points[0])
    assert one.shape == () and one == u.at(points[:1])[1, 0]
    line = u[0](points[0, 0], *points[:, 1:].T)
    assert line.shape == (12,)


@pytest.mark.parametrize("basis", BASES)
@pytest.mark.parametrize("name", samples.NAMES)
def test_every_field_of_a_lower_order_comes_out_as_it_is(name, basis, rng):
    """On one mesh, also where it jumps between cells."""
    mesh = samples.curved(name, 3)
    u = random_field(hp.Space(mesh, 3), rng, 2)
    other = hp.Space(mesh, 5, basis=basis)
    v = other.interpolate(u)
    assert (v.state, v.components, v.space) == ("coeff", 2, other)
    for mine, theirs in zip(u.space.blocks, v.space.blocks, strict=True):
        xi = mine.shape.collapse(rng.uniform(-1, 1, (20, mine.shape.dim)))
        a = u.arrays[u.space.blocks.index(mine)] @ mine.basis.evaluate(xi)
        b = v.arrays[v.space.blocks.index(theirs)] @ theirs.basis.evaluate(xi)
        assert np.abs(a - b).max() < 1e-11 * np.abs(a).max()
    back = u.space.interpolate(v)
    assert all(np.abs(p - q).max() < 1e-11 for p, q in zip(back.arrays, u.arrays, strict=True))


@pytest.mark.parametrize("name", samples.NAMES)
def test_fields_are_interpolated_on_a_refined_mesh(name, rng):
    mesh = samples.curved(name, 2)
    u = random_field(hp.Space(mesh, 3), rng)
    fine = hp.Space(mesh.refined(), 3)
    v = fine.interpolate(u)
    x = np.concatenate(
        [own.geometry.coordinates().reshape(mesh.dim, -1).T for own in fine.at(quadrature="gauss").blocks]
    )
    inside = rng.choice(len(x), 200)
    # Pieces of pyramids have maps of their own.
    tolerance = 1e-10 if name != "pyramid" else 0.5
    assert np.abs(u.at(x[inside]) - v.at(x[inside])).max() < tolerance * np.abs(u.at(x)).max()


def test_between_meshes_that_have_nothing_in_common():
    coarse = hp.Space(read_mesh("meshes/cube_mixed.msh"), 6)
    fine = hp.Space(hp.box("tet", 3), 5)
    u = coarse.project(smooth)
    v = fine.interpolate(u)
    assert hp.l2_error(v, smooth) < 1e-5
    assert hp.l2_error(v, u) < 1e-5
    single = hp.Space(fine.mesh, 5, dtype="float32").interpolate(u)
    assert single.dtype == np.float32 and hp.l2_error(single, smooth) < 1e-5


def test_fields_serve_as_boundary_values_and_right_hand_sides():
    other = hp.Space(hp.box("tet", 2), 3)
    g = other.project(lambda x, y, z: x + 2 * y - z)
    space = hp.Space(hp.box("hex", 2), 2)
    u = hp.solve_helmholtz(space, 0.0, 0.0, lambda *x: g(*x), tol=1e-12, bar=False)
    assert hp.l2_error(u, g) < 1e-10
    f = hp.solve_helmholtz(space, 1.0, lambda *x: g(*x), tol=1e-12, bar=False)
    again = hp.solve_helmholtz(space, 1.0, lambda x, y, z: x + 2 * y - z, tol=1e-12, bar=False)
    assert max(np.abs(a - b).max() for a, b in zip(f.arrays, again.arrays, strict=True)) < 1e-9
    phys = space.evaluate(lambda x, y, z: x + 2 * y - z)
    same = hp.solve_helmholtz(space, 1.0, phys, tol=1e-12, bar=False)
    assert max(np.abs(a - b).max() for a, b in zip(same.arrays, again.arrays, strict=True)) < 1e-9


def test_points_outside_the_other_mesh():
    small, large = (hp.Space(hp.box("hex", 2, upper=(s, 1, 1)), 2) for s in (1, 1.5))
    u = small.project(smooth)
    with pytest.raises(
        ArgumentError, match=r"\d+ points of box, the first at \[1\..*\], are outside box; give a larger"
    ):
        large.interpolate(u)
    bent = hp.Space(small.mesh.transformed(lambda x: x * (1 + 1e-6)), 2)
    assert hp.l2_error(bent.interpolate(u, tolerance=1e-4), smooth) < 1e-2


def test_what_is_not_taken_over():
    space, flat = hp.Space(hp.box("hex", 1), 2), hp.Space(hp.box("quad", 1), 2)
    with pytest.raises(ArgumentError, match="takes a Field, got function; functions go to project"):
        space.interpolate(smooth)
    with pytest.raises(StateError, match="interpolate takes a 'coeff' field, got 'phys'"):
        space.interpolate(space.zeros("phys"))
    with pytest.raises(ArgumentError, match="a field in 2-D cannot be interpolated on a mesh in 3-D"):
        space.interpolate(flat.zeros("coeff"))
    with pytest.raises(ArgumentError, match="tolerance"):
        space.interpolate(space.zeros("coeff"), tolerance=-1)
    u = flat.zeros("coeff")
    with pytest.raises(ArgumentError, match="takes points or 2 coordinates"):
        u(0.1, 0.2, 0.3)
    with pytest.raises(ArgumentError, match=r"arrays of one shape, got \[\[2\], \[3\]\]"):
        u([0.1, 0.2], [0.1, 0.2, 0.3])
    with pytest.raises(StateError):
        flat.zeros("phys")(0.1, 0.2)
