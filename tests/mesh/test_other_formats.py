"""Formats that meshio reads for us."""

import warnings
from pathlib import Path

import meshio
import numpy as np
import pytest

from hpfem.errors import ArgumentError, HpfemWarning, MeshError
from hpfem.mesh import Mesh, from_meshio, read_mesh
from hpfem.mesh.io import library_process, other_formats
from hpfem.mesh.io.text_counts import check_counts, text_of
from hpfem.mesh.node_order import gmsh_nodes, permutation, serendipity_nodes, vtk_nodes
from hpfem.shapes import SHAPES, equispaced_nodes
from tests.mesh.examples import flux, sample

DATA = Path(__file__).parent / "data"
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


@pytest.mark.parametrize(("name", "text"), [("x.node", "# nothing\n"), ("x.off", "OFF\n")])
def test_readers_that_never_end_are_given_up_soon(
    name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They read on behind the end of a file."""
    (tmp_path / name).write_text(text)
    (tmp_path / "x.ele").write_text("# nothing\n")
    monkeypatch.setattr(other_formats, "_SECONDS", 1.0)
    with pytest.raises(MeshError, match="as (tetgen|off): its reader did not end within 1 s"):
        read_mesh(tmp_path / name)
    monkeypatch.undo()
    assert other_formats._SECONDS <= 2


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
    with pytest.raises(MeshError, match="^meshio's mesh: element 1.*tangled"):
        from_meshio(meshio.Mesh(points[:4], [("quad", np.array([[0, 2, 1, 3]]))]))


@pytest.mark.parametrize("rows", [[5], [-1], [0.0], [True]])
@pytest.mark.parametrize("kind", ["cell_sets", "point_sets"])
def test_sets_of_what_is_not_there_are_refused(kind: str, rows: list[int]) -> None:
    own = {"cell_sets": [np.array(rows)], "point_sets": np.array(rows)}[kind]
    mesh = meshio.Mesh(np.eye(3), [("triangle", np.array([[0, 1, 2]]))], **{kind: {"left": own}})
    with pytest.raises(MeshError, match="set 'left' refers to what is not there"):
        from_meshio(mesh)


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


def test_markers_and_groups_of_med() -> None:
    mesh = read_mesh(DATA / "cases" / "two.med")
    assert {name: len(cells) for name, cells in mesh.regions.items()} == {"copper": 718, "steel": 737}
    assert {name: len(facets) for name, facets in mesh.boundaries.items()} == {"hot": 66, "cold": 66}
    assert mesh.summary().volume == pytest.approx(2)


def test_groups_of_med_that_share_cells_and_points(tmp_path: Path) -> None:
    mesh = meshio.Mesh(
        np.eye(3), [("triangle", np.array([[0, 1, 2]] * 3))], cell_data={"cell_tags": [np.array([-1, 0, -2])]}
    )
    mesh.point_data["point_tags"] = np.array([5, 0, 6])
    mesh.cell_tags, mesh.point_tags = {-1: ["a"], -2: ["b", "a"]}, {5: ["pin"], 6: ["pin", "top"]}
    mesh.write(tmp_path / "x.med")
    content = other_formats.read_other(tmp_path / "x.med", ".med", [])
    assert {name: rows.tolist() for name, rows in content.elements[0].sets.items()} == {"a": [0, 2], "b": [2]}
    assert {name: rows.tolist() for name, rows in content.point_sets.items()} == {"pin": [0, 2], "top": [2]}


@pytest.mark.parametrize("suffix", [".vtk", ".vtu", ".xdmf"])
def test_integer_data_of_any_name(suffix: str) -> None:
    path = DATA / "cases" / "integer-data" / f"bar{suffix}"
    with pytest.warns(HpfemWarning, match="integer data of elements that nothing uses: 'f'; regions='f' makes them"):
        assert not read_mesh(path).regions
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mesh = read_mesh(path, regions="f")
    assert {name: cells.tolist() for name, cells in mesh.regions.items()} == {"7": [0, 1], "9": [2]}
    with pytest.raises(ArgumentError, match="regions='g': the elements have no such integer data; there are 'f'"):
        read_mesh(path, regions="g")


def test_integer_data_in_memory() -> None:
    points = np.array([[0.0, 0], [1, 0], [1, 1], [0, 1], [2, 0], [2, 1]])
    cells = [("quad", np.array([[0, 1, 2, 3], [1, 4, 5, 2]])), ("line", np.array([[0, 1], [1, 4]]))]
    data = {
        "material": [np.array([4, 0]), np.array([1, 2])],
        "gmsh:physical": [np.array([8, 9]), np.array([5, 5])],
        "share": [np.array([0.5, 1.0]), np.zeros(2)],
        "huge": [np.array([1e300, np.inf]), np.zeros(2)],
    }
    mesh = meshio.Mesh(points, cells, cell_data=data)
    with warnings.catch_warnings():  # two values of two cells number them
        warnings.simplefilter("error")
        assert set(from_meshio(mesh).regions) == {"8", "9"}
    more = meshio.Mesh(
        points, [*cells, ("line", np.array([[4, 5]]))], cell_data={"side": [np.zeros(2), *([[3, 4], [3]])]}
    )
    with pytest.warns(HpfemWarning, match="from_meshio: integer data of elements that nothing uses: 'side'"):
        from_meshio(more)
    found = from_meshio(mesh, regions="material")
    assert {name: own.tolist() for name, own in found.regions.items()} == {"0": [1], "4": [0]}
    assert {name: len(own) for name, own in found.boundaries.items()} == {"1": 1, "2": 1}
    with pytest.raises(ArgumentError, match="regions='share': .*; there are 'gmsh:physical', 'material'"):
        from_meshio(mesh, regions="share")
    with pytest.raises(ArgumentError, match="no such integer data; there are none"):
        from_meshio(meshio.Mesh(points, cells), regions="material")


# A square of two triangles, or a tetrahedron, in each text format, as its manual has it; and the same with more in it
# than meshio reads.
TWO = "0 0 0\n1 0 0\n1 1 0\n0 1 0\n"
ROWS = [line.split() for line in TWO.splitlines()]
XY = "".join(f"{x} {y}\n" for x, y, _ in ROWS)
TEXTS = {
    "x.avs": (
        "4 2 0 0 0\n"
        + "".join(f"{n} {x} {y} {z}\n" for n, (x, y, z) in enumerate(ROWS, 1))
        + "1 3 tri 1 2 3\n2 4 tri 1 3 4\n"
    ),
    "x.xml": '<dolfin><mesh celltype="triangle" dim="2"><vertices size="4">'
    + "".join(f'<vertex index="{n}" x="{x}" y="{y}"/>' for n, (x, y, _) in enumerate(ROWS))
    + '</vertices><cells size="2"><triangle index="0" v0="0" v1="1" v2="2"/><triangle index="1" v0="0" v1="2" v2="3"/>'
    "</cells></mesh></dolfin>",
    "x.f3grid": "* GRIDPOINTS\n"
    + "".join(f"G {n} {x} {y} {z}\n" for n, (x, y, z) in enumerate(ROWS, 1))
    + "F T3 1 1 2 3\nF T3 2 1 3 4\n",
    "x.mdpa": "Begin Nodes\n"
    + "".join(f" {n} {x} {y} {z}\n" for n, (x, y, z) in enumerate(ROWS, 1))
    + "End Nodes\n\nBegin Elements Triangle2D3\n 1 0 1 2 3\n 2 0 1 3 4\nEnd Elements\n",
    "x.mesh": "MeshVersionFormatted 2\nDimension 2\nVertices\n4\n"
    + XY.replace("\n", " 0\n")
    + "Triangles\n2\n1 2 3 1\n1 3 4 2\nEnd\n",
    "x.obj": "".join(f"v {x} {y} {z}\n" for x, y, z in ROWS) + "f 1 2 3\nf 1 3 4\n",
    "x.off": "OFF\n# two\n4 2 0\n" + TWO + "3 0 1 2\n3 0 2 3\n",
    "x.post": "$COOR\n"
    + "".join(f"{n} {x} {y} {z}\n" for n, (x, y, z) in enumerate(ROWS, 1))
    + "$ELEMENT TYPE=TRIA3\n1 1 2 3\n2 1 3 4\n$EXIT\n",
    "x.ply": "ply\nformat ascii 1.0\nelement vertex 4\nproperty float x\nproperty float y\nproperty float z\n"
    "element face 2\nproperty list uchar int vertex_indices\nend_header\n" + TWO + "3 0 1 2\n3 0 2 3\n",
    "x.stl": "solid\n"
    + "".join(
        f"facet normal 0 0 1\nouter loop\n{''.join(f'vertex {own}' + chr(10) for own in rows)}endloop\nendfacet\n"
        for rows in (["0 0 0", "1 0 0", "1 1 0"], ["0 0 0", "1 1 0", "0 1 0"])
    )
    + "endsolid\n",
    "x.tec": 'VARIABLES = "X", "Y"\nZONE NODES=4, ELEMENTS=2, DATAPACKING=POINT, ZONETYPE=FETRIANGLE\n'
    + XY
    + "1 2 3\n1 3 4\n",
    "x.ugrid": "4 2 0 0 0 0 0\n" + TWO + "1 2 3\n1 3 4\n1\n1\n",
    "x.wkt": "TIN (((0 0 0, 1 0 0, 1 1 0, 0 0 0)), ((0 0 0, 1 1 0, 0 1 0, 0 0 0)))",
}

# What meshio passes over: a text in the place of another.
MORE = {
    "x.post": ("$EXIT", "$COOR\n9 5 5 5\n$EXIT", "1 points, but the file has 5"),
    "x.tec": ("1 3 4\n", "1 3 4\nZONE NODES=3, ELEMENTS=1\n0 0\n5 0\n0 5\n1 2 3\n", "4 points, but the file has 7"),
    "x.xml": ('<vertices size="4">', '<vertices size="6">', "6 points, but the file has 4"),
    "x.mdpa": (" 2 1 0 0\n", " 5 1 0 0\n", None),
}


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process for each file."""
    monkeypatch.setattr(other_formats, "_run", lambda kind, file: (library_process._by_meshio(kind, str(file)), ""))


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("name", TEXTS)
def test_text_formats_are_read_whole(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(TEXTS[name])
    with np.errstate(over="ignore"):  # in meshio's test for binary STL
        mesh = read_mesh(tmp_path / name)
    assert (mesh.n_cells, mesh.summary().n_vertices) == (2, 4)
    assert mesh.summary().volume == pytest.approx(1)


@pytest.mark.parametrize("name", TEXTS)
def test_counts_in_the_text_are_those_that_meshio_finds(name: str) -> None:
    """And others are refused: with both numbers."""
    kind, text = other_formats._readers()[name[1:]][0], TEXTS[name].encode()
    assert check_counts(kind, text, 4, 2) == []
    with pytest.raises(MeshError, match=rf"meshio's reader of {kind} finds 1 cells, but the file has 2"):
        check_counts(kind, text, 4, 1)
    if name not in ("x.stl", "x.wkt"):  # which write the points of each triangle
        with pytest.raises(MeshError, match=rf"meshio's reader of {kind} finds 5 points, but the file has 4"):
            check_counts(kind, text, 5, 2)


def test_files_that_are_no_text_are_not_searched(tmp_path: Path) -> None:
    assert text_of("med", tmp_path / "not there") == b""


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("name", MORE)
def test_what_meshio_passes_over_is_refused(name: str, tmp_path: Path) -> None:
    old, new, match = MORE[name]
    (tmp_path / name).write_text(TEXTS[name].replace(old, new))
    with pytest.raises(MeshError, match=match or "the nodes do not count from 1, as meshio takes them"):
        read_mesh(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "old", "new", "match"),
    [
        ("x.obj", "f 1 2 3", "g left\nf 1 2 3\ng right", "names that are not read: 'left', 'right'"),
        (
            "x.stl",
            "endsolid\n",
            "endsolid\nsolid by hand\nendsolid\nsolid 2\n",
            "names that are not read: 'by hand', '2'",
        ),
        ("x.mesh", "Triangles", "RequiredVertices\n1\n1\nTriangles", "meshio says: .*RequiredVertices. Skipping"),
    ],
)
def test_what_meshio_leaves_out_is_told(name: str, old: str, new: str, match: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(TEXTS[name].replace(old, new))
    with pytest.warns(HpfemWarning, match=match):
        assert read_mesh(tmp_path / name).n_cells == 2


def test_avs_under_the_suffix_of_abaqus(tmp_path: Path) -> None:
    (tmp_path / "x.inp").write_text("# of LaGriT\n" + TEXTS["x.avs"])
    mesh = read_mesh(tmp_path / "x.inp")
    assert (set(mesh.regions), mesh.summary().volume) == ({"3", "4"}, pytest.approx(1))


@pytest.mark.parametrize(
    ("name", "old", "new", "match"),
    [
        ("x.mesh", "Dimension 2", "Dimension 0", "ReadError: no reason is given; is the file complete"),
        ("x.post", "TRIA3", "HEXE9", "ReadError: Element type not available: HEXE9"),
        ("x.avs", "3 tri", "3 hexagon", "its reader does not know 'hexagon'"),
        ("x.off", "3 0 2 3", "3 0 x 3", "could not be read to its end"),
    ],
)
def test_reasons_of_meshio_are_given(name: str, old: str, new: str, match: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(TEXTS[name].replace(old, new))
    with pytest.raises(MeshError, match=f"meshio cannot read it as .*{match}"):
        read_mesh(tmp_path / name)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "h5py.py").write_text("raise ModuleNotFoundError(name='h5py')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MeshError, match="as med: it needs the package h5py; pip install h5py"):
        read_mesh(DATA / "cases" / "two.med")
