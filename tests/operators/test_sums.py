"""Sums of weak forms: equal to their parts applied one by one, by one kernel for each block."""

import pickle

import numpy as np
import pytest

import hpfem as hp
from hpfem.forms.trace import MAX_OPERATIONS
from hpfem.mesh import box
from hpfem.operators import operator as operators
from tests.operators.reference import random_field
from tests.operators.ways import special, ways
from tests.samples import NAMES, curved, norm_error, skewed, straight

MESHES = {"affine": lambda name: skewed(straight(name)), "curved": lambda name: curved(name, 2)}
# Components of the field, and those that one of the forms couples.
COMPONENTS = {"one": (1, 1), "three": (3, 1), "three coupled": (3, 3)}


def varying(*x):
    """A coefficient."""
    return 1.5 + x[0] * x[-1]


def parts(space, coupled=1, **options):
    """Forms of all kinds, and factors."""
    on_side = hp.WeakForm(space, lambda u, n, k: k * n[0] * u, test="value", fields={"k": 2.0}, on="xmax", **options)
    speed = [1.0, -0.5, 0.3][: space.dim]
    forms = [hp.Mass(space, **options), hp.Helmholtz(space, varying, 0.7, **options), on_side]
    if coupled == 1:
        forms.append(hp.AdvectionDiffusionReaction(space, speed, **options))
    else:
        turned = lambda u, du: ([u[1], u[2], 2 * u[0]], [du[c - 1] for c in range(3)])  # noqa: E731
        forms.append(hp.WeakForm(space, turned, components=3, **options))
    return forms, [0.5, 2.0, -3.0, 0.25]


def one_by_one(forms, factors, field):
    """The sum of the results of all forms."""
    found = [form(field).arrays for form in forms]
    return [sum(f * own for f, own in zip(factors, arrays, strict=True)) for arrays in zip(*found, strict=True)]


def combined(forms, factors):
    """The sum of forms."""
    return sum(factor * form for factor, form in zip(factors, forms, strict=True))


def made(monkeypatch):
    """Forms for which kernels are chosen from now on."""
    seen, choose = [], operators.choose_else_auto
    monkeypatch.setattr(operators, "choose_else_auto", lambda own, *rest: seen.append(own) or choose(own, *rest))
    return seen


@pytest.mark.parametrize("components", COMPONENTS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", MESHES)
@pytest.mark.parametrize("order", [1, 2, 4, 8])
@pytest.mark.parametrize("name", NAMES)
def test_a_sum_is_the_sum_of_its_parts(name, order, kind, dtype, components, backend, rng):
    n, coupled = COMPONENTS[components]
    space = hp.Space(MESHES[kind](name), order, dtype=dtype, backend=backend)
    field = random_field(space, rng, components=n)
    wanted = one_by_one(*parts(space, coupled, backend="numpy"), field)
    found = combined(*parts(space, coupled))(field)
    for own, expected in zip(found.arrays, wanted, strict=True):
        assert norm_error(own, expected) < (1e-12 if dtype == np.float64 else 2e-5)


@pytest.mark.parametrize("name", NAMES)
def test_every_way_to_compute_it(name, backend, rng):
    """Mass + k Laplacian by every strategy that serves Helmholtz, those for constant coefficients included."""
    space = hp.Space(straight(name), 3, backend=backend, quadrature="collapsed")
    field = random_field(space, rng)

    def add(**way):
        whole = 2.0 * hp.Mass(space, **way) + 3.0 * hp.Laplacian(space, **way)
        return whole if whole.volume else None  # kernels are made, or NotSuitable is raised

    expected = hp.Helmholtz(space, 2.0, 3.0, backend="numpy")(field).arrays[0]
    for way in ways(backend):
        assert norm_error(add(**way)(field).arrays[0], expected) < 1e-12, way
    served = [own for own, _ in special(backend, lambda **way: hp.Helmholtz(space, 2.0, 3.0, **way))]
    found = list(special(backend, add))
    assert [own for own, _ in found] == served
    for own, form in found:
        assert norm_error(form(field).arrays[0], expected) < 1e-12, own
    assert [c.strategy for c in add().volume.choices] == [c.strategy for c in hp.Helmholtz(space, 2, 3).choices]


def test_changes_count_from_the_next_application_on(backend, rng, monkeypatch):
    space = hp.Space(box(("quad", "tri"), (3, 1)), 3, backend=backend)
    field, changing = random_field(space, rng), random_field(space, rng, "phys")
    forms, factors = parts(space)
    forms.append(hp.WeakForm(space, lambda u, w, k: k * w * u, test="value", fields={"w": changing, "k": 1.0}))
    whole = combined(forms, [*factors, 1.0])
    whole(field)
    seen = made(monkeypatch)
    whole.factors[0], whole.factors[-1] = np.float32(4.0), -2.0
    factors = list(whole.factors)
    forms[2].parameters["k"] = 7.0
    forms[-1].parameters["k"] = 5.0
    changing.data[0].write()[...] = 2.0
    for own, expected in zip(whole(field).arrays, one_by_one(forms, factors, field), strict=True):
        assert norm_error(own, expected) < 1e-12
    whole.volume.parameters["0"] = 0.0
    assert whole.factors[0] == 0.0 and not seen and set(whole.volume.parameters) >= {"0", "3", "1.diffusivity", "k"}


def test_algebra(rng):
    space = hp.Space(box("tri", (2, 2)), 2)
    u, M, L = random_field(space, rng), hp.Mass(space), hp.Laplacian(space)
    m, k = M(u).arrays[0], L(u).arrays[0]
    found = {
        "sum": (M + L, m + k), "difference": (M - L, m - k), "negative": (-M, -m),
        "numbers of NumPy": (np.float64(2) * M + L * np.int64(3), 2 * m + 3 * k), "quotient": (M / 4, m / 4),
        "sum()": (sum([M, L, M]), 2 * m + k), "of sums": (2 * (M + 3 * L) - (M - L) / 2, 1.5 * m + 6.5 * k),
        "less": (0 - M, -m), "a class": (hp.OperatorSum([M, L], [1, 2]), m + 2 * k),
    }  # fmt: skip
    for what, (form, expected) in found.items():
        assert norm_error(form(u).arrays[0], expected) < 1e-13, what
    assert len(repr(sum([M] * 100))) < 200 and sum([M] * 100).volume.name.endswith("Mass + 95 others")
    assert list((2 * (M + 3 * L)).factors) == [2, 6] and (M + L).summands == (M, L) and (-M).factors[0] == -1


def test_arrays_and_pickling(backend, rng):
    space = hp.Space(box(("quad", "tri"), (3, 1)), 2, backend=backend)
    whole = combined(*parts(space))
    u = random_field(space, rng)
    expected = whole(u)
    assert all(norm_error(a, b) < 1e-15 for a, b in zip(whole(list(u.arrays)), expected.arrays, strict=True))
    assert whole(u, out=(out := space.zeros("dual"))) is out and norm_error(out.arrays[0], expected.arrays[0]) == 0
    again = pickle.loads(pickle.dumps(whole))
    v = again.space.field("coeff", list(u.arrays))
    again.factors[0] = whole.factors[0] = 9.0
    again.summands[2].parameters["k"] = whole.summands[2].parameters["k"] = 4.0
    assert all(norm_error(a, b) == 0 for a, b in zip(again(v).arrays, whole(u).arrays, strict=True))
    assert "0.25 AdvectionDiffusionReaction" in repr(whole) and "on backend" in whole.explain()
    assert len(whole.tune(1e-9)) >= 2 and len(hp.tune(space, whole, 1e-9)) == 2
    doubled = 2.0 * whole.summands[2]
    assert norm_error(doubled(u).arrays[0], 2 * whole.summands[2](u).arrays[0]) < 1e-15
    assert doubled.explain() == whole.summands[2].explain()


def test_a_field_of_two_forms_is_read_once():
    space = hp.Space(box("quad", (2, 2)), 2)
    w = space.evaluate(varying)
    whole = hp.Helmholtz(space, w) + hp.Helmholtz(space, 1.0, w)
    assert len(whole.volume.fields) == 1


def test_what_users_write_is_guarded():
    space = hp.Space(box("quad", (2, 2)), 2)
    whole = hp.Mass(space) + hp.WeakForm(space, lambda u: np.log(u), test="value")
    with pytest.raises(hp.ArgumentError, match="not finite in cell 0"):
        whole(space.project(lambda x, y: -1.0))


def test_what_cannot_be_added():
    space, other = (hp.Space(box("quad", (2, 2)), 2) for _ in range(2))
    M, u = hp.Mass(space), space.zeros("coeff")
    two, three = (hp.WeakForm(space, lambda u: list(u), test="value", components=n) for n in (2, 3))
    for make, message in (
        (lambda: M + 3, "made of weak forms .* got 3"),
        (lambda: M + u, "made of weak forms .* got Field"),
        (lambda: M + hp.BwdTrans(space), "weak forms .* got BwdTrans"),
        (lambda: hp.FwdTrans(space) - M, "weak forms .* got FwdTrans"),
        (lambda: M * M, "multiplied by a number, got"),
        (lambda: "2" * M, "multiplied by a number, got '2'"),
        (lambda: M / 0, "numbers other than 0, got 0"),
        (lambda: M + hp.Mass(other), "on one space; Mass and Mass are on two"),
        (
            lambda: M + hp.Laplacian(space, backend="numpy"),
            "on one backend; Laplacian computes with 'numpy', Mass with",
        ),
        (lambda: two + M + three, "couples 2 components, another form of the sum 3"),
        (lambda: np.nan * M, "a factor of Mass"),
        (lambda: hp.OperatorSum([M], [1, 2]), "a factor for each, got 2 for 1"),
        (lambda: hp.OperatorSum([], []), "a factor for each, got 0 for 0"),
    ):
        with pytest.raises(hp.ArgumentError, match=message):
            make()
    whole = M + two
    with pytest.raises(hp.ArgumentError, match="has 2 factors; they can be set, but not added or removed"):
        whole.factors.append(1.0)
    for number, value, message in ((2, 1.0, "has 2 factors"), (0, "x", "a factor of Mass"), (0, np.inf, "a factor of")):
        with pytest.raises(hp.ArgumentError, match=message):
            whole.factors[number] = value
    with pytest.raises(hp.StateError, match="couples 2 components, got a field with 1"):
        whole(u)
    with pytest.raises(hp.StateError, match="own argument"):
        M.__neg__()(u, out=space.field("dual", list(u.arrays)))


def test_each_summand_may_have_as_many_operations_as_a_form():
    space = hp.Space(hp.box("quad", 1), 1, backend="numpy")

    def long(first):
        def function(u):
            total = first * u
            for _ in range(MAX_OPERATIONS // 2 - 1):
                total = total * u + first
            return total

        return hp.WeakForm(space, function, test="value")

    one, other = long(0.5), long(0.25)
    u = hp.FwdTrans(space)(space.evaluate(lambda x, y: 0.1 + 0 * x))
    found = (one + other)(u).arrays[0]
    assert (one + other).volume.form.trace.flops > MAX_OPERATIONS
    assert np.allclose(found, one(u).arrays[0] + other(u).arrays[0], rtol=1e-13)
