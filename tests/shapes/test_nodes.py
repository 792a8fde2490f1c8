"""Lattices and nodal sets: unisolvent, Gauss-Lobatto on edges, symmetric, equal on equal faces."""

import itertools

import numpy as np
import pytest

from hpfem.shapes import (
    HEX,
    POINT,
    PRISM,
    PYRAMID,
    QUAD,
    SEGMENT,
    SHAPES,
    TET,
    TRI,
    ArgumentError,
    cone,
    equispaced_nodes,
    interpolation_nodes,
    lattice,
    make_basis,
    make_rule,
    node_entities,
)
from hpfem.shapes.shape import _REGISTRY
from tests.cases import SHAPES_2D, cases, each_order, each_shape
from tests.shapes.exact import N_MODES
from tests.shapes.sampling import on_entity

# Just above the largest of P = 1..10, as sampled below.
LEBESGUE = {"segment": 2.2, "quad": 4.7, "tri": 6.7, "hex": 10, "prism": 14.5, "pyramid": 15.5, "tet": 19.5}


def symmetries(shape):
    """Permutations of the vertices that are affine maps of the shape onto itself."""
    if shape.n_vertices == shape.dim + 1:
        return [np.array(p) for p in itertools.permutations(range(shape.n_vertices))]
    found = []
    corners = np.column_stack([shape.vertices, np.ones(shape.n_vertices)])
    for permutation in itertools.permutations(range(shape.n_vertices)):
        image = shape.vertices[list(permutation)]
        if np.allclose(corners @ np.linalg.lstsq(corners, image, rcond=None)[0], image):
            found.append(np.array(permutation))
    return found


def sorted_points(points):
    """Points in an order that rounding does not change."""
    return points[np.lexsort(np.round(points, 9).T)]


def mapped(shape, permutation, points):
    """Points under the affine map that takes vertex i to vertex permutation[i]."""
    corners = np.column_stack([shape.vertices, np.ones(shape.n_vertices)])
    matrix = np.linalg.lstsq(corners, shape.vertices[permutation], rcond=None)[0]
    return np.column_stack([points, np.ones(len(points))]) @ matrix


@each_shape()
@each_order((0, 1, 2, 3, 7, 12))
def test_lattice(shape, order):
    indices = lattice(shape, order)
    assert indices.dtype.kind == "i"
    assert indices.shape == (N_MODES[shape.name](order), shape.dim)
    assert [tuple(i) for i in indices] == sorted({tuple(i) for i in indices})  # distinct, first index slowest
    assert indices.min() == 0
    assert indices.max() == order
    if order:
        assert np.all(shape.depth(equispaced_nodes(shape, order)) >= -1e-14)


@each_shape()
def test_equispaced_nodes(shape):
    nodes = equispaced_nodes(shape, 4)
    np.testing.assert_array_equal(2 * nodes, np.round(2 * nodes))
    first = equispaced_nodes(shape, 1)
    np.testing.assert_array_equal(sorted_points(first), sorted_points(shape.vertices))


@each_shape()
@each_order((1, 2, 3, 6))
def test_node_entities(shape, order):
    # The vertex modes that do not vanish at a point are those of the entity that it lies in.
    linear = make_basis("modified", shape, 1)
    vertex = np.array([mode.entity[1] for mode in linear.modes])
    for nodes in (equispaced_nodes(shape, order), interpolation_nodes(shape, order)):
        values = np.abs(linear.evaluate(nodes)) > 1e-12
        expected = [shape.entity_number(tuple(vertex[column])) for column in values.T]
        assert list(node_entities(shape, order)) == expected


@cases(bases=("lagrange",), orders=(1, 2, 5))
def test_modes_of_a_nodal_basis_are_its_lattice(shape, order, basis):
    made = make_basis(basis, shape, order)
    assert [mode.indices for mode in made.modes] == [tuple(i) for i in lattice(shape, order).tolist()]
    assert tuple(mode.entity for mode in made.modes) == node_entities(shape, order)
    assert {mode.degree for mode in made.modes} == {order}


@each_shape()
@each_order((1, 2, 3, 4, 7, 10, 12))
def test_edges_carry_gauss_lobatto_points(shape, order):
    nodes, line = interpolation_nodes(shape, order), make_rule("lobatto", order + 1).points
    owners = node_entities(shape, order)
    for number, edge in enumerate(shape.edges):
        ends = [(0, v) for v in edge.vertices]
        own = nodes[[owner == (1, number) or owner in ends for owner in owners]]
        expected = on_entity(shape, edge, line[:, None])
        np.testing.assert_allclose(sorted_points(own), sorted_points(expected), atol=1e-14)


@each_shape((HEX, PRISM, PYRAMID, TET))
@each_order((1, 2, 3, 4, 7, 10, 12))
def test_faces_carry_the_nodes_of_their_shape(shape, order):
    nodes, owners = interpolation_nodes(shape, order), node_entities(shape, order)
    for face in shape.faces:
        inside = [set(shape.entities[dim][number].vertices) <= set(face.vertices) for dim, number in owners]
        expected = on_entity(shape, face, interpolation_nodes(face.shape, order))
        np.testing.assert_allclose(sorted_points(nodes[inside]), sorted_points(expected), atol=1e-13)


@each_shape(SHAPES_2D)
@each_order((1, 2, 3, 4, 7, 10, 12))
def test_faces_are_symmetric(shape, order):
    nodes = interpolation_nodes(shape, order)
    found = symmetries(shape)
    assert len(found) == (6 if shape is TRI else 8)
    for permutation in found:
        image = mapped(shape, permutation, nodes)
        np.testing.assert_allclose(sorted_points(image), sorted_points(nodes), atol=1e-13)


@pytest.mark.parametrize(("shape", "count"), [(SEGMENT, 2), (TET, 24), (PRISM, 12), (PYRAMID, 8)])
@each_order((2, 3, 5, 8))
def test_other_shapes_are_symmetric(shape, count, order):
    nodes = interpolation_nodes(shape, order)
    found = symmetries(shape)
    assert len(found) == count
    for permutation in found:
        image = mapped(shape, permutation, nodes)
        np.testing.assert_allclose(sorted_points(image), sorted_points(nodes), atol=1e-13)


@each_shape()
@each_order((*range(1, 11), 12))
def test_nodes_lie_apart_inside_the_shape(shape, order):
    nodes = interpolation_nodes(shape, order)
    assert nodes.shape == (N_MODES[shape.name](order), shape.dim)
    assert np.all(shape.depth(nodes) >= -1e-14)
    gap = np.diff(make_rule("lobatto", order + 1).points).min()
    for block in np.array_split(nodes, max(1, len(nodes) // 100)):
        distance = np.linalg.norm(block[:, None] - nodes[None], axis=-1)
        assert np.sort(distance, axis=1)[:, 1].min() > 0.4 * gap


@each_shape()
@each_order()
def test_lebesgue_constant(shape, order):
    # Sampled, so a lower bound; a set that is not unisolvent or badly placed is far above.
    values = make_basis("lagrange", shape, order).evaluate(equispaced_nodes(shape, 17))
    constant = np.abs(values).sum(axis=0).max()
    assert 1 - 1e-12 <= constant < LEBESGUE[shape.name]


@pytest.mark.parametrize("order", [0, -1, True, 1.0, None])
@pytest.mark.parametrize("function", [equispaced_nodes, interpolation_nodes, node_entities])
def test_bad_order(function, order):
    function(TRI, 1)
    with pytest.raises(ArgumentError, match="order of nodes must be an integer >= 1"):
        function(TRI, order)


@pytest.mark.parametrize("base", [PRISM, PYRAMID, HEX], ids=lambda shape: shape.name)
def test_cones_without_nodes_are_refused(base):
    """Their faces would have other nodes than the same shapes have elsewhere; modal bases know all cones."""
    shape = cone(base, "a shape of the test")
    try:
        for make in (interpolation_nodes, lambda shape, order: make_basis("lagrange", shape, order)):
            with pytest.raises(
                ArgumentError, match="no interpolation nodes for the shape 'a shape of the test'.*modified"
            ):
                make(shape, 3)
        assert make_basis("modified", shape, 3).n_modes > base.n_vertices
    finally:
        _REGISTRY.pop(shape.name)


def test_bad_lattice():
    with pytest.raises(ArgumentError, match=">= 0"):
        lattice(QUAD, -1)


def test_the_point_is_a_lattice_of_one():
    for order in (1, 5):
        assert lattice(POINT, order).shape == interpolation_nodes(POINT, order).shape == (1, 0)
        assert node_entities(POINT, order) == ((0, 0),)


@pytest.mark.parametrize("function", [lattice, equispaced_nodes, interpolation_nodes])
def test_cached_arrays_are_read_only(function):
    for shape in (POINT, *SHAPES.values()):
        assert not function(shape, 3).flags.writeable
