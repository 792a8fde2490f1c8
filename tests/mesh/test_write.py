"""Meshes written to files, which read back as they were."""

import meshio
import numpy as np
import pytest

import hpfem as hp
from hpfem.errors import ArgumentError, HpfemWarning
from hpfem.mesh import Mesh, box, read_mesh
from tests.mesh.examples import ALL_3D, BOXES, sample, scrambled

FILES = ["cube_mixed", "curved_mixed", "curved_mixed_2d", "pipe_mixed", "ball", "disc", "curved_pyramid"]


def same(back: Mesh, mesh: Mesh) -> None:
    """Cells in the same order with the same nodes and vertices at the same points, under the same names."""
    assert back.dim == mesh.dim
    assert [(g.shape, g.order) for g in back.cells] == [(g.shape, g.order) for g in mesh.cells]
    number = np.empty(mesh.n_cells, dtype=int)
    for ours, theirs in zip(back.cells, mesh.cells, strict=True):
        assert np.array_equal(back.coordinates(ours), mesh.coordinates(theirs))
        assert np.array_equal(ours.vertices, theirs.vertices)
        assert np.array_equal(back.numbers[ours.indices], theirs.indices + 1)
        number[theirs.indices] = ours.indices
    assert np.array_equal(back.points, mesh.points)
    assert (back.n_mirrored, back.n_stray) == (0, 0)
    assert set(back.regions) == {name for name, cells in mesh.regions.items() if len(cells)}
    for name, cells in back.regions.items():
        assert np.array_equal(cells, np.sort(number[mesh.regions[name]]))
    assert list(back.boundaries) == [name for name, sides in mesh.boundary_sides.items() if len(sides)]
    for name, facets in back.boundaries.items():
        assert np.array_equal(facets, mesh.boundaries[name])


@pytest.mark.parametrize("order", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("name", BOXES)
def test_meshes_read_back_the_same(name: str, order: int, tmp_path, rng: np.random.Generator) -> None:
    mesh = scrambled(sample(name, order), rng) if order < 4 else sample(name, order)
    mesh.write(tmp_path / "a.msh")
    same(read_mesh(tmp_path / "a.msh"), mesh)


@pytest.mark.parametrize("name", FILES)
def test_files_and_what_is_refined(name: str, tmp_path) -> None:
    for mesh in (read_mesh(f"meshes/{name}.msh"), read_mesh(f"meshes/{name}.msh").refined()):
        mesh.write(str(tmp_path / "a.msh"))
        same(read_mesh(tmp_path / "a.msh"), mesh)


def test_names_may_overlap_and_be_of_any_letters(tmp_path) -> None:
    mesh = box("quad", (4, 3))
    sides = dict(mesh.boundary_sides)
    sides |= {
        "everything": np.concatenate(list(sides.values())),
        'a "wall" – ü': sides["xmin"],
        "nothing": sides["xmin"][:0],
    }
    cells = [(g.shape.name, g.order, g.nodes) for g in mesh.cells]
    regions = {"all": np.arange(12), "17": [3, 5], "left half": np.arange(6), "empty": np.zeros(0, int)}
    mesh = Mesh.from_cells(mesh.points, cells, regions=regions).with_sides(sides)
    mesh.write(tmp_path / "a.msh")
    back = read_mesh(tmp_path / "a.msh")
    assert {name: own.tolist() for name, own in back.regions.items()} == {
        "all": list(range(12)),
        "17": [3, 5],
        "left half": list(range(6)),
    }
    assert set(back.boundaries) == set(sides) - {"nothing"}
    assert np.array_equal(back.boundaries["everything"], mesh.facets.boundary)


def test_surfaces_and_cells_without_a_name(tmp_path) -> None:
    mesh = box("tri", (2, 2)).elevated(2).transformed(lambda x: np.column_stack([x, np.sin(x[:, 0])]))
    cells = [(g.shape.name, g.order, g.nodes) for g in mesh.cells]
    mesh = Mesh.from_cells(mesh.points, cells)
    mesh.write(tmp_path / "a.msh")
    same(read_mesh(tmp_path / "a.msh"), mesh)


@pytest.mark.parametrize("order", [1, 2])
def test_another_reader_reads_them(order: int, tmp_path) -> None:
    mesh = box(ALL_3D, (8, 2, 2)).elevated(order)
    mesh.write(tmp_path / "a.msh")
    theirs = meshio.read(tmp_path / "a.msh")
    assert np.array_equal(theirs.points, mesh.points)
    assert set(theirs.field_data) == {*mesh.regions, *mesh.boundaries}
    counts: dict[str, int] = {}
    for block in theirs.cells:
        counts[block.type] = counts.get(block.type, 0) + len(block.data)
    solid = [n for kind, n in counts.items() if not kind.startswith(("tri", "quad"))]
    assert solid == [len(group) for group in mesh.cells]
    if order == 2:  # of which meshio takes prisms for others
        theirs.cells = [block for block in theirs.cells if block.type != "wedge18"]
        theirs.cell_data, theirs.cell_sets = {}, {}
    back = hp.from_meshio(theirs)
    assert back.summary().volume == pytest.approx(1 if order == 1 else 0.75, rel=1e-13)
    assert back.n_mirrored == 0
    assert order == 2 or {name: len(own) for name, own in back.boundaries.items()} == mesh.summary().boundaries


def test_a_periodic_mesh_loses_its_pairs_and_says_so(tmp_path) -> None:
    flat = box("quad", (3, 3))
    low, high = (np.flatnonzero(flat.points[:, 0] == x) for x in (0, 1))
    pairs = [np.column_stack([high, low])]
    mesh = Mesh.from_cells(flat.points, [("quad", 1, flat.cells[0].nodes)], periodic=pairs)
    with pytest.warns(HpfemWarning, match="does not say which sides of this periodic mesh"):
        mesh.write(tmp_path / "a.msh")
    assert read_mesh(tmp_path / "a.msh").n_vertices == 16


@pytest.mark.parametrize("path", ["a.vtu", "a", "nowhere/a.msh", 3, None])
def test_bad_paths(path, tmp_path) -> None:
    with pytest.raises(ArgumentError):
        box("quad", (1, 1)).write(tmp_path / path if isinstance(path, str) else path)
    assert not list(tmp_path.iterdir())


def test_what_the_format_does_not_have(tmp_path) -> None:
    mesh = box("hex", (1, 1, 1))
    with pytest.raises(ArgumentError, match="no quad of order 11"):
        mesh.elevated(11).write(tmp_path / "a.msh")
    with pytest.raises(ArgumentError, match="cannot have the name"):
        mesh.with_sides({"two\nlines": mesh.boundary_sides["xmin"]}).write(tmp_path / "a.msh")
    assert not list(tmp_path.iterdir())
    assert hp.Mesh.write is Mesh.write
