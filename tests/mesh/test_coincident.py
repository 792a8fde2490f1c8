"""Points at one place: joined where a format has points of each cell, else left, counted and warned of."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import vtk
from vtk.util.numpy_support import numpy_to_vtk, numpy_to_vtkIdTypeArray

import hpfem as hp
from hpfem.mesh import vtk_nodes
from hpfem.mesh.node_order import permutation
from hpfem.shapes import SHAPES, equispaced_nodes
from tests.mesh.examples import BOXES, sample
from tests.mesh.test_vtk import LINEAR, QUADRATIC

CASES = Path(__file__).parent / "data" / "cases"
ORDER_2 = [name for name in BOXES if "pyramid" not in name and "3-D" not in name]
KINDS = [*((name, 1) for name in BOXES), *((name, 2) for name in ORDER_2)]


def in_vtk(mesh: hp.Mesh):
    """Cells in VTK's order of nodes: (shape, order, nodes)."""
    result = []
    for group in mesh.cells:
        orders = equispaced_nodes(group.shape, group.order), vtk_nodes(group.shape, group.order)
        result.append((group.shape.name, group.order, group.nodes[:, permutation(*orders, group.order)]))
    return result


def taken_apart(mesh: hp.Mesh, noise: float = 0.0):
    """Points of each cell, moved by a little noise, and cells in VTK's order of nodes."""
    rng = np.random.default_rng(len(mesh.points))
    cells = in_vtk(mesh)
    points = mesh.points[np.concatenate([nodes.ravel() for *_, nodes in cells])]
    ends = np.cumsum([0, *(nodes.size for *_, nodes in cells)])
    apart = [(name, k, np.arange(a, a + own.size).reshape(own.shape)) for (name, k, own), a in zip(cells, ends)]
    return points + noise * rng.uniform(-1, 1, points.shape), apart


def write_vtk(path: Path, points, cells, sides=()) -> None:
    """A grid of VTK with an integer array "material": the number of the cell by three, written by VTK."""
    own = vtk.vtkPoints()
    own.SetDataTypeToDouble()
    own.SetData(numpy_to_vtk(np.column_stack([points, np.zeros((len(points), 3 - points.shape[1]))]), deep=True))
    grid = vtk.vtkUnstructuredGrid()
    grid.SetPoints(own)
    for name, order, nodes in [*cells, *sides]:
        for row in nodes:
            grid.InsertNextCell(LINEAR.get(name, 3) if order == 1 else QUADRATIC[name], len(row), row.tolist())
    material = numpy_to_vtkIdTypeArray(np.arange(grid.GetNumberOfCells(), dtype=np.int64) % 3, deep=True)
    material.SetName("material")
    grid.GetCellData().AddArray(material)
    writer = vtk.vtkXMLUnstructuredGridWriter() if path.suffix == ".vtu" else vtk.vtkUnstructuredGridWriter()
    writer.SetFileName(str(path))
    writer.SetInputData(grid)
    assert writer.Write()


def poisson(mesh: hp.Mesh) -> float:
    """The norm of u with -div grad u = 1, u = 0 around, in functions of order 2."""
    u = hp.solve_helmholtz(hp.Space(mesh, 2), f=1.0, lam=0.0, dirichlet=0.0, tol=1e-12, bar=False)
    return float(u.space.norm(u))


@pytest.mark.parametrize(("name", "order"), KINDS)
@pytest.mark.parametrize("suffix", [".vtu", ".vtk"])
def test_cells_with_points_of_their_own_are_joined(name, order, suffix, tmp_path):
    mesh = sample(name, order)
    points, cells = taken_apart(mesh, noise=1e-15)
    write_vtk(tmp_path / f"apart{suffix}", points, cells)
    with pytest.warns(hp.HpfemWarning, match=f"{len(points) - len(mesh.points)} points .* join=False") as told:
        found = hp.read_mesh(tmp_path / f"apart{suffix}")
    assert len(told) == 1
    assert (found.n_cells, found.n_vertices, len(found.points)) == (mesh.n_cells, mesh.n_vertices, len(mesh.points))
    assert len(found.facets.boundary) == len(mesh.facets.boundary)
    ours, theirs = mesh.summary(), found.summary()
    assert theirs.volume == pytest.approx(ours.volume, rel=1e-9)  # VTK's text is short
    assert theirs.n_coincident == 0
    assert theirs.regions == {str(k): len(range(k, mesh.n_cells, 3)) for k in range(3)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # On curved cells quadrature depends a little on the order of vertices.
        assert poisson(found) == pytest.approx(poisson(mesh), rel=1e-3)


@pytest.mark.parametrize("name", ["apart", "own", "two"])
def test_recorded_files(name):
    with pytest.warns(hp.HpfemWarning, match="joined"):
        mesh = hp.read_mesh(CASES / "vtu-unjoined" / f"{name}.vtu")
    if name == "two":
        assert poisson(mesh) == pytest.approx(poisson(hp.box("quad", (8, 4), upper=(2, 1))), rel=1e-9)
    else:
        u = hp.solve_helmholtz(hp.Space(mesh, 4), f=1.0, lam=0.0, dirichlet=0.0, bar=False)
        assert float(u([[0.5, 0.5]])[0]) == pytest.approx(0.0737, abs=1e-4)


def test_own_output_read_back(tmp_path):
    for name in ("3-D mixed", "2-D mixed"):
        mesh = hp.box(*BOXES[name])
        space = hp.Space(mesh, 2)
        hp.write_vtu(tmp_path / "own.vtu", space.evaluate(lambda *x: x[0]), subdivide=1)
        with pytest.warns(hp.HpfemWarning, match="joined"):
            again = hp.read_mesh(tmp_path / "own.vtu")
        assert poisson(again) == pytest.approx(poisson(mesh), rel=1e-9)


@pytest.mark.parametrize("name", ["quad", "hex", "tet"])
def test_numbered_nodes_stay_apart_and_are_told_of_once(name, tmp_path):
    points, cells = taken_apart(hp.box(*BOXES[name]))
    hp.Mesh.from_cells(points, cells, ordering="vtk").write(tmp_path / "apart.msh")
    mesh, whole = hp.read_mesh(tmp_path / "apart.msh"), hp.box(*BOXES[name])
    assert mesh.n_vertices == len(points) and mesh.summary().n_coincident == len(points) - whole.n_vertices
    with pytest.warns(
        hp.HpfemWarning, match=f": {len(whole.facets.interior)} pairs .* one at \\([0-9.e, +-]*\\): "
    ) as told:
        hp.C0Space(hp.Space(mesh, 1))
    assert len(told) == 1
    with pytest.warns(hp.HpfemWarning, match="joined"):
        assert hp.read_mesh(tmp_path / "apart.msh", join=True).n_vertices == whole.n_vertices
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hp.solve_helmholtz(hp.Space(mesh, 1), f=1.0, lam=1.0, bar=False)
        meant = hp.read_mesh(tmp_path / "apart.msh", join=False)
        assert hp.C0Space(hp.Space(meant, 1)).size == len(points)
        other = hp.Mesh.from_cells(points, cells, ordering="vtk", join=False)
        assert hp.C0Space(hp.Space(other, 1)).size == len(points)
        assert other.transformed(lambda x: 2 * x).apart
        hp.C0Space(hp.Space(hp.Mesh.from_cells(points, cells, ordering="vtk"), 1), join=False)


def test_a_crack_is_kept():
    """Two columns of cells without common vertices along the upper half of their line."""
    mesh = hp.box("quad", (2, 4))
    nodes = mesh.cells[0].nodes.copy()
    line = np.flatnonzero((mesh.points[:, 0] == 0.5) & (mesh.points[:, 1] > 0.5))
    copy = np.arange(len(mesh.points))
    copy[line] = len(mesh.points) + np.arange(len(line))
    right = mesh.points[nodes, 0].mean(axis=1) > 0.5
    nodes[right] = copy[nodes[right]]

    def with_crack(opening):
        points = np.concatenate([mesh.points, mesh.points[line] + [opening, 0]])
        return hp.Mesh.from_cells(points, [("quad", 1, nodes)])

    cracked = with_crack(0)
    assert cracked.summary().n_coincident == 2
    assert "2 boundary vertices lie on others" in str(cracked.summary())
    with pytest.warns(hp.HpfemWarning, match=r"2 pairs of cells' sides .* one at \(0.5, 0.[68][27]5\)"):
        hp.C0Space(hp.Space(cracked, 2))
    for whole in (mesh, with_crack(0.001)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            hp.C0Space(hp.Space(whole, 2))
        assert whole.summary().n_coincident == 0


@pytest.mark.parametrize("shape", ["quad", "tri", "hex", "tet", "prism"])
@pytest.mark.parametrize("smallest", [1e-4, 1e-8])
def test_tiny_and_stretched_cells_stay(shape, smallest, tmp_path):
    """Cells that are graded to a corner, then all in one direction."""
    dim = SHAPES[shape].dim
    grid = np.append(0, np.geomspace(smallest, 1, 5))
    everywhere = range(dim if smallest > 1e-6 or shape in ("quad", "hex") else 1)
    for directions in (everywhere, [0]):

        def graded(x, directions=directions):
            moved = x.copy()
            for d in directions:
                moved[:, d] = np.interp(x[:, d], np.linspace(0, 1, 6), grid)
            return moved

        mesh = hp.box(shape, (5,) * dim).transformed(graded)
        write_vtk(tmp_path / "graded.vtu", mesh.points, in_vtk(mesh))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert len(hp.read_mesh(tmp_path / "graded.vtu").points) == len(mesh.points)
        write_vtk(tmp_path / "apart.vtu", *taken_apart(mesh, noise=1e-17))
        with pytest.warns(hp.HpfemWarning, match="joined"):
            found = hp.read_mesh(tmp_path / "apart.vtu")
        assert len(found.points) == len(mesh.points) and len(found.facets.boundary) == len(mesh.facets.boundary)


@pytest.mark.parametrize("name", ["hex", "tet", "2-D mixed"])
def test_elements_of_the_boundary_with_points_of_their_own_keep_their_names(name, tmp_path):
    """Cells that share their points, and each side of the boundary with its own; also a side inside the mesh."""
    mesh = hp.box(*BOXES[name])
    sides = np.append(mesh.facets.boundary, mesh.facets.interior[:1])
    points, elements, start = [mesh.points], [], len(mesh.points)
    for cell, local in zip(mesh.facets.cells[sides, 0], mesh.facets.local[sides, 0]):
        group, row = mesh.cells[mesh.locations[0][cell]], mesh.locations[1][cell]
        facet = group.shape.entities[mesh.dim - 1][local]
        corners = group.corners[row, list(facet.vertices)]
        corners = corners[[0, 1, 3, 2]] if len(corners) == 4 else corners
        points.append(mesh.points[corners])
        elements.append((facet.shape.name, 1, [np.arange(start, start + len(corners))]))
        start += len(corners)
    write_vtk(tmp_path / "sides.vtu", np.concatenate(points), in_vtk(mesh), elements)
    found = hp.read_mesh(tmp_path / "sides.vtu")
    assert found.n_stray == 0 and found.n_vertices == mesh.n_vertices
    assert sum(map(len, found.boundaries.values())) == len(sides)


def test_cells_that_cannot_be_joined_are_refused(tmp_path):
    """Three squares around one line: joined, they would share one side."""
    points = np.array(
        [[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [-1, 0, 0.5], [-1, 1, 0.5], [-1, 0, -1], [-1, 1, -1]]
    )
    nodes = np.array([[0, 1, 2, 3], [0, 3, 5, 4], [0, 3, 7, 6]])
    write_vtk(tmp_path / "three.vtu", points[nodes].reshape(-1, 3), [("quad", 1, np.arange(12).reshape(3, 4))])
    with pytest.raises(hp.MeshError, match="share one facet.*4 coincident points were joined, join=False leaves"):
        hp.read_mesh(tmp_path / "three.vtu")
    assert hp.read_mesh(tmp_path / "three.vtu", join=False).n_vertices == 12
