"""Abaqus, Nastran and SU2 files: right values of cases, and generated meshes of an independent writer."""

import warnings
from pathlib import Path

import numpy as np
import pytest

from hpfem.errors import HpfemWarning, MeshError
from hpfem.mesh import Mesh, box, read_mesh
from hpfem.mesh.io.abaqus import read_abaqus
from tests.mesh import decks
from tests.mesh.examples import BOXES, sample
from tests.samples import skewed

CASES = Path(__file__).parent / "data" / "cases"
NODES = "*NODE\n1,0,0\n2,1,0\n3,1,1\n4,0,1\n"
PLATE = NODES + "*ELEMENT, TYPE=CPS4, ELSET=PLATE\n1,1,2,3,4\n"


def size(mesh: Mesh, region: str) -> float:
    """Volume of a region of unit hexes and half-unit prisms."""
    return sum(
        {"hex": 1.0, "prism": 0.5}[group.shape.name] * np.isin(group.indices, mesh.regions[region]).sum()
        for group in mesh.cells
    )


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("A-same-elset-in-two-blocks", {"STEEL": 3}),
        ("B-first-block-without-elset", {"COPPER": 1}),
        ("C-elset-by-number-over-blocks", {"MIX": 2}),
        ("D-elset-between-blocks", {"BRICK": 2}),
        ("E-elset-of-elsets", {"H": 2, "W": 1, "ALL": 3}),
        ("F-generate", {"G": 2}),
        ("G-one-block-split-same-type", {"STEEL": 2, "W": 1}),
        ("H-same-elset-3-hexes-1-block-of-2-wedges", {"STEEL": 3}),
        ("I-same-elset-hexes-then-one-wedge", {"STEEL": 2.5, "COPPER": 0.5}),
    ],
)
def test_element_sets_over_several_tables(name: str, sizes: dict[str, float]) -> None:
    mesh = read_mesh(CASES / "abaqus-elsets" / f"{name}.inp")
    assert mesh.summary().volume == pytest.approx(3)
    assert {region: size(mesh, region) for region in mesh.regions} == sizes


@pytest.mark.parametrize("name", ["two-node-blocks", "alternating"])
def test_several_tables_of_nodes(name: str) -> None:
    mesh = read_mesh(CASES / "abaqus-nodes" / f"{name}.inp")
    assert (mesh.n_cells, mesh.points[:, 0].min(), mesh.points[:, 0].max()) == (2, 0, 4)
    assert mesh.summary().volume == pytest.approx(2)


def test_sets_of_nodes() -> None:
    plate, second = (read_abaqus((CASES / "abaqus-nsets" / name).read_bytes()) for name in ("plate.inp", "plate2.inp"))
    assert {name: rows.tolist() for name, rows in plate.point_sets.items()} == {"LEFT": [0, 3], "RIGHT": [1, 2]}
    assert {name: rows.tolist() for name, rows in second.point_sets.items()} == {"ALLN": [0, 1, 2, 3]}


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ((CASES / "abaqus-nodes" / "parts.inp").read_text(), r"several \*PART or \*INSTANCE, or one that is moved"),
        ("*PART, NAME=P\n" + PLATE + "*INSTANCE, NAME=I, PART=P\n1., 0., 0.\n", "one that is moved"),
        (PLATE.replace("*NODE", "*NODE, SYSTEM=C"), r"\*NODE: SYSTEM= is not read"),
        (PLATE.replace("*NODE", "*Node, input=nodes.txt"), r"\*NODE: INPUT= is not read"),
        ("*SYSTEM\n1.,0.,0.\n" + PLATE, r"\*SYSTEM: it is not read"),
        (PLATE + "*INCLUDE, INPUT=more.inp\n", r"\*INCLUDE: INPUT= is not read"),
        (PLATE + "*NGEN\n1, 4\n", r"line 8, \*NGEN: it is not read"),
        (PLATE + "*ASSEMBLY, NAME=A\n*ELEMENT, TYPE=CPS3\n1, 1, 2, 3\n", r"elements in \*ASSEMBLY are not read"),
        (PLATE + "*ELSET, ELSET=X, INPUT=x.txt\n", r"line 8, \*ELSET: INPUT= is not read"),
        (PLATE + "*NSET, NSET=X, INPUT=x.txt\n", r"\*NSET: INPUT= is not read"),
        (PLATE + "*SURFACE, NAME=X, INPUT=x.txt\n", r"\*SURFACE: INPUT= is not read"),
        (
            "*PART, NAME=P\n" + PLATE + "*ASSEMBLY, NAME=A\n*ELSET, ELSET=plate, INSTANCE=I\n1\n",
            r"in \*PART and in \*ASSEMBLY",
        ),
        (PLATE.replace("CPS4", "CIN3D8"), "TYPE=CIN3D8 cannot be used"),
        (PLATE.replace("CPS4", "\x07C"), r"line 6, \*ELEMENT: TYPE=C cannot be used"),
        (PLATE.replace("CPS4", "C3D27"), "TYPE=C3D27 cannot be used"),
        (PLATE.replace("1,1,2,3,4", "1,1,2,3"), "an element of TYPE=CPS4 does not have 4 nodes"),
        (PLATE + "2,1,2,3\n4,4,1,2,3\n3\n", "an element of TYPE=CPS4 does not have 4 nodes"),
        (PLATE + "*ELSET, ELSET=X\nplate, none\n", "'NONE' is used, but not defined"),
        (PLATE + "*ELSET, ELSET=X\nY\n*ELSET, ELSET=Y\nX\n", "is used, but not defined"),
        (PLATE + "*ELSET, ELSET=X, GENERATE\n1, 999999999999\n", "first, last and step were expected"),
        (PLATE + "*ELSET, ELSET=X, GENERATE\n4\n", "first, last and step were expected"),
        (PLATE + "*SURFACE, NAME=S\n1, S5\n", "element 1 of set 'S' has no side 5"),
        (PLATE.replace("1,1,2,3,4", "1,1,2,3,9"), r"element 1 \(quad\) refers to a node that does not exist"),
        (PLATE + "*NODE\n4,2,2\n", "node 4 is given twice"),
        ("** a comment\n" + NODES.replace("3,1,1", "3,1,one"), r"x.inp: line 2, \*NODE: a number was expected.*one"),
    ],
)
def test_what_abaqus_files_cannot_have_is_named(text: str, match: str, tmp_path: Path) -> None:
    (tmp_path / "x.inp").write_text(text)
    with pytest.raises(MeshError, match=match):
        read_mesh(tmp_path / "x.inp")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("*TIE, NAME=T\na, b\n", r"\*TIE is not read; what it ties together is apart"),
        ("*ELEMENT, TYPE=MASS, ELSET=M\n7, 1\n", "elements of type MASS are no cells"),
        ("*ELSET, ELSET=X\n1, 7\n", "1 elements of set 'X' are not in the mesh"),
        ("*SURFACE, NAME=S\n1, S1\n77, S1\n", "1 elements of set 'S' are not in the mesh"),
        ("*NSET, NSET=X, ELSET=PLATE\n", r"the nodes of \*NSET, ELSET='PLATE' are not read"),
        ("*SURFACE, NAME=S\nPLATE\n", r"\*SURFACE 'S': 'PLATE' has no side"),
        ("*SURFACE, NAME=S, TYPE=CYLINDER\n1.,0.\n", r"\*SURFACE 'S' of type 'CYLINDER' is not read"),
    ],
)
def test_what_is_left_out_of_abaqus_files_is_told(text: str, match: str, tmp_path: Path) -> None:
    (tmp_path / "x.inp").write_text(PLATE + text)
    with pytest.warns(HpfemWarning, match=match):
        assert read_mesh(tmp_path / "x.inp").n_cells == 1


def test_one_part_with_an_instance_that_is_not_moved(tmp_path: Path) -> None:
    (tmp_path / "x.inp").write_text(
        "*Heading\n*Part, name=Plate\n*Node\n1, 0., 0.\n2, 1., 0.D0\n3, 1.D+0, 1.\n4, , 1.\n*Element, type=S4R\n"
        "1, 1, 2, 3, 4\n*Elset, elset=Low, internal\n 1,\n*End Part\n*Assembly, name=A\n*Instance, name=Plate-1, "
        "part=Plate\n*End Instance\n*Elset, elset=_S, internal, instance=Plate-1\n 1,\n*Elset, elset=All, "
        "instance=Plate-1\n Low\n"
        "*Surface, type=ELEMENT, name=left\n_S, E4\n*Surface, type=ELEMENT, name=low\nPlate-1.Low, S1\n*End Assembly\n"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mesh = read_mesh(tmp_path / "x.inp")
    assert mesh.summary().volume == pytest.approx(1)
    assert {name: cells.tolist() for name, cells in mesh.regions.items()} == {"All": [0]}
    found = {name: decks.side_centres_of(mesh, facets).tolist() for name, facets in mesh.boundaries.items()}
    assert found == {"left": [[0, 0.5]], "low": [[0.5, 0]]}


def test_an_instance_with_its_own_nodes_and_reference_points(tmp_path: Path) -> None:
    """Numbers in sets of the assembly are those of its own nodes."""
    (tmp_path / "x.inp").write_text(
        "*Part, name=Plate\n*End Part\n*Assembly, name=A\n*Instance, name=P-1, part=Plate\n" + PLATE + "*End Instance\n"
        "*Node\n1, 5., 5.\n*Nset, nset=RP\n1\n*Nset, nset=Corner, instance=P-1\n2\n*Element, type=MASS, elset=M\n1, 1\n"
        "*Elset, elset=M2\n1\n*End Assembly\n"
    )
    with pytest.warns(HpfemWarning) as told:
        mesh = read_mesh(tmp_path / "x.inp")
    assert [str(own.message).partition("x.inp: ")[2] for own in told] == [
        "nodes of *ASSEMBLY (reference points) are not read",
        "*NSET 'RP' is of nodes or elements of *ASSEMBLY and is not read",
        "elements of type MASS are no cells and are left out",
        "*ELSET 'M2' is of nodes or elements of *ASSEMBLY and is not read",
    ]
    assert (mesh.summary().volume, list(mesh.regions), list(mesh.point_sets)) == (1, ["PLATE"], ["Corner"])
    assert mesh.points[mesh.point_sets["Corner"]].tolist() == [[1, 0]]


def test_sets_of_sets_of_sets(tmp_path: Path) -> None:
    """As many as there are, and each of the one before it twice."""
    sets = "".join(f"*ELSET, ELSET=E{n}\n{f'E{n - 1}, E{n - 1}' if n else 'PLATE'}\n" for n in range(1200))
    assert len(read_abaqus((PLATE + sets).encode()).elements[0].sets) == 1201


def test_names_in_quotes_may_have_commas() -> None:
    content = read_abaqus((PLATE + '*ELSET, ELSET="a, b"\n1\n').encode())
    assert set(content.elements[0].sets) == {"PLATE", "a, b"}


def test_beams_may_have_a_node_beside_them(tmp_path: Path) -> None:
    """It says which way their cross-section is turned."""
    text = NODES + "5,9,9\n*ELEMENT, TYPE=CPS4\n1,1,2,3,4\n*ELEMENT, TYPE=B31, ELSET=LOW\n2,1,2,5\n"
    (tmp_path / "x.inp").write_text(text + "6,9,9\n".join(["*ELEMENT, TYPE=B32, ELSET=HIGH\n", ""])[:-6] + "3,3,5,4\n")
    mesh = read_mesh(tmp_path / "x.inp")
    assert {name: decks.side_centres_of(mesh, rows).tolist() for name, rows in mesh.boundaries.items()} == {
        "LOW": [[0.5, 0]],
        "HIGH": [[0.5, 1]],
    }


@pytest.mark.parametrize("path", sorted((CASES / "nastran").glob("*.bdf")), ids=lambda path: path.stem)
def test_bulk_data(path: Path) -> None:
    mesh = read_mesh(path)
    two = "two_pids" in path.name
    assert mesh.summary().volume == pytest.approx(1 / 3 if two else 1)
    assert {name: cells.tolist() for name, cells in mesh.regions.items()} == (
        {"7": [0], "8": [1]} if two else {"7": [0]}
    )


GRID = "GRID,1,,0.,0.,0.\nGRID,2,,1.,0.,0.\nGRID,3,,1.,1.,0.\nGRID,4,,0.,1.,0.\n"


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (GRID.replace("GRID,2,,", "GRID,2,5,") + "CQUAD4,1,1,1,2,3,4\n", r"GRID 2 has CP = 5; write"),
        ("GRDSET,,5\n" + GRID + "CQUAD4,1,1,1,2,3,4\n", "GRDSET has CP = 5"),
        (GRID + "INCLUDE 'more.bdf'\n", "INCLUDE is not read"),
        (GRID + "=,*(1),=,*(1.),==\n", "= is not read"),
        (GRID + "CQUAD4,1,1,1,2,3,4\nCTRIA6,2,1,1,2,3,4\n", r"CTRIA6 2 has some of its middle nodes only"),
        (GRID + "CQUAD4,1,1,1,2,3,x\n", "CQUAD4 1: an integer was expected.*x"),
        (GRID + "CQUAD4,1,1,1,2,3\n", "CQUAD4 1: an integer was expected, not ''"),
        (GRID.replace("1.,1.", "1.,one"), "GRID 3: a number was expected.*one"),
        (GRID + "CQUAD4,1,1,1,2,3,4\nCTRIAX6,3,1,1,2,3\n", "CTRIAX6 is not read"),
        (GRID + "CQUAD4,1,1,1,2,3,4\nCQUADX,3,1,1,2,3,4\n", "CQUADX is not read"),
        (GRID + "CTRIA3,1,1,1,2,3,,,,+A\n+B,7\n", "continues no card above it"),
        ("+,7,8\n" + GRID, "continues no card above it"),
        (GRID + "CQUAD4,1,1,1,2,3,4,,,,,,\n", "more than 10 fields"),
    ],
)
def test_what_nastran_files_cannot_have_is_named(text: str, match: str, tmp_path: Path) -> None:
    (tmp_path / "x.nas").write_text(text)
    with pytest.raises(MeshError, match=match):
        read_mesh(tmp_path / "x.nas")


def test_numbers_of_fortran(tmp_path: Path) -> None:
    (tmp_path / "x.bdf").write_text(
        GRID.replace("1.,1.", "1.0d0,1.0D+0").replace("0.,1.", "0.,1+0") + "CQUAD4,1,1,1,2,3,4\n"
    )
    assert read_mesh(tmp_path / "x.bdf").summary().volume == 1


def test_unknown_cards_are_told(tmp_path: Path) -> None:
    (tmp_path / "x.bdf").write_text(
        GRID + "CQUAD4,1,1,1,2,3,4\nCONM2,5,1,,1.\nRBE2,6,1,123,2\nCORD2R,1\n"
        f"FORCE,1,2,3,4,5,6,7,8,9,10,11,12\n{'TABLED1 1':72}+A\n+B\n"
    )
    with pytest.warns(HpfemWarning, match="cards that are no cells and are not read: CONM2, RBE2$"):
        assert read_mesh(tmp_path / "x.bdf").n_cells == 1


def compare(found: Mesh, deck: decks.Deck, order: int) -> None:
    """Same cells, volume and orders."""
    want = deck.mesh.summary()
    assert found.summary().counts == want.counts
    assert set(found.summary().orders.values()) == {(order,)}
    assert found.summary().volume == pytest.approx(want.volume, rel=1e-7)
    everything = [number for _, number, _ in deck.cells]
    np.testing.assert_allclose(
        decks.centres_of(found, np.arange(found.n_cells)), decks.centres(deck, everything), atol=1e-6
    )


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", BOXES)
def test_generated_abaqus_files(name: str, order: int, tmp_path: Path) -> None:
    rng = np.random.default_rng([len(name), order])
    mesh = skewed(box(*BOXES[name])) if order == 2 else sample(name)
    deck = decks.numbered(mesh, order, rng)
    (tmp_path / "x.inp").write_text(decks.abaqus(deck, rng))
    found = read_mesh(tmp_path / "x.inp")
    compare(found, deck, order)
    assert {region.upper() for region in found.regions} == {"LEFT", "RIGHT-1", "MID"}
    names = {region.upper(): region for region in found.regions}
    for region, cells in deck.regions.items():
        np.testing.assert_allclose(
            decks.centres_of(found, found.regions[names[region.upper()]]), decks.centres(deck, cells), atol=1e-6
        )
    # Sets of nodes too are boundaries, of the sides that they cover.
    assert set(found.boundaries) - set(found.point_sets) == {"hot", "COLD"}
    for side in ("hot", "COLD"):
        np.testing.assert_allclose(
            decks.side_centres_of(found, found.boundaries[side]), decks.side_centres(deck, side), atol=1e-6
        )
    pins = read_abaqus((tmp_path / "x.inp").read_bytes())
    row = {int(own): place for place, own in enumerate(deck.node_ids)}
    want = deck.points[[row[own] for own in deck.points_of["pins"]]]
    np.testing.assert_allclose(np.sort(pins.points[pins.point_sets["pins"]], axis=0), np.sort(want, axis=0))


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", BOXES)
def test_generated_nastran_files(name: str, order: int, tmp_path: Path) -> None:
    rng = np.random.default_rng([len(name), order, 1])
    mesh = skewed(box(*BOXES[name])) if order == 2 else sample(name)
    deck = decks.numbered(mesh, order, rng, decks.NASTRAN_EDGES)
    (tmp_path / "x.bdf").write_text(decks.nastran(deck, rng))
    found = read_mesh(tmp_path / "x.bdf")
    compare(found, deck, order)
    first = deck.regions["Left"]
    want = {"3": first, "12": [number for _, number, _ in deck.cells if number not in first]}
    assert set(found.regions) == {region for region, cells in want.items() if cells}
    for region, cells in found.regions.items():
        np.testing.assert_allclose(decks.centres_of(found, cells), decks.centres(deck, want[region]), atol=1e-6)


@pytest.mark.parametrize("name", BOXES)
def test_generated_su2_files(name: str, tmp_path: Path) -> None:
    rng = np.random.default_rng([len(name), 2])
    deck = decks.numbered(sample(name), 1, rng)
    (tmp_path / "x.su2").write_text(decks.su2(deck, rng))
    found = read_mesh(tmp_path / "x.su2")
    compare(found, deck, 1)
    assert (found.regions, set(found.boundaries)) == ({}, {"hot", "COLD"})
    for side, facets in found.boundaries.items():
        np.testing.assert_allclose(decks.side_centres_of(found, facets), decks.side_centres(deck, side), atol=1e-6)


def test_markers_of_su2() -> None:
    mesh = read_mesh(CASES / "duct.su2")
    assert {name: len(facets) for name, facets in mesh.boundaries.items()} == {"wall": 2, "inlet": 1, "outlet": 1}
    assert mesh.summary().volume == pytest.approx(3)


def test_markers_with_spaces(tmp_path: Path) -> None:
    (tmp_path / "x.su2").write_text(SQUARE + "NMARK= 2\n" + MARKER + MARKER.replace("wall", "upper  wall"))
    assert set(read_mesh(tmp_path / "x.su2").boundaries) == {"wall", "upper wall"}


MARKER = "MARKER_TAG= wall\nMARKER_ELEMS= 1\n3 0 1\n"
SQUARE = "NDIME= 2\nNELEM= 1\n9 0 1 2 3\nNPOIN= 4\n0 0\n1 0\n1 1\n0 1\n"


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("NZONE= 2\n" + SQUARE, "several zones are not read"),
        (SQUARE + SQUARE, "several zones are not read"),
        (SQUARE.replace("NPOIN= 4", "NPOIN= 5"), "line 4, NPOIN= 5: 4 lines follow"),
        (SQUARE.replace("NELEM= 1", "NELEM= 2"), "NELEM= 2: 1 lines follow"),
        (SQUARE.replace("9 0 1 2 3", "7 0 1 2 3"), "element 1 of VTK type 7 has 4 numbers, not its nodes"),
        (SQUARE.replace("9 0 1 2 3", "9 0 1 2"), "element 1 of VTK type 9 has 3 numbers, not its nodes"),
        (SQUARE.replace("NDIME= 2", "NDIME= 3"), r"points of 3 coordinates \(NDIME\) were expected"),
        (SQUARE.replace("1 1\n", "1 1 7\n"), "points of 2 coordinates"),
        ("NDIME= 2\nNELEM= 1\n9 0 1 2 3\nNPOIN= 4\n0 0 3\n1 0 2\n1 1 1\n0 1 0\n", "do not count from 0"),
        ("NDIME= 2\nNELEM= 1\n9 0 1 2 3\n", "the file has no points"),
        (SQUARE + "NELEM= 1\n9 0 1 2 3\n", "several zones are not read"),
        (SQUARE + "NMARK= 2\n" + MARKER, "NMARK= 2, but 1 markers with elements follow"),
        (SQUARE + "NMARK= 2\nMARKER_TAG= hot\n" + MARKER, "NMARK= 2, but 1 markers with elements follow"),
        (SQUARE + MARKER.partition("\n")[2], "line 9, MARKER_ELEMS= 1: there is no MARKER_TAG= above"),
        (SQUARE.replace("1 1\n", "1 one\n"), "line 4, NPOIN= 4: a number was expected.*one"),
    ],
)
def test_what_su2_files_cannot_have_is_named(text: str, match: str, tmp_path: Path) -> None:
    (tmp_path / "x.su2").write_text(text)
    with pytest.raises(MeshError, match=match):
        read_mesh(tmp_path / "x.su2")
