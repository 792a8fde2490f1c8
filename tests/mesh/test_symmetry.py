"""Symmetries of shapes and what they do to lattices."""

import numpy as np
import pytest

from hpfem.mesh.symmetry import (
    entity_nodes,
    interior_nodes,
    lattice_permutations,
    mirror,
    mirrored_vertices,
    outward_signs,
    parities,
    symmetries,
)
from hpfem.shapes import POINT, SHAPES, equispaced_nodes

COUNTS = {"segment": 2, "quad": 8, "tri": 6, "hex": 48, "prism": 12, "pyramid": 8, "tet": 24}


@pytest.mark.parametrize("name", SHAPES)
def test_they_are_a_group(name: str) -> None:
    table = symmetries(SHAPES[name])
    rows = {tuple(p) for p in table}
    assert len(table) == len(rows) == COUNTS[name]
    assert table.tolist() == sorted(table.tolist())
    assert table[0].tolist() == list(range(SHAPES[name].n_vertices))
    assert {tuple(p[q]) for p in table for q in table} == rows
    signed = list(zip(table, parities(SHAPES[name]), strict=True))
    assert len({(tuple(p[q]), s * t) for p, s in signed for q, t in signed}) == len(rows)
    assert parities(SHAPES[name]).sum() == 0


def test_the_codes_of_quads_are_swap_and_reversals() -> None:
    quad = SHAPES["quad"]
    for code, p in enumerate(symmetries(quad)):
        reversed_1, reversed_2 = (code >> 1) & 1, code >> 2
        swap = (code & 1) ^ reversed_2
        corners = quad.vertices[p]  # 00, 10, 01, 11 of the global frame
        np.testing.assert_array_equal(corners[0], [2 * reversed_1 - 1, 2 * reversed_2 - 1])
        assert np.flatnonzero(corners[1] - corners[0]).tolist() == [swap]
        assert np.flatnonzero(corners[2] - corners[0]).tolist() == [1 - swap]


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize("name", SHAPES)
def test_lattices_move_with_the_vertices(name: str, order: int) -> None:
    shape = SHAPES[name]
    nodes = equispaced_nodes(shape, order)
    for p, own in zip(symmetries(shape), lattice_permutations(shape, order), strict=True):
        # The affine map that takes vertex i to vertex p[i], found here by least squares over all vertices.
        source = np.column_stack([shape.vertices, np.ones(shape.n_vertices)])
        matrix = np.linalg.lstsq(source, shape.vertices[p], rcond=None)[0]
        np.testing.assert_allclose(nodes[own], np.column_stack([nodes, np.ones(len(nodes))]) @ matrix, atol=1e-12)


@pytest.mark.parametrize("order", [1, 2, 4])
@pytest.mark.parametrize("name", SHAPES)
def test_nodes_of_entities(name: str, order: int) -> None:
    shape = SHAPES[name]
    nodes = equispaced_nodes(shape, order)
    seen = np.zeros(len(nodes), dtype=int)
    for dim, entities in enumerate(shape.entities):
        for number, entity in enumerate(entities):
            own = entity_nodes(shape, order, dim, number)
            seen[own[interior_nodes(entity.shape, order)]] += 1
            if dim == 0:
                np.testing.assert_array_equal(nodes[own], shape.vertices[list(entity.vertices)])
                continue
            source = np.column_stack([entity.shape.vertices, np.ones(entity.shape.n_vertices)])
            matrix = np.linalg.lstsq(source, shape.vertices[list(entity.vertices)], rcond=None)[0]
            local = equispaced_nodes(entity.shape, order)
            np.testing.assert_allclose(nodes[own], np.column_stack([local, np.ones(len(local))]) @ matrix, atol=1e-12)
    assert np.all(seen == 1)


@pytest.mark.parametrize("name", SHAPES)
def test_mirror(name: str) -> None:
    shape = SHAPES[name]
    assert parities(shape)[[tuple(p) for p in symmetries(shape)].index(tuple(mirrored_vertices(shape)))] == -1
    moved = equispaced_nodes(shape, 2)[mirror(shape, 2)]
    assert not np.array_equal(moved, equispaced_nodes(shape, 2))
    np.testing.assert_array_equal(moved[mirror(shape, 2)], equispaced_nodes(shape, 2))


@pytest.mark.parametrize("name", ["quad", "tri", "hex", "prism", "pyramid", "tet"])
def test_outward_signs(name: str) -> None:
    """The normals that the signs make outward sum to zero over the closed surface, and point away from the middle."""
    shape = SHAPES[name]
    total = np.zeros(shape.dim)
    for facet, sign in zip(shape.facets, outward_signs(shape), strict=True):
        corners = shape.vertices[list(facet.vertices)]
        axes = [corners[v] - corners[0] for v in range(1, shape.dim)]
        normal = np.array([axes[0][1], -axes[0][0]]) if shape.dim == 2 else np.cross(axes[0], axes[1])
        assert sign * normal @ (corners.mean(axis=0) - shape.vertices.mean(axis=0)) > 0
        # A triangle is half of the parallelogram of its axes.
        total += sign * normal * (1.0 if facet.shape.n_vertices in (2, 4) else 0.5)
    np.testing.assert_allclose(total, 0, atol=1e-12)


def test_a_point_has_one_symmetry() -> None:
    assert symmetries(POINT).tolist() == [[0]]
    assert parities(POINT).tolist() == [1]
