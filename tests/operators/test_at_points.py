"""Functions of a field at the points: against values and gradients by definition, on every shape and backend."""

import numpy as np
import pytest

import hpfem as hp
from hpfem.errors import ArgumentError, NotSuitable, StateError
from tests.operators.reference import BlockReference, random_field
from tests.operators.ways import special, ways
from tests.samples import NAMES, curved, norm_error, straight


def coupled(u, du, x, k, lam):
    """Two components that meet in value and gradient."""
    return [u[0] * du[0][0] + lam * u[1] * du[0][1] + x[0], np.sin(u[1]) + k * (du[1][1] - du[0][0])]


def expected(u, fine, lam):
    """The same from the basis' tables at the points, as `BlockReference` makes them."""
    for number, array in enumerate(u.arrays):
        at = BlockReference(fine, number)
        values = np.einsum("cem,mq->ceq", array.astype(np.float64), at.B)
        slopes = np.einsum("cem,eimq->cieq", array.astype(np.float64), at.G)
        first = values[0] * slopes[0, 0] + lam * values[1] * slopes[0, 1] + at.x[0]
        yield np.stack([first, np.sin(values[1]) + (1 + at.x[1]) * (slopes[1, 1] - slopes[0, 0])])


@pytest.mark.parametrize("basis", ["modified", "lagrange"])
@pytest.mark.parametrize("bent", [False, True], ids=["straight", "curved"])
@pytest.mark.parametrize("name", NAMES)
def test_value_gradient_point_field_and_number(name, bent, basis, backend, rng):
    space = hp.Space(curved(name) if bent else straight(name), 3, basis, backend=backend)
    fine = space.at(quadrature=1)
    u = random_field(space, rng, components=2)
    given = {"fields": {"k": fine.evaluate(lambda *x: 1 + x[1]), "lam": 2.0}, "components": 2, "target": fine}
    for way in ways(backend):
        operator = hp.AtPoints(space, coupled, **given, **way)
        operator.parameters["lam"] = 0.5
        found = operator(u)
        assert found.space is fine and found.state == "phys" and operator.form.sink == "phys"
        for ours, theirs in zip(found.arrays, expected(u, fine, 0.5), strict=True):
            assert norm_error(ours, theirs) < 1e-12


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("name", "basis", "quadrature"),
    [
        ("tet", "modified", "gauss"),
        ("hex", "modified", 1),
        ("quad", "lagrange", "collocated"),
        ("tet", "modified", "simplex"),
    ],
)
def test_values_alone_by_component(name, basis, quadrature, dtype, backend, rng):
    space = hp.Space(curved(name), 3, basis, quadrature=quadrature, dtype=dtype, backend=backend)
    u = random_field(space, rng, components=3)

    def make(**way):
        return hp.AtPoints(space, lambda u: u**2 - 1, **way)

    simplex = quadrature == "simplex"
    made = [make()] if simplex else [make(**way) for way in ways(backend, gradients=False)]
    for operator in [*made, *(own for _, own in special(backend, make))]:
        for ours, theirs in zip(operator(u).arrays, hp.BwdTrans(space)(u).arrays, strict=True):
            assert norm_error(ours, theirs**2 - 1) < (1e-12 if dtype == "float64" else 1e-5)


@pytest.mark.parametrize("name", ["tri", "tet"])
def test_coupled_components_on_rules_without_directions(name, backend, rng):
    space = hp.Space(curved(name), 3, quadrature="simplex", backend=backend)
    u, fields = random_field(space, rng, components=2), {"k": lambda *x: 1 + x[1], "lam": 0.5}

    def make(**way):
        return hp.AtPoints(space, coupled, fields=fields, components=2, **way)

    for operator in [make(strategy="stdmat"), make(), *(own for _, own in special(backend, make))]:
        for ours, theirs in zip(operator(u).arrays, expected(u, space, 0.5), strict=True):
            assert norm_error(ours, theirs) < 1e-12


def test_points_of_the_space_are_the_default(backend):
    space = hp.Space(straight("tri"), 2, backend=backend)
    found = hp.AtPoints(space, lambda x: x[0] * x[1], fields={})(space.zeros("coeff"))
    assert found.space is space
    assert norm_error(found.arrays[0], space.evaluate(lambda x, y: x * y).arrays[0]) < 1e-14


def test_it_is_no_weak_form_and_checks_what_it_is_given():
    space = hp.Space(straight("quad"), 2)
    fine = space.at(quadrature=1)
    operator = hp.AtPoints(space, lambda u: u, target=fine)
    with pytest.raises(ArgumentError, match="weak form"):
        hp.GlobalOperator(operator, hp.C0Space(space))
    with pytest.raises(NotSuitable, match="only weak forms"):
        operator.elliptic_part()
    with pytest.raises(StateError, match="another space"):
        hp.AtPoints(space, lambda u, k: k * u, fields={"k": space.evaluate(lambda x, y: x)}, target=fine)
    with pytest.raises(ArgumentError, match="not finite"):
        hp.AtPoints(space, lambda u: 1 / u)(space.zeros("coeff"))
    with pytest.raises(ArgumentError, match="test must be"):
        hp.WeakForm(space, lambda u: u, test=())
    with pytest.raises(ArgumentError, match="returned nothing"):
        hp.AtPoints(space, lambda u: None)


def many(u, du, x, k):
    """More results than components."""
    return [u, k * du[0], np.exp(u) * x[0], u * du[1], du[0] + du[1], x[1]]


SIMPLICES = (("tri", "simplex"), ("tet", "simplex"))
EACH = (
    lambda u: u, lambda du, k: k * du[0], lambda u, x: np.exp(u) * x[0], lambda u, du: u * du[1],
    lambda du: du[0] + du[1], lambda x: x[1],
)  # fmt: skip


@pytest.mark.parametrize(("name", "quadrature"), [*((name, "collapsed") for name in NAMES), *SIMPLICES])
def test_any_number_of_results(name, quadrature, backend, rng):
    space = hp.Space(curved(name), 3, quadrature=quadrature, backend=backend)
    u, fields = random_field(space, rng, components=2), {"k": lambda *x: 1 + x[1]}
    single = [hp.AtPoints(space, own, fields=fields if c == 1 else {})(u) for c, own in enumerate(EACH)]

    def make(**way):
        return hp.AtPoints(space, many, fields=fields, **way)

    given = ways(backend) if quadrature == "collapsed" else [{"strategy": "stdmat"}, {"strategy": "auto"}]
    for operator in [*(make(**way) for way in given), *(own for _, own in special(backend, make))]:
        found = operator(u)
        assert found.components == 12  # those of one component after those of the other
        for number, array in enumerate(found.arrays):
            for c, own in enumerate(single):
                assert norm_error(array[[c, 6 + c]], own.arrays[number]) < 1e-12
