"""Vertices, entities, collapse and containment of the shapes."""

import copy
import itertools
import pickle

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
    get_shape,
    product,
)
from tests.cases import SHAPES_2D, SHAPES_3D, each_shape
from tests.shapes.sampling import inside, on_entity

COUNTS = {  # vertices, edges, faces, cells
    "segment": (2, 1),
    "quad": (4, 4, 1),
    "tri": (3, 3, 1),
    "hex": (8, 12, 6, 1),
    "prism": (6, 9, 5, 1),
    "pyramid": (5, 8, 5, 1),
    "tet": (4, 6, 4, 1),
}
VERTICES = {
    SEGMENT: [[-1], [1]],
    QUAD: [[-1, -1], [1, -1], [-1, 1], [1, 1]],
    TRI: [[-1, -1], [1, -1], [-1, 1]],
    PRISM: [[-1, -1, -1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1], [1, -1, 1], [-1, 1, 1]],
    PYRAMID: [[-1, -1, -1], [1, -1, -1], [-1, 1, -1], [1, 1, -1], [-1, -1, 1]],
    TET: [[-1, -1, -1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]],
}


def facet_planes(shape):
    """Outward area vectors [n_facets, dim] and a point of each facet, from the vertices alone."""
    middle = shape.vertices.mean(axis=0)
    normals, origins = [], []
    for facet in shape.facets:
        origin, *corners = shape.vertices[list(facet.vertices)]
        axes = [corner - origin for corner in corners[: shape.dim - 1]]
        if shape.dim == 1:
            normal = np.ones(1)
        elif shape.dim == 2:
            normal = np.array([axes[0][1], -axes[0][0]])
        else:
            normal = np.cross(*axes) * (0.5 if len(corners) == 2 else 1.0)
        normals.append(normal * np.sign(normal @ (origin - middle)))
        origins.append(origin)
    return np.array(normals), np.array(origins)


@pytest.mark.parametrize("shape", VERTICES, ids=lambda shape: shape.name)
def test_vertices(shape):
    assert shape.vertices.tolist() == VERTICES[shape]


def test_hex_vertices_are_in_tensor_order():
    assert HEX.vertices.tolist() == [[x, y, z] for z, y, x in itertools.product((-1, 1), repeat=3)]


@each_shape()
def test_entity_counts(shape):
    assert tuple(len(entities) for entities in shape.entities) == COUNTS[shape.name]
    assert (shape.dim, shape.n_vertices) == (len(COUNTS[shape.name]) - 1, COUNTS[shape.name][0])
    assert shape.edges == shape.entities[1]
    assert shape.facets == shape.entities[-2]


@each_shape()
def test_an_entity_is_an_affine_image_of_its_shape(shape):
    for dim, entities in enumerate(shape.entities):
        assert len({frozenset(entity.vertices) for entity in entities}) == len(entities)
        for entity in entities[: None if dim < shape.dim else 0]:
            assert entity.shape.dim == dim
            image = on_entity(shape, entity, entity.shape.vertices)
            np.testing.assert_array_equal(image, shape.vertices[list(entity.vertices)])


@each_shape()
def test_entities_of_entities_are_entities(shape):
    # In the same vertex order: a mode of a face is a mode of the shape without any turning.
    for entity in itertools.chain(*shape.entities):
        for dim, parts in enumerate(entity.shape.entities):
            for part in parts:
                vertices = tuple(entity.vertices[v] for v in part.vertices)
                assert vertices in [other.vertices for other in shape.entities[dim]]


@each_shape()
def test_entity_number(shape):
    for dim, entities in enumerate(shape.entities):
        for number, entity in enumerate(entities):
            assert shape.entity_number(entity.vertices[::-1]) == (dim, number)
    with pytest.raises(ArgumentError, match="no entity"):
        shape.entity_number((0, 99))


@each_shape(SHAPES_3D)
def test_every_edge_is_shared_by_two_faces(shape):
    for edge in shape.edges:
        assert sum(set(edge.vertices) <= set(face.vertices) for face in shape.faces) == 2


@each_shape()
def test_the_facets_close_the_shape(shape):
    normals, origins = facet_planes(shape)
    np.testing.assert_allclose(normals.sum(axis=0), 0, atol=1e-14)
    assert np.einsum("fk,fk->", normals, origins) / shape.dim == pytest.approx(shape.volume, rel=1e-14)
    # Convex: every vertex is on the inner side of every facet, and on it exactly if it is one of its own.
    height = np.einsum("fk,fvk->fv", normals, shape.vertices[None] - origins[:, None])
    own = np.array([[v in facet.vertices for v in range(shape.n_vertices)] for facet in shape.facets])
    assert np.all(np.where(own, np.abs(height) < 1e-14, height < -0.1))


@each_shape()
def test_lift(shape):
    base, n = shape.base, shape.base.n_vertices

    def vertices(entity):
        return shape.entities[entity[0]][entity[1]].vertices

    for dim, entities in enumerate(base.entities):
        for number, entity in enumerate(entities):
            low, high, swept = (vertices(shape.lift((dim, number), to)) for to in ("low", "high", "swept"))
            assert low == entity.vertices
            assert high == ((n,) if shape.collapsed else tuple(v + n for v in entity.vertices))
            assert swept == low + high


def test_the_point_has_no_base():
    with pytest.raises(ArgumentError, match="no base"):
        POINT.lift((0, 0), "low")


@each_shape()
def test_collapse_round_trip(shape, rng):
    eta = rng.uniform(-1, 1, (200, shape.dim))
    np.testing.assert_allclose(shape.inverse_collapse(shape.collapse(eta)), eta, atol=1e-10)
    # Everywhere, the collapsed vertices, edges and all corners included.
    xi = np.vstack([shape.vertices, inside(shape, 200, rng), shape.collapse(np.sign(eta))])
    np.testing.assert_allclose(shape.collapse(shape.inverse_collapse(xi)), xi, atol=1e-14)


@each_shape()
def test_collapse_covers_the_shape(shape, rng):
    assert np.all(shape.depth(shape.collapse(rng.uniform(-1, 1, (500, shape.dim)))) >= -1e-14)
    eta = shape.inverse_collapse(inside(shape, 500, rng))
    assert np.all(np.abs(eta) <= 1 + 1e-10)


def test_at_an_apex_the_base_coordinates_are_minus_one():
    assert TRI.inverse_collapse(np.array([[-1.0, 1.0]])).tolist() == [[-1, 1]]
    assert PYRAMID.inverse_collapse(np.array([[-1.0, -1.0, 1.0]])).tolist() == [[-1, -1, 1]]
    assert TET.inverse_collapse(np.array([[-1.0, 1.0, -1.0]])).tolist() == [[-1, 1, -1]]


@each_shape()
def test_collapse_matrix(shape, rng):
    # The collapse is linear in each coordinate: central differences of any step are exact.
    eta = rng.uniform(-1, 1, (50, shape.dim))
    steps = 0.5 * np.eye(shape.dim)
    expected = np.stack([shape.collapse(eta + step) - shape.collapse(eta - step) for step in steps], axis=-1)
    matrix = shape.collapse_matrix(eta)
    np.testing.assert_allclose(matrix, expected, atol=1e-14)
    factors = [((1 - eta[:, k]) / 2) ** direction.alpha for k, direction in enumerate(shape.directions)]
    np.testing.assert_allclose(np.linalg.det(matrix), np.prod(factors, axis=0), atol=1e-14)


@each_shape()
def test_vertices_edges_and_facets_are_not_outside(shape, rng):
    for entity in itertools.chain(*shape.entities[:-1]):
        s = np.vstack([entity.shape.vertices, inside(entity.shape, 40, rng)])
        points = on_entity(shape, entity, s)
        assert np.all(shape.depth(points) >= -1e-15)


@each_shape()
def test_the_inside_is_that_of_the_facets_half_spaces(shape, rng):
    normals, origins = facet_planes(shape)
    points = rng.uniform(-1.3, 1.3, (4000, shape.dim))
    expected = np.all(np.einsum("fk,fnk->fn", normals, points[None] - origins[:, None]) <= 0, axis=0)
    assert 0 < expected.sum() < len(points)
    np.testing.assert_array_equal(shape.depth(points) >= 0, expected)


@each_shape()
def test_points_beyond_a_facet_are_outside(shape, rng):
    normals, _ = facet_planes(shape)
    for facet, normal in zip(shape.facets, normals, strict=True):
        s = np.vstack([facet.shape.vertices, inside(facet.shape, 40, rng)])
        beyond = on_entity(shape, facet, s) + 1e-6 * normal / np.linalg.norm(normal)
        depth = shape.depth(beyond)
        assert np.all((depth < -1e-10) & (depth >= -1e-5))


@each_shape()
def test_points_above_a_collapsed_vertex_are_outside_and_nans_nowhere(shape):
    above = shape.vertices + np.eye(shape.dim)[-1] * 2.1
    assert np.all(shape.depth(above) < -1e-10)
    assert np.all(np.isnan(shape.depth(np.full((3, shape.dim), np.nan))))


@pytest.mark.parametrize("shape", [POINT, *SHAPES.values()], ids=lambda shape: shape.name)
def test_pickle_and_copy_give_the_same_object(shape):
    assert pickle.loads(pickle.dumps(shape)) is shape
    assert copy.deepcopy(shape) is shape
    assert get_shape(shape.name) is shape


def test_unknown_shape():
    with pytest.raises(ArgumentError, match=r"unknown shape 'wedge'; valid: .*prism"):
        get_shape("wedge")


@pytest.mark.parametrize("points", [np.zeros(3), np.zeros((4, 2)), np.zeros((2, 3, 3))], ids=["1-D", "2-column", "3-D"])
def test_points_of_another_shape(points):
    for method in (TET.collapse, TET.inverse_collapse, TET.collapse_matrix, TET.depth):
        with pytest.raises(ArgumentError, match=r"points of a tet are an array \[n, 3\]"):
            method(points)


def test_a_name_is_taken_once():
    with pytest.raises(ArgumentError, match="already"):
        product(SEGMENT, "quad")
    with pytest.raises(ArgumentError, match="already"):
        cone(SEGMENT, "tri")
    with pytest.raises(ArgumentError, match="segment"):
        cone(POINT, "segment again")


def test_vertices_are_read_only():
    for shape in (*SHAPES_2D, *SHAPES_3D):
        assert not shape.vertices.flags.writeable
