"""Derivatives by the nodes of meshes: against differences, and what motions and scaling must give."""

import pickle

import numpy as np
import pytest

import hpfem as hp
from hpfem.errors import ArgumentError, StateError
from hpfem.operators.node_gradient import change_by_nodes
from tests.operators.reference import random_field
from tests.samples import NAMES, curved, dimension, long, skewed, sphere_patch, straight, tapered


def bratu(u, du, x, k):
    return -np.exp(u) * x[0], k * du


def radiation(u, du, n, x, k):
    return u**2 * n[0] * k + x[0] * du.dot(n)


def flow(u, du):
    d = len(u)
    eta = (1 + sum(du[i].dot(du[i]) for i in range(d))) ** -0.25
    return [u.dot(du[i]) for i in range(d)], [eta * du[i] for i in range(d)]


def growing(*x):
    return 1 + x[0] ** 2 * x[1]


def everything(space):
    """A form with a function of the place, one of a part's normal, and one that is applied to each component."""
    side = hp.WeakForm(space, radiation, test="value", fields={"k": growing}, on="ymax", backend=space.backend)
    return hp.WeakForm(space, bratu, fields={"k": growing}) - 2.0 * side + 0.5 * hp.Mass(space)


def energies(space):
    stretch = hp.Energy(space, lambda du: (0.1 + du.dot(du)) ** 0.75)
    return 2.0 * (stretch - hp.Energy(space, lambda u, x: x[1] * u)) + hp.Energy(
        space, lambda u, n: u**2 * n[1], on="ymin"
    )


def moved(field, space):
    return space.field("coeff", field.arrays)


def value(form, u, w):
    if w is None:
        return form(u)
    return sum(float(np.sum(a * b)) for a, b in zip(form(u).arrays, w.arrays, strict=True))


def check(mesh, make, rng, order=2, components=1, velocity=None, energy=False, **options):
    """The derivative by all nodes in a direction, against differences of fourth order."""
    space = hp.Space(mesh, order, **options)
    u = 0.3 * random_field(space, rng, components=components)
    w = None if energy else random_field(space, rng, components=components)
    V = rng.uniform(-1, 1, mesh.points.shape) if velocity is None else velocity

    def at(t):
        there = hp.Space(mesh.transformed(lambda x: x + t * V, check=False), order, **options)
        return value(make(there), moved(u, there), w and moved(w, there))

    h, found = 2e-5, hp.node_gradient(make(space), u, w)
    difference = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)
    assert abs(np.sum(found * V) - difference) < 1e-9 * np.abs(found).sum()
    along = hp.node_gradient(make(space), u, w, [V, 2 * V])
    assert np.abs(along / np.sum(found * V) - [1, 2]).max() < 1e-12
    if w is not None:
        change = change_by_nodes(make(space), u, V)
        terms = [np.sum(a * b) for a, b in zip(change.arrays, w.arrays, strict=True)]
        assert abs(sum(terms) - np.sum(found * V)) < 1e-13 * np.abs(found).sum()


@pytest.mark.parametrize("name", NAMES)
def test_against_differences(name, backend, rng):
    check(curved(name), everything, rng, backend=backend)
    check(curved(name, 2), energies, rng, energy=True, backend=backend)


@pytest.mark.long
@pytest.mark.parametrize("order", range(1, 7))
@pytest.mark.parametrize("name", NAMES)
def test_in_all_orders(name, order, backend, rng):
    d = dimension(name)
    for mesh in (curved(name), curved(name, 2), tapered(name), straight(name), skewed(straight(name))):
        # Other velocities would leave the kind of straight cells.
        velocity = None if mesh.cells[0].order > 1 else mesh.points @ rng.uniform(-1, 1, (d, d))
        check(mesh, everything, rng, order, velocity=velocity, backend=backend)
        check(mesh, energies, rng, order, velocity=velocity, energy=True, backend=backend)
        check(mesh, lambda s: hp.WeakForm(s, flow, components=d), rng, order, d, velocity, backend=backend)


@pytest.mark.parametrize("name", NAMES)
def test_straight_cells_of_order_2(name, rng):
    """Affine cells have nodes between their vertices too."""
    check(straight(name).elevated(2), everything, rng)


def test_coefficients(rng):
    """Functions of the place are evaluated where the points go, fields and numbers by cell go with the cells."""

    def tensor(space):
        return hp.Helmholtz(space, 1.0, lambda x, y: [[1 + x, 0.1 * y], [0.1 * y, np.exp(y)]])

    def regions(space):
        return hp.Mass(space) + hp.WeakForm(
            space,
            lambda u, k, v, c, f: v[0] * k * u**2 + v[1] * c * f,
            test="value",
            fields={
                "k": hp.by_region(space, {}, elsewhere=growing),
                "v": lambda x, y: [x * y, np.where(x > 0.1, x**2, x)],
                "c": np.arange(1.0, 1 + space.mesh.n_cells)[:, None],
                "f": space.field(
                    "phys",
                    [np.cos(np.arange(b.n_elements * b.n_points)).reshape(1, b.n_elements, -1) for b in space.blocks],
                ),
            },
        )

    for make in (tensor, regions):
        check(curved("quad"), make, rng)
    check(curved("quad"), lambda s: hp.WeakForm(s, flow, components=2) + hp.Mass(s), rng, components=2)


@pytest.mark.parametrize("name", ["quad", "tri"])
def test_surfaces_in_space(name, rng):
    def leaving(du):  # a flux that is not tangential
        return [2.0 * du[0] + du[2], du[1] * du[0], 3.0 * du[2] - du[0]]

    check(sphere_patch(name, 3), lambda s: hp.WeakForm(s, leaving, test="grad") + hp.Mass(s), rng)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", [curved, *long(skewed, tapered)])
def test_motions_and_scaling(name, kind, backend, rng):
    mesh = kind(straight(name)) if kind is skewed else kind(name)
    space, d = hp.Space(mesh, 2, backend=backend), dimension(name)
    u, x = random_field(space, rng), mesh.points
    energy, area = hp.Energy(space, lambda du: du.dot(du) / 2), hp.Energy(space, lambda u: 1.0 + 0.0 * u, on="xmin")
    for own, power in ((energy, d - 2), (hp.Energy(space, lambda u: 1.0 + 0.0 * u), d), (area, d - 1)):
        slope = hp.node_gradient(own, u)
        moment = x.T @ slope
        terms = np.abs(x).T @ np.abs(slope)
        assert np.abs(slope.sum(axis=0)).max() <= 1e-13 * np.abs(slope).sum()
        assert np.abs(moment - moment.T).max() <= 1e-13 * terms.sum()
        assert abs(np.trace(moment) - power * own(u)) <= 1e-13 * terms.sum()


def test_of_a_solution(rng):
    """With one transposed solve, the derivative of a functional of the solution of a nonlinear problem."""
    mesh = curved("tri")

    def solved(points):
        space = hp.Space(mesh.transformed(lambda _: points), 4)
        c0 = hp.C0Space(space)
        bc = hp.BoundaryConditions(c0, {"xmin": 0.0, "ymax": 0.0})
        inside = hp.WeakForm(space, lambda u, du, k: (np.exp(u) - k, k * du + [u, 0.0]), fields={"k": growing})
        form = inside - hp.WeakForm(space, lambda u, x: x[0] - u, test="value", on="xmax")
        u, _ = hp.newton(form, c0, bc, tol=1e-13, bar=False)
        return form, bc, u, hp.Energy(space, lambda u, x: u**2 * x[1]) + hp.Energy(space, lambda u: u**3, on="xmax")

    form, bc, u, goal = solved(mesh.points)
    adjoint = hp.GlobalOperator(form.linearised(u).transposed(), bc.c0, bc)
    right = np.where(bc.constrained, 0.0, bc.c0.gather(goal.residual(u)))
    w = bc.c0.scatter(hp.solve(adjoint, right, tol=1e-13, bar=False)[0])
    found = hp.node_gradient(goal, u) - hp.node_gradient(form, u, w)
    V, h = rng.uniform(-1, 1, mesh.points.shape), 1e-4

    def at(t):
        *_, u, goal = solved(mesh.points + t * V)
        return goal(u)

    difference = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)
    assert abs(np.sum(found * V) - difference) < 1e-8 * np.abs(found).sum()


def test_in_float32(backend, rng):
    mesh = curved("prism", 2)
    wide, narrow = (hp.Space(mesh, 2, backend=backend, dtype=dtype) for dtype in ("float64", "float32"))
    u, w = random_field(wide, rng), random_field(wide, rng)
    found = hp.node_gradient(
        everything(narrow), *(narrow.field("coeff", [a.astype("f4") for a in f.arrays]) for f in (u, w))
    )
    assert found.dtype == np.float64
    expected = hp.node_gradient(everything(wide), u, w)
    assert np.abs(found - expected).max() < 1e-4 * np.abs(expected).max()


def test_errors(rng):
    space = hp.Space(curved("quad", 2), 2, backend="numpy")
    u, form, energy = random_field(space, rng), hp.Mass(space), hp.Energy(space, lambda u: u**2)
    for own, w, text in ((form, None, "fields u and w"), (energy, u, "fields u and w"), (u, None, "or an Energy")):
        with pytest.raises(ArgumentError, match=text):
            hp.node_gradient(own, u, w)
    with pytest.raises(ArgumentError, match=r"along is an array \[\.\.\., 15, 2\], got one of \(2, 15\)"):
        hp.node_gradient(energy, u, along=space.mesh.points.T)
    with pytest.raises(ArgumentError, match="no weak form"):
        hp.node_gradient(hp.BwdTrans(space), u, u)
    with pytest.raises(ArgumentError, match="is a linearisation"):
        hp.node_gradient(energy.linearised(u), u, u)
    with pytest.raises(StateError, match="takes a 'coeff' field"):
        hp.node_gradient(form, form(u), u)
    with pytest.raises(StateError, match="on another space"):
        hp.node_gradient(form, u, random_field(space.at(2), rng))
    with pytest.raises(StateError, match=r"has 1 component\(s\), the form couples 2"):
        hp.node_gradient(hp.WeakForm(space, flow, components=2), u, u)
    with pytest.raises(StateError, match=r"has 2 component\(s\), the form couples 1"):
        hp.node_gradient(energy, random_field(space, rng, components=2))
    steep = hp.WeakForm(space, lambda u, k: k * u, test="value", fields={"k": lambda x, y: np.cbrt(x)})
    growth = hp.WeakForm(space, lambda u, k: k * u, test="value", fields={"k": growing})
    for own in (steep, pickle.loads(pickle.dumps(growth)), growth.at(space.at(3))):
        with pytest.raises(ArgumentError, match="coefficient 'k' .* give it as a field"):
            hp.node_gradient(own, random_field(own.space, rng), random_field(own.space, rng))
    patch = hp.Space(sphere_patch("quad", 2), 2, backend="numpy")
    edge = hp.WeakForm(patch, lambda u: u, test="value", on=next(iter(patch.mesh.boundaries)))
    with pytest.raises(ArgumentError, match="edge .* of a surface"):
        hp.node_gradient(edge, random_field(patch, rng), random_field(patch, rng))
