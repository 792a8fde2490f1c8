"""Formats that meshio reads for us."""

from __future__ import annotations

from pathlib import Path

import meshio
import numpy as np
import pytest

from hpfem.errors import ArgumentError, MeshError
from hpfem.mesh import Mesh, from_meshio, read_mesh
from hpfem.mesh.io import other_formats
from hpfem.mesh.node_order import gmsh_nodes, permutation, serendipity_nodes, vtk_nodes
from hpfem.shapes import SHAPES, equispaced_nodes
from tests.mesh.examples import flux, sample

KINDS = {pair: kind for kind, pair in other_formats.CELLS.items()}


def written(mesh: Mesh, path: Path, file_format: str, **arguments) -> Path:
    points = np.zeros((len(mesh.points), 3))
    points[:, : mesh.dim] = mesh.points
    cells = []
    for group in mesh.cells:
        theirs = (gmsh_nodes if group.order == 1 else vtk_nodes)(group.shape, group.order)
        columns = permutation(equispaced_nodes(group.shape, group.order), theirs, group.order)
        cells.append((KINDS[group.shape.name, group.order], group.nodes[:, columns]))
    meshio.Mesh(points, cells, **arguments).write(path, file_format=file_format)
    return path


@pytest.mark.parametrize(
    ("suffix", "file_format", "name", "order"),
    [
        (".mesh", "medit", "3-D mixed", 1),
        (".inp", "abaqus", "tet", 2),
        (".inp", "abaqus", "quad", 2),
        (".mdpa", "mdpa", "hex", 2),
        (".vol", "netgen", "3-D mixed", 1),
        (".avs", "avsucd", "2-D mixed", 1),
    ],
)
def test_files_of_meshio(suffix: str, file_format: str, name: str, order: int, tmp_path: Path) -> None:
    mesh = sample(name, order)
    found = read_mesh(written(mesh, tmp_path / f"x{suffix}", file_format))
    assert found.summary().counts == mesh.summary().counts
    assert found.summary().orders == mesh.summary().orders
    assert found.summary().volume == pytest.approx(mesh.summary().volume, rel=1e-9)
    assert flux(found) == pytest.approx(flux(mesh), rel=1e-9)


def test_integer_data_name_regions(tmp_path: Path) -> None:
    mesh = sample("hex")
    references = {"medit:ref": [np.array([5, 6, 5, 5])]}
    found = read_mesh(written(mesh, tmp_path / "x.mesh", "medit", cell_data=references))
    assert {name: cells.tolist() for name, cells in found.regions.items()} == {"5": [0, 2, 3], "6": [1]}


def test_sets_name_regions(tmp_path: Path) -> None:
    mesh = sample("hex")
    path = written(mesh, tmp_path / "x.inp", "abaqus", cell_sets={"inside": [np.array([1, 2])]})
    assert {name: cells.tolist() for name, cells in read_mesh(path).regions.items()} == {"inside": [1, 2]}


@pytest.mark.parametrize(
    ("name", "text", "match"),
    [
        ("x.mesh", "garbage", "meshio cannot read it as medit: "),
        ("x.inp", "*NODE\n1, 0, zero\n", "a number was expected: .*zero"),
        ("x.med", "no HDF5", "meshio cannot read it as med: "),
        ("x.inp", "*NODE\n1,0,0,0\n2,1,0,0\n3,0,1,0\n4,1,1,0\n", "the file has no elements"),
        ("x.obj", "v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 9\n", r"element 1 \(tri\) refers to a node that does not exist"),
        ("x.stl", "solid x\nendsolid x\n", "no points|no elements"),
    ],
)
def test_broken_files(name: str, text: str, match: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(MeshError, match=match) as caught:
        read_mesh(tmp_path / name)
    assert str(caught.value).startswith(str(tmp_path))
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_serendipity_cells_of_meshio(tmp_path: Path) -> None:
    nodes = [(0, 0), (2, 0), (2, 1), (0, 1), (1, 0.2), (2, 0.5), (1, 1.2), (0, 0.5)]
    lines = "".join(f"{i},{x},{y},0\n" for i, (x, y) in enumerate(nodes, 1))
    (tmp_path / "x.inp").write_text(f"*NODE\n{lines}*ELEMENT, TYPE=S8R\n1,1,2,3,4,5,6,7,8\n")
    mesh = read_mesh(tmp_path / "x.inp")
    assert mesh.summary().orders == {"quad": (2,)}
    np.testing.assert_allclose(mesh.points[-1], [1, 0.7], atol=1e-15)
    points = serendipity_nodes("vtk", "hex")
    mesh = from_meshio(meshio.Mesh(points, [("hexahedron20", np.arange(20)[None])]))
    np.testing.assert_allclose(mesh.points[mesh.cells[0].nodes[0]], equispaced_nodes(SHAPES["hex"], 2), atol=1e-15)


def test_readers_that_never_end_are_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty second file of tetgen keeps meshio reading its end."""
    (tmp_path / "x.node").write_text("# nothing\n")
    (tmp_path / "x.ele").write_text("# nothing\n")
    monkeypatch.setattr(other_formats, "_SECONDS", 2.0)
    with pytest.raises(MeshError, match="tetgen: its reader did not end within 2 s"):
        read_mesh(tmp_path / "x.node")


def test_readers_that_ask_for_too_much_are_stopped(tmp_path: Path) -> None:
    (tmp_path / "x.ugrid").write_text("99999999999 0 0 1 0 0 0\n0 0 0\n")
    with pytest.raises(MeshError, match="meshio cannot read it as ugrid: .*MemoryError|as ugrid: "):
        read_mesh(tmp_path / "x.ugrid")


def test_a_mesh_of_meshio_in_memory():
    points = np.array([[0.0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [2, 0, 0]])
    cells = [("quad", np.array([[0, 1, 2, 3]])), ("triangle", np.array([[1, 4, 2]]))]
    mesh = from_meshio(meshio.Mesh(points, cells, cell_data={"gmsh:physical": [np.array([7]), np.array([8])]}))
    assert [(group.shape.name, len(group)) for group in mesh.cells] == [("quad", 1), ("tri", 1)]
    assert mesh.summary().volume == pytest.approx(1.5)
    assert {name: list(cells) for name, cells in mesh.regions.items()} == {"7": [0], "8": [1]}
    with pytest.raises(ArgumentError, match=r"takes a meshio\.Mesh, got str; files go to read_mesh"):
        from_meshio("mesh.msh")
    with pytest.raises(MeshError, match="tangled"):
        from_meshio(meshio.Mesh(points[:4], [("quad", np.array([[0, 2, 1, 3]]))]))


def test_internal_sets_of_meshio_are_no_regions():
    """Of a gmsh 4.1 file it keeps the entities that bound others beside the named sets."""
    points = np.array([[0.0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]])
    sets = {"plate": [np.array([0])], "gmsh:bounding_entities": [np.array([0])]}
    mesh = from_meshio(meshio.Mesh(points, [("quad", np.array([[0, 1, 2, 3]]))], cell_sets=sets))
    assert list(mesh.regions) == ["plate"]
    # A file of gmsh itself, as meshio reads it.
    found = from_meshio(meshio.read("meshes/square_mixed.msh"))
    assert set(found.regions) == set(read_mesh("meshes/square_mixed.msh").regions)
    assert not [name for name in (*found.regions, *found.boundaries) if "gmsh" in name]


@pytest.mark.parametrize("path", [None, 3, b"mesh.msh"])
def test_only_paths_are_accepted(path):
    with pytest.raises(ArgumentError, match="a path must be a text or a path"):
        read_mesh(path)


def test_nastran_begins_like_gmsh(tmp_path):
    points = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    meshio.write(tmp_path / "one.bdf", meshio.Mesh(points, [("tetra", np.array([[0, 1, 2, 3]]))]))
    assert (tmp_path / "one.bdf").read_text().startswith("$")
    assert read_mesh(tmp_path / "one.bdf").summary().volume == pytest.approx(1 / 6)
