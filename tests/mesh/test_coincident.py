"""Points at one place: joined where a format has points of each cell, else left, counted and warned of."""

import time
import warnings
from pathlib import Path

import meshio
import numpy as np
import pytest

import hpfem as hp
from hpfem.mesh import vtk_nodes
from hpfem.mesh.io.formats import format_of
from hpfem.mesh.io.vtk_cells import cell_blocks
from hpfem.mesh.node_order import permutation
from hpfem.shapes import SHAPES, equispaced_nodes
from tests.lazy import numpy_support, vtk
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


def write_vtk(path: Path, points, cells, sides=(), of_cells=(), of_points=()) -> None:
    """A grid with an integer array "material", the number of the cell by three, and (name, values), written by VTK."""
    own = vtk.vtkPoints()
    own.SetDataTypeToDouble()
    own.SetData(
        numpy_support.numpy_to_vtk(np.column_stack([points, np.zeros((len(points), 3 - points.shape[1]))]), deep=True)
    )
    grid = vtk.vtkUnstructuredGrid()
    grid.SetPoints(own)
    for name, order, nodes in [*cells, *sides]:
        kinds = {"point": 1, "segment": 3, **LINEAR} if order == 1 else {"serendipity quad": 23, **QUADRATIC}
        for row in nodes:
            grid.InsertNextCell(kinds[name], len(row), row.tolist())
    material = numpy_support.numpy_to_vtkIdTypeArray(np.arange(grid.GetNumberOfCells(), dtype=np.int64) % 3, deep=True)
    material.SetName("material")
    grid.GetCellData().AddArray(material)
    for data, arrays in ((grid.GetCellData(), of_cells), (grid.GetPointData(), of_points)):
        for array_name, values in arrays:
            array = numpy_support.numpy_to_vtk(values, deep=True)
            array.SetName(array_name)
            data.AddArray(array)
    writer = vtk.vtkXMLUnstructuredGridWriter() if path.suffix == ".vtu" else vtk.vtkUnstructuredGridWriter()
    writer.SetFileName(str(path))
    writer.SetInputData(grid)
    assert writer.Write()


def poisson(mesh: hp.Mesh) -> float:
    """The norm of u with -div grad u = 1, u = 0 around, in functions of order 2.

    On curved cells the default quadrature depends on the order of vertices; more points agree to rounding.
    """
    u = hp.solve_helmholtz(hp.Space(mesh, 2, quadrature=5), f=1.0, lam=0.0, dirichlet=0.0, tol=1e-13, bar=False)
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
        assert poisson(found) == pytest.approx(poisson(mesh), rel=1e-9)


@pytest.mark.parametrize("name", ["apart", "own", "two"])
def test_recorded_files(name):
    with pytest.warns(hp.HpfemWarning, match="joined"):
        mesh = hp.read_mesh(CASES / "vtu-unjoined" / f"{name}.vtu")
    if name == "two":
        assert poisson(mesh) == pytest.approx(poisson(hp.box("quad", (8, 4), upper=(2, 1))), rel=1e-9)
    else:
        u = hp.solve_helmholtz(hp.Space(mesh, 4), f=1.0, lam=0.0, dirichlet=0.0, bar=False)
        assert float(u([[0.5, 0.5]])[0]) == pytest.approx(0.0737, abs=1e-4)


def test_xdmf(tmp_path):
    mesh = hp.box(*BOXES["2-D mixed"])
    points, cells = taken_apart(mesh)
    kinds = {"tri": "triangle", "quad": "quad"}
    content = meshio.Mesh(points, [(kinds[shape], nodes) for shape, _, nodes in cells])
    meshio.write(tmp_path / "apart.xdmf", content, data_format="XML")
    with pytest.warns(hp.HpfemWarning, match="joined"):
        assert hp.read_mesh(tmp_path / "apart.xdmf").n_vertices == mesh.n_vertices
    assert hp.read_mesh(tmp_path / "apart.xdmf", join=False).n_vertices == len(points)


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
    with pytest.warns(hp.HpfemWarning, match=f": {len(whole.facets.interior)}, one at \\([0-9.e, +-]*\\);") as told:
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
    with pytest.warns(hp.HpfemWarning, match=r"sides of cells lie .*: 2, one at \(0.5, 0.[68][27]5\)"):
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


def test_points_and_edges_with_points_of_their_own_keep_their_names(tmp_path):
    mesh = hp.box("hex", (2, 2, 2))
    pairs = mesh.points[mesh.cells[0].corners[0, [0, 1]]]
    points = np.concatenate([mesh.points, pairs, mesh.points[:2]])
    n = len(mesh.points)
    lower = [("segment", 1, np.array([[n, n + 1]])), ("point", 1, np.array([[n + 2], [n + 3]]))]
    write_vtk(tmp_path / "lower.vtu", points, in_vtk(mesh), lower)
    found = hp.read_mesh(tmp_path / "lower.vtu")
    assert found.n_stray == 0 and found.n_vertices == mesh.n_vertices
    assert [len(own) for own in found.edge_sets.values()] == [1] and sum(map(len, found.point_sets.values())) == 2
    given = {"edge_sets": {"e": [[[n, n + 1]]]}, "point_sets": {"p": [n + 2, n + 3]}}
    found = hp.Mesh.from_cells(points, in_vtk(mesh), ordering="vtk", join=True, **given)
    assert found.n_stray == 0 and (len(found.edge_sets["e"]), len(found.point_sets["p"])) == (1, 2)


def test_cells_of_several_points_or_lines_keep_their_names():
    """Two hexes, a line through three points, and three points."""
    connectivity = np.concatenate([np.arange(16), [0, 1, 5], [4, 6, 7]])
    offsets, types = np.array([0, 8, 16, 19, 22]), np.array([12, 12, 4, 2])
    data = {"material": np.array([[1], [1], [5], [6]])}
    found = cell_blocks(connectivity, offsets, types, data, before_2_1=False)
    assert [own.shape.name for own in found] == ["hex", "segment", "point"]
    assert [own.nodes.tolist() for own in found[1:]] == [[[0, 1], [1, 5]], [[4], [6], [7]]]
    assert [{name: len(own) for name, own in each.sets.items()} for each in found] == [{"1": 2}, {"5": 2}, {"6": 3}]
    assert [own.indices.tolist() for own in found[1:]] == [[3, 3], [4, 4, 4]]
    data["vtkGhostType"] = np.array([[0], [0], [1], [1]])
    found = cell_blocks(connectivity, offsets, types, data, before_2_1=False)
    assert [len(own) for own in found] == [2, 0, 0]


def test_a_missing_corner_keeps_no_other_side_apart():
    points = np.array([[0, 0], [1, 0], [1, 1], [0, 1], [0, 0], [1, 0.0]])
    sides = {"a": [[[4, 5], [4, 99]]]}
    mesh = hp.Mesh.from_cells(points, [("quad", 1, [[0, 1, 3, 2]])], boundaries=sides, join=True)
    assert (len(mesh.boundaries["a"]), mesh.n_stray) == (1, 1)


@pytest.mark.parametrize("check", [True, False])
def test_two_nodes_of_a_cell_are_not_joined(check):
    """A quad of order 2, next to another one, with a node on its side that is all but at a corner."""
    mesh = hp.box("quad", (2, 1)).elevated(2)
    points, cells = taken_apart(mesh)
    nodes = cells[0][2]
    x = points[nodes[0]]
    corner, middle = (np.flatnonzero(np.abs(x - at).max(axis=1) < 1e-9)[0] for at in ([0.5, 0], [0.5, 0.5]))
    points[nodes[0, middle]] = x[corner] + [0, 1e-9]
    other = points[nodes[1]]
    points[nodes[1, np.flatnonzero(np.abs(other - [0.5, 0.5]).max(axis=1) < 1e-9)[0]]] = x[corner] + [0, 1e-9]
    with pytest.raises(hp.MeshError, match="tangled" if check else "same node twice.*join=False leaves them apart"):
        hp.Mesh.from_cells(points, cells, ordering="vtk", join=True, check=check)


def test_cells_with_a_number_of_their_own_are_grouped_at_once():
    n = 50_000
    data = {"ElementId": np.arange(n)[::-1].reshape(-1, 1)}
    began = time.process_time()
    (found,) = cell_blocks(np.arange(3 * n), np.arange(0, 3 * n + 1, 3), np.full(n, 5), data, before_2_1=False)
    assert time.process_time() - began < 1
    assert len(found.sets) == n and found.sets["0"].tolist() == [n - 1]


def test_a_refused_order_of_nodes_does_not_tell_of_joined_points(tmp_path, recwarn):
    points, ((_, _, nodes),) = taken_apart(hp.box("hex", (2, 1, 1)))
    write_vtk(tmp_path / "tensor.vtu", points, [("hex", 1, nodes[:, [0, 4, 3, 7, 1, 5, 2, 6]])])
    with pytest.raises(hp.MeshError, match="it is fine if its nodes are in the order 'tensor'"):
        hp.read_mesh(tmp_path / "tensor.vtu")
    assert not recwarn.list


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


@pytest.mark.parametrize("wrong", [{"a": 3}, {"a": ["x"]}, {"a": [[0.5, 1.0]]}, 3])
def test_bad_boundaries_are_refused_where_points_are_joined(wrong):
    with pytest.raises(hp.ArgumentError, match="boundar"):
        hp.Mesh.from_cells([[0, 0], [1, 0], [0, 1.0]], [("tri", 1, [[0, 1, 2]])], boundaries=wrong, join=True)
    for join in ("no", 3):
        with pytest.raises(hp.ArgumentError, match="join must be True or False"):
            hp.read_mesh(CASES / "vtu-unjoined" / "apart.vtu", join=join)


GHOSTS = {1: "a copy", 2: None, 8: "refined", 32: "hidden", 33: "a hidden copy"}


@pytest.mark.parametrize("suffix", [".vtu", ".vtk"])
@pytest.mark.parametrize("bits", GHOSTS)
def test_cells_that_are_copies_or_hidden_are_left_out(bits, suffix, tmp_path):
    mesh = hp.box("quad", (4, 4))
    marks = np.where(mesh.points[mesh.cells[0].nodes, 0].mean(axis=1) > 0.5, bits, 0).astype(np.uint8)
    values = np.arange(16.0)
    path = tmp_path / f"ghosts{suffix}"
    of_cells = [("conductivity", values), ("vtkGhostType", marks)]
    write_vtk(path, mesh.points, in_vtk(mesh), of_cells=of_cells)
    found = hp.read_mesh(path)
    kept = marks == 0 if GHOSTS[bits] else np.full(16, True)
    assert found.n_cells == kept.sum() and found.summary().volume == pytest.approx(kept.mean())
    assert {name: len(own) for name, own in found.regions.items()} == {
        str(k): int((np.arange(16)[kept] % 3 == k).sum()) for k in range(3)
    }
    assert found.numbers.tolist() == (1 + np.flatnonzero(kept)).tolist()
    content = format_of(b"", suffix).read(path.read_bytes())
    assert [own.data["conductivity"].tolist() for own in content.elements] == [values[kept].tolist()]
    assert content.elements[0].data.keys() == {"conductivity", "material"}


@pytest.mark.parametrize("suffix", [".vtu", ".vtk"])
def test_old_levels_of_ghosts_and_hidden_points(suffix, tmp_path):
    mesh = hp.box("hex", (2, 1, 1))
    levels = np.array([0, 2], dtype=np.uint8)
    hidden = np.where(mesh.points[:, 0] == 1, 2, np.where(mesh.points[:, 0] == 0.5, 1, 0)).astype(np.uint8)
    for options in ({"of_cells": [("vtkGhostLevels", levels)]}, {"of_points": [("vtkGhostType", hidden)]}):
        write_vtk(tmp_path / f"old{suffix}", mesh.points, in_vtk(mesh), **options)
        assert hp.read_mesh(tmp_path / f"old{suffix}").summary().volume == pytest.approx(0.5)


@pytest.mark.parametrize("suffix", [".vtu", ".vtk"])
def test_all_cell_data_are_kept(suffix, tmp_path):
    mesh = hp.box(("quad", "tri"), (2, 1))
    rng = np.random.default_rng(0)
    given = {"k": rng.random(mesh.n_cells), "flow": rng.random((mesh.n_cells, 3)), "id": np.arange(mesh.n_cells)}
    write_vtk(tmp_path / f"data{suffix}", mesh.points, in_vtk(mesh), of_cells=given.items())
    elements = format_of(b"", suffix).read((tmp_path / f"data{suffix}").read_bytes()).elements
    for name, values in given.items():
        found = np.concatenate([own.data[name] for own in elements])
        assert found.dtype.kind == values.dtype.kind and found.shape == values.shape
        assert np.abs(found - values).max() < 1e-6


@pytest.mark.parametrize("suffix", [".vtu", ".vtk"])
def test_cell_data_of_other_kinds_are_told_and_names_have_any_characters(suffix, tmp_path, recwarn):
    mesh, path = hp.box("quad", (2, 1)), tmp_path / f"data{suffix}"
    write_vtk(path, mesh.points, in_vtk(mesh), of_cells=[("k of %20 é", np.array([1.5, 2.0]))])
    assert hp.read_mesh(path).cell_data["k of %20 é"].tolist() == [1.5, 2.0]
    assert not recwarn.list
    if suffix == ".vtu":
        other = """<CellData><DataArray type="Bit" Name="on" format="ascii">1 0</DataArray>
            <Array type="String" Name="word" format="ascii">97 0 98 0</Array></CellData><CellData"""
        text = path.read_text().replace("<CellData", other, 1)
        path.write_text(text)
        with pytest.warns(hp.HpfemWarning, match="cell data that are no numbers are left out: 'on', 'word'"):
            assert hp.read_mesh(path).n_cells == 2


def write_pieces(path: Path, mesh: hp.Mesh, n: int, numbers=None, serendipity=False) -> None:
    """A .pvtu file with n pieces, each with the cells of the next one as copies, and their points for themselves."""
    ((name, order, cells),) = in_vtk(mesh)
    owners = np.arange(mesh.n_cells) * n // mesh.n_cells
    for k in range(n):
        rows = np.flatnonzero((owners == k) | (owners == k + 1))
        used, nodes = np.unique(cells[rows, :8] if serendipity else cells[rows], return_inverse=True)
        write_vtk(
            path.with_name(f"{path.stem}_{k}.vtu"),
            mesh.points[used],
            [("serendipity quad" if serendipity else name, order, nodes.reshape(len(rows), -1))],
            of_cells=[("vtkGhostType", (owners[rows] == k + 1).astype(np.uint8)), ("owner", owners[rows])],
            of_points=() if numbers is None else [("GlobalNodeIds", numbers(k, used))],
        )
    index_of_pieces(path, n)


def index_of_pieces(path: Path, n: int) -> None:
    """A .pvtu file of n pieces."""
    sources = "".join(f'<Piece Source="{path.stem}_{k}.vtu"/>' for k in range(n))
    text = f'<PUnstructuredGrid GhostLevel="1"><PPoints/>{sources}</PUnstructuredGrid>'
    path.write_text(f'<?xml version="1.0"?>\n<VTKFile type="PUnstructuredGrid" version="0.1">{text}</VTKFile>\n')


@pytest.mark.parametrize("shape", ["quad", "tet"])
def test_pieces_are_read_whole(shape, tmp_path):
    mesh = hp.box(*BOXES[shape])
    path = tmp_path / "whole.pvtu"
    write_pieces(path, mesh, 3)
    with pytest.warns(hp.HpfemWarning, match=r"whole.pvtu: \d+ points .* joined"):
        found = hp.read_mesh(path)
    assert (found.n_cells, found.n_vertices) == (mesh.n_cells, mesh.n_vertices)
    assert poisson(found) == pytest.approx(poisson(mesh), rel=1e-9)
    assert len(np.unique(found.numbers)) == mesh.n_cells
    assert hp.read_mesh(path, join=False).n_vertices > mesh.n_vertices
    assert hp.read_mesh(path, regions="owner").regions.keys() == {"0", "1", "2"}
    # Numbers of points that are the same in all pieces, and others that tell all pieces apart.
    write_pieces(path, mesh, 3, lambda k, used: used)
    assert hp.read_mesh(path).n_vertices == mesh.n_vertices
    write_pieces(path, mesh, 3, lambda k, used: used + 1000 * k)
    apart = hp.read_mesh(path)
    assert apart.n_vertices > mesh.n_vertices
    with pytest.warns(hp.HpfemWarning, match="sides of cells lie on each other"):
        hp.C0Space(hp.Space(apart, 1))
    assert hp.read_mesh(path, join=True).n_vertices == mesh.n_vertices
    path.with_name("whole_1.vtu").unlink()
    with pytest.raises(hp.MeshError, match=r"whole_1.vtu: the file cannot be read: No such file"):
        hp.read_mesh(path)
    path.write_text('<VTKFile type="PUnstructuredGrid"><PUnstructuredGrid/></VTKFile>')
    with pytest.raises(hp.MeshError, match=r"whole.pvtu: this names no pieces"):
        hp.read_mesh(path)


@pytest.mark.parametrize("noise", [0.0, 1e-16, 1e-12, 1e-8])
def test_noise_in_z(noise, tmp_path):
    mesh = hp.box("quad", (2, 2))
    points = np.column_stack([mesh.points, noise * np.random.default_rng(0).uniform(0.5, 1, len(mesh.points))])
    points[0, 2] = 0
    write_vtk(tmp_path / "plate.vtu", points, in_vtk(mesh))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = hp.read_mesh(tmp_path / "plate.vtu")
    assert found.points.shape[1] == (3 if noise == 1e-8 else 2)
    assert [str(own.message).endswith("it is taken as plane") for own in told] == [True] * (noise == 1e-12)


def test_a_plate_in_another_plane_is_a_surface_and_the_summary_says_where():
    mesh = hp.read_mesh(CASES / "z-noise" / "xz.vtu")
    assert mesh.points.shape[1] == 3 and "2-D mesh in 3-D space, in the plane y = 0, 4 cells" in str(mesh.summary())
    moved = mesh.transformed(lambda x: x + np.array([0, 2, 0]))
    assert moved.summary().plane == "y = 2" and not mesh.transformed(lambda x: x + x[:, :1] * [0, 1, 0]).summary().plane
    assert hp.read_mesh(CASES / "z-noise" / "plate.vtu").points.shape[1] == 2
