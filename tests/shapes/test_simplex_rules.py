"""Symmetric rules of simplices: exact to their degree, positive, inside, the same seen from every vertex."""

import copy
import itertools
import pickle

import numpy as np
import pytest

from hpfem.shapes import SHAPES, TET, TRI, ArgumentError, Tabulation, make_basis, simplex_quadrature
from tests.shapes.exact import exponents, integral, monomial

COUNTS = {
    "tri": (3, 6, 12, 16, 25, 33, 42, 55, 67, 79, 96, 112, 130, 150, 171),
    "tet": (4, 14, 24, 46, 81, 168, 204, 304, 436, 552),
}
each_rule = pytest.mark.parametrize(
    ("name", "order"), [(name, order + 1) for name, counts in COUNTS.items() for order in range(len(counts))]
)


def barycentric(shape, rule):
    """Barycentric coordinates of the points of a rule on a simplex, [Q, vertices]."""
    unit = (1 + shape.collapse(rule.eta)) / 2
    return np.column_stack([1 - unit.sum(axis=1), unit])


@each_rule
def test_exact_to_its_degree_and_not_past_it(name, order):
    shape, rule = SHAPES[name], simplex_quadrature(SHAPES[name], order)
    assert (len(rule), rule.degree) == (COUNTS[name][order - 1], 2 * order)
    xi = shape.collapse(rule.eta)
    worst = {0: 0.0, 1: 0.0}
    for powers in exponents(shape.dim, rule.degree + 1):
        error = abs(rule.weights @ monomial(xi, powers) / integral(shape, powers) - 1)
        past = int(sum(powers) > rule.degree)
        worst[past] = max(worst[past], error)
    assert worst[0] < 1e-14
    assert worst[1] > 1e-12


@each_rule
def test_orthogonal_polynomials(name, order):
    """Monomials hide what high degrees add up: no polynomial but the constant has an integral."""
    shape, rule = SHAPES[name], simplex_quadrature(SHAPES[name], order)
    values = make_basis("orthogonal", shape, 2 * order).evaluate_eta(rule.eta)
    found = values @ rule.weights / np.sqrt(values**2 @ rule.weights)
    found[np.argmax(np.abs(found))] = 0
    np.testing.assert_allclose(found, 0, atol=2e-14)


@each_rule
def test_positive_inside_and_symmetric(name, order):
    shape, rule = SHAPES[name], simplex_quadrature(SHAPES[name], order)
    points = barycentric(shape, rule)
    assert rule.weights.min() > 0
    assert points.min() > 1e-4
    assert rule.weights.sum() == pytest.approx(shape.volume, rel=1e-14)
    for permutation in itertools.permutations(range(shape.dim + 1)):
        distance = np.abs(points[:, None, permutation] - points).max(axis=2)
        image = distance.argmin(axis=1)
        assert sorted(image) == list(range(len(rule)))
        assert distance.min(axis=1).max() < 1e-14
        assert np.array_equal(rule.weights, rule.weights[image])


@each_rule
def test_mirror_pairs_to_the_last_bit(name, order):
    rule = simplex_quadrature(SHAPES[name], order)
    n, mirror = rule.pairs, np.array([-1.0] + [1.0] * (SHAPES[name].dim - 1))
    assert np.array_equal(rule.eta[n : 2 * n], rule.eta[:n] * mirror)
    assert np.array_equal(rule.weights[:n], rule.weights[n : 2 * n])
    assert np.all(rule.eta[:n, 0] > 0)
    assert np.all(rule.eta[2 * n :, 0] == 0)


@pytest.mark.parametrize("basis", ["modified", "orthogonal", "lagrange"])
@pytest.mark.parametrize("shape", [TRI, TET])
def test_derivatives_of_values(shape, basis):
    for order in (1, 3, 6):
        tabulation = Tabulation(make_basis(basis, shape, order), simplex_quadrature(shape, order))
        found = np.einsum("apq,mq->amp", tabulation.dense_differentiation, tabulation.dense)
        expected = tabulation.dense_gradient
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
        assert not tabulation.nodal


def test_made_once_copied_and_pickled():
    rule = simplex_quadrature(TET, 3)
    assert rule is simplex_quadrature(TET, 3)
    assert pickle.loads(pickle.dumps(rule)) is rule
    assert copy.deepcopy(rule) is rule
    assert not rule.weights.flags.writeable
    assert rule.resolves(3)
    assert not rule.resolves(4)


@pytest.mark.parametrize(("name", "order"), [("hex", 2), ("tet", 11), ("tri", 16), ("pyramid", 1), ("segment", 3)])
def test_refused_by_name(name, order):
    with pytest.raises(
        ArgumentError, match=f"order {order} on a {name}; there are those of tri up to order 15, tet up"
    ):
        simplex_quadrature(SHAPES[name], order)


def test_no_directions():
    tabulation = Tabulation(make_basis("modified", TRI, 2), simplex_quadrature(TRI, 2))
    with pytest.raises(ArgumentError, match="no directions"):
        _ = tabulation.values
