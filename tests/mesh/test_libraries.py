"""Files that gmsh or VTK reads for us, where it is installed."""

from itertools import product
from pathlib import Path

import pytest

import hpfem as hp
from hpfem.errors import MeshError
from hpfem.mesh import read_mesh
from hpfem.mesh.io import other_formats
from meshes import generate
from tests.lazy import vtk

DATA = Path(__file__).with_name("data")
GMSH = generate.import_gmsh()


def read_by_gmsh(path: Path, **arguments):
    """The mesh; without gmsh, what is said."""
    if GMSH is None:
        with pytest.raises(MeshError, match=r"is read by means of gmsh: pip install gmsh|gmsh cannot read it: OSError"):
            read_mesh(path, **arguments)
        return None
    return read_mesh(path, **arguments)


@pytest.mark.parametrize("name", ["cube_1", "cube_40"])
def test_old_versions_of_msh(name):
    mesh = read_by_gmsh(DATA / f"{name}.msh", periodic=True)
    if mesh is not None:
        wanted = read_mesh(DATA / "cube_41_text.msh")
        # Version 1 has numbers, not names, and one group for each element.
        names = {"1": "left", "2": "right", "3": "all", "4": "bottom", "5": "top"} if name == "cube_1" else {}
        for mine, theirs in ((mesh.regions, wanted.regions), (mesh.boundaries, wanted.boundaries)):
            assert {names.get(own, own): len(rows) for own, rows in mine.items()} == {
                own: len(rows) for own, rows in theirs.items()
            }
        assert mesh.summary().volume == pytest.approx(1.0)
        assert mesh.periodic


def test_what_gmsh_cannot_read_is_refused(tmp_path):
    (tmp_path / "x.unv").write_text("    -1\n  2411\n")
    if GMSH is None:
        read_by_gmsh(tmp_path / "x.unv")
    else:
        with pytest.raises(MeshError, match=r"x.unv: gmsh (cannot read it|finds no elements in it)"):
            read_mesh(tmp_path / "x.unv")


def test_a_library_that_is_missing_is_named(monkeypatch, tmp_path):
    (tmp_path / "x.exo").write_bytes(b"CDF\1")
    monkeypatch.setattr(other_formats.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MeshError, match=r"x.exo: a file \.exo is read by means of vtk: pip install vtk$"):
        read_mesh(tmp_path / "x.exo")
    with pytest.raises(MeshError, match="cube_40.msh: MSH of version 4.0 is read by means of gmsh: pip install gmsh$"):
        read_mesh(DATA / "cube_40.msh")


def grids():
    """Grids of VTK that are not unstructured, with their volumes."""
    plane = vtk.vtkPlaneSource()
    plane.SetResolution(3, 2)
    triangles = vtk.vtkTriangleFilter()
    triangles.SetInputConnection(plane.GetOutputPort())
    image = vtk.vtkImageData()
    image.SetDimensions(3, 4, 2)
    image.SetSpacing(0.5, 1, 2)
    structured = vtk.vtkImageDataToPointSet()
    structured.SetInputData(image)
    warped = vtk.vtkRectilinearGrid()
    warped.SetDimensions(3, 2, 1)
    for axis, values in zip("XYZ", ([0, 1, 3], [0, 1], [0]), strict=True):
        array = vtk.vtkDoubleArray()
        for value in values:
            array.InsertNextValue(value)
        getattr(warped, f"Set{axis}Coordinates")(array)
    for filters in (plane, triangles, structured):
        filters.Update()
    return {
        "PolyData": ((plane.GetOutput(), 1.0), (triangles.GetOutput(), 1.0)),
        "ImageData": ((image, 6.0),),
        "StructuredGrid": ((structured.GetOutput(), 6.0),),
        "RectilinearGrid": ((warped, 3.0),),
    }


@pytest.mark.parametrize(
    ("kind", "xml"),
    [
        ("PolyData", True),
        ("PolyData", False),
        ("StructuredGrid", False),
        ("ImageData", True),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in (("StructuredGrid", True), ("ImageData", False), *product(["RectilinearGrid"], (True, False)))
        ),
    ],
)
def test_grids_of_vtk(kind, xml, tmp_path):
    for grid, volume in grids()[kind]:
        old = {"ImageData": "StructuredPoints"}.get(kind, kind)
        writer = getattr(vtk, f"vtkXML{kind}Writer" if xml else f"vtk{old}Writer")()
        path = tmp_path / ("x.vtp" if xml else "x.vtk")
        writer.SetInputData(grid)
        writer.SetFileName(str(path))
        assert writer.Write()
        assert read_mesh(path).summary().volume == pytest.approx(volume)
    data = path.read_bytes()
    path.write_bytes(data[: max(data.find(b"POLYGONS"), len(data) // 2) + 30])
    if kind != "ImageData" or xml:
        with pytest.raises(MeshError, match=r"x\.vt[pk]: "):
            read_mesh(path)


def test_blocks_and_sets_of_exodus():
    mesh = read_mesh(DATA / "two_blocks.exo")
    assert mesh.summary().volume == pytest.approx(2.0)
    assert {name: len(cells) for name, cells in mesh.regions.items()} == {"left": 1, "20": 2}
    space = hp.Space(mesh, 1)
    places = {name: space.integrate_boundary(lambda x, y, z: x, name) for name in mesh.boundaries}
    assert places == pytest.approx({"in": 0.0, "out": 2.0})
    assert len(mesh.points) == 12
    assert len(mesh.facets.cells) == 14


def test_damaged_files_of_exodus(tmp_path):
    data = (DATA / "two_blocks.exo").read_bytes()
    for size in (100, 1500):
        (tmp_path / "x.exo").write_bytes(data[:size])
        with pytest.raises(MeshError, match=r"x\.exo: "):
            read_mesh(tmp_path / "x.exo")
