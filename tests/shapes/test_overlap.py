"""What stands above each other in stretched cells."""

import numpy as np
import pytest

from hpfem.shapes import SHAPES
from hpfem.shapes.low_energy import regular_jacobian
from hpfem.shapes.overlap import cut_off, short_edges, stacked


def found(name, Q):
    """Groups of several vertices, edges or faces, by their corners, for a diffusion of the regular cell."""
    shape, back = SHAPES[name], np.linalg.inv(regular_jacobian(SHAPES[name]))
    groups = {}
    for (dim, i), group in stacked(shape, back @ Q @ back.T).items():
        corners = shape.entities[dim][i].vertices
        groups.setdefault(group, set()).add("".join(map(str, sorted(corners))))
    return sorted(sorted(own) for own in groups.values() if len(own) > 1)


@pytest.mark.parametrize("name", ["quad", "tri", "hex", "prism", "pyramid", "tet"])
def test_nothing_in_cells_that_are_not_stretched(name):
    assert found(name, np.eye(SHAPES[name].dim)) == found(name, np.diag([1.0, 4.0, 9.0][: SHAPES[name].dim])) == []


def test_nothing_where_all_is_near_by_way_of_others():
    """Vertices are near in a chain from one end of the cell to the other."""
    S = np.array(
        [
            [5.90157676, 1.81089642, -2.39962372],
            [1.81089642, 8.46623255, 1.43242718],
            [-2.39962372, 1.43242718, 1.591707],
        ]
    )
    assert stacked(SHAPES["hex"], S) == {}


@pytest.mark.parametrize("turned", [0.0, 0.1])
def test_a_quad_along_an_edge(turned):
    """Vertices and edges that stand above each other, and if the direction is not quite that of the edge."""
    axis = np.array([np.sin(turned), np.cos(turned)])
    quad = SHAPES["quad"]
    up = [[0, 2], [1, 3]] if quad.vertices[0][0] == quad.vertices[2][0] else [[0, 3], [1, 2]]
    names = [[str(a), f"{a}{b}", str(b)] for a, b in up]
    across = ["".join(map(str, sorted(own))) for own in zip(*up)]
    assert found("quad", np.eye(2) + 1e4 * np.outer(axis, axis)) == sorted([*map(sorted, names), sorted(across)])


def test_a_tri_across_its_base():
    """The base and the point above it, with the edges between."""
    assert found("tri", np.diag([1.0, 1e4])) == [["01", "02", "12", "2"]]


def test_a_hex_in_one_direction_and_in_two():
    groups = found("hex", np.diag([1.0, 1.0, 1e4]))
    assert sorted(map(len, groups)) == [2, 3, 3, 3, 3, 3, 3, 3, 3]
    planes = found("hex", np.diag([1.0, 1e4, 1e4]))
    assert sorted(map(len, planes)) == [8, 9, 9]  # edges and faces along the weak direction, and the two faces across


def test_a_tet_along_an_edge():
    """Its vertices are one, the faces on its sides lie above each other, and so do their edges."""
    tet, R = SHAPES["tet"], regular_jacobian(SHAPES["tet"])
    axis = R @ (np.asarray(tet.vertices[1]) - tet.vertices[0]) / 2
    groups = found("tet", np.eye(3) + 1e4 * np.outer(axis, axis))
    assert groups == [["0", "01", "1"], ["012", "02", "12"], ["013", "03", "13"], ["023", "123"]]


@pytest.mark.parametrize(("name", "count"), [("hex", 4), ("prism", 3), ("pyramid", 2), ("tet", 1)])
def test_edges_are_short_where_cells_are_thin(name, count):
    """Those along the last direction or the first edge; none where low energy does not mean constant yet."""
    shape, R = SHAPES[name], regular_jacobian(SHAPES[name])
    first = R @ (np.asarray(shape.vertices[1]) - shape.vertices[0]) / 2
    axis = first if name in ("tet", "pyramid") else np.eye(3)[2]
    back, found = np.linalg.inv(R), []
    for more in (15.0, 255.0):
        found.append(sum(short_edges(shape, back @ (np.eye(3) + more * np.outer(axis, axis)) @ back.T)))
    assert found == [0, count]


def test_pyramids_alone_are_cut_off():
    def asked(name, strong):
        shape, back = SHAPES[name], np.linalg.inv(regular_jacobian(SHAPES[name]))
        return cut_off(shape, back @ np.diag([1.0] * (shape.dim - 1) + [strong]) @ back.T)

    names = ["segment", "quad", "tri", "hex", "prism", "pyramid", "tet"]
    assert [name for name in names if asked(name, 256.0)] == ["pyramid"] and not asked("pyramid", 9.0)
