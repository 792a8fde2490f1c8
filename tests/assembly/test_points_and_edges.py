"""Named sets of points and edges: Dirichlet values on them, sources in points, and what becomes of them."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hpfem as hp
from hpfem.mesh import Mesh, box
from tests.samples import NAMES, NAMES_3D, bulge, dimension

ORDERS = dict(zip(NAMES, (1, 2, 3, 4, 2, 3), strict=True))


def corners(mesh, *places):
    """Rows of the points at places."""
    return np.array([int(np.argmin(((mesh.points - place) ** 2).sum(axis=1))) for place in places])


def remade(mesh, **sets):
    """The same mesh with named sets."""
    cells = [(group.shape.name, group.order, group.nodes) for group in mesh.cells]
    made = Mesh.from_cells(mesh.points, cells, **sets)
    return replace(made, boundary_sides={**mesh.boundary_sides, **made.boundary_sides})


def with_sets(name, n=2):
    """A box with two named points, and a named edge along x in 3-D."""
    d = dimension(name)
    mesh = box(name, (n,) * d, comm=hp.ALONE)
    ends = corners(mesh, *([x / n] + [0] * (d - 1) for x in range(n + 1)))
    rows = {"point_sets": {"middle": corners(mesh, [0.5] * d), "ends": ends[[0, -1]]}}
    if d == 3:
        rows["edge_sets"] = {"line": [np.column_stack([ends[:-1], ends[1:]])]}
    return remade(
        mesh, **rows, cell_data={"k": np.arange(mesh.n_cells), "t": np.tile(np.eye(d) + 0.1, (mesh.n_cells, 1, 1))}
    )


def places(mesh):
    """Where the members of all sets are: middles of their vertices, sorted; and their data by cell middles."""
    at = np.zeros((mesh.n_vertices, mesh.points.shape[1]))
    for group in mesh.cells:
        at[group.vertices] = mesh.points[group.corners]
    found = {}
    for dim, name in mesh.lower_sets:
        rows = []
        for cell, local in mesh.lower_sets[dim, name]:
            group, row = mesh.cells[mesh.locations[0][cell]], mesh.locations[1][cell]
            rows.append(at[group.vertices[row, list(group.shape.entities[dim][local].vertices)]].mean(axis=0))
        found[dim, name] = np.array(sorted(np.round(rows, 10).tolist()))
    return found


def same(one, other):
    assert one.keys() == other.keys()
    assert all(np.allclose(one[key], other[key], atol=1e-9) for key in one)


@pytest.mark.parametrize("name", NAMES)
def test_values_on_points_and_edges_are_those_of_the_function(name):
    """Vertices, and all unknowns of edges, also curved ones, have the values of a function of the space."""
    order = ORDERS[name]
    mesh = with_sets(name).elevated(2).transformed(lambda x: bulge(x, 0.2))
    c0 = hp.C0Space(hp.Space(mesh, order, backend="numpy"))

    def exact(*x):
        return 1 + x[0] ** order - x[-1]

    for sets, count in (({"middle"}, 1), ({"ends"}, 2), ({"line"}, 2 * order + 1)):
        if sets <= {*mesh.point_sets, *mesh.edge_sets}:
            bc = hp.BoundaryConditions(c0, dirichlet=dict.fromkeys(sets, exact))
            assert bc.constrained.sum() == count
            assert np.abs(bc.values - c0.project(exact))[bc.constrained].max() < 1e-12
    both = hp.BoundaryConditions(c0, dirichlet={"xmin": 2.0, "middle": 3.0})
    assert both.constrained.sum() == 1 + hp.BoundaryConditions(c0, dirichlet={"xmin": 2.0}).constrained.sum()


@pytest.mark.parametrize("name", NAMES)
def test_a_source_in_a_point_is_balanced_by_the_fluxes(name):
    """The functional of a source is the value of the test function; what it produces flows out."""
    mesh = with_sets(name)
    problem = hp.Problem(
        hp.Space(mesh, 2, backend="numpy"), 0.0, {"xmin": 0.0}, {"middle": 3.0, "ends": lambda *x: x[0]}, bar=False
    )
    c0, values = problem.c0, np.random.default_rng(0).random(dimension(name) + 1)
    linear = c0.project(lambda *x: values[0] + sum(a * b for a, b in zip(values[1:], x, strict=True)))
    at = values[0] + values[1:].sum() / 2
    assert problem.conditions.load @ linear == pytest.approx(3 * at + values[0] + values[1])
    assert problem.flux(problem.solve(), "xmin") == pytest.approx(-4 + 0.0)
    two = hp.BoundaryConditions(c0, neumann={"middle": [1.0, 2.0]}, components=2)
    assert two.load @ c0.project(1.0) == pytest.approx([1, 2])


def test_a_point_alone_fixes_the_constant():
    """-u'' = -2 with fluxes 0 and 2, and a value in one point."""
    mesh = with_sets("quad")
    for order in (2, 3):
        space = hp.Space(mesh, order, backend="numpy")
        exact = lambda x, y: x**2 + 7  # noqa: E731
        problem = hp.Problem(space, 0.0, {"middle": exact}, {"xmax": 2.0}, bar=False)
        assert hp.l2_error(problem.solve(-2.0), exact) < 1e-10


@pytest.mark.parametrize("name", NAMES)
def test_sets_and_data_are_kept(name, tmp_path):
    mesh = with_sets(name)
    was = places(mesh)
    move = lambda x: x @ np.diag([-1.0] + [1.0] * (x.shape[1] - 1))  # noqa: E731 - cells are mirrored
    moved = mesh.transformed(move)
    assert moved.n_mirrored == mesh.n_cells
    same(places(moved.transformed(move)), was)
    same(places(pickle.loads(pickle.dumps(mesh))), was)
    with pytest.warns(hp.HpfemWarning, match="cell data k, t"):
        mesh.write(tmp_path / "own.msh")
    same(places(hp.read_mesh(tmp_path / "own.msh")), was)
    elevated = mesh.elevated(2)
    same(places(elevated), was)
    replace(elevated, cell_data={}).write(tmp_path / "own.msh")
    same(places(hp.read_mesh(tmp_path / "own.msh")), was)
    hp.save(tmp_path / "u.h5", hp.Space(mesh, 1).zeros("coeff"))
    again = hp.load(tmp_path / "u.h5")["u"].space.mesh
    same(places(again), was)
    assert all(np.array_equal(again.cell_data[key], mesh.cell_data[key]) for key in mesh.cell_data)
    fine = mesh.refined()
    counts = {"middle": 1, "ends": 2} | ({"line": 4} if name in NAMES_3D else {})
    assert {of: len(own) for (_, of), own in fine.lower_sets.items()} == counts
    # A piece has the data of its cell.
    values = fine.cell_data["k"]
    assert np.array_equal(np.unique(values), mesh.cell_data["k"]) and np.all(np.diff(values) >= 0)
    assert fine.cell_data["t"].shape == (fine.n_cells, mesh.dim, mesh.dim)
    said = str(fine.summary())
    assert "sets of points: middle (1), ends (2)" in said and "cell data: k, t" in said
    assert ("sets of edges: line (4)" in said) == (name in NAMES_3D)


def test_refusals():
    mesh = with_sets("hex")
    c0 = hp.C0Space(hp.Space(mesh, 2, backend="numpy"))
    for message, conditions in {
        "unknown boundary 'lines' in dirichlet; did you mean 'line'|unknown boundary 'lines'": {
            "dirichlet": {"lines": 0}
        },
        "neumann 'line': it has edges or points away from facets": {"neumann": {"line": 1.0}},
        "robin 'middle': it has edges or points away from facets": {"robin": {"middle": (1.0, 1.0)}},
        "3 components, not 1": {"neumann": {"middle": lambda *x: x}},
    }.items():
        with pytest.raises(hp.ArgumentError, match=message):
            hp.BoundaryConditions(c0, **conditions)
    square = box("quad", 1)
    cells = [("quad", 1, square.cells[0].nodes)]
    for message, sets in {
        "edges of a 2-D mesh are boundaries": {"edge_sets": {"e": [[[0, 1]]]}},
        "array of integers": {"point_sets": {"p": [0.5]}},
        r"cell data 'k' are of shape \(2,\); there are 1 cells": {"cell_data": {"k": [1.0, 2.0]}},
    }.items():
        with pytest.raises(hp.ArgumentError, match=message):
            Mesh.from_cells(square.points, cells, **sets)
    assert Mesh.from_cells(square.points, cells, point_sets={"p": [0, 99]}).n_stray == 1


@settings(max_examples=15)
@given(st.sampled_from(NAMES), st.integers(0, 2**30), st.booleans())
def test_nodes_of_sides_of_a_box_are_those_sides(name, seed, second):
    """A set of all nodes on some sides, of linear and of second-order cells, is the boundary of their facets."""
    d = dimension(name)
    mesh = box(name, (3, 2, 2)[:d])
    mesh = mesh.elevated(2) if second else mesh
    rng = np.random.default_rng(seed)
    axis, end = int(rng.integers(d)), int(rng.integers(2))
    chosen = np.flatnonzero(np.abs(mesh.points[:, axis] - end) < 1e-12)
    line = np.flatnonzero((np.abs(mesh.points[:, :2]) < 1e-12).all(axis=1))
    made = remade(
        mesh.transformed(lambda x: bulge(x, 0.1)),
        node_sets={"side": chosen, "line": line, "all": np.arange(len(mesh.points))},
    )
    assert np.array_equal(made.boundaries["side"], made.boundaries["xyz"[axis] + ("min", "max")[end]])
    assert "all" not in made.boundaries and len(made.point_sets["all"]) == made.n_vertices and made.n_stray == 0
    assert len(made.edge_sets["line"] if d == 3 else [0, 1]) == 2


def test_an_interface_of_nodes():
    """A set of nodes between cells is the sides between them; of a region's name it is that region's nodes."""
    mesh = box("tet", (2, 1, 1))
    middle = np.flatnonzero(np.abs(mesh.points[:, 0] - 0.5) < 1e-12)
    cells = [("tet", 1, mesh.cells[0].nodes)]
    made = Mesh.from_cells(
        mesh.points, cells, node_sets={"middle": middle, "body": np.arange(len(mesh.points))}, regions={"body": [0]}
    )
    assert len(made.boundaries["middle"]) == 2 and "body" not in made.boundaries
    bc = hp.BoundaryConditions(hp.C0Space(hp.Space(made, 2)), neumann={"middle": 3.0})
    assert bc.load @ bc.c0.project(1.0) == pytest.approx(3)
