"""Coefficients by region: each cell has the value of its region, at its own points; with what is refused."""

import copy
import pickle

import numpy as np
import pytest

import hpfem as hp
from hpfem.mesh import Mesh, box
from hpfem.space import evaluation
from tests.assembly.meshes import ours
from tests.operators.reference import random_field
from tests.samples import NAMES, curved, dimension, norm_error

SOLIDS = ("hex", "prism", "pyramid", "tet")


def with_regions(mesh, choose):
    """The same cells, those whose middle `choose` takes in region "in", the others in "out"."""
    cells = [(group.shape.name, group.order, group.nodes) for group in mesh.cells]
    flat = Mesh.from_cells(mesh.points, cells)
    middles = np.concatenate([flat.points[group.nodes].mean(axis=1) for group in flat.cells])
    numbers = np.concatenate([group.indices for group in flat.cells])
    inside = numbers[choose(*middles.T)]
    rest = np.setdiff1d(numbers, inside)
    return Mesh.from_cells(mesh.points, cells, regions={"in": inside, "out": rest}).with_sides(mesh.boundary_sides)


def halves(name, n=4):
    """Cells of one shape, in one block, on both sides of x = 1/2."""
    counts = (n,) + (2,) * (dimension(name) - 1)
    return with_regions(box(name, counts), lambda x, *_: x < 0.5)


def linear(x, *_):
    return 1 + x


@pytest.mark.parametrize("name", NAMES)
def test_a_cell_has_the_value_of_its_region_at_its_own_points(name, backend):
    """On the common face too, where points of both sides are: each with the value of its side."""
    space = hp.Space(halves(name), 3, quadrature="collapsed", backend=backend)  # with points on faces
    found = space.evaluate({"in": 10.0, "out": linear})
    [x, *_], inside = space.coordinates().arrays[0], np.isin(space.blocks[0].elements, space.mesh.regions["in"])
    assert len(space.blocks) == 1 and 0 < inside.sum() < len(inside)
    expected = np.where(inside[:, None], 10.0, 1 + x)
    assert np.array_equal(found.arrays[0][0], expected)
    assert np.any(x[inside].max() >= 0.5 - 1e-12) and np.any(x[~inside].min() <= 0.5 + 1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_operators_are_sums_over_the_regions(name, backend, rng):
    """Helmholtz with coefficients by region: on each region's cells that with the region's own."""
    mesh = with_regions(curved(name), lambda x, *_: x < np.median(x) + 1e-9)
    space = hp.Space(mesh, 3, backend=backend)
    u = space.field("coeff", [rng.standard_normal((1, b.n_elements, b.n_modes)) for b in space.blocks])
    k = {"in": 10.0, "out": lambda x, *_: 2 + np.sin(x)}
    both = hp.Helmholtz(space, lam={"in": lambda x, *_: x**2, "out": 0.5}, diffusivity=k)(u)
    one = hp.Helmholtz(space, lam=lambda x, *_: x**2, diffusivity=10.0)(u)
    other = hp.Helmholtz(space, lam=0.5, diffusivity=k["out"])(u)
    for block, found, a, b in zip(space.blocks, both.arrays, one.arrays, other.arrays, strict=True):
        inside = np.isin(block.elements, mesh.regions["in"])
        assert norm_error(found, np.where(inside[:, None], a, b)) < 1e-12


def test_whatever_takes_a_coefficient_takes_a_mapping(backend):
    space = hp.Space(box(SOLIDS, (4, 1, 1)), 3, backend=backend)
    values = {"hex": 1.0, "prism": linear, "pyramid": 3.0, "tet": 4.0}
    k, u = space.evaluate(values), space.project(lambda x, y, z: x * y + z**2)

    def same(made):
        for found, expected in zip(made(values).arrays, made(k).arrays, strict=True):
            assert norm_error(found, expected) < 1e-13
        assert all(np.array_equal(a, b) for a, b in zip(
            made(values).arrays, made(hp.by_region(space, values)).arrays, strict=True))  # fmt: skip

    same(lambda c: hp.Helmholtz(space, lam=c)(u))
    same(lambda c: hp.Helmholtz(space, lam=1.0, diffusivity=c)(u))
    same(lambda c: hp.WeakForm(space, lambda u, du, k: (k * u**3, k * du), fields={"k": c})(u))
    same(lambda c: hp.AdvectionDiffusionReaction(space, [1, 0, 0], diffusivity=c, reaction=c)(u))
    same(lambda c: space.project(c))
    winds = {"hex": (1.0, 0.0, 0.0), "prism": lambda x, y, z: [x, y, z], "pyramid": (0, 1, 0), "tet": [0, 0, 1]}
    found = hp.AdvectionDiffusionReaction(space, winds)(u)
    expected = hp.AdvectionDiffusionReaction(space, space.evaluate(winds))(u)
    assert all(np.array_equal(a, b) for a, b in zip(found.arrays, expected.arrays, strict=True))


def test_many_points_are_the_same(backend, monkeypatch):
    """Where single functions would be compiled."""
    space = hp.Space(box(SOLIDS, (4, 2, 2)), 4, backend=backend)
    values = {"hex": 1.0, "prism": linear, "pyramid": 3.0, "tet": lambda x, y, z: np.exp(x - z)}
    before = space.evaluate(values)
    monkeypatch.setattr(evaluation, "_WORTH_COMPILING", 0)
    for a, b in zip(space.evaluate(values).arrays, before.arrays, strict=True):
        assert norm_error(a, b) < 1e-14


@pytest.mark.parametrize("preconditioner", ["jacobi", "multigrid"])
@pytest.mark.parametrize("name", NAMES)
def test_conduction_through_two_layers(name, preconditioner, backend):
    """-(k u')' = 0 with k = 10 and 1: linear in each layer, so exact at every order, with a kink between."""
    space = hp.Space(halves(name), 3, backend=backend)
    k = {"in": 10.0, "out": 1.0}
    problem = hp.Problem(
        space, 0.0, {"xmin": 0.0, "xmax": 1.0}, diffusivity=k, preconditioner=preconditioner, tol=1e-13
    )
    u, flux = problem.solve(), 1 / (0.5 / 10 + 0.5 / 1)
    exact = {"in": lambda x, *_: flux * x / 10, "out": lambda x, *_: 1 - flux * (1 - x)}
    assert hp.l2_error(u, exact) < 1e-11
    assert problem.flux(u, "xmax") == pytest.approx(flux, rel=1e-10)
    assert problem.flux(u, "xmin") == pytest.approx(-flux, rel=1e-10)
    assert preconditioner == "jacobi" or u.info.iterations < 25


def test_right_hand_sides_by_region(backend):
    space = hp.Space(halves("quad"), 3, backend=backend)
    c0 = hp.C0Space(space)
    f = {"in": 2.0, "out": linear}
    u = hp.solve_helmholtz(space, 1.0, f, c0=c0, tol=1e-13)
    again = hp.solve_helmholtz(space, 1.0, space.evaluate(f), c0=c0, tol=1e-13)
    assert norm_error(u.vector, again.vector) < 1e-11
    # The integral of u is that of f: 1 + 7/8.
    assert space.integrate(u) == pytest.approx(1 + 0.875, rel=1e-11)
    # A number is for each component, a sequence has one for each.
    both = hp.solve_helmholtz(space, 1.0, {"in": 2.0, "out": (1.0, 3.0)}, c0=c0, components=2, tol=1e-13)
    for row, value in zip(both.vector, (1.0, 3.0), strict=True):
        alone = hp.solve_helmholtz(space, 1.0, {"in": 2.0, "out": value}, c0=c0, tol=1e-13)
        assert norm_error(row, alone.vector) < 1e-11


def test_a_slit_mesh_in_single_precision(backend):
    space = hp.Space(halves("tri"), 2, backend=backend, dtype="float32")
    u = hp.solve_helmholtz(space, 0.0, 1.0, 0.0, diffusivity={"in": 5.0, "out": 1.0})
    fine = hp.solve_helmholtz(hp.Space(space.mesh, 2), 0.0, 1.0, 0.0, diffusivity={"in": 5.0, "out": 1.0})
    assert norm_error(u.vector, fine.vector) < 1e-4


def test_the_rest_of_the_mesh(backend):
    mesh = box(SOLIDS, (4, 1, 1))
    space = hp.Space(mesh, 2, backend=backend)
    whole = {"hex": 2.0, "prism": linear, "pyramid": linear, "tet": linear}
    found = space.evaluate(hp.by_region(space, {"hex": 2.0}, elsewhere=linear))
    assert all(np.array_equal(a, b) for a, b in zip(found.arrays, space.evaluate(whole).arrays, strict=True))
    # Cells that are in no region at all.
    part = Mesh.from_cells(mesh.points, [(g.shape.name, g.order, g.nodes) for g in mesh.cells], regions={"some": [0]})
    values = hp.by_region(hp.Space(part, 1), {"some": 3.0}, elsewhere=0.0)
    assert hp.Space(part, 1).evaluate(values).arrays[0].max() == 3.0
    with pytest.raises(hp.ArgumentError, match=r"in no region, .* first; add it, or use elsewhere="):
        hp.by_region(hp.Space(part, 1), {"some": 3.0})


def test_it_belongs_to_the_mesh_and_is_kept():
    space = hp.Space(halves("quad"), 2)
    k = hp.by_region(space, {"in": 1.0, "out": (2.0,)})
    assert copy.deepcopy(k) is k and repr(k) == "ByRegion(region 'in', region 'out')"
    same = hp.Space(space.mesh, 3)
    assert norm_error(same.evaluate(k).arrays[0], same.evaluate({"in": 1.0, "out": 2.0}).arrays[0]) == 0
    assert np.array_equal(pickle.loads(pickle.dumps(k)).of_cells, k.of_cells)
    with pytest.raises(hp.ArgumentError, match="another mesh"):
        hp.Helmholtz(hp.Space(halves("quad"), 2), k)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"in": 1.0}, r"have no value for region\(s\) 'out'; add it, or use elsewhere= of by_region"),
        ({}, r"have no value for region\(s\) 'in', 'out'"),
        ({"in": 1.0, "outt": 2.0}, r"unknown region 'outt' \(did you mean 'out'\?\); valid: in, out"),
        ({"in": 1.0, "out": "a"}, "the value of region 'out' is 'a'; give a number"),
        ({"in": 1.0, "out": None}, "the value of region 'out' is None"),
        ({"in": float("nan"), "out": 1.0}, "region 'in' must be a finite number"),
        ({"in": 1.0, "out": (1.0, 2.0)}, r"region 'in' has 1 component\(s\), region 'out' has 2"),
        ({"in": 1.0, "out": lambda x: x}, "must take 2 arguments"),
        ({"in": 1.0, "out": lambda x, y: 1 / (0 * x)}, "not finite at"),
        ({"in": 1.0, "out": lambda x, y: [x[0]]}, "region 'out': .*of the shape"),
    ],
)
def test_what_does_not_fit(values, message):
    space = hp.Space(halves("quad"), 2)
    with pytest.raises(hp.ArgumentError, match=message):
        space.evaluate(values)


def test_what_does_not_fit_elsewhere():
    space = hp.Space(halves("quad"), 2)
    k = hp.by_region(space, {"in": 1.0, "out": 2.0})
    for made in (lambda: hp.C0Space(space).project(k), lambda: hp.solve_helmholtz(space, lam=1.0, dirichlet=k)):
        with pytest.raises(hp.ArgumentError, match="values by region can be"):
            made()
    with pytest.raises(hp.ArgumentError, match="diffusivity must be > 0 everywhere, it is -1"):
        hp.Problem(space, lam=1.0, diffusivity={"in": -1.0, "out": 1.0})
    with pytest.raises(hp.ArgumentError, match="not a number that can be updated"):
        hp.Problem(space, lam=1.0, diffusivity=k).update(diffusivity=3.0)
    points, cells = [[0, 0], [1, 0], [0, 1], [1, 1]], [("quad", 1, [[0, 1, 2, 3]])]
    twice = hp.Space(Mesh.from_cells(points, cells, regions={"a": [0], "b": [0]}), 1)
    with pytest.raises(hp.ArgumentError, match=r"element 1 \(quad\).* regions 'a' and 'b', which both have a value"):
        twice.evaluate({"a": 1.0, "b": 2.0})
    assert twice.evaluate({"b": 2.0}).arrays[0].min() == 2.0
    bare = hp.Space(Mesh.from_cells(points, cells), 1)
    with pytest.raises(hp.ArgumentError, match="unknown region 'a'; valid: none"):
        bare.evaluate({"a": 1.0})


def test_needs_count_the_values():
    space = hp.Space(ours("cube_mixed.msh"), 4)
    regions = dict.fromkeys(space.mesh.regions, 1.0)
    by_region = hp.Problem(
        space, lam=1.0, diffusivity=hp.by_region(space, regions, elsewhere=1.0), preconditioner="jacobi"
    )
    field = hp.Problem(space, lam=1.0, diffusivity=lambda *x: 1 + 0 * x[0], preconditioner="jacobi")
    assert by_region.needs.by_device == field.needs.by_device


@pytest.mark.parametrize("name", NAMES)
def test_gradients_by_the_values_of_regions(name, backend, rng):
    space = hp.Space(halves(name), 2, backend=backend)
    u, w = (random_field(space, rng) for _ in range(2))

    def flow(values):
        return hp.WeakForm(space, lambda u, du, k: (np.sin(k * u), k * du), fields={"k": values})

    density = flow({"in": 2.0, "out": 0.5}).pullback(u, w, "k")
    for region in ("in", "out"):
        ends = []
        for step in (1e-4, -1e-4):
            values = {"in": 2.0, "out": 0.5}
            values[region] += step
            found = flow(values)(u)
            ends.append(sum(float(np.sum(x * y)) for x, y in zip(found.arrays, w.arrays, strict=True)))
        assert space.integrate(density, region) == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-6, abs=1e-9)
    total = space.integrate(density, "in") + space.integrate(density, "out")
    assert space.integrate(density) == pytest.approx(total, rel=1e-12, abs=1e-13)
    with pytest.raises(hp.ArgumentError, match="unknown region 'inn'"):
        space.integrate(density, "inn")
