"""Meshes with every cell cut into smaller ones."""

import numpy as np
import pytest

import hpfem as hp
from hpfem.errors import ArgumentError
from hpfem.geometry.element_map import ElementMap
from hpfem.mesh import Mesh, box
from hpfem.shapes.refinement import refinements
from tests.mesh.examples import ALL_3D, BOXES, bent, flux, sample
from tests.samples import NAMES, curved, long, sphere_patch, tapered

PIECES = {"quad": 4, "tri": 4, "hex": 8, "prism": 8, "pyramid": 10, "tet": 8}
FILES = [
    "cube_mixed", "cube_distorted", "curved_mixed", "curved_mixed_2d", "square_mixed", "pipe_mixed", "ball", "disc",
]  # fmt: skip


def checked(mesh: Mesh) -> Mesh:
    """What the checks of a mesh file make of the points, cells and boundaries alone."""
    cells = [(group.shape.name, group.order, group.nodes) for group in mesh.cells]
    return Mesh.from_cells(mesh.points, cells)


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("name", BOXES)
def test_refined_meshes_conform_and_cover_the_same(name: str, order: int) -> None:
    mesh = sample(name, order)
    fine = mesh.refined()
    again = checked(fine)
    assert again.n_mirrored == 0
    assert (len(again.facets), again.edges.count) == (len(fine.facets), fine.edges.count)
    assert len(again.points) == len(fine.points)
    assert fine.n_cells == sum(PIECES[group.shape.name] * len(group) for group in mesh.cells)
    assert fine.summary().volume == pytest.approx(mesh.summary().volume, rel=1e-13)
    assert flux(fine) == pytest.approx(flux(mesh), rel=1e-13)
    sides = {3: 4, 4: 4} if mesh.dim == 3 else {2: 2}
    assert len(fine.facets.boundary) == next(iter(sides.values())) * len(mesh.facets.boundary)


@pytest.mark.parametrize("name", BOXES)
def test_names_stay_where_they_were(name: str) -> None:
    mesh = sample(name, 3)
    fine = mesh.refined(2)
    assert list(fine.boundaries) == list(mesh.boundaries)
    assert list(fine.regions) == list(mesh.regions)
    for side, facets in mesh.boundaries.items():
        assert len(fine.boundaries[side]) == 4 ** (mesh.dim - 1) * len(facets)
        assert flux(fine, fine.boundaries[side]) == pytest.approx(flux(mesh, facets), rel=1e-12, abs=1e-13)
    for region, cells in mesh.regions.items():
        volumes = [sum(volume_of(m)[own]) for m, own in ((mesh, cells), (fine, fine.regions[region]))]
        assert volumes[1] == pytest.approx(volumes[0], rel=1e-6 if "pyramid" in region or "3-D" in name else 1e-13)
    whole = np.concatenate(list(fine.regions.values()))
    assert np.array_equal(np.sort(whole), np.arange(fine.n_cells))


def volume_of(mesh: Mesh) -> np.ndarray:
    """Volumes by cell number."""
    result = np.empty(mesh.n_cells)
    for group in mesh.cells:
        result[group.indices] = ElementMap.of(group, mesh.points).volumes()
    return result


@pytest.mark.parametrize("name", NAMES)
def test_maps_of_pieces_are_the_map_of_their_cell(name: str, rng: np.random.Generator) -> None:
    for mesh in (curved(name), tapered(name), sphere_patch(name) if name in ("quad", "tri") else curved(name, 2)):
        fine = mesh.refined()
        (coarse,) = mesh.cells
        parents = np.repeat(np.arange(mesh.n_cells), PIECES[name])
        whole = ElementMap.of(coarse, mesh.points)
        size = np.ptp(mesh.points, axis=0).max()
        for group in fine.cells:
            pieces = ElementMap.of(group, fine.points)
            shape = group.shape
            at = shape.collapse(rng.uniform(-0.9, 0.9, (5, shape.dim)))
            found = pieces.positions(pieces.basis.evaluate(at))
            for row, cell in enumerate(group.indices):
                own = coarse.indices.tolist().index(parents[cell])
                number = cell - np.flatnonzero(parents == parents[cell])[0]
                apart = []
                for way in refinements(coarse.shape):
                    corners = np.column_stack([shape.vertices, np.ones(shape.n_vertices)])
                    affine = np.linalg.lstsq(corners, way[number].corners - 1.0, rcond=None)[0]
                    xi = np.column_stack([at, np.ones(len(at))]) @ affine
                    wanted = whole.positions(whole.basis.evaluate(xi), slice(own, own + 1))
                    apart.append(np.abs(wanted[:, 0] - found[:, row]).max())
                # Maps of pyramids are rational.
                assert min(apart) < (0.01 if name == "pyramid" else 1e-13) * size


@pytest.mark.parametrize("name", NAMES)
def test_nodes_of_a_cell_keep_every_digit(name: str) -> None:
    mesh = curved(name)
    old, new = ({tuple(p) for p in m.points.tolist()} for m in (mesh, mesh.refined()))
    assert old <= new


def test_straight_cells_stay_affine() -> None:
    mesh = box(ALL_3D, (8, 2, 2), lower=(1, 2, 3), upper=(2, 5, 8)).refined()
    assert mesh.summary().affine_share == 1
    assert mesh.summary().worst_scaled_jacobian > 1 - 1e-12


def test_tets_keep_their_shape() -> None:
    """Cut along their shortest diagonal the tets of a cube are of few kinds, none flatter than the first."""

    def flatness(mesh: Mesh) -> float:
        corners = mesh.points[mesh.cells[0].corners]
        edges = [corners[:, a] - corners[:, b] for a in range(4) for b in range(a)]
        longest = np.max([np.linalg.norm(e, axis=1) for e in edges], axis=0)
        return float((np.abs(np.linalg.det(corners[:, 1:] - corners[:, :1])) / longest**3).min())

    mesh = box("tet", (1, 1, 1))
    assert flatness(mesh.refined(3)) == pytest.approx(flatness(mesh), rel=1e-12)


@pytest.mark.parametrize("name", FILES)
def test_files(name: str) -> None:
    mesh = hp.read_mesh(f"meshes/{name}.msh")
    fine = mesh.refined()
    assert checked(fine).n_mirrored == 0
    old, new = mesh.summary(), fine.summary()
    assert new.volume == pytest.approx(old.volume, rel=1e-12)
    assert new.n_coincident == new.n_hanging == 0
    assert new.boundaries == {side: count * 2 ** (mesh.dim - 1) for side, count in old.boundaries.items()}
    assert set(new.regions) == set(old.regions)
    assert fine.describe_cell(0).split(" (")[0] == mesh.describe_cell(0).split(" (")[0]


def test_cells_of_several_orders() -> None:
    """A straight cell beside curved ones stays of order 1."""
    straight, bow = box("quad", (1, 1)), box("quad", (1, 1), lower=(1, 0), upper=(2, 1)).elevated(3)
    bow = bow.transformed(lambda x: np.column_stack([x[:, 0] + 0.1 * (x[:, 0] - 1) * x[:, 1] ** 2, x[:, 1]]))
    points = np.concatenate([straight.points, bow.points])
    nodes = bow.cells[0].nodes + len(straight.points)
    shared = {tuple(p): i for i, p in enumerate(straight.points.round(12).tolist())}
    same = np.array([shared.get(tuple(p), i) for i, p in enumerate(points.round(12).tolist())])
    mesh = Mesh.from_cells(points, [("quad", 1, straight.cells[0].nodes), ("quad", 3, same[nodes])])
    fine = mesh.refined(2)
    assert [(g.order, len(g)) for g in fine.cells] == [(1, 16), (3, 16)]
    assert len(checked(fine).facets.boundary) == len(fine.facets.boundary) == 4 * 6
    assert fine.summary().volume == pytest.approx(mesh.summary().volume, rel=1e-13)


def test_periodic_sides_stay_identified() -> None:
    one = box("hex", (3, 3, 3))
    low, high = (np.flatnonzero(one.points[:, 0] == x) for x in (0, 1))
    mesh = Mesh.from_cells(one.points, [("hex", 1, one.cells[0].nodes)], periodic=[np.column_stack([high, low])])
    fine = mesh.refined()
    assert fine.periodic
    assert (fine.n_vertices, len(fine.points)) == (6 * 7 * 7, 7**3)
    assert len(fine.facets.boundary) == 4 * 36
    u = hp.C0Space(hp.Space(fine, 2, backend="numpy"))
    assert u.size == 12 * 13 * 13


def test_a_refined_mesh_is_a_mesh() -> None:
    import pickle

    mesh = hp.read_mesh("meshes/curved_mixed.msh").refined()
    copy = pickle.loads(pickle.dumps(mesh))
    assert np.array_equal(copy.points, mesh.points)
    assert mesh.refined(0) is mesh
    assert repr(mesh).startswith("<Mesh")
    moved = mesh.transformed(lambda x: 2 * x)
    assert moved.summary().volume == pytest.approx(8 * mesh.summary().volume)


@pytest.mark.parametrize("times", [-1, 1.5, "2", None, 10**9])
def test_bad_numbers_of_refinements(times) -> None:
    with pytest.raises(ArgumentError, match="how often a mesh is refined"):
        box("quad", (1, 1)).refined(times)


def exact(*x):
    return np.sin(1.7 * x[0] + 0.4) * np.cos(1.1 * x[1] - 0.3) * (np.exp(0.6 * x[2]) if len(x) == 3 else 1)


@pytest.mark.parametrize("order", [1, *long(2), 3])
@pytest.mark.parametrize("name", NAMES)
def test_solutions_on_curved_meshes_converge_with_order_p_plus_1(name: str, order: int) -> None:
    """-div grad u + u = f with the solution given on all of the boundary."""
    size = 1.7**2 + 1.1**2 - (0.36 if name not in ("quad", "tri") else 0)
    mesh = box(name, (1, 1) if name in ("quad", "tri") else (1, 1, 1)).elevated(2).transformed(bent)
    errors = []
    while mesh.n_cells < (1000 if mesh.dim == 2 else 5000):
        space = hp.Space(mesh, order)
        u = hp.solve_helmholtz(space, 1.0, lambda *x: (1 + size) * exact(*x), exact, tol=1e-11, bar=False)
        errors.append(hp.l2_error(u, exact))
        mesh = mesh.refined()
    assert np.log2(errors[-2] / errors[-1]) > order + 1 - 0.1
