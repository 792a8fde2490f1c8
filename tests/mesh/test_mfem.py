"""MFEM's format .mesh: straight files written here, curved ones written by MFEM; what is refused; damaged files."""

from pathlib import Path

import numpy as np
import pytest

import hpfem as hp
from hpfem.errors import HpfemWarning, MeshError
from hpfem.mesh import Mesh, read_mesh
from hpfem.mesh.node_order import gmsh_nodes, permutation
from hpfem.shapes import equispaced_nodes
from tests.mesh.examples import BOXES, flux, sample, scrambled
from tests.mesh.test_fuzz import fuzz

DATA = Path(__file__).with_name("data")
GEOMETRIES = {"segment": 1, "tri": 2, "quad": 3, "tet": 4, "hex": 5, "prism": 6, "pyramid": 7}
CURVED = sorted(path.name for path in DATA.glob("mfem_*.mesh"))


def bent(x: np.ndarray, degree: int, sign: float = 1.0) -> np.ndarray:
    """A map of degree 2 or 3 that keeps volumes; its inverse for the other sign."""
    result = x.copy()
    result[:, 1] += sign * (0.3 * x[:, 0] ** 2 + (0.2 * x[:, 0] ** 3 if degree > 2 else 0))
    return result


def mfem_text(mesh: Mesh, version: str = "1.0", tail: str = "") -> str:
    """A straight mesh as a file; regions and boundaries have the numbers of their order, from 1."""
    cells: list[str] = []
    for group in mesh.cells:
        order = permutation(equispaced_nodes(group.shape, 1), gmsh_nodes(group.shape, 1), 1)
        for number, nodes in zip(group.indices, group.nodes[:, order].tolist(), strict=True):
            tag = next((k for k, rows in enumerate(mesh.regions.values(), 1) if number in rows), 9)
            cells.append(f"{tag} {GEOMETRIES[group.shape.name]} {' '.join(map(str, nodes))}")
    sides = []
    for tag, (_, pairs) in enumerate(mesh.boundary_sides.items(), 1):
        for cell, local in pairs:
            group = next(own for own in mesh.cells if cell in own.indices)
            corners = group.corners[np.flatnonzero(group.indices == cell)[0]]
            facet = corners[list(group.shape.facets[local].vertices)].tolist()
            if len(facet) == 4:
                facet[2], facet[3] = facet[3], facet[2]
            sides.append(f"{tag} {len(facet) - 1 if mesh.dim == 3 else 1} {' '.join(map(str, facet))}")
    points = "\n".join(" ".join(f"{x:.17g}" for x in point) for point in mesh.points)
    return (
        f"MFEM mesh v{version}\n\n# geometries\n\ndimension\n{mesh.dim}\n\nelements\n{len(cells)}\n"
        + "\n".join(cells)
        + f"\n{tail}\nboundary\n{len(sides)}\n"
        + "\n".join(sides)
        + f"\n\nvertices\n{len(mesh.points)}\n{mesh.points.shape[1]}\n{points}\n"
        + ("\nmfem_mesh_end\n" if version == "1.3" else "")
    )


@pytest.mark.parametrize("name", BOXES)
def test_straight_cells(name, tmp_path):
    mesh = scrambled(sample(name), np.random.default_rng(3))
    (tmp_path / "x.mesh").write_text(mfem_text(mesh))
    found = read_mesh(tmp_path / "x.mesh")
    assert found.summary().counts == mesh.summary().counts
    assert found.summary().volume == pytest.approx(mesh.summary().volume, rel=1e-12)
    assert flux(found) == pytest.approx(flux(mesh), rel=1e-9)
    for mine, theirs in ((found.regions, mesh.regions), (found.boundaries, mesh.boundaries)):
        assert [len(mine[str(k)]) for k in range(1, len(theirs) + 1)] == [len(rows) for rows in theirs.values()]


@pytest.mark.parametrize("name", CURVED)
def test_curved_cells(name):
    """Without the bend all cells are affine: so each node is at its place."""
    mesh = read_mesh(DATA / name)
    order = {"Cubic": 3, "Quadratic": 2}.get(Path(name).stem.split("_")[-1]) or int(name[-6])
    summary = mesh.summary()
    assert set(summary.orders.values()) == {(order,)}
    assert len(summary.counts) == {"flat": 2, "solid": 4, "prisms": 2, "hexes": 1, "tets": 1}[name.split("_")[1]]
    straight = mesh.transformed(lambda x: bent(x, mesh.dim, -1.0), check=False)
    if order >= mesh.dim:
        assert straight.summary().affine_share == 1
        assert summary.volume == pytest.approx(1, rel=1e-9)
    assert sum(len(facets) for facets in mesh.boundaries.values()) == np.count_nonzero(mesh.facets.cells[:, 1] < 0)


def test_attribute_sets_are_names(tmp_path):
    mesh = hp.box("quad", (2, 1))
    tail = 'attribute_sets\n1\n"all of it" 2 1 9\n\nbdr_attribute_sets\n1\n"sides" 2 1 2\n'
    (tmp_path / "x.mesh").write_text(mfem_text(mesh, "1.3", tail))
    found = read_mesh(tmp_path / "x.mesh")
    assert found.regions["all of it"].tolist() == [0, 1]
    assert found.boundaries["sides"].tolist() == sorted([*found.boundaries["1"], *found.boundaries["2"]])


@pytest.mark.parametrize(
    ("tail", "match"),
    [
        ('attribute_sets\n2\n"x" 1 9\n"y" foo\n', "section attribute_sets: 2 rows are announced, 1 found"),
        ("attribute_sets\n", "section attribute_sets:  rows are announced, 0 found"),
        ('bdr_attribute_sets\n1\n"x" 2 9\n', "section bdr_attribute_sets: 'x' has 1 numbers instead of 2"),
    ],
)
def test_damaged_names_are_refused(tail, match, tmp_path):
    (tmp_path / "x.mesh").write_text(mfem_text(hp.box("quad", (2, 1)), "1.3", tail))
    with pytest.raises(MeshError, match=match):
        read_mesh(tmp_path / "x.mesh")


@pytest.mark.parametrize(
    ("tail", "match"),
    [
        ('attribute_sets\n1\n"x" 1 77\n', "attribute_sets 'x' has no elements"),
        ("novelties\n1\n", "section 'novelties' is not known and left out"),
    ],
)
def test_what_is_left_out_is_told(tail, match, tmp_path):
    (tmp_path / "x.mesh").write_text(mfem_text(hp.box("quad", (2, 1)), "1.3", tail))
    with pytest.warns(HpfemWarning, match=match):
        assert read_mesh(tmp_path / "x.mesh").n_cells == 2


def test_medit_has_the_same_suffix(tmp_path):
    (tmp_path / "x.mesh").write_text("garbage")
    with pytest.raises(MeshError, match="meshio cannot read it as medit"):
        read_mesh(tmp_path / "x.mesh")


CURVE = (DATA / "mfem_flat_H1_2D_P2.mesh").read_text() if CURVED else ""


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("MFEM mesh v1.0", "MFEM NURBS mesh v1.0", "'MFEM NURBS mesh v1.0' cannot be read"),
        ("MFEM mesh v1.0", "MFEM NC mesh v1.0", "'MFEM NC mesh v1.0' cannot be read"),
        ("MFEM mesh v1.0", "MFEM INLINE mesh v1.0", "'MFEM INLINE mesh v1.0' cannot be read"),
        ("FiniteElementSpace", "MFEM FiniteElementSpace v1.0", "of several orders"),
        ("H1_2D_P2", "H1Pos_2D_P2", "nodes of 'H1Pos_2D_P2' cannot be read"),
        ("H1_2D_P2", "NURBS2", "nodes of 'NURBS2' cannot be read"),
        ("H1_2D_P2", "H1_2D_P3", "which does not fit cells of order 3"),
        ("H1_2D_P2", "H1_2D_P99", "nodes of 'H1_2D_P99' cannot be read"),
        ("VDim: 2", "VDim: 4", "section nodes has"),
        ("dimension\n2", "dimension\n3", "not of the dimension that the file states"),
        ("dimension\n2", "dimension\n1", "needs cells of dimension 2 or 3, not '1'"),
        ("boundary", "frontier", "there is no section boundary"),
        ("elements\n", "elements\n1", "rows are announced"),
        ("vertices\n", "vertices\n-", "a vertex that does not exist"),
    ],
)
def test_what_cannot_be_read_is_named(old, new, match, tmp_path):
    assert old in CURVE
    (tmp_path / "x.mesh").write_text(CURVE.replace(old, new))
    with pytest.raises(MeshError, match=match):
        read_mesh(tmp_path / "x.mesh")


def test_periodic_meshes_are_refused(tmp_path):
    """Two squares side by side, whose outer sides are one."""
    text = "MFEM mesh v1.0\ndimension\n2\nelements\n2\n1 3 0 1 3 2\n1 3 1 0 2 3\nboundary\n0\nvertices\n4\nnodes\n"
    text += "FiniteElementSpace\nFiniteElementCollection: L2_T1_2D_P1\nVDim: 2\nOrdering: 1\n\n"
    (tmp_path / "x.mesh").write_text(text + "0 0\n1 0\n0 1\n1 1\n1 0\n2 0\n1 1\n2 1\n")
    with pytest.raises(MeshError, match="nodes of 'L2_T1_2D_P1' cannot be read: .*periodic"):
        read_mesh(tmp_path / "x.mesh")


def test_pyramids_that_need_more_functions_than_ours_are_refused(tmp_path):
    """MFEM has a node in the middle of a pyramid of order 2."""
    head, _, values = (DATA / "mfem_solid_H1_3D_P2.mesh").read_text().partition("Ordering: 0\n")
    numbers = values.split()
    n_cells = int(head.split("elements\n")[1].split()[0])
    inside = [row.split()[1] for row in head.split("elements\n")[1].split("\n")[1 : 1 + n_cells]]
    # Nodes inside cells end the list: hexes and pyramids have one each.
    with_node = [kind for kind in inside if kind in "57"]
    place = len(numbers) // 3 - len(with_node) + with_node.index("7")
    numbers[place] = str(float(numbers[place]) + 1e-3)
    (tmp_path / "x.mesh").write_text(head + "Ordering: 0\n" + "\n".join(numbers))
    with pytest.raises(MeshError, match="MFEM's functions on a pyramid of order 2 are not ours"):
        read_mesh(tmp_path / "x.mesh")


def test_damaged_files(tmp_path):
    files = {"x.mesh": mfem_text(sample("3-D mixed")).encode(), "mfem_flat_H1_2D_P2.mesh": CURVE.encode()}
    files |= {name: (DATA / name).read_bytes() for name in CURVED if "solid" in name and "P2" in name}
    read, refused = fuzz(files, tmp_path, 30)
    assert read > 5
    assert refused > 30
