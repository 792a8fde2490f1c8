"""Bases: counts, spaces, derivatives, the mode tree, tabulation."""

import copy
import itertools
import pickle
from functools import lru_cache

import numpy as np
import pytest

from hpfem.shapes import (
    BASES,
    HEX,
    POINT,
    PRISM,
    PYRAMID,
    QUAD,
    SEGMENT,
    TET,
    TRI,
    ArgumentError,
    Tabulation,
    default_counts,
    interpolation_nodes,
    make_basis,
    quadrature,
)
from tests.cases import MODAL, ORDERS, SHAPES, cases, each_order, each_shape
from tests.shapes.exact import N_MODES, directional_derivatives, exponents, integral, legendre_products
from tests.shapes.sampling import inside

CARTESIAN = (SEGMENT, QUAD, HEX)


def tabulation(name, shape, order):
    """A basis on the default rule of its order."""
    return Tabulation(make_basis(name, shape, order), quadrature(shape, default_counts(shape, order)))


@lru_cache(maxsize=2)
def from_orthogonal(name, shape, order):
    """Coefficients in a basis of the orthogonal modes of equal order, [n_modes, n_modes]."""
    basis = make_basis(name, shape, order)
    if basis.nodes is not None:
        return make_basis("orthogonal", shape, order).evaluate(basis.nodes).T
    orthogonal, own = tabulation("orthogonal", shape, order), tabulation(name, shape, order)
    weighted = orthogonal.dense * orthogonal.rule.weights
    mass = np.einsum("mq,mq->m", weighted, orthogonal.dense)
    return np.linalg.inv((own.dense @ weighted.T / mass).T)


def represented(name, shape, order, functions, points):
    """Values at points [n, dim] of functions (points -> [k, n]) of the space, through coefficients of a basis."""
    orthogonal = tabulation("orthogonal", shape, order)
    weighted = orthogonal.dense * orthogonal.rule.weights
    mass = np.einsum("mq,mq->m", weighted, orthogonal.dense)
    coefficients = functions(shape.collapse(orthogonal.rule.eta)) @ (weighted / mass[:, None]).T
    return coefficients @ from_orthogonal(name, shape, order).T @ make_basis(name, shape, order).evaluate(points)


@cases()
def test_mode_count(shape, order, basis):
    made = make_basis(basis, shape, order)
    assert made.n_modes == made.tree.n_modes == len(made.modes) == N_MODES[shape.name](order)
    assert (made.name, made.shape, made.order) == (basis, shape, order)
    # Every function of the tables is in use, and no other.
    for k in range(shape.dim):
        assert set(made.tree.leaf_functions[:, k]) == set(range(made.tree.n_functions[k]))
        assert made.tree.n_functions[k] == len(made.functions[k])


@cases()
def test_full_rank(shape, order, basis, rng):
    # The orthogonal modes are independent (their mass matrix is diagonal); the basis represents every one of them.
    points = inside(shape, 40, rng)
    expected = make_basis("orthogonal", shape, order).evaluate(points)
    values = from_orthogonal(basis, shape, order).T @ make_basis(basis, shape, order).evaluate(points)
    np.testing.assert_allclose(values, expected, atol=1e-11 * np.abs(expected).max())


@cases()
def test_polynomials_of_total_degree_are_reproduced(shape, order, basis, rng):
    powers = exponents(shape.dim, order)
    points = inside(shape, 60, rng)
    values = represented(basis, shape, order, lambda xi: legendre_products(xi, powers), points)
    np.testing.assert_allclose(values, legendre_products(points, powers), atol=1e-11)


@cases(shapes=(QUAD, HEX, PRISM), orders=(1, 2, 3, 5, 8))
def test_the_tensor_space_is_reproduced(shape, order, basis, rng):
    n_base = 2 if shape is PRISM else 1
    powers = [a for a in itertools.product(range(order + 1), repeat=shape.dim) if sum(a[:n_base]) <= order]
    points = inside(shape, 60, rng)
    values = represented(basis, shape, order, lambda xi: legendre_products(xi, powers), points)
    assert len(powers) == N_MODES[shape.name](order)
    np.testing.assert_allclose(values, legendre_products(points, powers), atol=1e-11)


@cases(shapes=(PYRAMID,))
def test_the_pyramid_has_the_optimal_space(shape, order, basis, rng):
    # Bergot, Cohen & Durufle 2010, prop. 1: P_P(x, y, z) and (xy/(1-z))^(P-k) P_k(x, y), k < P, on the centred pyramid.
    def extra(xi):
        unit = (1 + xi) / 2
        height = 1 - unit[:, 2]
        x, y = 2 * unit[:, 0] - height, 2 * unit[:, 1] - height
        return np.array(
            [
                (x * y / height) ** (order - k) * x**i * y**j
                for k in range(order)
                for i in range(k + 1)
                for j in range(k + 1 - i)
            ]
        )

    points = inside(shape, 60, rng)
    expected = extra(points)
    np.testing.assert_allclose(represented(basis, shape, order, extra, points), expected, atol=1e-11)
    assert len(exponents(3, order)) + len(expected) == N_MODES["pyramid"](order)


@cases(bases=("orthogonal",))
def test_orthogonal_mass_is_diagonal(shape, order, basis):
    for kinds in (None, ["gauss"] * shape.dim):
        rule = quadrature(shape, default_counts(shape, order), kinds)
        dense = Tabulation(make_basis(basis, shape, order), rule).dense
        mass = dense * rule.weights @ dense.T
        scale = np.sqrt(np.diag(mass))
        assert np.all(scale > 0)
        np.testing.assert_allclose(mass / np.outer(scale, scale), np.eye(len(mass)), atol=1e-13)


@each_shape()
def test_order_zero_is_the_constant(shape):
    basis = make_basis("orthogonal", shape, 0)
    np.testing.assert_array_equal(basis.evaluate(np.vstack([shape.vertices, -shape.vertices / 9])), 1.0)


@cases(orders=(*ORDERS, 12))
def test_gradient(shape, order, basis, rng):
    made = make_basis(basis, shape, order)
    start, end = (inside(shape, 4, rng, margin=0.3) for _ in range(2))
    expected = directional_derivatives(made.evaluate, start, end)
    gradient = made.gradient((start + end) / 2)
    derivatives = np.einsum("kmn,nk->mn", gradient, (end - start) / 2)
    np.testing.assert_allclose(derivatives, expected, atol=1e-11 * np.abs(gradient).max())


@cases(orders=(1, 4, 9))
def test_gradient_in_collapsed_coordinates(shape, order, basis, rng):
    made = make_basis(basis, shape, order)
    eta = rng.uniform(-0.9, 0.9, (4, shape.dim))
    gradient = made.gradient_eta(eta)
    for k in range(shape.dim):
        step = 0.1 * np.eye(shape.dim)[k]
        expected = directional_derivatives(made.evaluate_eta, eta - step, eta + step) / 0.1
        np.testing.assert_allclose(gradient[k], expected, atol=1e-11 * np.abs(gradient).max())


@cases(orders=(1, 2, 3, 6, 10))
def test_gradients_of_polynomials(shape, order, basis, rng):
    # sum_k xi_k^P has the gradient P xi_k^(P-1).
    made = make_basis(basis, shape, order)
    points = inside(shape, 50, rng, margin=0.05)
    orthogonal = tabulation("orthogonal", shape, order)
    weighted = orthogonal.dense * orthogonal.rule.weights
    mass = np.einsum("mq,mq->m", weighted, orthogonal.dense)
    values = (shape.collapse(orthogonal.rule.eta) ** order).sum(axis=1)
    coefficients = from_orthogonal(basis, shape, order) @ (weighted @ values / mass)
    expected = order * points.T ** (order - 1)
    np.testing.assert_allclose(np.einsum("kmn,m->kn", made.gradient(points), coefficients), expected, atol=1e-9)


@each_shape(tuple(shape for shape in SHAPES if shape not in CARTESIAN))
def test_no_gradient_where_the_collapse_is_singular(shape):
    for name in BASES:
        with pytest.raises(ArgumentError, match="not evaluated at its collapsed vertex or edge"):
            make_basis(name, shape, 3).gradient(shape.vertices)


@cases(shapes=CARTESIAN, orders=(3,))
def test_gradients_at_the_vertices_of_a_shape_without_collapse(shape, order, basis):
    assert np.all(np.isfinite(make_basis(basis, shape, order).gradient(shape.vertices)))


@cases(orders=(1, 2, 5, 10))
def test_values_are_continuous_up_to_collapsed_vertices(shape, order, basis):
    made = make_basis(basis, shape, order)
    middle = shape.vertices.mean(axis=0)
    for distance in (1e-15, 1e-13, 1e-11):
        near = shape.vertices + distance * (middle - shape.vertices)
        values = made.evaluate(shape.vertices)
        derivative = np.abs(values).max() * order**4
        np.testing.assert_allclose(made.evaluate(near), values, atol=derivative * (distance + 1e-15))


def leaf_products(tree, tables):
    """Every leaf's product of 1-D functions at tensor points, [n_leaves, Q1, ...], by the formula in tree.py."""
    found = []
    next_node = [0] * (tree.dim + 1)

    def walk(level, node, product):
        if level == tree.dim:
            found.append(product)
            return
        start = tree.start[level][node]
        for function in range(start, start + tree.count[level][node]):
            child = next_node[level + 1]
            next_node[level + 1] += 1
            walk(level + 1, child, np.multiply.outer(product, tables[level][function]))

    walk(0, 0, np.ones(()))
    return np.array(found)


@cases(orders=(1, 2, 3, 4, 6))
def test_the_tree_reproduces_the_basis(shape, order, basis):
    tabulated = tabulation(basis, shape, order)
    tree, n_points = tabulated.basis.tree, len(tabulated.rule)

    def modes(tables):
        values = np.zeros((tree.n_modes, n_points))
        np.add.at(values, tree.leaf_to_mode, leaf_products(tree, tables).reshape(tree.n_leaves, -1))
        transform = tabulated.basis.transform
        return values if transform is None else transform.T @ values

    np.testing.assert_allclose(modes(tabulated.values), tabulated.dense, atol=1e-12)
    for k in range(shape.dim):
        tables = [*tabulated.values[:k], tabulated.derivatives[k], *tabulated.values[k + 1 :]]
        np.testing.assert_allclose(modes(tables), tabulated.dense_gradient[k], atol=1e-11 * order**2)


@cases(orders=(*ORDERS, 12))
def test_tree_tables(shape, order, basis):
    tree = make_basis(basis, shape, order).tree
    assert tree.dim == shape.dim
    assert tree.n_nodes(0) == 1
    assert tree.n_nodes(shape.dim) == tree.n_leaves == len(tree.leaf_functions)
    ancestor = np.arange(tree.n_leaves)
    for level in range(tree.dim, 0, -1):
        assert tree.n_nodes(level) == tree.count[level - 1].sum() == len(tree.function(level))
        np.testing.assert_array_equal(tree.function(level)[ancestor], tree.leaf_functions[:, level - 1])
        assert np.all(np.diff(tree.parent(level)) >= 0)
        ancestor = tree.parent(level)[ancestor]
    # Leaves meet the modes in their order; only the apex of a modified basis is met again.
    first = np.unique(tree.leaf_to_mode, return_index=True)[1]
    assert np.all(np.diff(first) > 0)
    assert tree.injective == (basis != "modified" or not any(d.collapsed for d in shape.directions))
    # Rows of equal degree share a range: tables are O(P^2).
    assert max(tree.n_functions) <= (order + 1) * (order + 2) // 2 + 1


@cases(orders=(2, 5, 12))
def test_tabulation(shape, order, basis, rng):
    tabulated = tabulation(basis, shape, order)
    made, rule = tabulated.basis, tabulated.rule
    some = rng.choice(len(rule), min(50, len(rule)), replace=False)
    xi, eta = shape.collapse(rule.eta[some]), rule.eta[some]
    np.testing.assert_allclose(tabulated.dense[:, some], made.evaluate(xi), atol=1e-11)
    np.testing.assert_allclose(tabulated.dense_gradient[..., some], made.gradient_eta(eta), atol=1e-12)
    for k, points in enumerate(rule.points):
        assert tabulated.values[k].shape == tabulated.derivatives[k].shape == (made.tree.n_functions[k], len(points))
        # The tables are polynomials of degree P at P + 1 points or more: collocated differentiation is exact.
        derivatives = tabulated.values[k] @ tabulated.differentiation[k].T
        np.testing.assert_allclose(derivatives, tabulated.derivatives[k], atol=1e-12 * np.abs(derivatives).max())


def test_a_tabulation_pickles_without_its_tables():
    tabulated = tabulation("modified", TET, 8)
    assert tabulated.dense.nbytes > 100_000
    data = pickle.dumps(tabulated)
    assert len(data) < 1000
    again = pickle.loads(data)
    assert again.basis is tabulated.basis
    np.testing.assert_array_equal(again.dense, tabulated.dense)


@cases(orders=(1, 3))
def test_made_once_and_equal_after_pickling(shape, order, basis):
    made = make_basis(basis, shape, order)
    assert make_basis(name=basis, shape=shape, order=np.int64(order)) is made
    assert pickle.loads(pickle.dumps(made)) is made
    assert copy.deepcopy(made) is made
    assert repr(made) == f"Basis({basis!r}, {shape.name!r}, order={order})"


def test_unknown_basis():
    with pytest.raises(ArgumentError, match="unknown basis 'bernstein'; valid: modified, orthogonal, lagrange"):
        make_basis("bernstein", TET, 3)


@pytest.mark.parametrize("order", [True, 0, -1, 2.0, "3", None])
@pytest.mark.parametrize("name", BASES)
def test_bad_order(name, order):
    make_basis(name, TRI, 1)
    make_basis(name, TRI, 2)
    if (name, order) == ("orthogonal", 0) and order is not False:
        assert make_basis(name, TRI, order).n_modes == 1
        return
    with pytest.raises(ArgumentError, match=f"order of a {name} basis must be an integer >= "):
        make_basis(name, TRI, order)


def test_a_point_has_no_basis():
    with pytest.raises(ArgumentError, match="point"):
        make_basis("modified", POINT, 1)


def test_points_of_another_shape():
    for method in ("evaluate", "gradient", "evaluate_eta", "gradient_eta"):
        with pytest.raises(ArgumentError, match=r"points of a tet are an array \[n, 3\]"):
            getattr(make_basis("modified", TET, 2), method)(np.zeros((5, 2)))


@each_shape()
@each_order((1, 3, 6))
def test_integrals_of_the_modified_modes(shape, order):
    # The vertex modes sum to one, so their integrals sum to the volume.
    tabulated = tabulation("modified", shape, order)
    vertex = [i for i, mode in enumerate(tabulated.basis.modes) if mode.entity[0] == 0]
    assert len(vertex) == shape.n_vertices
    np.testing.assert_allclose(tabulated.dense[vertex].sum(axis=0), 1, atol=1e-14)
    total = tabulated.dense[vertex].sum(axis=0) @ tabulated.rule.weights
    assert total == pytest.approx(integral(shape, [0] * shape.dim), rel=1e-13)


@cases(bases=("lagrange",))
def test_lagrange_is_cardinal(shape, order, basis):
    made = make_basis(basis, shape, order)
    np.testing.assert_array_equal(made.nodes, interpolation_nodes(shape, order))
    np.testing.assert_allclose(made.evaluate(made.nodes), np.eye(made.n_modes), atol=1e-12)


@cases(bases=MODAL, orders=(1, 4))
def test_modal_bases_have_no_nodes(shape, order, basis):
    made = make_basis(basis, shape, order)
    assert made.nodes is None
    assert made.transform is None
