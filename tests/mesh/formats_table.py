"""The tables of docs/formats.md: what comes of a small file for each of their cells.

    python -m tests.mesh.formats_table

writes the tables into the page, from files that it writes and reads. Needs gmsh (extra `mesh`).
"""

import os
import re
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hpfem.errors import HpfemWarning, MeshError
from hpfem.mesh import Mesh, read_mesh
from hpfem.mesh.io import library_process, other_formats
from tests.mesh import decks
from tests.mesh import format_files as files
from tests.mesh.format_files import DATA, DATA_NAME, ORDERS, PINS, SIDES, case
from tests.mesh.test_netgen import VOLUMES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "formats.md"
SHAPES = ("tri", "quad", "tet", "pyramid", "prism", "hex")
NAMES = ("regions", "boundaries", "points", "other integers")
HEADS = (
    ("Format", "Suffix", *(f"Order {order}" for order in ORDERS), "Needs"),
    ("Format", *(name.capitalize() for name in NAMES)),
)
BEGIN, END = "<!-- the tables, by python -m tests.mesh.formats_table -->", "<!-- end of the tables -->"
# Recorded files: a mesh of one or more shapes, and its volume.
RECORDED = {
    "netgen": {
        ("2, complete" if name in ("tri", "tet") else "2, serendipity", name): (f"netgen_{name}.vol", VOLUMES.get(name))
        for name in SHAPES
    },
    "MFEM": {
        (f"{order}, complete" if order == 2 else str(order), name): (f"mfem_{box}_H1_{dim}D_P{order}.mesh", 1.0)
        for order in (2, 3)
        for box, dim, names in (("flat", 2, SHAPES[:2]), ("solid", 3, SHAPES[2:]))
        for name in names
    },
}


@dataclass(frozen=True)
class Format:
    """A row: name, suffix, writer, the cells that the format has by order and shape, and the names that it has.

    `needs` is what must be installed; `refused` a pattern of the messages where cells or names are refused,
    `lost` what a warning says of names that are not read.
    """

    name: str
    suffix: str
    write: Callable[..., None]
    cells: dict[str, dict[str, object]]
    names: tuple[str, ...] = ()
    needs: str = ""
    refused: str = r"(?!)"
    lost: str = "each name"


def _cells(*columns: str | dict[str, object]) -> dict[str, dict[str, object]]:
    """Names of cells, by order: words in the order of SHAPES, a dash for none."""
    result = {}
    for order, column in zip(ORDERS, columns):
        own = dict(zip(SHAPES, column.split())) if isinstance(column, str) else column
        result[order] = {shape: kind for shape, kind in own.items() if kind != "-"}
    return result


def _numbers(*columns: str) -> dict[str, dict[str, object]]:
    return {order: {k: int(v) for k, v in own.items()} for order, own in _cells(*columns).items()}


_MSH = _numbers("2 3 4 7 6 5", "- 16 - 19 18 17", "9 10 11 14 13 12", "21 36 29 118 90 92")
_VTK = _numbers("5 9 10 14 13 12", "- 23 - 27 26 25", "22 28 24 - 32 29", "69 70 71 - 73 72")
_VTK["2, complete"]["pyramid"], _VTK["3"]["pyramid"] = (37, 19), (74, 30)
_FLAT = {"tri": 0, "quad": 0}
_ALL = ("regions", "boundaries", "points")
_VTK_NAMES = ("regions", "boundaries", "other integers")
_MESHIO = "triangle quad tetra pyramid wedge hexahedron"
FORMATS = [
    Format("MSH 4.1", ".msh", files.msh("4.1"), _MSH, _ALL),
    Format("MSH 2.2", ".msh", files.msh("2.2"), _MSH, _ALL),
    Format("MSH 4.0", ".msh", files.msh("4.0"), _MSH, _ALL, "gmsh"),
    Format("MSH 1", ".msh", files.msh("1"), _MSH, _ALL, "gmsh"),
    Format("VTK, XML: unstructured grid", ".vtu", files.vtk_file("vtkXMLUnstructuredGridWriter"), _VTK, _VTK_NAMES,
        refused="VTK type 37 .19-node pyramid|Lagrange pyramid"),
    Format("VTK, XML: pieces", ".pvtu", files.pvtu, _VTK, _VTK_NAMES,
        refused="VTK type 37 .19-node pyramid|Lagrange pyramid"),
    Format("VTK, legacy: unstructured grid", ".vtk", files.vtk_file("vtkUnstructuredGridWriter"), _VTK, _VTK_NAMES,
        refused="VTK type 37 .19-node pyramid|Lagrange pyramid"),
    Format("VTK: polygons", ".vtp", files.vtk_file("vtkXMLPolyDataWriter"),
        {"1": dict.fromkeys(_FLAT, files.poly_data)}, _VTK_NAMES, "VTK"),
    Format("VTK, legacy: polygons", ".vtk", files.vtk_file("vtkPolyDataWriter"),
        {"1": dict.fromkeys(_FLAT, files.poly_data)}, _VTK_NAMES, "VTK"),
    Format("VTK: structured grid", ".vts", files.vtk_file("vtkXMLStructuredGridWriter"),
        {"1": dict.fromkeys(("quad", "hex"), files.structured)}, ("regions", "other integers"), "VTK"),
    Format("VTK, legacy: structured grid", ".vtk", files.vtk_file("vtkStructuredGridWriter"),
        {"1": dict.fromkeys(("quad", "hex"), files.structured)}, ("regions", "other integers"), "VTK"),
    Format("XDMF", ".xdmf", files.xdmf, _cells("Triangle Quadrilateral Tetrahedron Pyramid Wedge Hexahedron",
        "- Quadrilateral_8 - Pyramid_13 Wedge_15 Hexahedron_20",
        "Triangle_6 Quadrilateral_9 Tetrahedron_10 - Wedge_18 Hexahedron_27", "- - - - - Hexahedron_64"),
        ("other integers",), refused="hexahedron64"),
    Format("Abaqus", ".inp", files.abaqus,
        _cells("S3 S4 C3D4 C3D5 C3D6 C3D8", "- S8R - C3D13 C3D15 C3D20", "STRI65 S9R5 C3D10 - C3D18 C3D27"), _ALL,
        refused="TYPE=[A-Z0-9]* cannot be used"),
    Format("Nastran", ".bdf", files.nastran, _cells("CTRIA3 CQUAD4 CTETRA CPYRAM CPENTA CHEXA",
        "- CQUAD8 - CPYRAM CPENTA CHEXA", "CTRIA6 - CTETRA - - -"), ("regions",)),
    Format("SU2", ".su2", files.su2, _numbers("5 9 10 14 13 12", "- 23 - 27 26 25", "22 - 24 - - -"), ("boundaries",)),
    Format("MED", ".med", files.med, _cells("TR3 QU4 TE4 PY5 PE6 HE8", "- QU8 - P13 P15 H20", "TR6 QU9 T10 - P18 H27"),
        _ALL, "h5py", "its reader does not know '(QU9|P18|H27)'"),
    Format("Exodus", ".exo", files.exodus, _cells("TRI3 QUAD4 TETRA4 PYRAMID5 WEDGE6 HEX8",
        "- QUAD8 - PYRAMID13 WEDGE15 HEX20", "TRI6 QUAD9 TETRA10 PYRAMID14 WEDGE18 HEX27"), _ALL, "VTK",
        "of the nodes of its elements 60 are read, but the file has 168"),
    Format("CGNS", ".cgns", files.by_gmsh,
        _numbers("2 3 4 7 6 5", "- 16 - - 18 17", "9 10 11 14 13 12", "21 36 29 118 - 92"), _ALL, "gmsh"),
    Format("UNV", ".unv", files.unv, _numbers("41 44 111 - 112 115", "- 45 - - 113 116", "42 - 118 - - -"), _ALL,
        "gmsh"),
    Format("netgen", ".vol", files.netgen, _cells("3 4 4 5 6 8", "- 6 - 13 12 20", "6 - 10 - - -"),
        ("regions", "boundaries"), refused="of a kind that cannot be used: 12"),
    Format("MFEM", ".mesh", files.mfem, _numbers("0 0 0 0 0 0", "- - - - - -", "0 0 0 0 0 0", "0 0 0 0 0 0"),
        ("regions", "boundaries")),
    Format("Medit", ".mesh", files.medit, _cells("Triangles Quadrilaterals Tetrahedra Pyramids Prisms Hexahedra", "",
        "TrianglesP2 QuadrilateralsQ2 TetrahedraP2 PyramidsP2 PrismsP2 HexahedraQ2"), ("regions", "boundaries"),
        refused="second-order cells of medit are not read: [A-Za-z]+[PQ]2$"),
    Format("AVS UCD", ".avs", files.avs, _cells("tri quad tet pyr prism hex"), _VTK_NAMES),
    Format("Tecplot", ".tec", files.tecplot, _cells("FETRIANGLE FEQUADRILATERAL FETETRAHEDRON FEBRICK FEBRICK FEBRICK"),
        ("other integers",), refused="the same node twice"),
    Format("FLAC3D", ".f3grid", files.flac3d, _cells("T3 Q4 T4 P5 W6 B8"), ("regions", "boundaries")),
    Format("UGRID", ".ugrid", files.ugrid, _cells("tri quad tet pyramid prism hex"), ("boundaries",)),
    Format("TetGen", ".ele", files.tetgen, _cells("- - tet - - -", "", "- - tet - - -"), ("regions", "boundaries"),
        refused="second-order cells of tetgen are not read: 10$", lost="(.face, .edge) of tetgen are not read"),
    Format("STL", ".stl", files.stl, {"1": {"tri": 0}}, ("regions",)),
    Format("PLY", ".ply", files.ply, {"1": _FLAT}),
    Format("OBJ", ".obj", files.obj, {"1": _FLAT}, ("regions",)),
    Format("OFF", ".off", files.off, {"1": _FLAT}, refused="Can only read triangular faces"),
    Format("PERMAS", ".post", files.permas,
        _cells("TRIA3 QUAD4 TET4 PYRA5 PENTA6 HEXE8", "- QUAMS8 - - PENTA15 HEXE20", "TRIMS6 - TET10 - - -"),
        ("regions", "points"),
        refused="second-order cells of permas are not read: [A-Z0-9]+$|ESET not found in ESET NAME=LEFT"),
    Format("Kratos", ".mdpa", files.mdpa, _cells("Triangle2D3 Quadrilateral2D4 Tetrahedra3D4 - Prism3D6 Hexahedra3D8",
        "- Quadrilateral2D8 - - - Hexahedra3D20", "Triangle2D6 Quadrilateral2D9 Tetrahedra3D10 - - Hexahedra3D27"),
        ("regions",), refused="tangled.*it is fine if its nodes are in the order 'cgns', not in that of the format$"),
    Format("DOLFIN", ".xml", files.dolfin, {"1": {"tri": "triangle", "tet": "tetrahedron"}}),
    Format("WKT", ".wkt", files.wkt, {"1": {"tri": 0}}),
    Format("MOAB", ".h5m", files.by_meshio("h5m"), {"1": {"tri": "triangle", "tet": "tetra"}}, (), "h5py"),
    Format("HMF", ".hmf", files.by_meshio("hmf"), _cells(_MESHIO), ("other integers",), "h5py"),
]  # fmt: skip


@contextmanager
def quick() -> Iterator[None]:
    """Readers of libraries in forks of this process, which need not import them anew."""
    import meshio
    import meshio._cli  # noqa: F401

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            child = os.fork()
            if child == 0:
                status = 1
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                try:
                    library_process._main(*command[2:])
                    status = 0
                except BaseException as error:  # noqa: BLE001
                    os.write(2, f"{error}\n".encode())
                finally:
                    os._exit(status)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(command, status, out.read(), err.read())

    other_formats.subprocess = SimpleNamespace(**{**vars(subprocess), "run": run})
    try:
        yield
    finally:
        other_formats.subprocess = subprocess


def read(path: Path, **arguments) -> tuple[Mesh, str]:
    """The mesh and what is said."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        mesh = read_mesh(path, **arguments)
    return mesh, " ".join(str(own.message) for own in told if issubclass(own.category, HpfemWarning))


def geometry(row: Format, order: str, shape: str, folder: Path) -> str:
    """What comes of cells: "read", "warns" or "refused"; an error if they are wrong."""
    recorded = RECORDED.get(row.name, {}).get((order, shape))
    want = case(shape, order)
    if recorded is None:
        path, volume = folder / f"x{row.suffix}", want.mesh.summary().volume
        row.write(path, want, row.cells[order][shape], False)
    else:
        path, volume = DATA / recorded[0], recorded[1]
    try:
        mesh, told = read(path)
    except MeshError as error:
        if not re.search(row.refused, str(error)):
            raise
        return "refused"
    found = mesh.summary()
    assert found.orders[shape] == (int(order[0]),)
    assert found.volume == pytest.approx(volume, rel=1e-7)
    if recorded is None:
        everything = np.arange(want.mesh.n_cells)
        assert found.counts == want.mesh.summary().counts
        centres = decks.centres_of(mesh, everything)[:, : want.mesh.dim]
        np.testing.assert_allclose(centres, decks.centres_of(want.mesh, everything), atol=1e-6)
    return "warns" if told else "read"


def cells(row: Format, order: str, folder: Path) -> str:
    """A cell of the first table: the shapes that are read, and those that are not."""
    found: dict[str, list[str]] = {"read": [], "warns": [], "refused": []}
    for shape in row.cells.get(order, {}):
        found[geometry(row, order, shape, folder)].append(shape)
    parts = []
    for outcome, shapes in found.items():
        which = "all" if len(shapes) == (4 if "serendipity" in order else 6) else ", ".join(shapes)
        parts += [which if outcome == "read" else f"{outcome}: {which}"] if shapes else []
    return "; ".join(parts) or "–"


def names(row: Format, folder: Path) -> list[str]:
    """A row of the second table: "names", "numbers", "warns", "refused" or "regions="; an error if they are lost."""
    if not row.names:
        return ["–"] * len(NAMES)
    shape = next(shape for shape in ("hex", "tet", "quad", "tri") if shape in row.cells["1"])
    path, want = folder / f"x{row.suffix}", case(shape, "1")
    row.write(path, want, row.cells["1"][shape], True)
    try:
        mesh, told = read(path)
    except MeshError as error:
        if not re.search(row.refused, str(error)):
            raise
        return ["refused" if what in row.names else "–" for what in NAMES]
    wanted = {
        "regions": (want.regions, mesh.regions, decks.centres_of),
        "boundaries": ({k: want.mesh.boundaries[v] for k, v in SIDES.items()}, mesh.boundaries, decks.side_centres_of),
        "points": ({PINS: want.pins}, mesh.point_sets, lambda own, rows: sorted(own.points[rows].round(7).tolist())),
    }
    result = [named(row, told, *wanted[what], want.mesh, mesh) if what in row.names else "–" for what in wanted]
    if NAMES[-1] not in row.names:
        return [*result, "–"]
    assert f"{DATA_NAME!r}" in told
    groups = {str(number): np.flatnonzero(want.grade == number) for number in np.unique(want.grade)}
    assert same(groups, read(path, regions=DATA_NAME)[0].regions, decks.centres_of, want.mesh, mesh) == [*groups]
    return [*result, "`regions=`"]


def named(row: Format, told: str, wanted: dict, found: dict, places: Callable, mesh: Mesh, other: Mesh) -> str:
    """What comes of sets."""
    known = same(wanted, found, places, mesh, other)
    if known is None:
        assert row.lost in told or all(name in told for name in wanted), f"{[*wanted]} are lost; {[*found]}; {told}"
        return "warns"
    if all(own in name for own, name in zip(wanted, known)):
        return "names"
    assert all(re.fullmatch(r"\d+", name) for name in known)
    return "numbers"


def same(wanted: dict, found: dict, places: Callable, mesh: Mesh, other: Mesh) -> list[str] | None:
    """Names of the sets that are at the places of those that are wanted; None if there is one without."""
    result = []
    for members in wanted.values():
        here = places(mesh, members)
        for name, own in found.items():
            if len(own) == len(members) and np.allclose(np.array(places(other, own))[:, : mesh.dim], here, atol=1e-6):
                result.append(name)
                break
    return result if len(result) == len(wanted) else None


def table(head: tuple[str, ...], rows: list[list[str]]) -> str:
    """A table of the page."""
    return "".join("| " + " | ".join(row) + " |\n" for row in [list(head), ["---"] * len(head), *rows])


def main() -> None:
    """Write the tables into the page."""
    first, second = [], []
    with quick():
        for row in FORMATS:
            with tempfile.TemporaryDirectory() as folder:
                name = [row.name, f"`{row.suffix}`"]
                first.append([*name, *(cells(row, order, Path(folder)) for order in ORDERS), row.needs or "–"])
                second.append([*name[:1], *names(row, Path(folder))])
            print(*first[-1], *second[-1][1:], sep=" | ", flush=True)
    text = table(HEADS[0], first) + "\n" + table(HEADS[1], second)
    page = PAGE.read_text(encoding="utf-8")
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
