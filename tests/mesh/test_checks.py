"""Meshes that cannot be computed on: one clear error each."""

import numpy as np
import pytest

from hpfem.errors import MeshError
from hpfem.mesh import Mesh, box
from hpfem.mesh.node_order import vertex_positions
from tests.mesh.examples import BOXES, sample


def cells_of(mesh: Mesh) -> list[tuple[str, int, np.ndarray]]:
    return [(g.shape.name, g.order, g.nodes.copy()) for g in mesh.cells]


def refused(points, cells, match: str, **arguments) -> None:
    with pytest.raises(MeshError, match=match) as caught:
        Mesh.from_cells(points, cells, name="bad.msh", **arguments)
    assert str(caught.value).startswith("bad.msh: ")
    assert "\n" not in str(caught.value)


def test_no_cells() -> None:
    refused([[0, 0]], [], "no cells")
    refused([[0, 0]], [("tri", 1, np.empty((0, 3), dtype=int))], "no cells")


def test_dimensions() -> None:
    refused([[0, 0], [1, 0]], [("segment", 1, [[0, 1]])], "only line cells")
    refused(np.eye(4, 3), [("tri", 1, [[0, 1, 2]]), ("tet", 1, [[0, 1, 2, 3]])], r"dimensions \[2, 3\]")
    refused(np.eye(4, 2), [("tet", 1, [[0, 1, 2, 3]])], "points have 2 coordinates")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e60])
def test_coordinates(value: float) -> None:
    mesh = box("tet", (1, 1, 1))
    points = mesh.points.copy()
    points[7, 1] = value
    refused(points, cells_of(mesh), r"element \d \(tet\) has a node at \[1.0, .*\]; coordinates must be finite")


@pytest.mark.parametrize("node", [-1, 8, 10**12])
def test_node_numbers(node: int) -> None:
    mesh = box("hex", (1, 1, 1))
    (cells,) = cells_of(mesh)
    cells[2][0, 3] = node
    refused(mesh.points, [cells], r"element 1 \(hex\) refers to a node that does not exist; there are 8 nodes")


def test_repeated_nodes() -> None:
    mesh = box("prism", (2, 1, 1))
    (cells,) = cells_of(mesh)
    cells[2][2, 3] = cells[2][2, 0]
    refused(mesh.points, [cells], r"element 3 \(prism\) has the same node twice")


def test_the_file_s_numbers_are_used() -> None:
    mesh = box("prism", (2, 1, 1))
    (cells,) = cells_of(mesh)
    cells[2][2, 3] = cells[2][2, 0]
    refused(mesh.points, [cells], r"element 700 \(prism\)", numbers=[5, 6, 700, 8])


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("name", ["quad", "hex", "prism", "pyramid"])
def test_tangled_cells(name: str, order: int) -> None:
    mesh = sample(name, order)
    (cells,) = cells_of(mesh)
    corners = vertex_positions(mesh.cells[0].shape, order)[[0, 2]]
    cells[2][1, corners] = cells[2][1, corners[::-1]]
    match = rf"element 2 \({name}\) is tangled or flat: its Jacobian determinant is of mixed sign"
    refused(mesh.points, [cells], match)


@pytest.mark.parametrize("name", ["tri", "tet"])
def test_tangled_curved_simplices(name: str) -> None:
    mesh = sample(name, 2)
    points, nodes = mesh.points.copy(), mesh.cells[0].nodes
    vertex, middle = nodes[0][0], nodes[0][1]
    points[middle] = points[vertex] + 4 * (points[middle] - points[vertex])
    refused(points, cells_of(mesh), rf"\({name}\) is tangled or flat: its Jacobian determinant is of mixed sign")


@pytest.mark.parametrize("name", BOXES)
def test_flat_cells(name: str) -> None:
    mesh = sample(name)
    flat = mesh.points.copy()
    flat[:, -1] = 0.1 * flat[:, 0] + 0.2
    refused(flat, cells_of(mesh), rf"tangled or flat.*zero.*\({mesh.n_cells} such elements, this is the worst\)")


def test_the_worst_cell_is_named() -> None:
    mesh = box("quad", (5, 1))
    points, nodes = mesh.points.copy(), mesh.cells[0].nodes
    for cell, depth in ((0, 0.1), (4, 0.9)):
        x = points[nodes[cell]]
        points[nodes[cell][0]] = x[0] + (0.5 + 0.5 * depth) * (x[3] - x[0])
    refused(points, cells_of(mesh), r"element 5 \(quad\) is tangled.*\(2 such elements, this is the worst\)")


def test_folded_surfaces() -> None:
    """A quad in space whose normal turns around within it; a bent one is fine."""
    x = np.array([[0, 0, 0], [0, 1, 0], [1, 0, 0], [1, 1, 0.5]], dtype=float)
    assert Mesh.from_cells(x, [("quad", 1, [[0, 1, 2, 3]])]).points.shape == (4, 3)
    x[3] = [0.2, 0.2, 0.1]
    refused(x, [("quad", 1, [[0, 1, 2, 3]])], r"element 1 \(quad\) is tangled")


def test_facets_of_three_cells() -> None:
    points = [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, -1], [1, 1, 2]]
    cells = [("tet", 1, np.array([[0, 3, 2, 1], [0, 4, 1, 2], [0, 5, 2, 1]]))]
    refused(points, cells, r"element 1 \(tet\), element 2 \(tet\), element 3 \(tet\) share one facet")


@pytest.mark.parametrize("name", BOXES)
def test_overlapping_cells(name: str) -> None:
    """A cell folded over its neighbour: mirrored to face the other way, it lies on the same side."""
    mesh = box(*BOXES[name])
    (cell, other), (local, _) = (a[mesh.facets.interior[0]] for a in (mesh.facets.cells, mesh.facets.local))
    group = mesh.cells[mesh.locations[0][cell]]
    row = mesh.locations[1][cell]
    facet = group.vertices[row][list(group.shape.facets[local].vertices)]
    points = mesh.points  # of order 1: points and vertices have the same numbers
    corners = points[facet]
    normal = (
        np.array([[0, 1], [-1, 0]]) @ (corners[1] - corners[0])
        if mesh.dim == 2
        else np.cross(corners[1] - corners[0], corners[2] - corners[0])
    )
    normal = normal / np.linalg.norm(normal)
    others = [n for n in group.nodes[row] if n not in set(facet)]
    moved = points[others] - 2 * np.outer((points[others] - corners[0]) @ normal, normal)
    cells, copies = cells_of(mesh), dict(zip(others, range(len(points), len(points) + len(others)), strict=True))
    nodes = cells[mesh.locations[0][cell]][2]
    nodes[row] = [copies.get(n, n) for n in nodes[row]]
    kinds = rf"element {cell + 1} \(\w+\) and element {other + 1} \(\w+\) overlap"
    refused(np.concatenate([points, moved]), cells, kinds)


def test_twisted_faces() -> None:
    """Two hexes share four corners, one of them with two of the four exchanged and all others moved to fit."""
    mesh = box("hex", (2, 1, 1))
    (cells,) = cells_of(mesh)
    nodes = cells[2]
    shared = [n for n in nodes[1] if n in set(nodes[0])]
    swap = {shared[2]: shared[3], shared[3]: shared[2]}
    nodes[1] = [swap.get(n, n) for n in nodes[1]]
    with pytest.raises(MeshError, match="tangled|cyclic order"):
        Mesh.from_cells(mesh.points, [cells])


def test_hanging_triangles() -> None:
    """A hex beside tets: whole faces meet split ones."""
    hexes, tets = box("hex", (1, 2, 2)), box("tet", (1, 2, 2), lower=(1, 0, 0), upper=(2, 1, 1))
    points = np.concatenate([hexes.points, tets.points])
    unique, new = np.unique(np.round(points, 9), axis=0, return_inverse=True)
    new = new.ravel()
    cells = [("hex", 1, new[hexes.cells[0].nodes]), ("tet", 1, new[tets.cells[0].nodes + len(hexes.points)])]
    refused(unique, cells, r"not conforming: a quad face of element \d \(hex\) meets triangles")


def test_boxes_that_only_touch_along_an_edge_are_fine() -> None:
    first, second = box("hex", (1, 1, 1)), box("tet", (1, 1, 1), lower=(1, 1, 0), upper=(2, 2, 1))
    points = np.concatenate([first.points, second.points])
    unique, new = np.unique(points, axis=0, return_inverse=True)
    new = new.ravel()
    cells = [("hex", 1, new[first.cells[0].nodes]), ("tet", 1, new[second.cells[0].nodes + len(first.points)])]
    mesh = Mesh.from_cells(unique, cells)
    assert len(mesh.facets.boundary) == 6 + 12


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("name", BOXES)
def test_gaps_between_curved_cells(name: str, order: int) -> None:
    """A cell has its own copy of a node on a shared facet, and that is elsewhere."""
    mesh = sample(name, order)
    facet = mesh.facets.interior[0]
    cell = mesh.facets.cells[facet, 1]
    position, row = mesh.locations[0][cell], mesh.locations[1][cell]
    neighbour = mesh.facets.cells[facet, 0]
    theirs = set(mesh.cells[mesh.locations[0][neighbour]].nodes[mesh.locations[1][neighbour]].tolist())
    group = mesh.cells[position]
    corners = set(group.nodes[row][vertex_positions(group.shape, order)].tolist())
    node = next(n for n in group.nodes[row].tolist() if n in theirs and n not in corners)
    cells = cells_of(mesh)
    nodes = cells[position][2]
    nodes[row][nodes[row] == node] = len(mesh.points)
    same = np.concatenate([mesh.points, mesh.points[[node]]])
    assert Mesh.from_cells(same, cells).n_cells == mesh.n_cells
    same[-1] += 1e-3
    refused(same, cells, "and a neighbour with the same corners do not meet")


def test_a_curved_cell_beside_a_straight_one_leaves_a_gap() -> None:
    """Orders 1 and 2 side by side: fine while the common side is straight."""
    points = np.array(
        [[0, 0], [0, 1], [1, 0], [1, 1], [1, 0.5], [1.5, 0], [1.5, 0.5], [1.5, 1], [2, 0], [2, 0.5], [2, 1]]
    )
    cells = [("quad", 1, [[0, 1, 2, 3]]), ("quad", 2, [[2, 4, 3, 5, 6, 7, 8, 9, 10]])]
    assert Mesh.from_cells(points, cells).n_cells == 2
    points[4, 0] = 1.05
    refused(points, cells, "do not meet")


def test_periodic_directions_need_three_cells() -> None:
    for count, match in ((1, r"element 1 \(quad\) touches itself across a periodic side"), (2, "too few cells")):
        mesh = box("quad", (count, 3))
        pairs = np.column_stack([np.arange(4), np.arange(4) + 4 * count])
        refused(mesh.points, cells_of(mesh), match, periodic=[pairs])
    mesh = box("quad", (3, 3))
    pairs = np.column_stack([np.arange(4), np.arange(4) + 12])
    assert Mesh.from_cells(mesh.points, cells_of(mesh), periodic=[pairs]).n_vertices == 12
