"""What every file has in common: which reader, what becomes the mesh, errors that name the file."""

import os
from pathlib import Path

import numpy as np
import pytest

from hpfem.errors import HpfemWarning, MeshError
from hpfem.mesh import gmsh_nodes, read_mesh
from hpfem.mesh.io import formats
from hpfem.mesh.io.formats import Format
from hpfem.mesh.io.mesh_file import MeshFile, canonical
from hpfem.mesh.io.text import parsed_numbers
from hpfem.shapes import TRI
from tests.mesh.examples import flux
from tests.mesh.test_msh import TEXT_22
from tests.mesh.test_vtk import LEGACY, XML

TEXTS = {"msh": TEXT_22, "vtk": LEGACY, "vtu": XML}


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("suffix", [".msh", ".vtk", ".vtu", ".mesh", ".dat", ""])
def test_the_content_decides_not_the_suffix(kind: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"x{suffix}"
    path.write_text(TEXTS[kind])
    assert read_mesh(path).n_cells == 2
    assert read_mesh(str(path)).name == str(path)


@pytest.mark.parametrize("name", ["x.msh", "x.vtk", "x.vtu", "x.mesh", "x.foo", "x"])
def test_files_that_are_not_there(name: str, tmp_path: Path) -> None:
    with pytest.raises(MeshError, match="the file cannot be read: No such file") as caught:
        read_mesh(tmp_path / name)
    assert str(caught.value).startswith(f"{tmp_path / name}: ")
    (tmp_path / name).mkdir()
    with pytest.raises(MeshError, match="this is a folder"):
        read_mesh(tmp_path / name)


@pytest.mark.parametrize("content", [b"", b"\n \n", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("suffix", [".msh", ".vtk", ".vtu", ".mesh"])
def test_empty_files(suffix: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"x{suffix}"
    path.write_bytes(content)
    with pytest.raises(MeshError, match="the file is empty") as caught:
        read_mesh(path)
    assert str(caught.value) == f"{path}: the file is empty"


@pytest.mark.parametrize("suffix", [".msh", ".vtk", ".vtu"])
@pytest.mark.parametrize("content", [b"hello", bytes(range(256)) * 20, b"\x89PNG\r\n\x1a\n" + bytes(100)])
def test_no_meshes(suffix: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"x{suffix}"
    path.write_bytes(content)
    with pytest.raises(MeshError, match="this is not a"):
        read_mesh(path)


def test_unknown_suffix(tmp_path: Path) -> None:
    (tmp_path / "x.foo").write_text("hello")
    with pytest.raises(MeshError, match=r"end in '.foo' cannot be read; .msh, .vtk, .* can, and by meshio .*\.med"):
        read_mesh(tmp_path / "x.foo")


def test_a_format_is_a_reader_and_a_line_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One made up here: lines of triangles, six coordinates each."""

    def read_triangles(data: bytes) -> MeshFile:
        points = parsed_numbers(data.removeprefix(b"triangles"))[0].reshape(-1, 2)
        nodes = np.arange(len(points)).reshape(-1, 3)
        numbers = np.arange(10, 10 + len(nodes))
        return MeshFile(points, [canonical(TRI, 1, gmsh_nodes(TRI, 1), nodes, numbers, {"all": np.arange(len(nodes))})])

    monkeypatch.setattr(formats, "FORMATS", [*formats.FORMATS, Format(".tri", b"triangles", read_triangles)])
    for name in ("x.tri", "x.dat"):
        (tmp_path / name).write_text("triangles\n0 0  1 0  0 1\n5 5  6 5  5 6\n")
        mesh = read_mesh(tmp_path / name)
        assert (mesh.n_cells, mesh.summary().volume) == (2, pytest.approx(1))
        assert mesh.regions["all"].tolist() == [0, 1]
        assert mesh.describe_cell(1) == "element 11 (tri)"
    (tmp_path / "x.foo").write_text("no triangles")
    with pytest.raises(MeshError, match=r"\.msh, \.vtk, .* and \.tri can, and by meshio"):
        read_mesh(tmp_path / "x.foo")


def test_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "x.msh").touch()
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(MeshError, match="the file cannot be read: Permission denied"):
        read_mesh(tmp_path / "x.msh")


def test_a_byte_order_mark_is_no_content(tmp_path: Path) -> None:
    (tmp_path / "x.msh").write_bytes(b"\xef\xbb\xbf" + TEXT_22.encode())
    assert read_mesh(tmp_path / "x.msh").n_cells == 2


def test_only_cells_of_the_highest_dimension(tmp_path: Path) -> None:
    lines = "\n".join(line for line in TEXT_22.splitlines() if not line.startswith(("30", "31")))
    (tmp_path / "y.msh").write_text(lines.replace("$Elements\n4", "$Elements\n2"))
    with pytest.raises(MeshError, match="dimension 0 and 1 only"):
        read_mesh(tmp_path / "y.msh")


def test_elements_of_a_file_that_are_repeated_are_one_cell(tmp_path: Path) -> None:
    """MSH 2.2 writes an element once for each physical group that it is in."""
    text = TEXT_22.replace("$Elements\n4", "$Elements\n6").replace(
        "$EndElements", "32 2 2 6 1 7 5 100000000\n33 2 2 7 1 5 8 100000000\n$EndElements"
    )
    (tmp_path / "x.msh").write_text(text)
    mesh = read_mesh(tmp_path / "x.msh")
    assert mesh.n_cells == 2
    assert {name: cells.tolist() for name, cells in mesh.regions.items()} == {
        "the square": [0, 1], "6": [0], "7": [1],
    }  # fmt: skip
    assert mesh.numbers.tolist() == [30, 31]


def test_the_shared_meshes(shared_meshes: Path) -> None:
    expected = {
        "mfem/compass.msh": ({"tri": 8, "quad": 4}, 2 * np.sqrt(2)),
        "mfem/fichera-mixed-p2.vtk": ({"tet": 5, "hex": 3, "prism": 6}, None),
        "mfem/nested_cubes.msh": ({"tet": 520}, 1),
        "mfem/periodic-torus-sector.msh": ({"hex": 36}, None),
        "mfem/star-mixed-p2.vtk": ({"quad": 10, "tri": 20}, None),
        "nektar/cube_all.msh": ({"tet": 66, "hex": 10, "prism": 36, "pyramid": 69}, 1),
        "nektar/cube_hex.msh": ({"hex": 8}, 1),
        "nektar/cube_prism.msh": ({"prism": 16}, 1),
        "nektar/cube_tet_lin.msh": ({"tet": 162}, 1),
        "nektar/extract_square_circ.msh": ({"quad": 61}, 4 - np.pi / 16),
        "nektar/square_quad_lin.msh": ({"quad": 16}, 1),
    }
    found = {str(p.relative_to(shared_meshes)) for p in shared_meshes.rglob("*") if p.suffix in (".msh", ".vtk")}
    assert found == set(expected)
    for name, (counts, volume) in expected.items():
        mesh = read_mesh(shared_meshes / name)
        summary = mesh.summary()
        assert summary.counts == counts
        assert flux(mesh) == pytest.approx(summary.volume, rel=1e-12)
        assert summary.n_stray == 0
        if volume is not None:
            assert summary.volume == pytest.approx(volume, rel=1e-9 if "circ" not in name else 1e-4)
        if name.startswith("nektar/cube"):
            assert summary.affine_share == 1
        boundary = np.sort(np.concatenate([np.empty(0, dtype=int), *mesh.boundaries.values()]))
        if len(boundary) and name != "mfem/nested_cubes.msh":
            assert np.array_equal(boundary, mesh.facets.boundary)


def test_errors_of_shared_meshes(shared_meshes: Path) -> None:
    compass = read_mesh(shared_meshes / "mfem/compass.msh")
    assert list(compass.boundaries) == ["ENE", "NNE", "NNW", "WNW", "WSW", "SSW", "SSE", "ESE"]
    assert len(compass.regions["Base"]) == 4
    fichera = read_mesh(shared_meshes / "mfem/fichera-mixed-p2.vtk")
    assert fichera.n_mirrored == 6
    assert {group.order for group in fichera.cells} == {2}
    assert list(fichera.regions) == ["1"]
    torus = read_mesh(shared_meshes / "mfem/periodic-torus-sector.msh")
    ring = read_mesh(shared_meshes / "mfem/periodic-torus-sector.msh", periodic=True)
    assert (torus.n_vertices, ring.n_vertices) == (68, 51)
    assert (len(torus.facets.boundary), len(ring.facets.boundary)) == (48, 24)
    assert ring.n_vertices - ring.edges.count + ring.faces.count - ring.n_cells == 0


@pytest.mark.parametrize(
    "text",
    [b"", b" \n", b"1 2\r\n3\x0b4\x0c5 ", b"007 9223372036854775807 100000000000000000000", b"1 2.5 -3 +4e1", b"3 4\n"],
)
def test_numbers_of_a_text_are_those_of_python(text: bytes) -> None:
    numbers, end = parsed_numbers(text)
    assert numbers.tolist() == [float(word) for word in text.split()] and end == len(text)
    first, end = parsed_numbers(text, 2)
    assert first.tolist() == numbers[:2].tolist() and text[end:].split() == text.split()[2:]


@pytest.mark.parametrize("text", [b"12-5", b"1\x002", b"1 2 x", b"1_0 2", b"0x10"])
def test_a_wrong_number_is_quoted(text: bytes) -> None:
    with pytest.raises(MeshError, match="a number was expected"):
        parsed_numbers(text)


def test_named_elements_that_are_no_side_of_a_cell_are_told(tmp_path) -> None:
    points = "\n".join(f"{i + 1} {i % 2} {i // 2 % 2} {i // 4}" for i in range(8))
    elements = "1 5 2 1 1 1 2 4 3 5 6 8 7\n2 3 2 5 1 1 2 8 7"  # the second one lies across the cell
    text = f"$MeshFormat\n2.2 0 8\n$EndMeshFormat\n$Nodes\n8\n{points}\n$EndNodes\n"
    (tmp_path / "a.msh").write_text(f"{text}$Elements\n2\n{elements}\n$EndElements\n")
    with pytest.warns(HpfemWarning, match=r"a\.msh: elements or points with a name that are no facet.*: 1$"):
        assert len(read_mesh(tmp_path / "a.msh").boundaries["5"]) == 0
