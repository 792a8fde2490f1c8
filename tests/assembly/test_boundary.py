"""Boundary conditions: which unknowns, which values, integrals over facets, normals, refusals."""

import re

import numpy as np
import pytest

import hpfem as hp
from hpfem.mesh import box
from hpfem.space import facet_sides
from tests.assembly.meshes import OURS, ours


def surface(mesh, order=2):
    """Area of the boundary and the integral of the outward normal."""
    sides = facet_sides(hp.Space(mesh, order), mesh.facets.boundary)
    area = sum(float(side.weights.sum()) for side in sides)
    normal = sum(np.sum(side.normals * side.weights, axis=(1, 2)) for side in sides)
    flux = sum(float(np.sum(np.sum(s.normals * s.coordinates, axis=0) * s.weights)) for s in sides)
    return area, normal, flux / mesh.dim


@pytest.mark.parametrize("path", OURS, ids=lambda p: p.stem)
def test_normals_close_and_give_the_volume(path):
    mesh = hp.read_mesh(path)
    _, normal, volume = surface(mesh)
    space = hp.Space(mesh, 4)
    one = space.evaluate(lambda *x: 1.0)
    assert np.abs(normal).max() < 1e-12
    assert volume == pytest.approx(space.integrate(one), rel=1e-12)


def test_the_area_of_a_cube_of_all_shapes():
    area, _, volume = surface(ours("cube_distorted.msh"))
    assert area == pytest.approx(6, rel=1e-13)
    assert volume == pytest.approx(1, rel=1e-13)


@pytest.mark.parametrize("basis", ["modified", "lagrange"])
@pytest.mark.parametrize("name", ["curved_mixed.msh", "curved_mixed_2d.msh"])
def test_boundary_integrals_are_those_of_the_traces(name, basis, rng):
    """Loads and Robin masses against a field's own boundary values, through the global numbering."""
    mesh = ours(name)
    c0 = hp.C0Space(hp.Space(mesh, 3, basis))

    def quadratic(*x):
        return 1 + x[0] * x[1] - x[-1]

    def cubic(*x):
        return x[0] ** 3 + x[-1]

    # On a curved cell polynomials in x are not in the space, but constants are: sums over all modes are integrals.
    bc = hp.BoundaryConditions(c0, robin=(quadratic, cubic))
    one = c0.project(1.0)
    exact = exact_alpha = 0.0
    for side in facet_sides(c0.space, mesh.facets.boundary):
        x = side.coordinates
        exact += float(np.sum(cubic(*x) * side.weights))
        exact_alpha += float(np.sum(quadratic(*x) * side.weights))
    assert one @ bc.load == pytest.approx(exact, rel=1e-12)
    assert one @ (bc.matrix @ one) == pytest.approx(exact_alpha, rel=1e-12)
    assert np.abs(bc.matrix - bc.matrix.T).max() < 1e-14
    # A function that vanishes on the boundary feels nothing.
    inner = hp.BoundaryConditions(c0, dirichlet=0.0).free
    assert np.abs(bc.matrix @ (rng.standard_normal(c0.size) * inner)).max() == 0


def test_neumann_data_as_number_vector_and_function_of_the_normal():
    c0 = hp.C0Space(hp.Space(ours("cube_mixed.msh"), 2))

    def gradient(x, y, z):
        return [y * z, x * z, x * y + 1]

    def flux(x, y, z, nx, ny, nz):
        return y * z * nx + x * z * ny + (x * y + 1) * nz

    vector, scalar = (hp.BoundaryConditions(c0, neumann=g) for g in (gradient, flux))
    assert np.abs(vector.load - scalar.load).max() < 1e-14
    # div of the gradient is 0: what flows out at the top comes in at the bottom.
    assert abs(vector.load @ c0.project(1.0)) < 1e-13
    assert hp.BoundaryConditions(c0, neumann=2).load @ c0.project(1.0) == pytest.approx(12)


@pytest.mark.parametrize("basis", ["modified", "lagrange"])
def test_dirichlet_values_of_a_function_of_the_space(basis):
    c0 = hp.C0Space(hp.Space(ours("cube_distorted.msh"), 4, basis))

    def cubic(x, y, z):
        return x**3 - y * z + 2

    bc = hp.BoundaryConditions(c0, dirichlet=cubic)
    assert bc.constrained.sum() + bc.free.sum() == c0.size
    assert np.abs((bc.values - c0.project(cubic))[bc.constrained]).max() < 1e-13
    assert np.all(bc.values[bc.free] == 0)


@pytest.mark.parametrize("components", [1, 2])
def test_zero_is_a_value_like_others(components):
    c0 = hp.C0Space(hp.Space(box(("hex", "tet"), (2, 2, 2)), 3))
    zero = hp.BoundaryConditions(c0, dirichlet=0.0, components=components)
    one = hp.BoundaryConditions(c0, dirichlet=1.0, components=components)
    assert np.array_equal(zero.constrained, one.constrained) and zero.constrained.any()
    assert zero.values.shape == one.values.shape and not zero.values.any()


def test_named_boundaries_share_their_corners():
    mesh = box(("hex", "tet"), (2, 2, 2))
    c0 = hp.C0Space(hp.Space(mesh, 3))
    each = {name: hp.BoundaryConditions(c0, dirichlet={name: 1.0}) for name in mesh.boundaries}
    union = np.any([bc.constrained for bc in each.values()], axis=0)
    with pytest.warns(hp.HpfemWarning):
        both = hp.BoundaryConditions(c0, dirichlet={"xmin": 1.0, "ymin": 2.0})
    assert np.array_equal(union, hp.BoundaryConditions(c0, dirichlet=0.0).constrained)
    assert np.array_equal(both.constrained, each["xmin"].constrained | each["ymin"].constrained)
    # The first one of the mesh counts where they meet.
    assert np.abs(both.values - each["xmin"].values)[each["xmin"].constrained].max() < 1e-14


@pytest.mark.parametrize("names", [("ymax", "xmin", "xmax"), ("xmin", "xmax", "ymax")])
def test_values_that_differ_where_boundaries_meet_are_named(names):
    """A driven cavity: the lid moves, the walls do not."""
    c0 = hp.C0Space(hp.Space(box("quad", (4, 4)), 1))
    lid = dict.fromkeys(names, 0.0) | {"ymax": 1.0}
    with pytest.warns(hp.HpfemWarning) as said:
        bc = hp.BoundaryConditions(c0, dirichlet={name: lid[name] for name in names})
    assert len(said) == 1 and said[0].filename == __file__
    words = r"'xmin' and dirichlet 'ymax' meet at \(0, 1\) with the values 0 and 1 \(2 such vertices"
    assert re.search(words, str(said[0].message))
    # Whatever the order of the names.
    assert bc.values.max() == 1
    assert np.sum(bc.constrained & (bc.values == 1)) == 3


@pytest.mark.filterwarnings("error")
def test_values_that_agree_but_for_rounding_are_not_named():
    c0 = hp.C0Space(hp.Space(box("quad", (4, 4)), 3))
    hp.BoundaryConditions(c0, {"xmin": lambda x, y: np.sin(np.pi * y), "ymax": 0.0, "xmax": lambda x, y: 1e-12 * y})


def test_a_function_without_a_name_is_for_the_rest_of_the_boundary():
    c0 = hp.C0Space(hp.Space(box("prism", (2, 2, 2)), 3))
    rest = hp.BoundaryConditions(c0, dirichlet=1.0, neumann={"xmin": 1.0}, robin={"zmax": (1.0, 0.0)})
    named = hp.BoundaryConditions(c0, dirichlet=dict.fromkeys(("xmax", "ymin", "ymax", "zmin"), 1.0))
    assert np.array_equal(rest.constrained, named.constrained)
    # A flux on all that is left.
    flux = hp.BoundaryConditions(c0, dirichlet={"xmin": 0.0}, robin={"xmax": (1.0, 0.0)})
    assert flux.constrained.any() and flux.matrix is not None


def test_refusals():
    mesh = box("tet", (2, 2, 2))
    c0 = hp.C0Space(hp.Space(mesh, 2))
    cases = {
        "unknown boundary 'left' in dirichlet; valid: xmin": {"dirichlet": {"left": 0.0}},
        "another condition": {"dirichlet": {"xmin": 0.0}, "neumann": {"xmin": 1.0}},
        "not finite": {"dirichlet": lambda x, y, z: np.log(x - 2)},
        "2 components": {"neumann": lambda x, y, z: [x, y]},
        "one component": {"dirichlet": lambda x, y, z: [x, y]},
        "pair": {"robin": {"xmin": 3.0}},
        "expected a function": {"neumann": {"xmin": "1"}},
    }
    for message, conditions in cases.items():
        with pytest.raises(hp.ArgumentError, match=message):
            hp.BoundaryConditions(c0, **conditions)
