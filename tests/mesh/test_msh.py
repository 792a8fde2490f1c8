"""The gmsh format: files that gmsh wrote, files that meshio wrote, and broken ones."""

import struct
from functools import partial
from pathlib import Path

import meshio
import numpy as np
import pytest

from hpfem.errors import HpfemWarning, MeshError
from hpfem.mesh import Mesh, box, gmsh_nodes, read_mesh
from hpfem.mesh.io.msh import read_msh, read_msh_partitions
from hpfem.mesh.node_order import FILE_VERTICES, permutation
from hpfem.shapes import SHAPES, equispaced_nodes
from tests.mesh.examples import ALL_3D, BOXES, bent, corners_of, flux, sample

DATA = Path(__file__).with_name("data")
CUBES = [*sorted(path.name for path in DATA.glob("cube_[24]*.msh") if path.stem != "cube_40"), "cube_serendipity.msh"]
PYRAMIDS = sorted(path.name for path in DATA.glob("pyramids_*.msh"))


@pytest.mark.parametrize("name", CUBES)
def test_cubes_of_gmsh(name: str) -> None:
    mesh = read_mesh(DATA / name)
    order = int(name[-5]) if "order" in name else 2 if "serendipity" in name else 1
    summary = mesh.summary()
    assert summary.counts == {"hex": 3, "prism": 6}
    assert set(summary.orders.values()) == {(order,)}
    assert summary.affine_share == 1
    assert summary.volume == pytest.approx(1, rel=1e-12)
    assert summary.regions == {"left": 3, "right": 6, "all": 9}
    assert summary.boundaries == {"bottom": 3, "top": 3}
    assert (summary.n_mirrored, summary.n_stray, summary.n_vertices) == (0, 0, 24)
    assert flux(mesh, mesh.boundaries["top"]) == pytest.approx(1 / 3, rel=1e-12)
    assert flux(mesh, mesh.boundaries["bottom"]) == pytest.approx(0, abs=1e-12)
    left = [group for group in mesh.cells if group.shape.name == "hex"]
    assert np.array_equal(np.sort(left[0].indices), mesh.regions["left"])
    assert mesh.points[left[0].nodes][:, :, 0].max() == pytest.approx(0.5)


@pytest.mark.parametrize("name", CUBES)
def test_periodic_cubes_of_gmsh(name: str) -> None:
    mesh = read_mesh(DATA / name, periodic=True)
    assert mesh.n_vertices == 18
    assert len(mesh.facets.boundary) == 18
    np.testing.assert_array_equal(mesh.boundaries["top"], mesh.boundaries["bottom"])
    assert mesh.summary().volume == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("name", PYRAMIDS)
def test_pyramids_of_gmsh(name: str) -> None:
    mesh = read_mesh(DATA / name)
    summary = mesh.summary()
    assert summary.counts == {"pyramid": 6}
    assert summary.orders == {"pyramid": (int(name[-5]),)}
    assert summary.affine_share == 1
    assert summary.volume == pytest.approx(1, rel=1e-12)
    with pytest.raises(MeshError, match="pairs no periodic nodes"):
        read_mesh(DATA / name, periodic=True)


def test_periodic_nodes_that_gmsh_writes_as_in_version_2(tmp_path: Path) -> None:
    """gmsh writes those of a file of version 1 or 2 so into a file of version 4.1."""
    text = (DATA / "cube_41_text.msh").read_text()
    start = text.index("$Periodic")
    old = (DATA / "cube_22_text.msh").read_text()
    section = old[old.index("$Periodic") : old.index("$EndPeriodic")]
    assert "Affine" in section
    (tmp_path / "x.msh").write_text(text[:start] + section + text[text.index("$EndPeriodic") :])
    assert read_mesh(tmp_path / "x.msh", periodic=True).periodic


MESHIO = {
    ("segment", 1): "line", ("tri", 1): "triangle", ("quad", 1): "quad", ("tet", 1): "tetra", ("hex", 1): "hexahedron",
    ("prism", 1): "wedge", ("pyramid", 1): "pyramid", ("segment", 2): "line3", ("tri", 2): "triangle6",
    ("quad", 2): "quad9", ("tet", 2): "tetra10", ("hex", 2): "hexahedron27", ("prism", 2): "wedge18",
    ("pyramid", 2): "pyramid14", ("segment", 3): "line4", ("tri", 3): "triangle10", ("quad", 3): "quad16",
    ("tet", 3): "tetra20", ("hex", 3): "hexahedron64", ("prism", 3): "wedge40",
}  # fmt: skip


def cells_for_meshio(mesh: Mesh) -> list[tuple[str, np.ndarray]]:
    cells = []
    for group in mesh.cells:
        ours, theirs = equispaced_nodes(group.shape, group.order), gmsh_nodes(group.shape, group.order)
        kind = MESHIO[group.shape.name, group.order]
        # For these two meshio expects VTK's order and turns it into gmsh's.
        to_gmsh = permutation(ours, theirs, group.order)
        cells.append((kind, group.nodes[:, to_gmsh[VTK_OF_GMSH.get(kind, slice(None))]]))
    return cells


def in_space(mesh: Mesh) -> np.ndarray:
    points = np.zeros((len(mesh.points), 3))
    points[:, : mesh.dim] = mesh.points
    return points


VTK_OF_GMSH = {
    "tetra10": [0, 1, 2, 3, 4, 5, 6, 7, 9, 8],
    "hexahedron27": [0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 9, 16, 18, 19, 17, 10, 12, 14, 15, 22, 23, 21, 24, 20, 25, 26],
}


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("name", BOXES)
def test_version_2_of_meshio(name: str, order: int, binary: bool, tmp_path: Path) -> None:
    if order == 3 and "pyramid" in BOXES[name][0]:
        name = "hex"  # meshio has no pyramid of order 3
    mesh = sample(name, order)
    cells = cells_for_meshio(mesh)
    tags = [np.full(len(nodes), number) for number, (_, nodes) in enumerate(cells, start=1)]
    names = {f"part {number}": np.array([number, mesh.dim]) for number in range(1, len(cells) + 1)}
    if order == 1:
        for number, (side, facets) in enumerate(mesh.boundaries.items(), start=11):
            for corners in corners_of(mesh, facets):
                shape = {2: "segment", 3: "tri", 4: "quad"}[corners.shape[1]]
                cells.append((MESHIO[shape, 1], corners[:, FILE_VERTICES[shape]]))
                tags.append(np.full(len(corners), number))
            names[side] = np.array([number, mesh.dim - 1])
    data = {"gmsh:physical": tags, "gmsh:geometrical": [own.copy() for own in tags]}
    written = meshio.Mesh(in_space(mesh), cells, cell_data=data, field_data=names)
    written.write(tmp_path / "x.msh", file_format="gmsh22", binary=binary)
    found = read_mesh(tmp_path / "x.msh")
    for ours, theirs in zip(mesh.cells, found.cells, strict=True):
        assert (ours.shape, ours.order) == (theirs.shape, theirs.order)
        np.testing.assert_array_equal(found.points[theirs.nodes], mesh.points[ours.nodes])
    assert [len(own) for own in found.regions.values()] == [len(group) for group in mesh.cells]
    if order == 1:
        assert {n: len(f) for n, f in found.boundaries.items()} == {n: len(f) for n, f in mesh.boundaries.items()}


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
@pytest.mark.parametrize(("name", "order"), [key for key in MESHIO if key[0] != "segment"])
def test_version_4_of_meshio(name: str, order: int, binary: bool, tmp_path: Path) -> None:
    mesh = sample(name, order)
    meshio.Mesh(in_space(mesh), cells_for_meshio(mesh)).write(tmp_path / "x.msh", file_format="gmsh", binary=binary)
    found = read_mesh(tmp_path / "x.msh")
    (ours,), (theirs,) = mesh.cells, found.cells
    assert (ours.shape, ours.order) == (theirs.shape, theirs.order)
    np.testing.assert_array_equal(found.points[theirs.nodes], mesh.points[ours.nodes])


# A square of two triangles, number 30 and 31, with nodes 7, 5, 100000000 and 8.
TEXT_22 = """$MeshFormat
2.2 0 8
$EndMeshFormat
$PhysicalNames
1
2 4 "the square"
$EndPhysicalNames
$Nodes
4
7 0 0 0
5 1 0 0
100000000 0 1 0
8 1 1 0
$EndNodes
$Elements
4
20 1 2 9 1 7 5
21 15 1 3 7
30 2 2 4 1 7 5 100000000
31 2 3 4 1 1 5 8 100000000
$EndElements
"""


def read_text(tmp_path: Path, text: str) -> Mesh:
    path = tmp_path / "x.msh"
    path.write_bytes(text.encode("latin-1"))
    return read_mesh(path)


def test_sparse_node_numbers_and_unnamed_groups(tmp_path: Path) -> None:
    mesh = read_text(tmp_path, TEXT_22)
    assert mesh.points.tolist() == [[0, 0], [1, 0], [0, 1], [1, 1]]
    assert mesh.numbers.tolist() == [30, 31]
    assert mesh.describe_cell(1) == "element 31 (tri)"
    assert {name: cells.tolist() for name, cells in mesh.regions.items()} == {"the square": [0, 1]}
    assert list(mesh.boundaries) == ["9"]
    assert read_text(tmp_path, TEXT_22.replace("\n", "\r\n")).n_cells == 2
    assert (
        read_text(tmp_path, "$Comments\nhello $Nodes\n$EndComments\n" + TEXT_22 + "$Extra\nx y\n$EndExtra\n").n_cells
        == 2
    )


def test_a_group_without_a_name_is_not_the_one_called_by_its_number(tmp_path: Path) -> None:
    mesh = read_text(tmp_path, TEXT_22.replace('4 "the square"', '4 "3"').replace("31 2 3 4", "31 2 3 3"))
    assert {name: cells.tolist() for name, cells in mesh.regions.items()} == {"3": [0], "group 3": [1]}


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("2.2 0 8", "3.0 0 8", "MSH version 3.0 cannot be read"),
        ("2.2 0 8", "2.2 7 8", "is not one of a gmsh mesh"),
        ("2.2 0 8", "2.2 1 8", "binary header is damaged"),
        ("$EndMeshFormat", "$EndFormat", "header is cut short"),
        ("$MeshFormat", "$Format", "no \\$MeshFormat"),
        ("$EndNodes", "", "section \\$Nodes does not end"),
        ("$Nodes\n4\n", "$Nodes\n5\n", "\\$Nodes is cut short: it announces 5 nodes"),
        ("$Nodes\n4\n", "$Nodes\n4000000000000\n", "\\$Nodes is cut short"),
        ("$Nodes\n4\n", "$Nodes\n-4\n", "announces -4"),
        ("$Nodes\n4\n", "$Nodes\n3.5\n", "an integer was expected, not 3.5"),
        ("$Elements\n4\n", "$Elements\n5\n", "\\$Elements is cut short"),
        ("$Elements\n4\n", "$Elements\n999999999999\n", "\\$Elements is cut short"),
        ("$Elements\n4\n", "$Elements\n0\n", "no elements"),
        ("5 1 0 0", "5 1 zero 0", "a number was expected"),
        ("5 1 0 0", "5 1_0 0 0", "a number was expected, not b'1_0'"),
        ("5 1 0 0", "5 nan 0 0", r"element 30 \(tri\) has a node at \[nan, 0.0, 0.0\]"),
        ("5 1 0 0", "7 1 0 0", "node 7 is given twice"),
        ("8 1 1 0", "5.5 1 1 0", "an integer was expected"),
        ("1 7 5 100000000", "1 7 0 100000000", r"element 30 \(tri\) refers to a node that does not exist"),
        ("1 7 5 100000000", "1 7 -5 100000000", r"element 30 \(tri\) refers to a node that does not exist"),
        ("1 7 5 100000000", "1 7 5 5", r"element 30 \(tri\) has the same node twice"),
        ("9 1 7 5", "9 1 7 6", r"element 20 \(segment\) refers to a node that does not exist"),
        ("30 2 2", "30 20 2", "element 30 is of gmsh type 20, which cannot be used; complete elements can"),
        ("30 2 2", "30 140 2", "element 30 is of gmsh type 140,"),
        ("30 2 2", "30 2 -2", "cut short"),
        ("30 2 2", "30 2 99999", "cut short"),
        ('2 4 "the square"', "2 4", "a physical name was expected"),
        ("$Elements", "$Cells", "section \\$Cells does not end"),
        ("8 1 1 0", "8 0.5 0.5 0", r"element 31 \(tri\) is tangled or flat"),
    ],
)
def test_broken_text(tmp_path: Path, old: str, new: str, match: str) -> None:
    assert old in TEXT_22
    with pytest.raises(MeshError, match=match) as caught:
        read_text(tmp_path, TEXT_22.replace(old, new, 1))
    assert str(caught.value).startswith(str(tmp_path))


@pytest.mark.parametrize("section", ["Nodes", "Elements"])
def test_what_a_section_has_beyond_its_count_is_told(tmp_path: Path, section: str) -> None:
    first, end = TEXT_22.split(f"$End{section}")
    rows = first.rstrip("\n").split("\n")
    more = "\n".join([*rows, " ".join(["9", *rows[-1].split()[1:]]), f"$End{section}{end}"])
    left = len(rows[-1].split())
    with pytest.warns(HpfemWarning, match=rf"\${section} has more than it announces: {left} numbers are left out"):
        assert read_text(tmp_path, more).n_cells == read_text(tmp_path, TEXT_22).n_cells


@pytest.mark.parametrize("name", CUBES)
def test_truncated_files_of_gmsh(name: str, tmp_path: Path) -> None:
    data = (DATA / name).read_bytes()
    whole = read_mesh(DATA / name).summary()
    for share in np.linspace(0, 1, 24, endpoint=False):
        (tmp_path / name).write_bytes(data[: int(share * len(data))])
        summary = mesh_or_none(tmp_path / name)
        # Only what follows the elements may be missing.
        assert summary is None or (summary.volume, summary.counts) == (whole.volume, whole.counts)


def mesh_or_none(path: Path):
    try:
        return read_mesh(path).summary()
    except MeshError:
        return None


def test_big_endian_and_small_sizes(tmp_path: Path) -> None:
    """Version 4.1 lets the writer choose; gmsh only writes what its machine has."""
    for order, size in ((">", 8), ("<", 4), (">", 4)):
        i, n, d = (partial(np.array, dtype=f"{order}{kind}") for kind in ("i4", f"u{size}", "f8"))
        content = [
            b"$MeshFormat\n4.1 1 %d\n" % size, i(1), b"\n$EndMeshFormat\n$Nodes\n",
            n([1, 3, 1, 3]), i([2, 1, 0]), n(3), n([1, 2, 3]), d([0, 0, 0, 2, 0, 0, 0, 1, 0]), b"\n$EndNodes\n",
            b"$Elements\n", n([1, 1, 1, 1]), i([2, 1, 2]), n(1), n([1, 1, 2, 3]), b"\n$EndElements\n",
        ]  # fmt: skip
        (tmp_path / "x.msh").write_bytes(b"".join(x if isinstance(x, bytes) else x.tobytes() for x in content))
        assert read_mesh(tmp_path / "x.msh").summary().volume == pytest.approx(1)


@pytest.mark.parametrize("order", [4, 5, 7, 9])
def test_high_orders_of_all_shapes(order: int, tmp_path: Path) -> None:
    """Curved cells of gmsh's higher orders come back node by node."""
    types = {"hex": {4: 93, 5: 94, 7: 96, 9: 98}, "prism": {4: 91, 5: 106, 7: 108, 9: 110},
             "pyramid": {4: 119, 5: 120, 7: 122, 9: 124}, "tet": {4: 30, 5: 31, 7: 72, 9: 74}}  # fmt: skip
    mesh = box(ALL_3D, (5, 1, 1)).elevated(order).transformed(bent)
    lines = ["$MeshFormat", "2.2 0 8", "$EndMeshFormat", "$Nodes", str(len(mesh.points))]
    lines += [f"{i} {x!r} {y!r} {z!r}" for i, (x, y, z) in enumerate(mesh.points.tolist(), start=1)]
    lines += ["$EndNodes", "$Elements", str(mesh.n_cells)]
    for group in mesh.cells:
        ours, theirs = equispaced_nodes(group.shape, order), gmsh_nodes(group.shape, order)
        for row in group.nodes[:, permutation(ours, theirs, order)] + 1:
            lines.append(f"1 {types[group.shape.name][order]} 0 " + " ".join(map(str, row)))
    (tmp_path / "x.msh").write_text("\n".join([*lines, "$EndElements", ""]))
    found = read_mesh(tmp_path / "x.msh")
    assert found.n_mirrored == 0
    for a, b in zip(mesh.cells, found.cells, strict=True):
        np.testing.assert_array_equal(found.points[b.nodes], mesh.points[a.nodes])
    assert set(SHAPES) >= {group.shape.name for group in found.cells}


NAMES = {
    "latin1": (["Südseite"], ["Körper"], ["names that are not UTF-8 are read as Latin-1"]),
    "utf8": (["Südseite"], ["Körper"], []),
    "negative_tag": (["bottom"], ["plate"], []),
    "numbers_only": (["7"], ["9"], []),
    "no_groups": ([], [], []),
    "names_without_tags": ([], [], ["physical names of no elements are left out: bottom, plate"]),
    "quote_in_name": (['a "b" c'], ["x, y; z"], []),
    "version_2.200000": ([], ["1"], []),
}


@pytest.mark.parametrize("name", NAMES)
def test_physical_names(name: str, recwarn: pytest.WarningsRecorder) -> None:
    boundaries, regions, warnings = NAMES[name]
    path = DATA / "cases" / "msh-names" / f"{name}.msh"
    mesh = read_mesh(path)
    assert (list(mesh.boundaries), list(mesh.regions)) == (boundaries, regions)
    assert [str(warning.message) for warning in recwarn] == [f"{path}: {text}" for text in warnings]
    assert mesh.summary().volume == pytest.approx(0.5 if "version" in name else 1)


def with_data(path: Path, sections: list[tuple[str, int, dict[int, list[float]]]], binary: bool) -> bytes:
    """A file of gmsh, and values of its elements behind it as gmsh writes them."""
    result = path.read_bytes()
    for name, step, values in sections:
        columns = len(next(iter(values.values())))
        result += f'$ElementData\n2\n"{name}"\n"SCHEME"\n1\n0.5\n3\n{step}\n{columns}\n{len(values)}\n'.encode()
        if binary:
            kind = np.dtype([("id", "<i4"), ("x", "<f8", (columns,))])
            result += np.array([(number, row) for number, row in values.items()], kind).tobytes() + b"\n"
        else:
            result += "".join(f"{number} {' '.join(map(repr, row))}\n" for number, row in values.items()).encode()
        result += b"$EndElementData\n"
    return result


@pytest.mark.parametrize("name", ["cube_22_text", "cube_41_text", "cube_22_binary_order2", "cube_41_binary_order2"])
def test_values_of_elements(name: str) -> None:
    cells = [own for own in read_msh((DATA / f"{name}.msh").read_bytes()).elements if own.shape.dim == 3]
    numbers = np.concatenate([own.indices for own in cells])
    conductivity = {int(number): [float(number) ** 2] for number in numbers}
    flow = {int(number): [float(number), 0.5, -1.0] for number in numbers[1:]}
    sections = [("conductivity", 0, conductivity), ("flow", 0, flow), ("flow", 1, flow)]
    for own in read_msh(with_data(DATA / f"{name}.msh", sections, "binary" in name)).elements:
        assert sorted(own.data) == (["conductivity", "flow", "flow, step 1"] if own.shape.dim == 3 else [])
        for number, value, vector in (
            zip(own.indices, *map(own.data.get, list(own.data)[:2]), strict=True) if own.data else ()
        ):
            assert value == number**2
            np.testing.assert_array_equal(vector, flow.get(int(number), [np.nan] * 3))


@pytest.mark.parametrize("name", ["solid", "curved"])
def test_values_and_periodic_nodes_of_partitions(name: str) -> None:
    """Values go with their elements; periodic nodes, which are not read, are passed over, text and binary."""
    path, binary = DATA / f"{name}_single.msh", name == "curved"
    data = with_data(path, [("k", 0, {n: [n**2.0] for n in range(1, 1000, 2)})], binary)
    numbers = struct.pack("<QiiiQQQQ", 1, 2, 1, 1, 0, 1, 1, 2) if binary else b"1\n2 1 1\n0\n1\n1 2"
    data += b"$Periodic\n" + numbers + b"\n$EndPeriodic\n"
    for chosen in ({1}, {2, 3}):
        for own in read_msh_partitions(data, frozenset(chosen))[1].elements:
            assert len(own) and list(own.data) == ["k"]
            np.testing.assert_array_equal(own.data["k"], np.where(own.indices % 2, own.indices**2.0, np.nan))


def test_broken_values_of_elements() -> None:
    text = with_data(DATA / "cube_41_text.msh", [("a", 0, {1: [1.0], 2: [2.0]})], binary=False)
    for old, new, match in [
        (b"\n1\n2\n1 1.0", b"\n1\n3\n1 1.0", "cut short: 3 values are announced, 2 found"),
        (b"\n1\n2\n1 1.0", b"\n99999\n2\n1 1.0", "announces 99999 values of an element"),
        (b"\n1 1.0", b"\n1.5 1.0", "an integer was expected, not 1.5"),
        (b"\n1 1.0", b"\n2 1.0", "element 2 is given twice"),
        (b"\n1 1.0", b"\n1 one", "a number was expected"),
    ]:
        assert text.count(old) >= 1
        at = text.rfind(b"$ElementData")
        with pytest.raises(MeshError, match=match):
            read_msh(text[:at] + text[at:].replace(old, new, 1))
