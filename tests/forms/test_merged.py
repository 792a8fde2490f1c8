"""Coefficients that are multiplied into the geometric factors: which are, what is left, and that nothing is stale."""

import pickle
from itertools import product

import numpy as np
import pytest

import hpfem as hp
from hpfem.backends import BACKENDS
from hpfem.backends.numpy.pipeline import NumpyKernel
from hpfem.errors import NotSuitable, StateError
from hpfem.forms.cost import operator_bytes
from hpfem.forms.merged import merged
from hpfem.forms.sources import possible_sources
from hpfem.geometry import kinds
from hpfem.memory import HOST, PairArray
from hpfem.mesh import box
from tests.operators.reference import random_field
from tests.samples import NAMES, bulge, curved, norm_error, skewed, straight, tapered


def lam(*x):
    return 1 + x[0] * x[-1]


def k(*x):
    return 2 + x[-1]


def tensor(*x):
    n = range(len(x))
    return [[3 + x[0] if i == j else 0.2 * x[-1] for j in n] for i in n]


def problem_of(operator):
    return operator.choices[0].kernel.problem


def applied(problem, rng_seed=0):
    u = np.random.default_rng(rng_seed).standard_normal((2, problem.n_elements, problem.n_modes)).astype(problem.dtype)
    out = np.empty_like(u)
    NumpyKernel(problem, "sumfac").apply(u, out)
    return out


FORMS = {
    "both": lambda space, **o: hp.Helmholtz(space, lam, k, **o),
    "reaction alone, a number stays": lambda space, **o: hp.Helmholtz(space, lam, 1.7, **o),
    "diffusion alone, a number stays": lambda space, **o: hp.Helmholtz(space, 0.8, k, **o),
    "tensor": lambda space, **o: hp.Helmholtz(space, lam, tensor, **o),
    "point": lambda space, **o: hp.WeakForm(space, lambda u, x: np.exp(x[0]) * u, test="value", **o),
    "flux": lambda space, **o: hp.WeakForm(space, lambda du, c: c * du, test="grad", fields={"c": k}, **o),
    "components of du": lambda space, **o: hp.WeakForm(space, lambda du: [2 * one for one in du], test="grad", **o),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", NAMES)
def test_the_result_is_the_same_from_fewer_numbers(name, dtype):
    space = hp.Space(curved(name, 3), 2, quadrature="collapsed", dtype=dtype)
    for what, algorithm in product(FORMS, ("collocated", "noncollocated")):
        problem = problem_of(FORMS[what](space, backend="numpy", algorithm=algorithm))
        found = merged(problem)
        assert found.source.merges and not found.fields and operator_bytes(found) < operator_bytes(problem)
        assert norm_error(applied(found), applied(problem)) < (1e-13 if dtype == "float64" else 1e-5), what
        part = merged(problem).geometry.part(2)
        assert np.array_equal(part.factors(found.form.factor_kind), found.geometry.factors(found.form.factor_kind)[:2])


def test_numbers_a_point():
    space = hp.Space(curved("hex", 3), 3)
    points = space.blocks[0].n_points
    numbers = {
        what: [operator_bytes(p) // 8 - 2 * p.n_modes for p in (given, merged(given))]
        for what, given in ((what, problem_of(make(space, backend="numpy"))) for what, make in FORMS.items())
    }
    assert numbers["both"] == [9 * points, 7 * points]
    assert numbers["tensor"] == [17 * points, 7 * points]
    assert numbers["point"] == [4 * points, points]


def test_what_is_not_merged():
    space = hp.Space(curved("quad", 3), 2)
    own = space.evaluate(k)

    def skew(du, c):
        return [c * du[1], 0.0 * du[0]]

    def crossed(u, du):
        return [u[1], u[0]], [du[0], du[1]]

    def nonlinear(u, c):
        return c * u * u

    for operator, why in (
        (hp.Helmholtz(space, 1.3, backend="numpy"), "none at the points"),
        (hp.Helmholtz(space, own, own, backend="numpy"), "as many numbers"),
        (hp.WeakForm(space, skew, test="grad", fields={"c": k}, backend="numpy"), "not symmetric"),
        (hp.AdvectionDiffusionReaction(space, [1.0, 2.0], k, backend="numpy"), "first order"),
        (hp.WeakForm(space, crossed, components=2, backend="numpy"), "uncoupled components"),
        (hp.WeakForm(space, nonlinear, test="value", fields={"c": k}, backend="numpy"), "not linear"),
        (hp.Helmholtz(hp.Space(skewed(straight("quad")), 2), lam, backend="numpy"), "not affine"),
        (hp.BwdTrans(space, backend="numpy"), "weak forms"),
    ):
        with pytest.raises(NotSuitable, match=why):
            merged(problem_of(operator))
    of_the_user = hp.Helmholtz(space, 1.0, space.evaluate(lambda x, y: [2 + x, 3 + y]), backend="numpy")
    with pytest.raises(NotSuitable, match="tensor that may change"):
        merged(problem_of(of_the_user))


def test_what_may_change_stays_in_the_kernel(backend, rng):
    """Parameters and fields of the user are read at every application, whatever is merged beside them."""
    space = hp.Space(curved("hex", 3), 2, backend=backend)
    own = space.evaluate(lam)
    for make in (lambda b: hp.Helmholtz(space, own, k, backend=b), lambda b: hp.Helmholtz(space, 0.5, k, backend=b)):
        operator, reference, u = make(backend), make("numpy"), random_field(space, rng)
        if backend in ("cpu", "cuda"):
            assert problem_of(operator).source.merges
        before = operator(u).arrays[0].copy()
        own.data[0].readwrite()[...] *= 3.0
        for one in (operator, reference):
            one.parameters.update(dict.fromkeys(one.parameters, 4.0))
        after = operator(u).arrays[0]
        assert norm_error(after, before) > 0.01
        assert norm_error(after, reference(u).arrays[0]) < 1e-12


def test_coefficients_of_an_operator_are_constant():
    """So nothing that follows from them is ever stale; other values are another field, and `rebuild`."""
    space = hp.Space(curved("hex", 3), 2, backend="cpu")
    operator, u = hp.Helmholtz(space, lam, k), space.project(lambda x, y, z: x * y)
    pair = operator.fields["lam"].data[0]
    for write in (pair.write, pair.readwrite):
        with pytest.raises(StateError, match="these values are constant"):
            write()
    for array in (np.asarray(pair), operator.fields["lam"].arrays[0], np.asarray(operator.fields["lam"])):
        assert not array.flags.writeable and array is not pair.read()
    copied = np.from_dlpack(operator.fields["lam"])
    assert np.array_equal(copied, pair.read()) and not np.shares_memory(copied, pair.read())
    assert operator.fields["lam"].copy().data[0].readwrite() is not None
    again = pickle.loads(pickle.dumps(hp.Helmholtz(space, lam, tensor).fields["diffusivity"].data[0]))
    assert again.constant and not PairArray.of(np.zeros(3), HOST).constant
    operator.fields["lam"] = space.evaluate(lambda x, y, z: 7 + x)
    operator.rebuild()
    expected = hp.Helmholtz(space, lambda x, y, z: 7 + x, k, backend="numpy")(u).arrays[0]
    assert norm_error(operator(u).arrays[0], expected) < 1e-12
    problem = hp.Problem(space, lam=space.evaluate(lam), diffusivity=k)
    assert problem_of(problem._local).source.merges


def test_problems_with_merged_coefficients(backend):
    """Solved with multigrid, whose operators of lower orders merge theirs."""
    space = hp.Space(curved("hex", 3), 3, backend=backend)

    def exact(x, y, z):
        return np.sin(x) * y + z

    problem = hp.Problem(space, lam=lam, diffusivity=k, dirichlet=exact, preconditioner="multigrid")
    plain = hp.Problem(hp.Space(curved("hex", 3), 3, backend="numpy"), lam=lam, diffusivity=k, dirichlet=exact)
    found, expected = (one.solve(lambda *x: 1.0) for one in (problem, plain))
    assert norm_error(found.arrays[0], expected.arrays[0]) < 1e-6


@pytest.mark.parametrize("moved", [0.0, 1e6])
@pytest.mark.parametrize("name", NAMES)
def test_sources_far_from_the_origin_on_the_cpu(name, moved, rng):
    """Every source against NumPy, on straight, quadratic and other elements; results keep the digits of the cells."""
    cpu = BACKENDS["cpu"].strategy("sumfac")
    for mesh in (tapered(name), curved(name, 2), curved(name, 3)):
        space = hp.Space(mesh.transformed(lambda x: x + moved), 3, quadrature="collapsed")
        near = lambda *x: lam(*(own - moved for own in x))  # noqa: E731
        for operator in (hp.Laplacian(space, backend="numpy"), hp.Helmholtz(space, near, near, backend="numpy")):
            for choice in operator.choices:
                problem = choice.kernel.problem
                if problem.geometry.affine:
                    continue
                u = rng.standard_normal((1, problem.n_elements, problem.n_modes))
                wanted, out = np.empty_like(u), np.empty_like(u)
                choice.kernel.apply(u, wanted)
                for source in possible_sources(problem):
                    cpu.build(problem, source).apply(u, out)
                    # The coordinates of what is recomputed are rounded.
                    limit = 1e-8 if moved and source.recomputes else 1e-12
                    assert norm_error(out, wanted) < limit, (problem.geometry.kind.name, source)


def test_a_mixture_of_kinds(rng, monkeypatch):
    """Affine, straight and bent cells of one mesh, each with its own source."""
    monkeypatch.setattr(kinds, "FEW", 1)

    def tapered_behind(x):
        return x + 0.3 * np.clip(x[:, :1] - 1 / 3, 0, 1) * x[:, 1:2] * np.roll(x, 1, axis=1)

    def bent_at_the_end(x):
        return np.where(x[:, :1] > 0.8, bulge(x, 0.1), x)

    mesh = box("hex", (6, 3, 2)).transformed(tapered_behind).elevated(2)
    space = hp.Space(mesh.transformed(bent_at_the_end), 3, backend="cpu")
    assert len({block.geometry.kind.name for block in space.blocks}) > 2
    u = random_field(space, rng)
    found, expected = hp.Helmholtz(space, lam, k)(u), hp.Helmholtz(space, lam, k, backend="numpy")(u)
    for one, other in zip(found.arrays, expected.arrays, strict=True):
        assert norm_error(one, other) < 1e-12


@pytest.mark.parametrize("name", ["tri", "tet"])
def test_coefficients_on_simplex_rules(name, rng):
    space = hp.Space(curved(name, 2), 3, quadrature="simplex", backend="cpu")
    u = random_field(space, rng)
    operator = hp.Helmholtz(space, lam, tensor)
    assert "metric, merged" in operator.explain() and operator.choices[0].strategy == "fused"
    expected = hp.Helmholtz(space, lam, tensor, backend="numpy")(u).arrays[0]
    assert norm_error(operator(u).arrays[0], expected) < 1e-12
