"""Spaces on symmetric rules of simplices: every operator and what fields and solvers do, against their definition."""

import copy
import json
import re
from functools import partial

import numpy as np
import pytest

import hpfem as hp
from hpfem.backends import BACKENDS
from hpfem.benchmarks import compare_algorithms
from hpfem.errors import NotSuitable
from hpfem.memory import HOST
from hpfem.mesh import box
from hpfem.shapes import default_counts, simplex_quadrature
from hpfem.space.transforms import resampled
from tests.operators.reference import random_field, references
from tests.operators.ways import SPECIAL, special
from tests.samples import curved, norm_error, skewed, straight

MOST = {"tri": 15, "tet": 10}
each_simplex = pytest.mark.parametrize("name", MOST)
each_case = pytest.mark.parametrize(
    ("name", "order"), [(name, order) for name, most in MOST.items() for order in range(1, most + 1)]
)


def ways(backend):
    """The strategies that need no directions."""
    names = [strategy.name for strategy in BACKENDS[backend].strategies if not strategy.tensor]
    return [{"strategy": name, "backend": backend} for name in names if (backend, name) not in SPECIAL]


def variable(*x):
    """A coefficient that is no polynomial."""
    return 2.0 + np.sin(x[0] + x[1])


@each_case
def test_operators_on_curved_cells(backend, name, order, rng):
    space = hp.Space(curved(name, order=2), order, quadrature="simplex")
    ref, u = references(space)[0], random_field(space, rng)
    value, gradient = ref.trial(u.arrays[0])
    k = variable(*ref.x)
    expected = {
        hp.Mass: ref.test(value),
        hp.Laplacian: ref.test(flux=gradient),
        hp.Helmholtz: ref.test(1.7 * value, k * gradient),
    }
    for way in ways(backend):
        for make, wanted in expected.items():
            given = {"lam": 1.7, "diffusivity": variable} if make is hp.Helmholtz else {}
            assert norm_error(make(space, **given, **way)(u).arrays[0], wanted) < 1e-12, way
    for make, wanted in expected.items():
        given = {"lam": 1.7, "diffusivity": variable} if make is hp.Helmholtz else {}
        for strategy, operator in special(backend, partial(make, space, **given)):
            assert norm_error(operator(u).arrays[0], wanted) < 1e-12, strategy


@pytest.mark.parametrize("order", [1, 2, 5])
@each_simplex
def test_transforms_and_derivatives(backend, name, order, rng):
    for mesh in (curved(name, order=2), skewed(straight(name))):
        space = hp.Space(mesh, order, quadrature="simplex")
        ref, u = references(space)[0], random_field(space, rng, components=2)
        d, values = space.dim, random_field(space, rng, "phys", 2 * space.dim)
        value, gradient = ref.trial(u.arrays[0])
        for way in ways(backend):
            phys = hp.BwdTrans(space, **way)(u)
            assert norm_error(phys.arrays[0], value) < 1e-12
            found = hp.PhysDeriv(space, **way)(phys).arrays[0]
            assert norm_error(found, gradient.reshape(found.shape)) < 1e-12
            assert norm_error(hp.IProductWRTBase(space, **way)(values).arrays[0], ref.test(values.arrays[0])) < 1e-12
            flux = values.arrays[0].reshape(2, d, *values.arrays[0].shape[1:])
            assert norm_error(hp.IProductWRTDerivBase(space, **way)(values).arrays[0], ref.test(flux=flux)) < 1e-12


@each_case
def test_affine_cells_are_those_of_the_collapsed_rule(backend, name, order, rng):
    mesh, results = skewed(straight(name)), []
    u = None
    for quadrature in ("collapsed", "simplex"):
        space = hp.Space(mesh, order, quadrature=quadrature)
        u = random_field(space, rng).arrays if u is None else u
        results.append([hp.Helmholtz(space, lam=1.3, backend=backend)(u)[0], hp.Mass(space, backend=backend)(u)[0]])
    for found, expected in zip(*results, strict=True):
        assert norm_error(found, expected) < 1e-12


def form(u, du, x, k):
    """A nonlinear form of two components."""
    return [k * u[0] * u[1], np.sin(u[1]) + x[0]], [du[0] + u[1] * du[1], k * du[1]]


@each_simplex
def test_weak_forms(backend, name, rng):
    for mesh in (curved(name, order=2), skewed(straight(name))):
        space = hp.Space(mesh, 3, quadrature="simplex")
        ref, u = references(space)[0], random_field(space, rng, components=2)
        (a, b), (da, db) = ref.trial(u.arrays[0])
        k = variable(*ref.x)
        expected = ref.test(np.array([k * a * b, np.sin(b) + ref.x[0]]), np.array([da + b * db, k * db]))
        make = partial(hp.WeakForm, space, form, fields={"k": variable}, components=2)
        found = [(way, make(**way)) for way in ways(backend)] + list(special(backend, make))
        for way, operator in found:
            assert norm_error(operator(u).arrays[0], expected) < 1e-12, way


def transport(u, du, x, v, c):
    """A nonlinear form of one component, of everything that there is."""
    return v * du[0] + c * u * x[1] + np.sin(u), [c * d + u * v for d in du]


@each_simplex
def test_forms_of_the_strategies_that_serve_some(backend, name, rng):
    forms = [
        (transport, {"v": variable, "c": 0.7}, ("value", "grad")),
        (lambda u, x: [u * u * x[0]] * len(x), {}, ("grad",)),
        (lambda u, du: du[0] * du[1], {}, ("value",)),
    ]
    for mesh in (curved(name, order=2), skewed(straight(name))):
        space = hp.Space(mesh, 3, quadrature="simplex")
        u = random_field(space, rng, components=2)
        for function, fields, test in forms:
            make = partial(hp.WeakForm, space, function, fields=fields, test=test)
            expected = make(backend="numpy")(u).arrays[0]
            for strategy, operator in special(backend, make):
                assert norm_error(operator(u).arrays[0], expected) < 1e-12, strategy


@each_simplex
def test_single_precision_other_bases_and_surfaces(backend, name, rng):
    mesh = curved(name, order=2)
    for basis in ("orthogonal", "lagrange"):
        space = hp.Space(mesh, 4, basis=basis, quadrature="simplex", dtype=np.float32)
        ref, u = references(space)[0], random_field(space, rng)
        value, gradient = ref.trial(u.arrays[0].astype(np.float64))
        found = hp.Helmholtz(space, lam=1.7, backend=backend)(u).arrays[0]
        assert found.dtype == np.float32
        assert norm_error(found, ref.test(1.7 * value, gradient)) < 1e-5
    if name == "tri":
        bent = mesh.transformed(lambda x: np.column_stack([x, 0.3 * x[:, 0] ** 2]))
        space = hp.Space(bent, 3, quadrature="simplex")
        ref, u = references(space)[0], random_field(space, rng)
        value, gradient = ref.trial(u.arrays[0])
        found = hp.Helmholtz(space, lam=1.7, backend=backend)(u).arrays[0]
        assert norm_error(found, ref.test(1.7 * value, gradient)) < 1e-12


@each_simplex
def test_fields(name, tmp_path, rng):
    space = hp.Space(box(name, (2,) * (2 if name == "tri" else 3)), 3, quadrature="simplex")

    def cubic(*x):
        return x[0] ** 3 - x[0] * x[1] ** 2 + 2

    u = space.project(cubic)
    assert hp.l2_error(u, cubic) < 1e-13
    assert u(*[0.3] * space.dim) == pytest.approx(cubic(*[0.3] * space.dim), rel=1e-13)
    assert space.integrate(space.evaluate(cubic)) == pytest.approx(2.25 - 1 / 6, rel=1e-13)
    assert space.integrate_boundary(u, "xmax") == pytest.approx(3 - 1 / 3, rel=1e-13)
    other = hp.Space(space.mesh, 3, quadrature="collapsed")
    assert hp.l2_error(other.interpolate(u), cubic) < 1e-12
    assert hp.l2_error(space.interpolate(other.project(cubic)), cubic) < 1e-12
    hp.save(tmp_path / "u.h5", {"u": u})
    again = hp.load(tmp_path / "u.h5")["u"]
    assert again.space.quadrature == "simplex"
    assert np.array_equal(again.arrays[0], u.arrays[0])
    hp.write_vtu(tmp_path / "u.vtu", {"u": u})
    assert copy.deepcopy(u).space is u.space


@each_simplex
def test_values_at_other_points(name):
    """Multigrid takes coefficients to the points of lower orders: polynomials are exact, between their extremes."""
    space = hp.Space(skewed(straight(name)), 4, quadrature="simplex")
    other = space.at(quadrature="collapsed")
    targets = [space.at(2, quadrature="simplex"), space.at(2, quadrature="collapsed"), other, space]
    for source, target in [*((space, target) for target in targets), (other, space)]:
        values, exact = (own.evaluate(lambda *x: 1 + x[0] ** 2).arrays[0] for own in (source, target))
        least, most = values.min(axis=2, keepdims=True), values.max(axis=2, keepdims=True)
        found = resampled(source.field("phys", [values]), target, HOST).arrays[0]
        assert norm_error(found, np.clip(exact, least, most)) < 1e-13


@pytest.mark.parametrize("preconditioner", ["jacobi", "multigrid"])
@each_simplex
def test_solve(name, preconditioner):
    """Half of the cells are straight."""
    mesh = hp.box(name, (4,) + (2,) * (1 if name == "tri" else 2)).elevated(2)
    mesh = mesh.transformed(lambda x: x + 0.1 * np.maximum(x[:, :1] - 0.5, 0) * np.sin(np.pi * x) * x[:, ::-1])

    def exact(*x):
        return np.sin(x[0]) * np.exp(x[1])

    errors = []
    for quadrature in ("collapsed", "simplex"):
        space = hp.Space(mesh, 4, quadrature=quadrature)
        k = {"diffusivity": lambda *x: 1.0 + 0 * x[0]} if preconditioner == "multigrid" else {}
        u = hp.solve_helmholtz(space, lam=1.0, f=exact, dirichlet=exact, preconditioner=preconditioner, tol=1e-11, **k)
        errors.append(hp.l2_error(u, exact))
    assert errors[1] < 1.5 * errors[0] < 1e-4


def test_by_shape():
    mesh = hp.Mesh.from_cells(
        [[0, 0], [1, 0], [1, 1], [0, 1], [2, 0], [2, 1]],
        [("tri", 1, [[0, 1, 2], [0, 2, 3]]), ("quad", 1, [[1, 4, 2, 5]])],
    )
    space = hp.Space(mesh, 2, quadrature={"tri": "simplex"})
    assert {block.shape.name: block.rule.tensor for block in space.blocks} == {"tri": False, "quad": True}
    u = hp.solve_helmholtz(space, lam=1.0, f=lambda x, y: 1 + 0 * x, preconditioner="multigrid")
    assert hp.l2_error(u, lambda x, y: 1 + 0 * x) < 1e-8
    assert space.at(1, quadrature=space.quadrature).quadrature == {"tri": "simplex"}
    with pytest.raises(hp.ArgumentError, match="no simplex rule of order 2 on a quad"):
        hp.Space(mesh, 2, quadrature="simplex")
    with pytest.raises(hp.ArgumentError, match="unknown shape 'tris' in quadrature"):
        hp.Space(mesh, 2, quadrature={"tris": "simplex"})


def test_refused():
    space = hp.Space(box("tet", 1), 2, quadrature="simplex")
    for backend in ("numpy", "cpu"):
        if BACKENDS[backend].missing() is None:
            with pytest.raises(NotSuitable, match="sumfac factorises along directions.*stdmat"):
                hp.Helmholtz(space, lam=1.0, strategy="sumfac", backend=backend)
    if BACKENDS["cpu"].missing() is None:
        with pytest.raises(NotSuitable, match="are fused for functions of coefficients only"):
            hp.BwdTrans(space, backend="cpu", strategy="fused")
    for make in (hp.Laplacian, hp.IProductWRTDerivBase):
        with pytest.raises(NotSuitable, match="no directions to differentiate along; use algorithm='noncoll"):
            make(space, algorithm="collocated")
    with pytest.raises(hp.ArgumentError, match="no simplex rule of order 11 on a tet"):
        hp.Space(box("tet", 1), 11, quadrature="simplex")


def test_tuning_and_explanation():
    operator = hp.Helmholtz(hp.Space(curved("tri", order=2), 3, quadrature="simplex"), lam=1.0)
    operator.tune(seconds=1.0)
    assert "Q=(12,)" in str(operator.explain())


def names_of_rules(space):
    """By shape, the name of the rule that a space has."""
    found = {}
    for block in space.blocks:
        counts = default_counts(block.shape, block.order)
        is_simplex = not block.rule.tensor and block.rule is simplex_quadrature(block.shape, block.order)
        found[block.shape.name] = "simplex" if is_simplex else "collapsed" if block.rule.counts == counts else "?"
    return found


def test_the_default_is_the_same_everywhere(tmp_path):
    """On straight and curved cells, on every backend; the others have the collapsed rule, and by that name all have."""
    for order in (5, 6):
        for mesh in (straight("tet"), curved("tet", order=2)):
            for backend in BACKENDS:
                space = hp.Space(mesh, order, backend=backend)
                assert names_of_rules(space) == {"tet": "simplex" if order <= 5 else "collapsed"}
    mixed = hp.read_mesh("meshes/cube_mixed.msh")
    collapsed = dict.fromkeys(("hex", "prism", "pyramid", "tet"), "collapsed")
    assert names_of_rules(hp.Space(mixed, 3)) == collapsed | {"tet": "simplex"}
    assert names_of_rules(hp.Space(mixed, 3, quadrature={"hex": "collapsed"})) == collapsed | {"tet": "simplex"}
    assert names_of_rules(hp.Space(mixed, 3, quadrature="collapsed")) == collapsed
    assert names_of_rules(hp.Space(mixed, 3, quadrature="collapsed").at(5)) == collapsed | {"tet": "simplex"}
    assert names_of_rules(hp.Space(curved("tri"), 1)) == {"tri": "collapsed"}


def test_files_keep_the_rule(tmp_path, rng):
    """Also those that do not name it, which are older than another default than the collapsed rule."""
    h5py = pytest.importorskip("h5py")
    mixed, path = hp.read_mesh("meshes/cube_mixed.msh"), tmp_path / "u.h5"
    for quadrature, kept, old in (
        (None, None, "collapsed"),
        ({"hex": 1}, {"hex": 1, "tet": "simplex"}, "collapsed"),
        ({"tet": "collapsed"}, {"tet": "collapsed"}, "collapsed"),
        ("gauss", "gauss", "gauss"),
    ):
        space = hp.Space(mixed, 2, quadrature=quadrature)
        hp.save(path, {"u": random_field(space, rng, "phys")})
        again = hp.load(path)["u"].space
        assert [own.rule.key for own in again.blocks] == [own.rule.key for own in space.blocks]
        if not isinstance(kept, dict):
            assert again.quadrature == kept
        else:
            assert {name: again.quadrature[name] for name in kept} == kept
        coefficients = random_field(space, rng)
        hp.save(path, {"u": coefficients})
        with h5py.File(path, "a") as file:
            file["spaces/0"].attrs["quadrature"] = json.dumps(quadrature)
        found = hp.load(path)["u"]
        assert np.array_equal(found.arrays[0], coefficients.arrays[0])
        [rule] = [own.rule for own in found.space.blocks if own.shape.name == "tet"]
        assert [own.kind for own in rule.rules] == ([old] * 3 if old == "gauss" else ["lobatto", "radau", "radau"])


def test_rules_and_the_gain_of_the_other_are_told():
    """Where it is expected on the backend, and there is one; nowhere else."""

    def said(mesh, order, **options):
        return hp.Helmholtz(hp.Space(mesh, order, backend="numpy", **options), lam=1.0).explain()

    tets = curved("tet", order=2)
    assert "Q=(24,)): simplex rule, " in said(tets, 3) and "quadrature=" not in said(tets, 3)
    assert "simplex rule" not in said(tets, 3, quadrature="collapsed")
    assert re.search(
        r"quadrature='simplex': 24 points, not 80, expected [1-9]\S+ times", said(tets, 3, quadrature="collapsed")
    )
    assert re.search(
        r"quadrature='collapsed': 1100 points, not 436, expected 2\S+ times", said(tets, 9, quadrature="simplex")
    )
    for mesh, order in ((curved("quad", order=2), 3), (curved("tri", order=2), 16)):
        assert "quadrature=" not in said(mesh, order)


def test_comparisons_of_collocation_are_on_the_collapsed_rule():
    rows = list(compare_algorithms(curved("tet", order=2), 2, backend="numpy", repeats=1, min_seconds=0.0))
    assert {row.algorithm for row in rows if not row.quadrature} == {"collocated", "noncollocated"}
    assert [row.way for row in rows if row.quadrature] == ["stdmat noncollocated simplex"]
    assert 1e-9 < rows[-1].difference < 1e-2
