"""The mesh object: built from arrays, moved, raised in order, printed, pickled."""

import dataclasses
import pickle

import numpy as np
import pytest

from hpfem.errors import ArgumentError, MeshError
from hpfem.mesh import Mesh, box, gmsh_nodes, vtk_nodes
from hpfem.mesh.node_order import vertex_positions
from hpfem.mesh.summary import percent
from hpfem.mesh.symmetry import mirror
from hpfem.shapes import equispaced_nodes
from tests.mesh.examples import BOXES, bent, corners_of, flux, sample, scrambled


def two_triangles(**arguments) -> Mesh:
    points = [[0, 0], [1, 0], [0, 1], [1, 1]]
    # Canonical order of a triangle: 00, 01, 10.
    return Mesh.from_cells(points, [("tri", 1, [[0, 2, 1], [1, 2, 3]])], **arguments)


def test_from_cells() -> None:
    mesh = two_triangles(regions={"right": [1]}, boundaries={"left": [[[2, 0]]], "cut": [[[1, 2]]]})
    (group,) = mesh.cells
    assert (mesh.dim, mesh.n_cells, mesh.n_vertices, len(group)) == (2, 2, 4, 2)
    assert [shape.name for shape in mesh.shapes] == ["tri"]
    assert group.nodes.tolist() == [[0, 2, 1], [1, 2, 3]]
    assert group.vertices.tolist() == [[0, 1, 2], [1, 3, 2]]
    assert group.indices.tolist() == [0, 1]
    assert mesh.regions["right"].tolist() == [1]
    (left,), (cut,) = mesh.boundaries["left"], mesh.boundaries["cut"]
    assert mesh.facets.cells[left].tolist() == [0, -1]
    assert mesh.facets.cells[cut].tolist() == [0, 1]
    assert mesh.n_stray == mesh.n_mirrored == 0


def test_points_of_no_cell_are_left_out() -> None:
    mesh = Mesh.from_cells([[9, 9], [0, 0], [1, 0], [np.nan, 0], [0, 1]], [("tri", 1, [[1, 4, 2]])])
    assert mesh.points.tolist() == [[0, 0], [1, 0], [0, 1]]
    assert mesh.cells[0].nodes.tolist() == [[0, 2, 1]]


def test_a_constant_third_coordinate_is_dropped() -> None:
    flat = Mesh.from_cells([[0, 0, 7], [1, 0, 7], [0, 1, 7]], [("tri", 1, [[0, 2, 1]])])
    assert flat.points.shape == (3, 2)
    tilted = Mesh.from_cells([[0, 0, 7], [1, 0, 7], [0, 1, 8]], [("tri", 1, [[0, 2, 1]])])
    assert tilted.points.shape == (3, 3)


def test_cells_of_one_kind_become_one_group_and_keep_their_numbers() -> None:
    hexes, tets = box("hex", (1, 1, 1)), box("tet", (1, 1, 1), lower=(5, 5, 5), upper=(6, 6, 6))
    h, t = hexes.cells[0].nodes, tets.cells[0].nodes + len(hexes.points)
    mesh = Mesh.from_cells(
        np.concatenate([hexes.points, tets.points]), [("tet", 1, t[:2]), ("hex", 1, h), ("tet", 1, t[2:])]
    )
    assert [(g.shape.name, g.indices.tolist()) for g in mesh.cells] == [("tet", [0, 1, 3, 4, 5, 6]), ("hex", [2])]
    group, row = mesh.locations
    assert group.tolist() == [0, 0, 1, 0, 0, 0, 0]
    assert row.tolist() == [0, 1, 0, 2, 3, 4, 5]
    assert mesh.describe_cell(2) == "element 3 (hex)"


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("name", BOXES)
def test_mirrored_cells_become_positively_oriented(name: str, order: int, rng: np.random.Generator) -> None:
    mesh = sample(name, order)
    cells, count = [], 0
    for group in mesh.cells:
        nodes, chosen = group.nodes.copy(), rng.random(len(group)) < 0.5
        nodes[chosen] = nodes[chosen][:, mirror(group.shape, order)]
        cells.append((group.shape.name, order, nodes))
        count += int(chosen.sum())
    found = Mesh.from_cells(mesh.points, cells)
    assert found.n_mirrored == count > 0
    assert flux(found) == pytest.approx(flux(mesh), rel=1e-12)
    assert found.summary().volume == pytest.approx(mesh.summary().volume, rel=1e-12)


@pytest.mark.parametrize("name", BOXES)
def test_reflection_keeps_boundaries_regions_and_volume(name: str) -> None:
    mesh = sample(name, 2)
    reflected = mesh.transformed(lambda x: x * np.array([-1.0, 1.0, 1.0])[: x.shape[1]])
    assert reflected.n_mirrored == mesh.n_cells
    assert flux(reflected) == pytest.approx(flux(mesh), rel=1e-12)
    for side, facets in mesh.boundaries.items():
        np.testing.assert_array_equal(reflected.boundaries[side], facets)
        before = np.concatenate([np.sort(c, axis=1).ravel() for c in corners_of(mesh, facets)])
        after = np.concatenate([np.sort(c, axis=1).ravel() for c in corners_of(reflected, facets)])
        assert sorted(before) == sorted(after)
    np.testing.assert_array_equal(reflected.points * [[-1, 1, 1][: mesh.dim]], mesh.points)
    again = reflected.transformed(lambda x: x * np.array([-1.0, 1.0, 1.0])[: x.shape[1]])
    assert again.summary().volume == pytest.approx(mesh.summary().volume, rel=1e-12)


def test_transformed_is_checked() -> None:
    mesh = box("hex", (2, 1, 1))
    with pytest.raises(MeshError, match=r"box: element 1 \(hex\) and element 2 \(hex\) overlap"):
        mesh.transformed(lambda x: np.where(x == 0.5, 1.5, x))
    with pytest.raises(MeshError, match=r"box: element 1 \(hex\) is tangled or flat"):
        mesh.transformed(lambda x: np.where(x == 0.0, x + 2 * x[:, ::-1], x))
    with pytest.raises(MeshError, match="must be finite"):
        mesh.transformed(lambda x: np.full_like(x, np.inf))
    with pytest.raises(ArgumentError, match="shape"):
        mesh.transformed(lambda x: x[:, 0])
    unchecked = mesh.transformed(lambda x: 0 * x, check=False)
    assert not unchecked.points.any()


def test_a_plane_may_be_lifted_into_space() -> None:
    mesh = box("quad", (4, 4)).elevated(3)
    lifted = mesh.transformed(lambda x: np.column_stack([x, 0.3 * np.sin(3 * x[:, 0])]))
    assert (lifted.dim, lifted.points.shape[1]) == (2, 3)
    x = np.linspace(0, 1, 20001)
    length = np.trapezoid(np.sqrt(1 + (0.9 * np.cos(3 * x)) ** 2), x)
    assert lifted.summary().volume == pytest.approx(length, rel=1e-4)


@pytest.mark.parametrize("to", [2, 3, 4])
@pytest.mark.parametrize("name", BOXES)
def test_elevated(name: str, to: int, rng: np.random.Generator) -> None:
    mesh = scrambled(sample(name, 2), rng)
    raised = mesh.elevated(to)
    assert {group.order for group in raised.cells} == {to}
    assert raised.summary().volume == pytest.approx(mesh.summary().volume, rel=1e-12)
    assert np.unique(np.concatenate([g.nodes.ravel() for g in raised.cells])).tolist() == list(
        range(len(raised.points))
    )
    assert len(np.unique(np.round(raised.points, 9), axis=0)) == len(raised.points)
    for side, facets in mesh.boundaries.items():
        np.testing.assert_array_equal(raised.boundaries[side], facets)
    np.testing.assert_array_equal(raised.edges.ids[0], mesh.edges.ids[0])
    checked = Mesh.from_cells(raised.points, [(g.shape.name, g.order, g.nodes) for g in raised.cells])
    assert flux(checked) == pytest.approx(flux(mesh), rel=1e-12)


def test_elevated_brings_different_orders_together() -> None:
    low, high = box("quad", (1, 1)), box("quad", (1, 1), lower=(1, 0), upper=(2, 1)).elevated(3)
    points = np.concatenate([low.points, high.points])
    nodes = high.cells[0].nodes + len(low.points)
    for mine, theirs in ((2, [1, 0]), (3, [1, 1])):
        corner = nodes[0][vertex_positions(high.cells[0].shape, 3)][[0, 2][theirs[1]]]
        nodes[nodes == corner] = mine
    mesh = Mesh.from_cells(points, [("quad", 1, low.cells[0].nodes), ("quad", 3, nodes)])
    assert [group.order for group in mesh.cells] == [1, 3]
    raised = mesh.elevated(4)
    assert [(group.order, len(group)) for group in raised.cells] == [(4, 2)]
    assert len(raised.points) == 9 * 5
    with pytest.raises(ArgumentError, match=">= 3"):
        mesh.elevated(2)


@pytest.mark.parametrize("name", BOXES)
def test_pickle(name: str) -> None:
    mesh = sample(name, 2)
    copy = pickle.loads(pickle.dumps(mesh))
    assert copy.summary() == mesh.summary()
    np.testing.assert_array_equal(copy.points, mesh.points)
    for side, facets in mesh.boundaries.items():
        np.testing.assert_array_equal(copy.boundaries[side], facets)
    with pytest.raises(ValueError, match="read-only"):
        copy.cells[0].nodes[0, 0] = 1


def test_immutable() -> None:
    mesh = two_triangles(regions={"all": [0, 1]}, boundaries={"left": [[[2, 0]]]})
    with pytest.raises(dataclasses.FrozenInstanceError):
        mesh.points = np.zeros((4, 2))
    with pytest.raises(TypeError):
        mesh.regions["new"] = np.zeros(1)
    group = mesh.cells[0]
    for array in (
        mesh.points, group.nodes, group.vertices, group.indices, group.edges, group.edge_orientation,
        mesh.facets.cells, mesh.facets.local, mesh.regions["all"], mesh.boundary_sides["left"],
    ):  # fmt: skip
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_the_input_is_not_changed_and_not_shared() -> None:
    points, nodes = np.array([[0.0, 0], [1, 0], [0, 1]]), np.array([[0, 2, 1]])
    mesh = Mesh.from_cells(points, [("tri", 1, nodes)])
    points[0], nodes[0] = 5, 0
    assert mesh.points[0].tolist() == [0, 0]
    assert mesh.cells[0].nodes.tolist() == [[0, 2, 1]]


def test_stray_boundary_elements_are_counted() -> None:
    mesh = two_triangles(boundaries={"odd": [[[0, 3], [0, 1], [0, 99]]]})
    assert mesh.n_stray == 2
    assert len(mesh.boundaries["odd"]) == 1
    assert "2 elements or points with a name are no facet" in str(mesh.summary())


@pytest.mark.parametrize(
    ("points", "cells", "message"),
    [
        ([[0, 0]], [("heptagon", 1, [[0]])], "unknown shape 'heptagon'"),
        ([[0, 0]], [("tri", 0, [[0, 0, 0]])], "must be an integer >= 1"),
        ([[0, 0]], [("tri", 1, [[0, 0, 0, 0]])], r"integer array \[n, 3\]"),
        ([[0, 0]], [("tri", 1, [[0.0, 0.0, 0.0]])], "array of integers"),
        ([0, 0], [("tri", 1, [[0, 1, 2]])], "points must be an array"),
        ([[0], [1], [2]], [("tri", 1, [[0, 1, 2]])], "points must be an array"),
    ],
)
def test_bad_arrays(points, cells, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Mesh.from_cells(points, cells)


def test_bad_numbers_and_regions() -> None:
    with pytest.raises(ArgumentError, match="2 cells take as many numbers"):
        two_triangles(numbers=[1])
    with pytest.raises(ArgumentError, match="region 'x' holds cells that do not exist"):
        two_triangles(regions={"x": [2]})


def test_summary() -> None:
    mesh = box(("hex", "prism", "pyramid", "tet"), (8, 2, 2))
    summary = mesh.elevated(2).transformed(bent).summary()
    assert summary.counts == {"hex": 8, "prism": 16, "pyramid": 68, "tet": 32}
    assert summary.orders == dict.fromkeys(summary.counts, (2,))
    assert (summary.n_cells, summary.affine_share) == (124, 0)
    assert summary.boundaries == {name: len(facets) for name, facets in mesh.boundaries.items()}
    assert summary.regions == {"hex": 8, "prism": 16, "pyramid": 48, "tet": 52}
    assert 0.5 < summary.worst_scaled_jacobian < 1
    text = str(summary)
    for part in ("124 cells", "hex", "geometry order 2, 100% quadratic", "worst scaled Jacobian", "xmin (4)", "volume"):
        assert part in text
    assert str(two_triangles().summary()).splitlines()[2].startswith("  area 1, affine share 100.0%")
    assert repr(two_triangles()) == "<Mesh mesh: 2 tri of order 1>"


def test_cells_that_touch_without_being_joined_are_counted() -> None:
    first, second = box("quad", (1, 2)), box("quad", (1, 2), lower=(1, 0), upper=(2, 1))
    points = np.concatenate([first.points, second.points])
    nodes = np.concatenate([first.cells[0].nodes, second.cells[0].nodes + len(first.points)])
    summary = Mesh.from_cells(points, [("quad", 1, nodes)]).summary()
    assert summary.n_coincident == 3
    assert "3 boundary vertices lie on others" in str(summary)
    assert box("quad", (2, 2)).summary().n_coincident == 0


def test_the_summary_says_what_part_of_the_boundary_has_no_name() -> None:
    mesh = box("hex", (2, 3, 4), upper=(1, 1, 2))
    assert (mesh.summary().n_unnamed, mesh.summary().unnamed) == (0, ())
    assert "without a name" not in str(mesh.summary())
    some = mesh.with_sides({name: own for name, own in mesh.boundary_sides.items() if name not in ("xmin", "zmax")})
    assert some.summary().n_unnamed == 3 * 4 + 2 * 3
    top = mesh.with_sides({name: own for name, own in mesh.boundary_sides.items() if name != "zmax"}).summary()
    assert top.unnamed == (0, 0, 2, 1, 1, 2)
    assert str(top).endswith("6 boundary facets without a name, within x 0 to 1, y 0 to 1, z 2")
    assert box("tri", (3, 3), periodic=("x", "y")).summary().n_unnamed == 0


def test_worst_cell_of_the_summary() -> None:
    mesh = box("quad", (3, 1)).transformed(lambda x: np.where((x[:, :1] > 0.9) & (x[:, 1:] > 0.9), x + 0.2, x))
    summary = mesh.summary()
    assert summary.worst_cell == 2
    assert summary.worst_label == "element 3 (quad)"
    assert summary.affine == {"quad": 2}
    assert summary.kinds == {"quad": {"affine": 2, "multilinear": 1, "quadratic": 0, "deformed": 0}}
    assert "geometry order 1, 67% affine, 33% multilinear" in str(summary)
    assert [percent(n, 1000) for n in (0, 1, 500, 999, 1000)] == ["0%", "<1%", "50%", ">99%", "100%"]


ORDERS = {"quad": 3, "tri": 3, "hex": 2, "prism": 3, "pyramid": 1, "tet": 4}


@pytest.mark.parametrize("ordering", ["vtk", "gmsh"])
@pytest.mark.parametrize("name", ORDERS)
def test_nodes_may_come_in_the_order_of_vtk_or_gmsh(name: str, ordering: str) -> None:
    mesh = sample(name, ORDERS[name])
    (group,) = mesh.cells
    theirs = {"vtk": vtk_nodes, "gmsh": gmsh_nodes}[ordering](group.shape, group.order)
    ours = equispaced_nodes(group.shape, group.order)
    place = [int(np.argmin(np.abs(ours - node).max(axis=1))) for node in theirs]
    cells = [(name, group.order, group.nodes[:, place])]
    made = Mesh.from_cells(mesh.points, cells, ordering=ordering)
    assert np.array_equal(made.cells[0].nodes, group.nodes)
    if name in ("quad", "hex") or (group.order > 1 and name != "tet"):
        with pytest.raises(MeshError, match="it is fine with ordering='(vtk|gmsh)'$"):
            Mesh.from_cells(mesh.points, cells)
    with pytest.raises(MeshError, match="tangled") as caught:
        Mesh.from_cells(mesh.points * 0 + np.random.default_rng(0).random(mesh.points.shape), cells, ordering=ordering)
    assert "ordering" not in str(caught.value)


def test_the_hint_is_of_the_ordering_that_fits() -> None:
    points = [[0, 0], [1, 0], [1, 1], [0, 1], [2, 0], [2, 1]]
    around, rows = [[0, 1, 2, 3], [1, 4, 5, 2]], [[0, 1, 3, 2], [1, 4, 2, 5]]
    with pytest.raises(MeshError, match=r"tangled or flat.*; it is fine with ordering='vtk'"):
        Mesh.from_cells(points, [("quad", 1, around)])
    with pytest.raises(MeshError, match=r"tangled or flat.*; it is fine with ordering='tensor'"):
        Mesh.from_cells(points, [("quad", 1, rows)], ordering="gmsh")


@pytest.mark.parametrize("ordering", ["meshio", "", None, 3])
def test_unknown_orderings(ordering) -> None:
    with pytest.raises(ArgumentError, match="ordering"):
        two_triangles(ordering=ordering)


def test_vtk_has_no_pyramids_of_higher_order() -> None:
    mesh = sample("pyramid", 2)
    with pytest.raises(ArgumentError, match="no node order for cells of shape 'pyramid'"):
        Mesh.from_cells(mesh.points, [("pyramid", 2, mesh.cells[0].nodes)], ordering="vtk")
