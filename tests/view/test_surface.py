"""What is seen of a mesh: the right sides, where the cells' maps have them, with the fields' values."""

import numpy as np
import pytest

import hpfem as hp
from hpfem.shapes import SHAPES
from hpfem.view.surface import field_pieces, mesh_pieces, nodal_pieces, surface_of
from tests import samples

SOLID = [name for name, shape in SHAPES.items() if shape.dim == 3]
FLAT = [name for name, shape in SHAPES.items() if shape.dim == 2]


def area(surface):
    """Of all triangles."""
    a, b, c = (surface.points[surface.triangles[:, i]] for i in range(3))
    u, v = b - a, c - a
    return 0.5 * np.sqrt(np.maximum((u * u).sum(1) * (v * v).sum(1) - (u * v).sum(1) ** 2, 0)).sum()


def polynomial(*x):
    """Of degree 2."""
    return 1 + x[0] * x[-1] - 2 * x[1] ** 2


@pytest.mark.parametrize("order", [1, 3])
@pytest.mark.parametrize("name", [*SOLID, *FLAT])
def test_values_are_those_of_the_field(name, order):
    mesh = samples.curved(name, order)
    # Enough for the polynomial on elements of that order.
    space = hp.Space(mesh, 2 * order)
    u = space.project(lambda *x: [polynomial(*x), x[0]])
    surface = surface_of(mesh, field_pieces(u), 5)
    expected = np.stack([polynomial(*surface.points.T), surface.points[:, 0]], axis=1)
    if name != "pyramid" or order == 1:  # on the others of a pyramid, functions of x are no polynomials
        assert np.abs(surface.values - expected).max() < 1e-11 * np.abs(expected).max()
    assert surface.values.shape == (len(surface.points), 2)


@pytest.mark.parametrize("name", SOLID)
def test_a_solid_is_seen_from_outside(name):
    mesh = samples.curved(name)
    surface = surface_of(mesh, mesh_pieces(mesh), 12)
    outside = mesh.facets.boundary
    assert set(surface.facets) == set(outside) and surface.values is None
    assert set(surface.cells) == set(mesh.facets.cells[outside, 0])
    n = np.bincount(surface.facets, minlength=len(mesh.facets))[outside]
    corners = {len(f.vertices) for s in mesh.shapes for f in s.facets}
    assert set(n) <= {12**2 * (corner - 2) for corner in corners}
    named = mesh.with_sides({"all": np.column_stack([mesh.facets.cells[outside, 0], mesh.facets.local[outside, 0]])})
    assert area(surface) == pytest.approx(hp.Space(named, 8).integrate_boundary(1.0, "all"), rel=4e-3)
    assert len(surface.lines) == len(set(surface.edges)) <= mesh.edges.count


@pytest.mark.parametrize("name", FLAT)
def test_a_flat_mesh_is_seen_as_a_whole(name):
    mesh = samples.curved(name)
    surface = surface_of(mesh, mesh_pieces(mesh), 12)
    assert area(surface) == pytest.approx(mesh.summary().volume, rel=4e-3)
    assert sorted(surface.edges) == list(range(mesh.edges.count)) and set(surface.cells) == set(range(mesh.n_cells))
    assert np.all(surface.facets == -1)


@pytest.mark.parametrize("name", FLAT)
def test_a_surface_in_space(name):
    mesh = samples.sphere_patch(name)
    u = hp.Space(mesh, 8).project(lambda x, y, z: x * y + z)
    surface = surface_of(mesh, field_pieces(u), 12)
    x, y, z = surface.points.T
    assert area(surface) == pytest.approx(1, rel=5e-3)
    assert np.abs(surface.values[:, 0] - (x * y + z)).max() < 1e-5


@pytest.mark.parametrize("name", SOLID)
def test_lines_follow_curved_edges(name):
    mesh = samples.curved(name)
    surface = surface_of(mesh, mesh_pieces(mesh), 7)
    ends = {tuple(np.round(line[end], 12)) for line in surface.lines for end in (0, -1)}
    corners = {tuple(np.round(x, 12)) for group in mesh.cells for x in mesh.points[group.corners].reshape(-1, 3)}
    assert ends <= corners and surface.lines.shape[1:] == (8, 3)
    bend = np.abs(surface.lines[:, 3] + surface.lines[:, 4] - surface.lines[:, 0] - surface.lines[:, -1]).max()
    assert bend > 1e-2


def test_a_mixed_mesh_and_a_number_of_components():
    mesh = hp.read_mesh("meshes/cube_mixed.msh")
    u = hp.Space(mesh, {"hex": 2, "prism": 3, "pyramid": 2, "tet": 4}).project(lambda x, y, z: [x, y, x * y * z + 1])
    surface = surface_of(mesh, field_pieces(u), 6)
    assert area(surface) == pytest.approx(6, rel=1e-12)
    assert np.abs(surface.values[:, :2] - surface.points[:, :2]).max() < 1e-12


def test_sides_that_a_periodic_mesh_identifies_are_seen():
    mesh = hp.box("hex", 3, periodic=("x", "y", "z"))
    assert not len(mesh.facets.boundary)
    surface = surface_of(mesh, mesh_pieces(mesh), 1)
    assert area(surface) == pytest.approx(6, rel=1e-12)


def test_many_cells_are_cut_into_fewer_triangles():
    mesh = hp.box("quad", 100)
    assert len(surface_of(mesh, mesh_pieces(mesh), 30).triangles) <= 400_000


def test_jumps_stay():
    mesh = hp.read_mesh("meshes/curved_mixed_2d.msh")
    u = hp.Space(mesh, 2).project({"left": 0.0, "right": 1.0})
    surface = surface_of(mesh, field_pieces(u), 4)
    assert np.abs(surface.values - (surface.values > 0.5)).max() < 1e-12 < np.ptp(surface.values)


@pytest.mark.parametrize("name", [*SOLID, *FLAT])
def test_values_at_nodes_are_interpolated_as_points_are(name):
    mesh = samples.curved(name)
    values = np.column_stack([3 * mesh.points[:, 0] + 1, mesh.points[:, 1]])
    surface = surface_of(mesh, nodal_pieces(mesh, values, np.ones(mesh.n_cells, dtype=bool)), 5)
    expected = np.column_stack([3 * surface.points[:, 0] + 1, surface.points[:, 1]])
    assert np.abs(surface.values - expected).max() < 1e-12
