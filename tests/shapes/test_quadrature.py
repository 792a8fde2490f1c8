"""Rules of one direction and of the shapes: exact to their degree, not past it, inside, with the right volume."""

import copy
import pickle

import numpy as np
import pytest
from scipy.special import eval_jacobi, roots_legendre

from hpfem.shapes import TET, TRI, ArgumentError, TensorRule, default_counts, make_rule, quadrature
from tests.cases import each_order, each_shape
from tests.shapes.exact import exponents, integral, monomial

RULES = [(kind, alpha) for kind in ("gauss", "radau") for alpha in (0, 1, 2)] + [("lobatto", 0), ("right radau", 0)]
FIXED = {"gauss": (), "radau": (-1.0,), "lobatto": (-1.0, 1.0), "right radau": (1.0,)}

each_rule = pytest.mark.parametrize(("kind", "alpha"), RULES)
each_count = pytest.mark.parametrize("n", range(1, 21))


def some_rule(kind, n, alpha):
    """The rule, with two points where one is too few."""
    return make_rule(kind, max(n, len(FIXED[kind]), 1), alpha)


@each_rule
@each_count
def test_exact_to_its_degree_and_not_past_it(kind, alpha, n):
    rule = some_rule(kind, n, alpha)
    # Jacobi polynomials of the weight: the first integrates to the volume, all others to zero.
    sums = [rule.weights @ eval_jacobi(k, alpha, 0, rule.points) for k in range(rule.degree + 2)]
    assert sums[0] == pytest.approx(2 / (alpha + 1), rel=1e-14)
    np.testing.assert_allclose(sums[1:-1], 0, atol=2e-14 * (1 + rule.degree) ** alpha)
    assert abs(sums[-1]) > 1e-3


@each_rule
@each_count
def test_monomials(kind, alpha, n):
    rule = some_rule(kind, n, alpha)
    for k in range(rule.degree + 1):
        # ∫ ((1-z)/2)^(k + alpha) dz
        assert rule.weights @ ((1 - rule.points) / 2) ** k == pytest.approx(2 / (k + alpha + 1), rel=1e-13)


@each_rule
@each_count
def test_points_and_weights(kind, alpha, n):
    rule = some_rule(kind, n, alpha)
    fixed = FIXED[kind]
    assert (rule.kind, rule.alpha, len(rule)) == (kind, alpha, max(n, len(fixed), 1))
    assert rule.degree == 2 * len(rule) - 1 - len(fixed)
    assert np.all(np.diff(rule.points) > 0)
    assert np.all(rule.weights > 0)
    ends = [z for z in rule.points if abs(z) > 1 - 1e-12]
    assert ends == list(fixed)
    assert not rule.points.flags.writeable
    assert not rule.weights.flags.writeable


@pytest.mark.parametrize("kind", ["gauss", "lobatto"])
@each_count
def test_symmetric_rules_are_symmetric_to_the_last_bit(kind, n):
    rule = some_rule(kind, n, 0)
    np.testing.assert_array_equal(rule.points, -rule.points[::-1])
    np.testing.assert_array_equal(rule.weights, rule.weights[::-1])


@pytest.mark.parametrize("n", [40, 64])
def test_many_points(n):
    for kind, alpha in RULES:
        rule = make_rule(kind, n, alpha)
        assert rule.weights.sum() == pytest.approx(2 / (alpha + 1), rel=1e-13)
        z, w = roots_legendre(40)
        expected = w @ (np.cos(5 * z) * ((1 - z) / 2) ** alpha)
        assert rule.weights @ np.cos(5 * rule.points) == pytest.approx(expected, rel=1e-12)


@each_shape()
@each_count
def test_weights_sum_to_the_volume(shape, n):
    # One point is too few for the Gauss-Lobatto rule that is the default of an ordinary first direction.
    for kinds in (["gauss"] * shape.dim, *([None] if n > 1 else [])):
        # A different count in each direction, so that none can be mistaken for another.
        counts = [n + k for k in range(shape.dim)]
        rule = quadrature(shape, counts, kinds)
        assert rule.counts == tuple(counts)
        assert rule.weights.sum() == pytest.approx(integral(shape, [0] * shape.dim), rel=1e-14)
        assert shape.volume == pytest.approx(integral(shape, [0] * shape.dim), rel=1e-15)
        assert rule.eta.shape == (len(rule), shape.dim) == (np.prod(counts), shape.dim)


@each_shape()
@each_order()
def test_default_rule_integrates_products_of_two_modes(shape, order):
    rule = quadrature(shape, default_counts(shape, order))
    xi = shape.collapse(rule.eta)
    for a in exponents(shape.dim, 2 * order) if order < 5 else [(2 * order - k, k, 0)[: shape.dim] for k in (0, order)]:
        if sum(a) <= 2 * order:
            assert rule.weights @ monomial(xi, a) == pytest.approx(integral(shape, a), rel=1e-13)


@each_shape()
@each_order(range(1, 6))
def test_default_rule_is_no_better_than_it_says(shape, order):
    rule = quadrature(shape, default_counts(shape, order))
    past = eval_jacobi(rule.rules[-1].degree + 1, rule.rules[-1].alpha, 0, rule.eta[:, -1])
    assert abs(rule.weights @ past) > 1e-4


@each_shape()
@each_order((1, 4, 12))
def test_points_lie_inside_and_never_on_a_collapsed_vertex(shape, order):
    for kinds in (None, ["gauss"] * shape.dim):
        rule = quadrature(shape, default_counts(shape, order), kinds)
        assert np.all(shape.depth(shape.collapse(rule.eta)) >= -1e-14)
        for k, direction in enumerate(shape.directions):
            if direction.collapsed:
                assert rule.eta[:, k].max() < 1 - 1e-3
        assert np.all(np.linalg.det(shape.collapse_matrix(rule.eta)) > 1e-9)


def test_points_are_a_tensor_product_with_the_first_direction_slowest():
    rule = quadrature(TET, (2, 3, 4))
    eta = rule.eta.reshape(2, 3, 4, 3)
    for index in np.ndindex(2, 3, 4):
        assert tuple(eta[index]) == tuple(points[i] for points, i in zip(rule.points, index, strict=True))
    w1, w2, w3 = (one.weights for one in rule.rules)
    np.testing.assert_allclose(rule.weights.reshape(2, 3, 4), np.einsum("i,j,k->ijk", w1, w2, w3), rtol=1e-15)
    assert rule.key == (("lobatto", 2, 0), ("radau", 3, 1), ("radau", 4, 2))


@each_shape()
def test_default_counts(shape):
    expected = tuple(4 if direction.collapsed else 5 for direction in shape.directions)
    assert default_counts(shape, 3) == expected
    assert default_counts(shape, 3, more=2) == tuple(n + 2 for n in expected)


def test_rules_are_made_once_and_equal_after_pickling():
    rule = make_rule("gauss", 5)
    assert make_rule("gauss", 5, 0) is rule
    assert make_rule("gauss", np.int64(5), alpha=0) is rule
    for each in (rule, make_rule("radau", 4, 2), make_rule("lobatto", 6)):
        assert pickle.loads(pickle.dumps(each)) is each
        assert copy.deepcopy(each) is each


def test_a_tensor_rule_pickles_without_its_points():
    rule = quadrature(TET, (8, 8, 8))
    assert len(rule.eta) == 512
    data = pickle.dumps(rule)
    assert len(data) < 1000
    again = pickle.loads(data)
    assert isinstance(again, TensorRule)
    assert again.rules == rule.rules


def test_unknown_rule():
    with pytest.raises(ArgumentError, match="'simpson'; valid: gauss, lobatto, radau"):
        make_rule("simpson", 3)


@pytest.mark.parametrize(("kind", "n"), [("gauss", 0), ("radau", 0), ("right radau", 0), ("lobatto", 1), ("gauss", -2)])
def test_too_few_points(kind, n):
    with pytest.raises(
        ArgumentError, match=f"points of a '{kind}' rule must be an integer >= {max(1, len(FIXED[kind]))}"
    ):
        make_rule(kind, n)


@pytest.mark.parametrize("n", [True, 2.0, "3", None])
def test_counts_are_integers(n):
    make_rule("gauss", 1)
    make_rule("gauss", 2)
    with pytest.raises(ArgumentError, match="must be an integer"):
        make_rule("gauss", n)


def test_a_bad_exponent_and_a_collapsed_lobatto():
    with pytest.raises(ArgumentError, match=">= 0"):
        make_rule("gauss", 3, -1)
    with pytest.raises(ArgumentError, match="'radau' or 'gauss'"):
        make_rule("lobatto", 3, 1)


def test_quadrature_wants_one_count_and_kind_per_direction():
    with pytest.raises(ArgumentError, match="a tri has 2 directions"):
        quadrature(TRI, (3, 3, 3))
    with pytest.raises(ArgumentError, match="a tri has 2 directions"):
        quadrature(TRI, (3, 3), ["gauss"])
    with pytest.raises(ArgumentError, match="collapsed end"):
        quadrature(TRI, (3, 3), ["lobatto", "lobatto"])
