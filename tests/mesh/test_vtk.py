"""VTK files, legacy and XML: written by VTK itself in every encoding, and broken ones."""

import base64
import re
import zlib
from pathlib import Path
from typing import Any

import meshio
import numpy as np
import pytest

from hpfem.errors import MeshError
from hpfem.mesh import Mesh, read_mesh, vtk_nodes
from hpfem.mesh.node_order import permutation
from hpfem.shapes import SHAPES, equispaced_nodes
from tests.lazy import numpy_support, vtk
from tests.mesh.examples import BOXES, flux, sample

LINEAR = {"quad": 9, "tri": 5, "hex": 12, "prism": 13, "pyramid": 14, "tet": 10}
QUADRATIC = {"quad": 28, "tri": 22, "hex": 29, "prism": 32, "tet": 24}
LAGRANGE = {"quad": 70, "tri": 69, "hex": 72, "prism": 73, "tet": 71}
XML_WAYS = [
    (mode, encoded, compressor, bits)
    for mode, encoded in (("ascii", True), ("binary", True), ("appended", True), ("appended", False))
    for compressor in (None, "vtkZLibDataCompressor", "vtkLZMADataCompressor")
    for bits in (32, 64)
    if mode != "ascii" or (compressor is None and bits == 32)
]


def grid_of(mesh: Mesh, types: dict[str, int]) -> Any:
    """The mesh as VTK holds it, with an integer array "material"."""
    points = vtk.vtkPoints()
    points.SetDataTypeToDouble()
    coordinates = np.zeros((len(mesh.points), 3))
    coordinates[:, : mesh.dim] = mesh.points
    points.SetData(numpy_support.numpy_to_vtk(coordinates, deep=True))
    grid = vtk.vtkUnstructuredGrid()
    grid.SetPoints(points)
    for group in mesh.cells:
        ours, theirs = equispaced_nodes(group.shape, group.order), vtk_nodes(group.shape, group.order)
        for row in group.nodes[:, permutation(ours, theirs, group.order)]:
            grid.InsertNextCell(types[group.shape.name], len(row), row.tolist())
    material = numpy_support.numpy_to_vtkIdTypeArray(np.arange(mesh.n_cells, dtype=np.int64) % 3, deep=True)
    material.SetName("material")
    grid.GetCellData().AddArray(material)
    temperature = numpy_support.numpy_to_vtk(np.linspace(0, 1, len(mesh.points)), deep=True)
    temperature.SetName("temperature of the points")
    grid.GetPointData().SetScalars(temperature)
    return grid


def same(found: Mesh, mesh: Mesh) -> None:
    assert [(g.shape, g.order) for g in found.cells] == [(g.shape, g.order) for g in mesh.cells]
    for ours, theirs in zip(mesh.cells, found.cells, strict=True):
        np.testing.assert_array_equal(found.points[theirs.nodes], mesh.points[ours.nodes])
    numbers = {str(k): np.arange(mesh.n_cells)[np.arange(mesh.n_cells) % 3 == k] for k in range(3)}
    assert {name: cells.tolist() for name, cells in found.regions.items()} == {
        name: cells.tolist() for name, cells in numbers.items()
    }


def orders_of(name: str) -> list[tuple[int, dict[str, int]]]:
    shapes = {shape.name for shape in sample(name).shapes}
    ways = [(1, LINEAR)]
    if "pyramid" not in shapes:
        ways += [(2, QUADRATIC), (1, LAGRANGE), (2, LAGRANGE), (3, LAGRANGE), (5, LAGRANGE)]
    return ways


CASES = [(name, order, types) for name in BOXES for order, types in orders_of(name)]


@pytest.mark.parametrize(("name", "order", "types"), CASES)
def test_xml(name: str, order: int, types: dict[str, int], tmp_path: Path) -> None:
    mesh = sample(name, order)
    writer = vtk.vtkXMLUnstructuredGridWriter()
    writer.SetInputData(grid_of(mesh, types))
    writer.SetFileName(str(tmp_path / "x.vtu"))
    assert writer.Write()
    same(read_mesh(tmp_path / "x.vtu"), mesh)


@pytest.mark.parametrize(("mode", "encoded", "compressor", "bits"), XML_WAYS)
def test_encodings_of_xml(mode: str, encoded: bool, compressor: str | None, bits: int, tmp_path: Path) -> None:
    mesh = sample("3-D mixed")
    writer = vtk.vtkXMLUnstructuredGridWriter()
    writer.SetInputData(grid_of(mesh, LINEAR))
    writer.SetFileName(str(tmp_path / "x.vtu"))
    {
        "ascii": writer.SetDataModeToAscii,
        "binary": writer.SetDataModeToBinary,
        "appended": writer.SetDataModeToAppended,
    }[mode]()
    writer.SetEncodeAppendedData(encoded)
    writer.SetCompressor(None if compressor is None else getattr(vtk, compressor)())
    writer.SetHeaderType(bits)
    writer.SetBlockSize(1024)
    assert writer.Write()
    found = read_mesh(tmp_path / "x.vtu")
    if mode == "ascii":
        assert flux(found) == pytest.approx(flux(mesh), rel=1e-9)
    else:
        same(found, mesh)


def test_big_endian_xml(tmp_path: Path) -> None:
    mesh = sample("3-D mixed")
    writer = vtk.vtkXMLUnstructuredGridWriter()
    writer.SetInputData(grid_of(mesh, LINEAR))
    writer.SetFileName(str(tmp_path / "x.vtu"))
    writer.SetByteOrderToBigEndian()
    assert writer.Write()
    same(read_mesh(tmp_path / "x.vtu"), mesh)


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
@pytest.mark.parametrize("version", ["42", "51"])
@pytest.mark.parametrize(("name", "order", "types"), CASES)
def test_legacy(name: str, order: int, types: dict[str, int], version: str, binary: bool, tmp_path: Path) -> None:
    mesh = sample(name, order)
    writer = vtk.vtkUnstructuredGridWriter()
    writer.SetInputData(grid_of(mesh, types))
    writer.SetFileName(str(tmp_path / "x.vtk"))
    writer.SetFileVersion(int(version))
    writer.SetFileTypeToBinary() if binary else writer.SetFileTypeToASCII()
    assert writer.Write()
    if version == "42" and types is LAGRANGE and order > 1 and SHAPES["hex"] in mesh.shapes:
        # VTK's reader swaps two edges of hexes in files older than 5.1, as we do; its writer does not swap them back.
        with pytest.raises(MeshError, match=r"\(hex\) is tangled.* in the order 'vtk', not"):
            read_mesh(tmp_path / "x.vtk")
        return
    found = read_mesh(tmp_path / "x.vtk")
    if binary:
        same(found, mesh)
    else:
        assert flux(found) == pytest.approx(flux(mesh), rel=1e-9)


@pytest.mark.parametrize("version", ["0.1", "1.0", "2.0", "2.1", "2.2"])
def test_edges_of_hexes_in_xml_versions(version: str, tmp_path: Path) -> None:
    mesh = sample("hex", 3)
    writer = vtk.vtkXMLUnstructuredGridWriter()
    writer.SetInputData(grid_of(mesh, LAGRANGE))
    writer.SetFileName(str(tmp_path / "x.vtu"))
    writer.SetDataModeToAppended()
    assert writer.Write()
    text = (tmp_path / "x.vtu").read_bytes()
    (tmp_path / "x.vtu").write_bytes(re.sub(rb'(<VTKFile.*?version=)"[\d.]+"', rb'\1"%s"' % version.encode(), text))
    reader = vtk.vtkXMLUnstructuredGridReader()
    reader.SetFileName(str(tmp_path / "x.vtu"))
    reader.Update()
    point_of = np.array([[reader.GetOutput().GetCell(0).GetPointId(i) for i in range(64)]])
    theirs, ours = vtk_nodes("hex", 3), equispaced_nodes(SHAPES["hex"], 3)
    expected = mesh.points[point_of[0][permutation(theirs, ours, 3)]]
    if version in ("2.1", "2.2"):
        found = read_mesh(tmp_path / "x.vtu")
        np.testing.assert_array_equal(found.points[found.cells[0].nodes[0]], expected)
    else:  # written in the new order, so that the old one tangles the cells: as VTK sees them
        assert not np.array_equal(expected, mesh.points[mesh.cells[0].nodes[0]])
        with pytest.raises(MeshError, match=r"\(hex\) is tangled.* in the order 'vtk', not"):
            read_mesh(tmp_path / "x.vtu")


@pytest.mark.parametrize("kind", ["vtu", "vtk", "vtk42"])
@pytest.mark.parametrize("name", BOXES)
def test_files_of_meshio(name: str, kind: str, tmp_path: Path) -> None:
    mesh = sample(name)
    kinds = {
        "quad": "quad", "tri": "triangle", "hex": "hexahedron", "prism": "wedge", "pyramid": "pyramid", "tet": "tetra",
    }  # fmt: skip
    points = np.zeros((len(mesh.points), 3))
    points[:, : mesh.dim] = mesh.points
    cells = []
    for group in mesh.cells:
        ours, theirs = equispaced_nodes(group.shape, 1), vtk_nodes(group.shape, 1)
        cells.append((kinds.get(group.shape.name, group.shape.name), group.nodes[:, permutation(ours, theirs, 1)]))
    path = tmp_path / f"x.{kind[:3]}"
    meshio.Mesh(points, cells).write(path, file_format=kind)
    found = read_mesh(path)
    # meshio writes the prisms of VTK the other way up.
    assert found.n_mirrored == sum(len(group) for group in mesh.cells if group.shape.name == "prism")
    assert found.summary().counts == mesh.summary().counts
    assert flux(found) == pytest.approx(flux(mesh), rel=1e-12)


def test_pixels_and_voxels_are_in_tensor_order(tmp_path: Path) -> None:
    text = """# vtk DataFile Version 2.0

ASCII
DATASET UNSTRUCTURED_GRID
POINTS 8 float
0 0 0  2 0 0  0 2 0  2 2 0
0 0 2  2 0 2  0 2 2  2 2 2
CELLS 3 16
8 0 1 2 3 4 5 6 7  1 3  4 0 1 2 3
CELL_TYPES 3
11 2 8
POINT_DATA 8
SCALARS heat float 1
LOOKUP_TABLE default
1 2 3 4 5 6 7 8
VECTORS v double
0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
CELL_DATA 3
FIELD more 2
attribute 1 3 int
7 8 9
METADATA
INFORMATION 0

weight 2 3 double
1 2 3 4 5 6
"""
    (tmp_path / "x.vtk").write_text(text)
    mesh = read_mesh(tmp_path / "x.vtk")
    assert mesh.summary().volume == pytest.approx(8)
    assert mesh.regions["7"].tolist() == [0]
    assert {name: facets.tolist() for name, facets in mesh.boundaries.items()} == {"9": mesh.boundaries["9"].tolist()}
    assert flux(mesh, mesh.boundaries["9"]) == pytest.approx(0, abs=1e-12)


LEGACY = """# vtk DataFile Version 3.0
title
ASCII
DATASET UNSTRUCTURED_GRID
POINTS 4 double
0 0 0 1 0 0 0 1 0 1 1 0
CELLS 2 8
3 0 1 2
3 1 3 2
CELL_TYPES 2
5
5
"""


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("# vtk DataFile", "# data", "cannot be read|not a VTK file"),
        ("ASCII", "TEXT", "must be ASCII or BINARY"),
        ("UNSTRUCTURED_GRID", "TABLE", "only unstructured grids"),
        ("POINTS 4", "POINTS 4000000000000", "cut short"),
        ("POINTS 4", "POINTS four", "a count is missing"),
        ("POINTS 4 double", "POINTS 4 string", "data of type 'string' are not known"),
        ("POINTS 4 double", "POINTS 5 double", "a number was expected"),
        ("CELLS 2 8", "CELLS 3 8", "element 3 goes beyond the end of CELLS"),
        ("CELLS 2 8", "CELLS 1 8", "CELLS has 8 numbers, its 1 elements 4"),
        ("3 0 1 2", "2 0 1 2", "CELLS has 8 numbers, its 2 elements 6"),
        ("3 0 1 2", "3 0 1 9", r"element 1 \(tri\) refers to a node that does not exist"),
        ("3 0 1 2", "3 0 1 1", r"element 1 \(tri\) has the same node twice"),
        ("3 0 1 2", "3 0 1 0.5", "an integer was expected, not 0.5"),
        ("CELL_TYPES 2\n5\n5", "CELL_TYPES 1\n5", "1 cell types for 2 cells"),
        ("CELL_TYPES 2\n5", "CELL_TYPES 2\n7", r"element 1 is of VTK type 7 \(polygon\)"),
        ("CELL_TYPES 2\n5", "CELL_TYPES 2\n37", r"element 1 is of VTK type 37 \(19-node pyramid\)"),
        ("CELL_TYPES 2\n5", "CELL_TYPES 2\n99", "element 1 is of VTK type 99,"),
        ("CELL_TYPES 2\n5", "CELL_TYPES 2\n9", "element 1 is a quad of order 1 with 3 nodes instead of 4"),
        ("CELL_TYPES 2\n5", "CELL_TYPES 2\n70", "element 1 is a Lagrange quad of 3 nodes, which no order"),
        ("CELL_TYPES 2\n5\n5\n", "", "no section CELL_TYPES"),
        ("5\n5\n", "5\n5\nCELL_DATA 2\nSCALARS material int\nLOOKUP_TABLE default\n1", "cut short"),
        ("CELL_TYPES 2\n5\n5\n", "CELL_TYPES 2\n5\n5\nNONSENSE 2\n", "section 'NONSENSE 2' is not known"),
        ("1 1 0", "nan 1 0", r"element 2 \(tri\) has a node at \[nan, 1.0, 0.0\]"),
    ],
)
def test_broken_legacy(old: str, new: str, match: str, tmp_path: Path) -> None:
    (tmp_path / "x.vtk").write_text(LEGACY)
    assert read_mesh(tmp_path / "x.vtk").n_cells == 2
    assert old in LEGACY
    (tmp_path / "x.vtk").write_text(LEGACY.replace(old, new, 1))
    with pytest.raises(MeshError, match=match) as caught:
        read_mesh(tmp_path / "x.vtk")
    assert str(caught.value).startswith(str(tmp_path))


PIECE = """<Piece NumberOfPoints="4" NumberOfCells="2">
<Points><DataArray type="Float64" NumberOfComponents="3" format="ascii">0 0 0 1 0 0 0 1 0 1 1 0</DataArray></Points>
<Cells>
<DataArray type="Int64" Name="connectivity" format="ascii">0 1 2 1 3 2</DataArray>
<DataArray type="Int64" Name="offsets" format="ascii">3 6</DataArray>
<DataArray type="UInt8" Name="types" format="ascii">5 5</DataArray>
</Cells>
<CellData><DataArray type="Int32" Name="Region" format="ascii">4 6</DataArray></CellData>
</Piece>"""
XML = f"""<?xml version="1.0"?>
<VTKFile type="UnstructuredGrid" version="2.2" byte_order="LittleEndian" header_type="UInt64">
<UnstructuredGrid>{PIECE}</UnstructuredGrid>
</VTKFile>
"""


def test_pieces(tmp_path: Path) -> None:
    beside = PIECE.replace("0 0 0 1 0 0 0 1 0 1 1 0", "5 0 0 6 0 0 5 1 0 6 1 0")
    (tmp_path / "x.vtu").write_text(XML.replace(PIECE, PIECE + beside))
    mesh = read_mesh(tmp_path / "x.vtu")
    assert mesh.n_cells == 4
    assert mesh.numbers.tolist() == [1, 2, 3, 4]
    assert mesh.summary().volume == pytest.approx(2)
    assert {name: cells.tolist() for name, cells in mesh.regions.items()} == {"4": [0, 2], "6": [1, 3]}
    bad = beside.replace("1 3 2", "1 4 2")
    (tmp_path / "x.vtu").write_text(XML.replace(PIECE, PIECE + bad))
    with pytest.raises(MeshError, match="element 4 refers to a node that does not exist; there are 4 nodes"):
        read_mesh(tmp_path / "x.vtu")


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("</VTKFile>", "", "not a whole XML file"),
        ("UnstructuredGrid", "Table", "not a VTK file of an UnstructuredGrid but of 'Table'"),
        ('version="2.2"', 'version="two"', "version 'two'"),
        ("LittleEndian", "MiddleEndian", "byte order 'MiddleEndian'"),
        ("UInt64", "UInt128", "header type 'UInt128'"),
        ("<VTKFile ", '<VTKFile compressor="vtkLZ4DataCompressor" ', "'vtkLZ4DataCompressor' cannot be read"),
        ("<?xml", '<!DOCTYPE a [<!ENTITY b "c">]><?xml', "no XML entities"),
        ("Float64", "Float128", "of type 'Float128', which is not known"),
        ('"ascii">0 1 2', '"mime">0 1 2', "in format 'mime', which is not known"),
        ('format="ascii">0 1 2 1 3 2', 'format="appended" offset="7">', "beyond the appended data"),
        ('format="ascii">0 1 2 1 3 2', 'format="binary">AAAA', "cut short|damaged"),
        ('format="ascii">0 1 2 1 3 2', 'format="binary">?!', "damaged"),
        ("0 0 0 1 0 0", "0 0 0 1 0", "11 coordinates, not three for each point"),
        ("0 0 0 1 0 0", "0 0 0 x 0 0", "a number was expected"),
        ("0 0 0 1 0 0", "0 0 0 1_0 0 0", "a number was expected, not b'1_0'"),
        ('Name="offsets"', 'Name="ends"', "no array offsets"),
        ("3 6", "3 7", "offsets of the cells do not fit"),
        ("3 6", "4 3", "offsets of the cells do not fit"),
        ("3 6", "3", "2 cell types for 1 cells"),
        ("1 3 2", "1 4 2", "element 2 refers to a node that does not exist; there are 4 nodes"),
        ("1 3 2", "1 -3 2", "element 2 refers to a node that does not exist"),
        ("5 5", "5 37", r"element 2 is of VTK type 37 \(19-node pyramid\)"),
        ("5 5", "5 23", "element 2 is a quad of order 2 with 3 nodes instead of 8"),
        ("5 5", "3 3", "element 1 is a segment of order 1 with 3 nodes"),
        ("<Points>", "<Dots>", "not a whole XML file"),
    ],
)
def test_broken_xml(old: str, new: str, match: str, tmp_path: Path) -> None:
    (tmp_path / "x.vtu").write_text(XML)
    assert read_mesh(tmp_path / "x.vtu").n_cells == 2
    assert old in XML
    (tmp_path / "x.vtu").write_text(XML.replace(old, new, 1))
    with pytest.raises(MeshError, match=match) as caught:
        read_mesh(tmp_path / "x.vtu")
    assert str(caught.value).startswith(str(tmp_path))


def test_data_that_inflate_without_end_are_refused(tmp_path: Path) -> None:
    packed = zlib.compress(bytes(10**6))
    header = np.array([1, 2**40, 0, len(packed)], dtype="<u8").tobytes()
    text = (base64.b64encode(header) + base64.b64encode(packed)).decode()
    bomb = XML.replace('"ascii">0 1 2 1 3 2', f'"binary">{text}').replace(
        "<VTKFile ", '<VTKFile compressor="vtkZLibDataCompressor" '
    )
    (tmp_path / "x.vtu").write_text(bomb)
    with pytest.raises(MeshError, match="announces 1099511627776 bytes where its piece has 48"):
        read_mesh(tmp_path / "x.vtu")


def test_cells_of_different_degrees_are_refused(tmp_path: Path) -> None:
    quad = XML.replace("0 1 2 1 3 2", "0 1 3 2").replace("3 6", "4").replace(">5 5<", ">70<").replace(">4 6<", ">4<")
    degrees = '<DataArray type="Float64" Name="HigherOrderDegrees" format="ascii">1 {} 1</DataArray></CellData>'
    for second, fine in ((1, True), (2, False)):
        (tmp_path / "x.vtu").write_text(quad.replace("</CellData>", degrees.format(second)))
        if fine:
            assert read_mesh(tmp_path / "x.vtu").n_cells == 1
        else:
            with pytest.raises(MeshError, match="element 1 has degrees"):
                read_mesh(tmp_path / "x.vtu")


@pytest.mark.parametrize("ghosts", [(), (0, 1)])
def test_lines_and_copies_of_cells_without_data(tmp_path, ghosts):
    """A polyline beside two quads, of which one may be marked as a copy; nothing says what groups the cells."""
    mark = f"CELL_DATA 3\nSCALARS vtkGhostType unsigned_char\nLOOKUP_TABLE default\n0 {' '.join(map(str, ghosts))}\n"
    (tmp_path / "x.vtk").write_text(
        "# vtk DataFile Version 3.0\nx\nASCII\nDATASET UNSTRUCTURED_GRID\nPOINTS 6 double\n"
        "0 0 0 1 0 0 2 0 0 0 1 0 1 1 0 2 1 0\nCELLS 3 14\n3 0 1 2\n4 0 1 4 3\n4 1 2 5 4\nCELL_TYPES 3\n4 9 9\n"
        + (mark if ghosts else "")
    )
    mesh = read_mesh(tmp_path / "x.vtk")
    assert mesh.n_cells == 2 - len(ghosts[1:]) and mesh.summary().volume == pytest.approx(mesh.n_cells)
