"""Netgen's format .vol: cells, node orders, names; damaged files."""

from pathlib import Path

import numpy as np
import pytest

import hpfem as hp
from hpfem.errors import HpfemWarning, MeshError
from hpfem.mesh import Mesh, read_mesh
from tests.mesh.test_fuzz import fuzz

DATA = Path(__file__).with_name("data")
CASES = DATA / "cases" / "netgen"
VOLUMES = {"tri": 1 / 2, "quad": 1.0, "tet": 1 / 6, "pyramid": 1 / 3, "hex": 1.0}


ROUGH = {"left": 1, "floor": 2, "ring": 1.553, "right": 1, "roof": 2}


def sizes(mesh: Mesh) -> dict[str, float]:
    """Volumes of the regions and areas of the boundaries."""
    space = hp.Space(mesh, 2)
    inside = {name: hp.by_region(space, {name: 1.0}, elsewhere=0.0) for name in mesh.regions}
    result = {name: space.integrate(space.evaluate(values)) for name, values in inside.items()}
    return result | {name: space.integrate_boundary(1.0, name) for name in mesh.boundaries}


def test_straight_cells_and_names():
    found = sizes(read_mesh(CASES / "straight.vol"))
    assert found == pytest.approx({"fluid": 1.8125, "rod": 0.1875} | ROUGH, rel=2e-4)


def test_second_order_cells_are_on_the_circle():
    found = sizes(read_mesh(CASES / "second.vol"))
    area = np.pi / 16  # of the rod, of radius 1/4
    assert found == pytest.approx({"fluid": 2 - area, "rod": area} | ROUGH | {"ring": np.pi / 2}, rel=3e-4)


def test_sides_of_a_solid_are_boundaries():
    assert sizes(read_mesh(CASES / "box.vol")) == pytest.approx({"block": 1, "base": 1, "default": 5})


@pytest.mark.parametrize("shape", VOLUMES)
def test_node_order_of_second_order_cells(shape):
    summary = read_mesh(DATA / f"netgen_{shape}.vol").summary()
    assert (summary.counts, summary.orders) == ({shape: 1}, {shape: (2,)})
    assert summary.volume == pytest.approx(VOLUMES[shape], rel=1e-12)
    assert summary.worst_scaled_jacobian > 0.3


def vol(dim: int, **sections: str) -> str:
    """A file; the content of each section without its count, rows divided by semicolons."""
    parts = [f"mesh3d\ndimension\n{dim}\ngeomtype\n0\n"]
    for name, rows in sections.items():
        lines = rows.split(";")
        parts.append(f"\n# columns\n{name}\n{len(lines)}\n" + "\n".join(lines) + "\n")
    return "".join(parts) + "\nendmesh\n"


SQUARE = "0 0 0;1 0 0;1 1 0;0 1 0;2 0 0;2 1 0"
SEGMENTS = {
    "edgesegments": "1 0 4 1;2 0 5 6",
    "edgesegmentsgi": "1 0 4 1 -1 -1;2 0 5 6 -1 -1",
    "edgesegmentsgi2": "1 0 4 1 -1 -1 1 0 1 0.5 1 0;2 0 5 6 -1 -1 1 0 1 0.5 1 0",
    "edgesegmentsgi3": "4 1 -1 -1 0 0.5 0;5 6 -1 -1 0 1.5 1",
}
SURFACES = {
    "surfaceelements": "1 1 0 0 4 1 2 3 4;2 2 0 0 3 2 5 6;2 2 0 0 3 2 6 3",
    "surfaceelementsgi": "1 1 0 0 4 1 2 3 4 9 9 9 9;2 2 0 0 3 2 5 6 9 9 9;2 2 0 0 3 2 6 3 9 9 9",
    "surfaceelementsuv": "1 1 0 0 4 1 2 3 4 0 0 1 0 1 1 0 1;2 2 0 0 3 2 5 6 0 0 .5 0 0 1;2 2 0 0 3 2 6 3 0 0 1 0 0 1",
}


@pytest.mark.parametrize("segments", SEGMENTS)
@pytest.mark.parametrize("surfaces", SURFACES)
def test_sections_of_all_versions(surfaces, segments, tmp_path):
    names = {"materials": "1 copper wire;2 steel", "bcnames": "1\tin;2\tout"}
    if segments == "edgesegmentsgi3":
        names["edgedescriptors"] = "1 1 0 0.0 0.0 -1 1 0 in;2 2 0 0.0 0.0 -1 2 0 out"
    text = vol(2, **{surfaces: SURFACES[surfaces], segments: SEGMENTS[segments], "points": SQUARE}, **names)
    (tmp_path / "x.vol").write_text(text)
    assert sizes(read_mesh(tmp_path / "x.vol")) == pytest.approx({"copper wire": 1, "steel": 1, "in": 1, "out": 1})


def test_regions_of_the_plane_are_numbered_as_faces(tmp_path):
    """As netgen reads it: names of materials belong to positions of face descriptors, not to their boundary number."""
    faces = "0 0 0 -1 7;1 0 0 -1 5"
    cells = "1 7 0 0 4 1 2 3 4;2 5 0 0 4 2 5 6 3"
    text = vol(2, facedescriptors=faces, surfaceelements=cells, points=SQUARE.replace("2 ", "4 "), materials="1 a;2 b")
    (tmp_path / "x.vol").write_text(text)
    assert sizes(read_mesh(tmp_path / "x.vol")) == pytest.approx({"a": 1, "b": 3})


def test_periodic_sides(tmp_path):
    text = vol(
        2,
        surfaceelements="1 1 0 0 4 1 2 3 4;1 1 0 0 4 2 5 6 3;1 1 0 0 4 5 7 8 6",
        points=SQUARE + ";3 0 0;3 1 0",
        identifications="1 7 2;4 8 2;1 4 1",
        identificationtypes="1;2",
        identificationnames="points;left",
    )
    (tmp_path / "x.vol").write_text(text)
    assert len(read_mesh(tmp_path / "x.vol", periodic=True).facets.cells) == 9
    assert len(read_mesh(tmp_path / "x.vol").facets.cells) == 10


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (("dimension\n2", "dimension\n7"), "section dimension: 2 or 3 was expected, not 7"),
        (("endmesh", ""), "cut short: there is no line endmesh"),
        (("points\n6", "points\n7"), "section points: 7 rows are announced"),
        (("points\n6", "knots\n6"), "there is no section points"),
        (("2 2 0 0 3 2 6 3", "2 2 0 0 3 2 6"), "section surfaceelements: 3.0 rows are announced"),
        (("2 2 0 0 3 2 6 3", "2 2 0 0 5 2 6 3 1 1"), "element 3 is of a kind that cannot be used: 5"),
        (("2 2 0 0 3 2 6 3", "2 2 0 0 3 2 6 9"), r"element 3 \(tri\) refers to a node that does not exist"),
        (("2 2 0 0 3 2 6 3", "2 2 0 0 3 2 6 nan"), "section surfaceelements"),
        (("0 1 0", "0 inf 0"), "coordinate|finite"),
        (("endmesh", "curvedelements\n1 2\nendmesh"), r"section curvedelements: .*SecondOrder\(\) in netgen"),
        (("endmesh", "materials\n2\n1 a\nendmesh"), "section materials: '2' rows are announced, 1 found"),
    ],
)
def test_what_cannot_be_read_is_named(change, match, tmp_path):
    text = vol(2, points=SQUARE, surfaceelements=SURFACES["surfaceelements"])
    (tmp_path / "x.vol").write_text(text.replace(*change))
    with pytest.raises(MeshError, match=match):
        read_mesh(tmp_path / "x.vol")


def test_prisms_that_are_of_second_order_in_a_plane_only_are_refused():
    with pytest.raises(MeshError, match="element 1 is of a kind that cannot be used: 12"):
        read_mesh(DATA / "netgen_prism.vol")


def test_sections_that_are_not_known_are_told(tmp_path):
    sections = {"points": SQUARE, "surfaceelements": "1 1 0 0 4 1 2 3 4", "singular_edge_left": "1 1"}
    (tmp_path / "x.vol").write_text(vol(2, novelties="1;2", **sections))
    with pytest.warns(HpfemWarning, match="section 'novelties' is not known and left out") as told:
        read_mesh(tmp_path / "x.vol")
    assert len(told) == 1


def test_damaged_files(tmp_path):
    files = {path.name: path.read_bytes() for path in (*CASES.glob("straight.vol"), *DATA.glob("netgen_[th]*.vol"))}
    read, refused = fuzz(files, tmp_path, 30)
    assert read > 10
    assert refused > 30
