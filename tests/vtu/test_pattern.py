"""The linear cells that a shape is cut into: they fill it, fit each other and the cuts of its faces."""

from collections import Counter

import numpy as np
import pytest

from hpfem.shapes import PYRAMID, SHAPES, equispaced_nodes
from hpfem.vtu.pattern import LAGRANGE_LIMIT, linear_pattern, vtk_pattern
from tests.cases import each_shape

# Faces of VTK's linear 3-D cells, seen from outside or inside alike.
FACES = {
    10: ((0, 1, 2), (0, 1, 3), (1, 2, 3), (0, 2, 3)),
    12: ((0, 1, 2, 3), (4, 5, 6, 7), (0, 1, 5, 4), (1, 2, 6, 5), (2, 3, 7, 6), (3, 0, 4, 7)),
    13: ((0, 1, 2), (3, 4, 5), (0, 1, 4, 3), (1, 2, 5, 4), (2, 0, 3, 5)),
    14: ((0, 1, 2, 3), (0, 1, 4), (1, 2, 4), (2, 3, 4), (3, 0, 4)),
}
EDGES = {5: ((0, 1), (1, 2), (2, 0)), 9: ((0, 1), (1, 2), (2, 3), (3, 0))}
# Corners 0, 1, 3 and 4 of a VTK hex span it; the like for the others, and their share of the box spanned.
FRAMES = {
    3: ((0, 1), 1), 5: ((0, 1, 2), 1 / 2), 9: ((0, 1, 3), 1), 10: ((0, 1, 2, 3), 1 / 6), 12: ((0, 1, 3, 4), 1),
    13: ((0, 1, 2, 3), 1 / 2), 14: ((0, 1, 3, 4), 1 / 3),
}  # fmt: skip

each_count = pytest.mark.parametrize("count", [1, 2, 3, 4, 7])


def volumes(pattern):
    """Volumes of the cells, which are all affine."""
    found = []
    for kind, rows in pattern.cells:
        frame, share = FRAMES[kind]
        corners = pattern.nodes[rows[:, frame]]
        found.append(share * np.linalg.det(corners[:, 1:] - corners[:, :1]))
    return np.concatenate(found)


@each_shape()
@each_count
def test_the_cells_are_positively_oriented_and_fill_the_shape(shape, count):
    found = volumes(linear_pattern(shape, count))
    assert found.min() > 1e-3 / count**shape.dim
    assert found.sum() == pytest.approx(shape.volume, rel=1e-13)


@each_shape()
@each_count
def test_all_points_of_the_lattice_are_used(shape, count):
    pattern = linear_pattern(shape, count)
    assert np.array_equal(pattern.nodes, equispaced_nodes(shape, count))
    used = np.unique(np.concatenate([rows.ravel() for _, rows in pattern.cells]))
    assert np.array_equal(used, np.arange(len(pattern.nodes)))


@each_shape([shape for shape in SHAPES.values() if shape.dim > 1])
@each_count
def test_cells_share_whole_sides_and_cut_faces_as_their_neighbours_do(shape, count):
    pattern = linear_pattern(shape, count)
    sides = Counter(
        tuple(sorted(row[list(side)].tolist()))
        for kind, rows in pattern.cells
        for row in rows
        for side in (FACES if shape.dim == 3 else EDGES)[kind]
    )
    assert set(sides.values()) <= {1, 2}
    outer = {side for side, times in sides.items() if times == 1}
    expected = set()
    for facet in shape.facets:
        corners = shape.vertices[list(facet.vertices)]
        own = linear_pattern(facet.shape, count)
        # Vertices 0, 1 and the last but one or last span segments, triangles and quads alike.
        frame = [0, 1, 2][: facet.shape.dim + 1]
        local = np.column_stack([facet.shape.vertices[frame], np.ones(len(frame))])
        nodes = np.column_stack([own.nodes, np.ones(len(own.nodes))]) @ np.linalg.solve(local, corners[frame])
        place = np.abs(nodes[:, None] - pattern.nodes[None]).max(axis=2).argmin(axis=1)
        expected |= {tuple(sorted(place[row].tolist())) for _, rows in own.cells for row in rows}
    assert outer == expected


def test_one_cell_where_vtk_has_one():
    for shape in SHAPES.values():
        for order in range(1, LAGRANGE_LIMIT + 1):
            pattern = vtk_pattern(shape, order)
            single = sum(len(rows) for _, rows in pattern.cells) == 1
            assert single == (order == 1 or shape is not PYRAMID)
            assert len(pattern.nodes) == len(equispaced_nodes(shape, order))
        assert sum(len(rows) for _, rows in vtk_pattern(shape, LAGRANGE_LIMIT + 1).cells) > LAGRANGE_LIMIT
