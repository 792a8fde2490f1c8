"""C0 spaces: continuity on every mesh and in every orientation, counts, averages, devices, errors."""

import pickle

import numpy as np
import pytest

import hpfem as hp
from hpfem.mesh import box, read_mesh
from hpfem.shapes import make_basis
from tests.assembly.meshes import OURS, SHARED, THEIRS, ours, rotated
from tests.samples import NAMES, curved


def jumps(c0, vector, rng, n=3):
    """Largest difference between the two sides of the interior facets, at random points of each."""
    field, mesh, blocks = c0.scatter(vector), c0.space.mesh, c0.space.blocks
    place = {int(cell): (b, k) for b, block in enumerate(blocks) for k, cell in enumerate(block.elements)}
    sides, count = [[] for _ in blocks], 0
    group, row = mesh.locations
    facets, interior = mesh.facets, mesh.facets.interior
    for facet in interior if len(interior) < 2000 else rng.choice(interior, 1000, replace=False):
        by_vertex = {}
        for cell in facets.cells[facet]:
            own = mesh.aligned[group[cell]]
            entity = own.shape.facets[list(own.facets[row[cell]]).index(facet)]
            ids = own.vertices[row[cell]][list(entity.vertices)]
            if not by_vertex:
                # The vertex modes of order 1 place points on both sides alike.
                corners = make_basis("modified", entity.shape, 1)
                weights = corners.evaluate_eta(rng.uniform(-1, 1, (n, entity.shape.dim)))
                by_vertex = {int(ids[mode.entity[1]]): weights[m] for m, mode in enumerate(corners.modes)}
            xi = np.array([by_vertex[int(v)] for v in ids]).T @ own.shape.vertices[list(entity.vertices)]
            block, number = place[int(cell)]
            sides[block].append((count, number, xi))
            count += 1
    values = np.empty((count, n))
    for block, pair, own in zip(blocks, field.data, sides, strict=True):
        if own:
            numbers, cells, points = map(list, zip(*own))
            modes = block.basis.evaluate(np.concatenate(points)).reshape(-1, len(own), n)
            values[numbers] = np.einsum("sm,msn->sn", pair.read()[0][cells], modes)
    return np.abs(values[::2] - values[1::2]).max()


def check_continuous(mesh, rng, order, basis):
    order = order if mesh.n_cells < 2000 else 3
    c0 = hp.C0Space(hp.Space(mesh, order, basis))
    vector = rng.standard_normal(c0.size)
    assert jumps(c0, vector, rng) < 1e-12
    assert np.abs(c0.average(c0.scatter(vector)) - vector).max() < 1e-12


@pytest.mark.parametrize("basis", ["modified", "lagrange"])
@pytest.mark.parametrize("path", OURS, ids=lambda p: p.stem)
def test_a_global_vector_is_a_continuous_function_on_our_meshes(path, basis, rng):
    check_continuous(read_mesh(path), rng, 4, basis)


@pytest.mark.parametrize("name", THEIRS)
def test_a_global_vector_is_a_continuous_function_on_meshes_of_others(name, shared_meshes, rng):
    check_continuous(read_mesh(shared_meshes / name), rng, 4, "modified")


@pytest.mark.parametrize("order", [1, 2, 3, 6, 9])
def test_continuity_at_any_order(order, rng):
    check_continuous(box(("tet", "hex", "prism", "pyramid"), (4, 1, 1)), rng, order, "modified")


@pytest.mark.parametrize("basis", ["modified", "lagrange"])
@pytest.mark.parametrize("name", ["cube_mixed.msh", "square_mixed.msh"])
def test_continuity_in_random_orientations(name, basis, rng):
    check_continuous(rotated(ours(name), rng), rng, 5, basis)


def test_continuity_between_cells_of_different_orders(rng):
    mesh = rotated(ours("cube_mixed.msh"), rng)
    orders = {"hex": 5, "prism": 4, "pyramid": 6, "tet": 3}
    check_continuous(mesh, rng, orders, "modified")
    with pytest.raises(hp.ArgumentError, match="different orders"):
        hp.C0Space(hp.Space(mesh, orders, "lagrange"))


def test_periodic_meshes_are_continuous_across_their_sides(shared_meshes, rng):
    path = shared_meshes / "mfem/periodic-torus-sector.msh"
    closed, open_ = read_mesh(path, periodic=True), read_mesh(path)
    assert closed.n_vertices < open_.n_vertices
    check_continuous(closed, rng, 4, "modified")
    sizes = [hp.C0Space(hp.Space(mesh, 4)).size for mesh in (closed, open_)]
    assert sizes[0] < sizes[1]


def test_counts_per_entity(shared_meshes):
    mesh = read_mesh(shared_meshes / "nektar/cube_all.msh")
    for order, size in ((1, 113), (2, 675), (3, 2059), (4, 4637)):
        c0 = hp.C0Space(hp.Space(mesh, order))
        assert c0.size == size == sum(c0.counts.values())
        assert c0.counts["vertices"] == mesh.n_vertices
        assert c0.counts["edges"] == (order - 1) * mesh.edges.count
        assert c0.matrix.shape == (c0.space.n_dofs, size)


def test_multiplicity_is_how_many_cells_share_a_number():
    c0 = hp.C0Space(hp.Space(box("hex", (2, 2, 2)), 3))
    assert c0.signed
    # All columns of a signed Q have one entry per cell.
    assert np.array_equal(c0.multiplicity, np.diff(c0.matrix.tocsc().indptr))
    assert c0.multiplicity.max() == 8
    inside = sum(c0.counts[k] for k in ("vertices", "edges", "faces"))
    assert np.all(c0.multiplicity[inside:] == 1)


def test_dense_blocks_occur_on_turned_tris_only():
    assert not hp.C0Space(hp.Space(ours("cube_mixed.msh"), 4)).signed
    assert hp.C0Space(hp.Space(ours("cube_mixed.msh"), 4, "lagrange")).signed
    assert hp.C0Space(hp.Space(ours("square_mixed.msh"), 6)).signed


@pytest.mark.parametrize("basis", ["modified", "lagrange"])
def test_gather_is_the_transpose_of_scatter(basis, rng):
    c0 = hp.C0Space(hp.Space(ours("cube_mixed.msh"), 3, basis))
    vector = rng.standard_normal((3, c0.size))
    local = c0.scatter(vector)
    assert local.components == 3
    other = hp.Field(c0.space, "dual", [type(p).of(rng.standard_normal(p.shape)) for p in local.data])
    assert np.isclose(local.dot(other), np.sum(vector * c0.gather(other)), rtol=1e-12)
    one = c0.gather(other.component(1))
    assert np.allclose(one, c0.gather(other)[1], rtol=0, atol=1e-13)
    flat = np.concatenate([p.read()[1].ravel() for p in local.data])
    assert np.allclose(flat, c0.matrix @ vector[1], rtol=0, atol=1e-13)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("components", [1, 3])
@pytest.mark.parametrize("basis", ["modified", "lagrange"])
def test_scatter_and_gather_on_a_gpu(basis, components, dtype, rng):
    import cupy

    c0 = hp.C0Space(hp.Space(rotated(ours("cube_mixed.msh"), rng), 3, basis, dtype=dtype, backend="cuda"))
    device = hp.Mass(c0.space).device
    vector = rng.standard_normal((components, c0.size)).astype(dtype)
    other = rng.standard_normal((components, c0.space.n_dofs)).astype(dtype)
    local = c0.scatter(cupy.asarray(vector), device=device)
    tolerance = 1e-13 if dtype == np.float64 else 1e-5
    for pair, expected in zip(local.data, c0.scatter(vector).arrays, strict=True):
        assert isinstance(pair.read(device), cupy.ndarray)
        assert np.abs(pair.read(device).get() - expected).max() < tolerance
    functional = c0.space.empty("dual", components)
    for number, pair in enumerate(functional.data):
        pair.write()[...] = other[:, slice(*c0.block_matrix.starts[number : number + 2])].reshape(pair.shape)
    found, expected = c0.gather(functional, device), c0.gather(functional)
    assert isinstance(found, cupy.ndarray) and found.shape == expected.shape
    assert np.abs(found.get() - expected).max() < 20 * tolerance
    # Vectors in another order or of another type are taken too.
    twice = cupy.asarray(np.repeat(vector, 2, axis=1).astype(np.float64))[:, ::2]
    again = c0.scatter(twice, out=local, device=device)
    assert np.abs(again.data[0].read(device).get() - c0.scatter(vector).arrays[0]).max() < tolerance


@pytest.mark.parametrize("basis", ["modified", "lagrange"])
@pytest.mark.parametrize("name", ["cube_mixed.msh", "square_mixed.msh"])
def test_projection_keeps_the_functions_of_the_space(name, basis, rng):
    c0 = hp.C0Space(hp.Space(rotated(ours(name), rng), 4, basis))

    def cubic(*x):
        return 1 + x[0] ** 3 - 2 * x[0] * x[1] ** 3 + x[-1]

    assert hp.l2_error(c0.scatter(c0.project(cubic)), cubic) < 1e-13
    assert np.abs(c0.scatter(c0.project(2.5)).at([[0.3] * c0.space.dim]) - 2.5).max() < 1e-13


def test_the_constant_1_is_its_projection():
    mixed = {"tet": 2, "prism": 3, "pyramid": 4, "hex": 2}
    for order, basis in ((3, "modified"), (3, "lagrange"), (mixed, "modified")):
        c0 = hp.C0Space(hp.Space(ours("cube_mixed.msh"), order, basis, backend="numpy"))
        assert np.abs(c0.one - c0.project(1.0)).max() < 1e-12


def test_projection_converges_exponentially():
    def wave(x, y, z):
        return np.sin(3 * x) * np.cos(2 * y) * np.exp(z)

    mesh = ours("curved_mixed.msh")
    errors = [
        hp.l2_error(c0.scatter(c0.project(wave)), wave) for c0 in (hp.C0Space(hp.Space(mesh, p)) for p in (2, 4, 6))
    ]
    assert errors[1] < errors[0] / 20 and errors[2] < errors[1] / 20


def test_a_c0_space_pickles(rng):
    c0 = hp.C0Space(hp.Space(box("prism", (1, 1, 1)), 3))
    vector = rng.standard_normal(c0.size)
    again = pickle.loads(pickle.dumps(c0))
    assert np.array_equal(again.scatter(vector).arrays[0], c0.scatter(vector).arrays[0])


def test_errors():
    mesh = box("tet", (1, 1, 1))
    with pytest.raises(hp.ArgumentError, match="orthogonal"):
        hp.C0Space(hp.Space(mesh, 2, "orthogonal"))
    with pytest.raises(hp.ArgumentError, match="made on a Space"):
        hp.C0Space(mesh)
    c0 = hp.C0Space(hp.Space(mesh, 2))
    with pytest.raises(hp.ArgumentError, match="global vector is"):
        c0.scatter(np.zeros(c0.size + 1))
    with pytest.raises(hp.StateError, match="phys"):
        c0.gather(c0.space.zeros("phys"))
    with pytest.raises(hp.StateError, match="not on the space"):
        c0.gather(hp.Space(mesh, 2).zeros("dual"))
    with pytest.raises(hp.ArgumentError, match="not finite"):
        c0.project(lambda x, y, z: 0 * x + np.nan)


def test_shared_meshes_are_all_tried(shared_meshes):
    files = {str(p.relative_to(SHARED)) for p in shared_meshes.rglob("*") if p.is_file()}
    assert files == set(THEIRS)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("order", [1, 2, 4])
def test_coordinates_of_nodes(name, order):
    """Nodal coefficients are values at the nodes."""
    c0 = hp.C0Space(hp.Space(curved(name, 2), order, basis="lagrange"))
    x = c0.coordinates
    assert x.shape == (c0.size, c0.space.dim) and not x.flags.writeable
    u = c0.scatter(np.sin(x[:, 0]) + x[:, 1])
    assert np.abs(u.at(x) - np.sin(x[:, 0]) - x[:, 1]).max() < 1e-9
    assert len(np.unique(x.round(9), axis=0)) == c0.size


@pytest.mark.parametrize("name", NAMES)
def test_coordinates_of_modes(name):
    """Of vertices first; all modes of an entity are at its middle."""
    mesh = curved(name, 2)
    c0 = hp.C0Space(hp.Space(mesh, 3))
    x = c0.coordinates
    vertices = x[: mesh.n_vertices]
    assert all(np.abs(mesh.points - vertex).max(axis=1).min() < 1e-12 for vertex in vertices)
    linear = c0.project(lambda *x: 1 + x[0] - 2 * x[1])
    assert np.abs(linear[: mesh.n_vertices] - (1 + vertices[:, 0] - 2 * vertices[:, 1])).max() < 1e-12
    on_edges = x[mesh.n_vertices : mesh.n_vertices + 2 * mesh.edges.count]
    assert np.array_equal(on_edges[::2], on_edges[1::2])
    straight = hp.C0Space(hp.Space(hp.box("hex", (2, 1, 1)), 2)).coordinates
    assert np.array_equal(np.unique(straight[:, 0].round(12)), [0, 0.25, 0.5, 0.75, 1])
    assert np.abs(straight[-2:] - [[0.25, 0.5, 0.5], [0.75, 0.5, 0.5]]).max() < 1e-13
