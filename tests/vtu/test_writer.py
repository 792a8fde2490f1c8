"""VTU files, read back by VTK: cell types, places, values, what is said of cells, and what is refused."""

import warnings

import meshio
import numpy as np
import pytest

import hpfem as hp
from hpfem import ArgumentError, StateError
from hpfem.mesh import box, read_mesh
from hpfem.mesh.node_order import vertex_positions
from hpfem.shapes import SHAPES
from hpfem.vtu import write_vtu
from meshes import generate
from tests import samples
from tests.vtu.reading import evaluate, read, sizes

LINEAR = {"tri": 5, "quad": 9, "tet": 10, "hex": 12, "prism": 13, "pyramid": 14}
LAGRANGE = {"tri": 69, "quad": 70, "tet": 71, "hex": 72, "prism": 73}
MIXED = ("tet", "prism", "hex")


def random_field(space, rng, components=1):
    """A field that jumps between cells."""
    shapes = [(components, block.n_elements, block.n_modes) for block in space.blocks]
    return space.field("coeff", [rng.normal(size=shape).astype(space.dtype) for shape in shapes])


def check_values(path, field, rng, tolerance=1e-10, count=3):
    """At random points inside its cells the file has the field's values, and says which cell of the mesh it is in."""
    grid, space = read(path), field.space
    x, values, cells = evaluate(grid, "u", rng, rng.permutation(grid.n_cells)[:24], count)
    x = x[:, : space.dim]
    scale = max(np.abs(array).sum(axis=2).max() for array in field.arrays)
    expected = field.at(x).reshape(field.components, -1).T
    assert np.abs(values[:, : field.components] - expected).max() < tolerance * scale
    found = zip(*space.locator.find(x)[:2], strict=True)
    assert [space.blocks[b].elements[e] for b, e in found] == grid.cell_data["cell"][cells].tolist()
    return grid


@pytest.mark.parametrize("geometry", [1, 2, 3])
@pytest.mark.parametrize("order", range(1, 7))
@pytest.mark.parametrize("name", LAGRANGE)
def test_functions_and_cells_are_exact_in_the_file(name, order, geometry, tmp_path, rng):
    space = hp.Space(samples.curved(name, geometry), order)
    u = random_field(space, rng)
    write_vtu(tmp_path / "u.vtu", u)
    grid = check_values(tmp_path / "u.vtu", u, rng)
    assert set(grid.types) == {LAGRANGE[name] if max(order, geometry) > 1 else LINEAR[name]}
    assert grid.n_cells == space.n_cells


@pytest.mark.parametrize("order", [8, 10])
@pytest.mark.parametrize("name", LAGRANGE)
def test_up_to_the_highest_order_of_vtk(name, order, tmp_path, rng):
    u = random_field(hp.Space(samples.tapered(name), order), rng)
    write_vtu(tmp_path / "u.vtu", u)
    check_values(tmp_path / "u.vtu", u, rng, count=1)


@pytest.mark.parametrize("basis", ["orthogonal", "lagrange"])
@pytest.mark.parametrize("name", LAGRANGE)
def test_the_other_bases(name, basis, tmp_path, rng):
    u = random_field(hp.Space(samples.curved(name, 2), 3, basis=basis), rng)
    write_vtu(tmp_path / "u.vtu", u)
    check_values(tmp_path / "u.vtu", u, rng)


@pytest.mark.parametrize("components", [2, 3, 5])
def test_components(components, tmp_path, rng):
    u = random_field(hp.Space(box("quad", (2, 2)), 2), rng, components)
    write_vtu(tmp_path / "u.vtu", u)
    grid = check_values(tmp_path / "u.vtu", u, rng)
    values = grid.point_data["u"]
    # A vector in the plane is one in space to VTK.
    assert values.shape[1] == max(components, 3)
    if components == 2:
        assert np.all(values[:, 2] == 0)


def one_pyramid(order, amount=0.2):
    """A mesh of one curved pyramid on a base that is no parallelogram."""
    points = np.array([[0, 0, 0], [1, 0.1, 0], [0.1, 0.9, 0.1], [1.2, 1.1, 0], [0.2, 0.3, 1]])
    nodes = np.zeros((1, 5), dtype=int)
    nodes[0, vertex_positions(SHAPES["pyramid"], 1)] = np.arange(5)
    mesh = hp.Mesh.from_cells(points, [("pyramid", 1, nodes)]).elevated(order)
    return mesh.transformed(lambda x: x + amount * x[:, ::-1] ** 2) if order > 1 else mesh


@pytest.mark.parametrize("geometry", [1, 2, 3])
@pytest.mark.parametrize("order", range(1, 7))
def test_pyramids_are_cut_and_exact_at_their_points(order, geometry, tmp_path, rng):
    space = hp.Space(one_pyramid(geometry), order)
    u = random_field(space, rng, 2)
    write_vtu(tmp_path / "u.vtu", u)
    grid = read(tmp_path / "u.vtu")
    n = max(order, geometry)
    pyramids = sum((n - k) ** 2 + (n - k - 1) ** 2 for k in range(n))
    tets = sum(2 * (n - k) * (n - k - 1) for k in range(n))
    assert (np.count_nonzero(grid.types == 14), np.count_nonzero(grid.types == 10)) == (pyramids, tets)
    assert len(grid.points) == (n + 1) * (n + 2) * (2 * n + 3) // 6
    scale = np.abs(u.arrays[0]).sum(axis=2).max()
    assert np.abs(u.at(grid.points).T - grid.point_data["u"][:, :2]).max() < 1e-10 * scale
    assert set(grid.cell_data["shape"]) == {14}


def test_a_pyramid_of_order_1_is_the_same_to_vtk(tmp_path, rng):
    u = random_field(hp.Space(one_pyramid(1), 1), rng)
    write_vtu(tmp_path / "u.vtu", u)
    check_values(tmp_path / "u.vtu", u, rng, count=40)


@pytest.mark.parametrize("order", range(1, 7))
def test_the_pieces_of_pyramids_fill_their_volume(order, tmp_path):
    space = hp.Space(samples.skewed(samples.straight("pyramid")), order)
    write_vtu(tmp_path / "u.vtu", space.project(lambda x, y, z: x - 2 * y + 3 * z))
    grid = read(tmp_path / "u.vtu")
    found = sizes(grid)
    assert found.min() > 0
    by_cell = np.bincount(grid.cell_data["cell"], weights=found)
    expected = np.concatenate([block.geometry.volumes() for block in space.blocks])
    assert np.abs(by_cell[np.concatenate([block.elements for block in space.blocks])] - expected).max() < 1e-13


@pytest.mark.parametrize(("name", "order"), [("curved_mixed", 3), ("pipe_mixed", 4), ("cube_mixed", 2)])
def test_meshes_of_all_shapes(name, order, tmp_path, rng):
    mesh = read_mesh(generate.FOLDER / f"{name}.msh")
    space = hp.Space(mesh, order)
    u = space.project(lambda x, y, z: 1 + x - 2 * y + 3 * z)
    write_vtu(tmp_path / "u.vtu", u)
    grid = read(tmp_path / "u.vtu")
    assert set(grid.types) == {*(LAGRANGE[n] for n in ("tet", "hex", "prism")), 10, 14}
    # Linear in x, so exact in the pieces of pyramids too.
    x, values, _ = evaluate(grid, "u", rng, rng.permutation(grid.n_cells)[:60])
    assert np.abs(values[:, 0] - (1 + x @ [1, -2, 3])).max() < 1e-11
    assert np.abs(grid.point_data["u"] - (1 + grid.points @ [1, -2, 3])).max() < 1e-11
    # Random fields, where the cells are whole.
    u = random_field(space, rng)
    write_vtu(tmp_path / "u.vtu", u)
    grid = read(tmp_path / "u.vtu")
    x, values, _ = evaluate(grid, "u", rng, rng.permutation(np.flatnonzero(grid.types > 14))[:40])
    assert np.abs(values[:, 0] - u.at(x)).max() < 1e-9 * max(np.abs(a).sum(axis=2).max() for a in u.arrays)


def test_a_mixed_mesh_in_the_plane(tmp_path, rng):
    u = random_field(hp.Space(read_mesh(generate.FOLDER / "curved_mixed_2d.msh"), {"quad": 2, "tri": 4}), rng)
    write_vtu(tmp_path / "u.vtu", u)
    grid = check_values(tmp_path / "u.vtu", u, rng)
    assert np.all(grid.points[:, 2] == 0)
    assert {tuple(pair) for pair in np.column_stack([grid.cell_data["shape"], grid.cell_data["order"]])} == {
        (LINEAR["quad"], 2),
        (LINEAR["tri"], 4),
    }
    assert set(grid.cell_data["geometry_order"]) == {3}


@pytest.mark.parametrize("name", samples.NAMES_2D)
def test_a_surface_in_space(name, tmp_path, rng):
    u = random_field(hp.Space(samples.sphere_patch(name, order=3), 2), rng)
    write_vtu(tmp_path / "u.vtu", u)
    check_values(tmp_path / "u.vtu", u, rng)


@pytest.mark.parametrize("name", samples.NAMES)
def test_subdivided_cells_are_linear_and_exact_at_their_points(name, tmp_path, rng):
    mesh = samples.curved(name, 2)
    space = hp.Space(mesh, 3)
    u = space.project(lambda *x: 1 + x[0] - 2 * x[-1])
    write_vtu(tmp_path / "u.vtu", u, subdivide=4)
    grid = read(tmp_path / "u.vtu")
    assert set(grid.types) == ({10, 14} if name == "pyramid" else {LINEAR[name]})
    last = grid.points[:, mesh.dim - 1]
    assert np.abs(grid.point_data["u"] - (1 + grid.points[:, 0] - 2 * last)).max() < 1e-11


@pytest.mark.parametrize("name", samples.NAMES)
def test_the_error_of_subdivided_cells_falls_with_their_size(name, tmp_path, rng):
    space = hp.Space(samples.straight(name), 4)

    def function(*x):
        return x[0] ** 2 * x[-1] ** 2

    u = space.project(function)
    errors = []
    for count in (2, 8):
        write_vtu(tmp_path / "u.vtu", u, subdivide=count)
        grid = read(tmp_path / "u.vtu")
        x, values, _ = evaluate(grid, "u", rng, rng.permutation(grid.n_cells)[:60])
        errors.append(np.abs(values[:, 0] - function(*x.T[: space.dim])).max())
        assert sizes(grid).sum() == pytest.approx(1, abs=1e-12)
    assert errors[1] < errors[0] / 5


def test_above_the_order_of_vtk_cells_are_cut(tmp_path):
    space = hp.Space(box("hex", (1, 1, 1)), 11)
    write_vtu(tmp_path / "u.vtu", space.project(lambda x, y, z: x))
    grid = read(tmp_path / "u.vtu")
    assert set(grid.types) == {12}
    assert grid.n_cells == 11**3
    assert np.abs(grid.point_data["u"] - grid.points[:, 0]).max() < 1e-12


def test_several_fields_and_what_is_said_of_cells(tmp_path):
    mesh = box(MIXED, (3, 1, 1))
    space = hp.Space(mesh, 2)
    f = space.evaluate(lambda x, y, z: [x, y, z])
    u = space.project(lambda x, y, z: x * y)
    for compress in (True, False):
        write_vtu(tmp_path / "u.vtu", {"velocity": f, 'a "name" <with> signs & more': u}, compress=compress)
        grid = read(tmp_path / "u.vtu")
        assert np.abs(grid.point_data["velocity"] - grid.points).max() < 1e-12
        x = grid.points
        assert np.abs(grid.point_data['a "name" <with> signs & more'] - x[:, 0] * x[:, 1]).max() < 1e-12
        assert grid.data.GetPointData().GetVectors().GetName() == "velocity"
        assert grid.data.GetPointData().GetScalars().GetName().startswith("a ")
        regions = list(mesh.regions)
        assert {name: tuple(pair.ravel()) for name, pair in grid.field_data.items()} == {
            name: (number + 1, 3) for number, name in enumerate(regions)
        }
        for number, name in enumerate(regions):
            inside = np.isin(grid.cell_data["cell"], mesh.regions[name])
            assert np.array_equal(grid.cell_data["region"] == number + 1, inside)
        shapes = np.array([LINEAR[space.blocks[b].shape.name] for b in grid.cell_data["block"]])
        assert np.array_equal(grid.cell_data["shape"], shapes)
        assert set(grid.cell_data["order"]) == {2}
        assert set(grid.cell_data["geometry_order"]) == {1}


def test_a_mesh_without_regions(tmp_path):
    mesh = one_pyramid(1)
    write_vtu(tmp_path / "u.vtu", hp.Space(mesh, 1).zeros("coeff"))
    grid = read(tmp_path / "u.vtu")
    assert "region" not in grid.cell_data
    assert grid.field_data == {}


def test_single_precision(tmp_path):
    space = hp.Space(samples.curved("prism", 2), 3, dtype=np.float32)
    u = space.project(lambda x, y, z: x + y)
    write_vtu(tmp_path / "u.vtu", u)
    grid = read(tmp_path / "u.vtu")
    assert grid.point_data["u"].dtype == np.float32
    assert grid.points.dtype == np.float64
    assert np.abs(grid.point_data["u"] - grid.points[:, 0] - grid.points[:, 1]).max() < 1e-5


def test_arrays_longer_than_a_block_of_the_compressor(tmp_path):
    space = hp.Space(box("hex", (12, 12, 12)), 3)
    u = space.project(lambda x, y, z: x - y * z)
    sizes_of_files = []
    for compress in (True, False):
        write_vtu(tmp_path / "u.vtu", u, compress=compress)
        grid = read(tmp_path / "u.vtu")
        x, y, z = grid.points.T
        assert np.abs(grid.point_data["u"] - (x - y * z)).max() < 1e-12
        sizes_of_files.append((tmp_path / "u.vtu").stat().st_size)
    assert sizes_of_files[0] < 0.7 * sizes_of_files[1]


def test_meshio_reads_the_arrays(tmp_path):
    """It refuses files of version 2.1, which the order of nodes on hexes needs, so it gets another version to read."""
    space = hp.Space(samples.curved("hex", 2), 3)
    u = space.project(lambda x, y, z: x + 2 * y)
    for compress in (True, False):
        write_vtu(tmp_path / "u.vtu", u, compress=compress)
        text = (tmp_path / "u.vtu").read_text()
        (tmp_path / "v.vtu").write_text(text.replace('version="2.1"', 'version="1.0"', 1))
        mesh = meshio.read(tmp_path / "v.vtu")
        assert [block.data.shape for block in mesh.cells] == [(space.n_cells, 64)]
        assert np.abs(mesh.point_data["u"] - mesh.points @ [1, 2, 0]).max() < 1e-11


@pytest.mark.parametrize("name", samples.NAMES)
def test_the_package_reads_its_own_files(name, tmp_path):
    mesh = samples.curved(name, 3)
    space = hp.Space(mesh, 2)
    write_vtu(tmp_path / "u.vtu", space.zeros("coeff"))
    again = read_mesh(tmp_path / "u.vtu")
    if name in LAGRANGE:
        assert again.n_cells == mesh.n_cells
        assert again.summary().volume == pytest.approx(mesh.summary().volume, rel=1e-12)
    else:
        assert again.n_cells > mesh.n_cells
        assert again.summary().volume == pytest.approx(mesh.summary().volume, rel=0.02)


def test_what_the_package_tells_of_cells_is_no_data_of_the_user(tmp_path):
    write_vtu(tmp_path / "u.vtu", hp.Space(box(("tri", "quad"), (4, 2)), 2).zeros("coeff"))
    with pytest.warns(hp.HpfemWarning) as told:
        read_mesh(tmp_path / "u.vtu")
    assert ["joined" in str(warning.message) for warning in told] == [True]


def test_no_fields_are_refused(tmp_path):
    with pytest.raises(ArgumentError, match="there are no fields to write"):
        write_vtu(tmp_path / "u.vtu", {})


@pytest.mark.parametrize("fields", [None, 3, [], {"u": 1.0}, {"": "field"}, {3: "field"}])
def test_only_a_field_is_accepted(fields, tmp_path):
    u = hp.Space(box("quad", (1, 1)), 1).zeros("coeff")
    if isinstance(fields, dict):
        fields = {name: u if value == "field" else value for name, value in fields.items()}
    with pytest.raises(ArgumentError, match="Field|name"):
        write_vtu(tmp_path / "u.vtu", fields)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a\x01", "\x00", "a\nb", "\t", "\ud800", "\uffff"])
def test_names_that_no_file_can_hold_are_refused(name, tmp_path):
    u = hp.Space(hp.box("quad", (1, 1)), 1).project(lambda x, y: x)
    with pytest.raises(ArgumentError, match="a VTU file cannot hold the name '.*': leave out"):
        hp.write_vtu(tmp_path / "u.vtu", {"good": u, name: u})
    assert not list(tmp_path.iterdir())
    hp.write_vtu(tmp_path / "u.vtu", {"é <&>\"' \x7f 温度": u})
    assert hp.read_mesh(tmp_path / "u.vtu").n_cells == 1


def test_functionals_are_refused_with_advice(tmp_path):
    space = hp.Space(box("quad", (1, 1)), 1)
    with pytest.raises(StateError, match=r"'v' is in state 'dual'.*solve with the mass"):
        write_vtu(tmp_path / "u.vtu", {"u": space.zeros("coeff"), "v": space.zeros("dual")})


def test_fields_on_two_spaces_are_refused(tmp_path):
    mesh = box("quad", (1, 1))
    fields = {"u": hp.Space(mesh, 1).zeros("coeff"), "v": hp.Space(mesh, 2).zeros("coeff")}
    with pytest.raises(StateError, match="'v' is on another space"):
        write_vtu(tmp_path / "u.vtu", fields)


@pytest.mark.parametrize("state", ["coeff", "phys"])
def test_values_that_are_not_finite_are_refused_and_the_cell_is_named(state, tmp_path):
    space = hp.Space(box("quad", (2, 2)), 1)
    u = space.zeros(state, 2)
    u.arrays[0][1, 2, 0] = np.nan
    with warnings.catch_warnings(), pytest.raises(ArgumentError, match=r"'u' is not finite in element 3 \(quad\)"):
        warnings.simplefilter("error")
        write_vtu(tmp_path / "u.vtu", u)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("subdivide", [0, -1, 1.5, True, "two"])
def test_bad_subdivisions(subdivide, tmp_path):
    with pytest.raises(ArgumentError, match="subdivide"):
        write_vtu(tmp_path / "u.vtu", hp.Space(box("quad", (1, 1)), 1).zeros("coeff"), subdivide)


def test_files_that_cannot_be_written(tmp_path):
    u = hp.Space(box("quad", (1, 1)), 1).zeros("coeff")
    with pytest.raises(ArgumentError, match="no folder"):
        write_vtu(tmp_path / "absent" / "u.vtu", u)
    with pytest.raises(ArgumentError, match=r"cannot write .*name too long"):
        write_vtu(tmp_path / ("u" * 300 + ".vtu"), u)
    for name in ("u.xyz", "u", ".vtu", "u.vtu.gz", ""):
        with pytest.raises(ArgumentError, match=r"give a name that ends in \.vtu"):
            write_vtu(str(tmp_path / name), u)
    for path in (3, None, b"u.vtu", ["u.vtu"]):
        with pytest.raises(ArgumentError, match="path must be a text or a path"):
            write_vtu(path, u)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "folder.vtu").mkdir()
    with pytest.raises(ArgumentError, match="it is a folder"):
        write_vtu(tmp_path / "folder.vtu", u)


def test_a_failure_leaves_the_old_file(tmp_path):
    space = hp.Space(box("quad", (1, 1)), 1)
    write_vtu(tmp_path / "u.vtu", space.zeros("coeff"))
    before = (tmp_path / "u.vtu").read_bytes()
    bad = space.zeros("coeff")
    bad.arrays[0][...] = np.inf
    with pytest.raises(ArgumentError, match="finite"):
        write_vtu(tmp_path / "u.vtu", bad)
    assert (tmp_path / "u.vtu").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["u.vtu"]
