"""Weak forms on boundaries: against Robin matrices, Green's formula and integrals, by every way, on every shape."""

import pickle

import numpy as np
import pytest

import hpfem as hp
from hpfem.mesh import box
from tests.operators.reference import random_field
from tests.operators.ways import ways
from tests.samples import NAMES, curved, norm_error, skewed, straight


def in_vectors(c0, form):
    """A form on the global vectors of continuous functions."""
    return lambda x: c0.gather(form(c0.scatter(x)))


def differs_from_robin(space, boundary, x, **way):
    """Largest relative difference of (k u, v) over a boundary from the matrix of a Robin condition."""
    c0 = hp.C0Space(space)

    def alpha(*x):
        return 1.5 + x[0] * x[-1]

    x = x(c0.size)
    form = hp.WeakForm(space, lambda u, k: k * u, test="value", fields={"k": alpha}, on=boundary, **way)
    return norm_error(in_vectors(c0, form)(x), hp.BoundaryConditions(c0, robin={boundary: (alpha, 0.0)}).matrix @ x)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("make", "tolerance"),
    [(lambda name: skewed(straight(name)), 1e-12), (lambda name: curved(name, 2), 2e-8)],
    ids=["affine", "curved, by another rule"],
)
def test_robin_conditions_are_such_forms(name, make, tolerance, backend, rng):
    space = hp.Space(make(name), 3, backend=backend)
    for boundary in ("xmin", "ymax"):
        for way in ways(backend, False):
            assert differs_from_robin(space, boundary, rng.standard_normal, **way) < tolerance, way


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("order", [1, 2, 5, 8])
def test_every_order(name, order, rng):
    assert differs_from_robin(hp.Space(skewed(straight(name)), order), "xmax", rng.standard_normal) < 1e-12


@pytest.mark.parametrize("name", NAMES)
def test_greens_formula(name, backend):
    """(grad u, grad v) + (laplace u, v) is what the normal derivative does on all of the boundary."""
    space = hp.Space(skewed(straight(name)), 4, backend=backend)
    c0, d = hp.C0Space(space), space.dim
    u = c0.scatter(c0.project(lambda *x: x[0] ** 2 * x[1] - 3 * x[-1] ** 2))
    curvature = space.evaluate(lambda *x: 2 * x[1] - 6 * (1 + 0 * x[0]) + (2 * x[0] * 0 if d == 2 else 0))
    inside = c0.gather(hp.Laplacian(space)(u)) + c0.gather(hp.IProductWRTBase(space)(curvature))
    for way in [{"strategy": "auto"}, {"strategy": "stdmat"}, {"strategy": "sumfac", "algorithm": "noncollocated"}]:
        try:
            forms = [
                hp.WeakForm(space, lambda du, n: du.dot(n), test="value", on=boundary, backend=backend, **way)
                for boundary in space.mesh.boundaries
            ]
        except hp.NotSuitable:  # more than the registers of a GPU's thread hold
            assert backend == "cuda" and way["strategy"] == "sumfac"
            continue
        outside = sum(c0.gather(form(u)) for form in forms)
        assert np.abs(outside - inside).max() < 1e-11 * np.abs(inside).max(), way


@pytest.mark.parametrize("name", NAMES)
def test_adjoint_forms(name, backend, rng):
    """Value against derivative and the other way round, with components, fields, regions and numbers."""
    space = hp.Space(curved(name, 2), 3, backend=backend)
    u, v = random_field(space, rng, components=2), random_field(space, rng, components=2)
    w = space.project(lambda *x: 1 + x[0])
    shared = {"components": 2, "fields": {"w": w, "k": 2.0, "r": {name: 3.0}}, "on": "xmax"}

    def one(u, n, w, k, r):
        return [[w * r * u[1] * n[i] for i in range(len(n))], [k * u[0] * n[i] for i in range(len(n))]]

    def other(du, n, w, k, r):
        return [k * du[1].dot(n), w * r * du[0].dot(n)]

    there = hp.WeakForm(space, one, test="grad", **shared)
    back = hp.WeakForm(space, other, test="value", **shared)
    assert there(u).dot(v) == pytest.approx(back(v).dot(u), rel=1e-11)
    before = there(u).dot(v)
    there.parameters["k"] = 5.0
    back.parameters["k"] = 5.0
    assert there(u).dot(v) == pytest.approx(back(v).dot(u), rel=1e-11) and there(u).dot(v) != pytest.approx(before)
    arrays = back(list(v.arrays))
    assert all(norm_error(a, b) < 1e-14 for a, b in zip(arrays, back(v).arrays, strict=True))
    assert "xmax" in repr(back) and "radau" not in back.explain()


def test_it_can_be_pickled_and_tuned(backend):
    space = hp.Space(box("prism", (2, 1, 1)), 2, backend=backend)
    form = hp.WeakForm(space, lambda u, s: s * u**2, test="value", fields={"s": 2.0}, on="xmax")
    u = space.project(lambda x, y, z: x + y)
    again = pickle.loads(pickle.dumps(form))
    v = again.space.field("coeff", list(u.arrays))
    assert norm_error(again(v).arrays[0], form(u).arrays[0]) == 0
    assert len(form.tune(1e-9)) == len(form.sides)


def test_loads_and_nonlinear_terms(backend):
    """(u^4, 1) over a wall is the integral of u^4."""
    space = hp.Space(box(("hex", "prism", "pyramid", "tet"), (4, 1, 1)), 4, backend=backend)
    one, u = space.project(lambda x, y, z: 1.0), space.project(lambda x, y, z: x + y)
    form = hp.WeakForm(space, lambda u, x: u**4 * x[0], test="value", on="zmax")
    expected = space.integrate_boundary(lambda x, y, z: (x + y) ** 4 * x, "zmax")
    assert form(u).dot(one) == pytest.approx(expected, rel=1e-11)
    assert form(u, out=space.zeros("dual")).dot(one) == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("shape", ["quad", "tri", "hex", "tet"])
def test_nitsches_method(shape, backend):
    """Values prescribed weakly: the solution of -laplace(u) = f that values prescribed in the space give."""
    d = 2 if shape in ("quad", "tri") else 3
    space = hp.Space(box(shape, (2,) * d), 4, backend=backend)
    c0 = hp.C0Space(space)

    def exact(*x):
        return np.sin(x[0]) * np.exp(x[-1])  # harmonic

    def terms(u, du, n, g):
        return 200.0 * (u - g) - du.dot(n), [-(u - g) * n[i] for i in range(d)]

    sides = list(space.mesh.boundaries)
    data = [hp.WeakForm(space, terms, fields={"g": exact}, on=side) for side in sides]
    operators = [hp.WeakForm(space, terms, fields={"g": 0.0}, on=side) for side in sides]
    stiffness, zero = hp.Laplacian(space), space.zeros("coeff")

    def apply(x):
        u = c0.scatter(np.asarray(x))
        return c0.gather(stiffness(u)) + sum(c0.gather(form(u)) for form in operators)

    # Without a preconditioner it takes thousands of iterations.
    like = hp.GlobalOperator(hp.Helmholtz(space, 1.0), c0, hp.BoundaryConditions(c0, robin=(200.0, 0.0)))
    diagonal = like.diagonal()
    x, _ = hp.cg(apply, -sum(c0.gather(form(zero)) for form in data), lambda r: r / diagonal, tol=1e-11)
    strong = hp.solve_helmholtz(space, 0.0, 0.0, exact)
    error = hp.l2_error(c0.scatter(x), exact)
    assert error < 2 * hp.l2_error(strong, exact) < 1e-4


def test_what_is_refused():
    mesh = hp.Mesh.from_cells(
        [[0, 0], [1, 0], [2, 0], [0, 1], [1, 1], [2, 1]],
        [("quad", 1, [[0, 1, 3, 4], [1, 2, 4, 5]])],
        boundaries={"middle": [[[1, 4]]], "left": [[[0, 3]]], "none": []},
    )
    space = hp.Space(mesh, 2)
    value = {"test": "value"}
    for make, message in (
        (lambda: hp.WeakForm(space, lambda u: u, on="wall", **value), "unknown boundary 'wall'"),
        (lambda: hp.WeakForm(space, lambda u: u, on="none", **value), "has no facets"),
        (lambda: hp.WeakForm(space, lambda u, n: u * n[0], on="middle", **value), "lies between cells"),
        (
            lambda: hp.WeakForm(space, lambda u, n: u * n, fields={"n": 1.0}, on="left", **value),
            "n is the outward normal",
        ),
        (lambda: hp.WeakForm(space, lambda u: u, algorithm="collocated", on="left", **value), "one point across"),
        (lambda: hp.WeakForm(space, lambda u, n: n, on="left", **value), "vector where a scalar is needed"),
        (lambda: hp.WeakForm(space, lambda u, q: u, on="left", **value), "takes 'q'"),
        (lambda: hp.WeakForm(space, lambda u: None, on="left", **value), "returned nothing"),
        (lambda: hp.WeakForm(space, lambda u, n: n, **value), "takes 'n'"),
        (lambda: hp.WeakForm(mesh, lambda u: u, on="left", **value), "made on a Space"),
        (lambda: hp.WeakForm(space, 3, on="left", **value), "a pointwise function is a function"),
        (
            lambda: hp.GlobalOperator(hp.WeakForm(space, lambda u: u, on="left", **value), hp.C0Space(space)),
            "on a boundary alone",
        ),
    ):
        with pytest.raises(hp.ArgumentError, match=message):
            make()
    values = space.evaluate(lambda x, y: x)
    with pytest.raises(hp.StateError, match="give it in state 'coeff'"):
        hp.WeakForm(space, lambda u, k: k * u, fields={"k": values}, on="left", **value)
    form = hp.WeakForm(space, lambda u: u, on="left", **value)
    with pytest.raises(hp.StateError, match="takes a 'coeff' field"):
        form(values)
    with pytest.raises(hp.StateError, match="another space"):
        form(hp.Space(mesh, 2).zeros("coeff"))
