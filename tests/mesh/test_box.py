"""Structured boxes."""

import numpy as np
import pytest

import hpfem as hp
from hpfem.errors import ArgumentError
from hpfem.mesh import Mesh, box
from tests.mesh.examples import ALL_3D, flux

MIXES = [
    ("quad", (3, 2)), ("tri", (2, 3)), (("tri", "quad", "tri"), (4, 2)), ("hex", (2, 3, 1)), ("prism", (2, 1, 3)),
    ("pyramid", (2, 2, 2)), ("tet", (2, 3, 2)), (ALL_3D, (4, 2, 3)), (ALL_3D, (9, 1, 2)),
    (("tet", "hex", "tet"), (6, 2, 2)), (("tet", "hex", "tet"), (3, 2, 2)), (("hex", "tet", "prism"), (3, 1, 2)),
    (("hex", "tet", "prism"), (9, 1, 2)), (("pyramid", "tet"), (5, 2, 1)),
]  # fmt: skip


@pytest.mark.parametrize(("names", "counts"), MIXES)
def test_boxes_conform_and_fill_the_box(names, counts) -> None:
    mesh = box(names, counts, lower=(1, 2, 3)[: len(counts)], upper=(3, 3, 6)[: len(counts)])
    checked = Mesh.from_cells(mesh.points, [(g.shape.name, g.order, g.nodes) for g in mesh.cells])
    assert checked.n_mirrored == 0
    volume = 2.0 if mesh.dim == 2 else 6.0
    assert mesh.summary().volume == pytest.approx(volume, rel=1e-13)
    assert flux(mesh) == pytest.approx(volume, rel=1e-13)
    assert mesh.summary().affine_share == 1
    assert {shape.name for shape in mesh.shapes} >= ({names} if isinstance(names, str) else set(names) - {"tet"})


@pytest.mark.parametrize(("names", "counts"), MIXES)
def test_boundaries_are_the_sides(names, counts) -> None:
    mesh = box(names, counts)
    everything = np.concatenate(list(mesh.boundaries.values()))
    assert np.array_equal(np.sort(everything), mesh.facets.boundary)
    for axis in range(mesh.dim):
        for end, name in enumerate(("min", "max")):
            facets = mesh.boundaries["xyz"[axis] + name]
            assert flux(mesh, facets) == pytest.approx(end / mesh.dim, abs=1e-14)


@pytest.mark.parametrize(("names", "counts"), MIXES)
def test_regions_are_the_slabs(names, counts) -> None:
    mesh = box(names, counts)
    wanted = [names] if isinstance(names, str) else list(dict.fromkeys(names))
    assert list(mesh.regions) == wanted
    assert np.array_equal(np.sort(np.concatenate(list(mesh.regions.values()))), np.arange(mesh.n_cells))


@pytest.mark.parametrize(
    ("names", "counts", "arguments"),
    [
        ("heptagon", (1, 1), {}),
        ((), (1, 1), {}),
        ("segment", (1,), {}),
        (("quad", "hex"), (2, 2), {}),
        ("hex", (1, 1), {}),
        ("hex", (1, 1, 0), {}),
        (("hex", "prism"), (1, 1, 1), {}),
        ("quad", (1, 1), {"lower": (0, 0), "upper": (0, 1)}),
        ("quad", (1, 1), {"lower": (0, 0, 0)}),
        ("quad", 0, {}),
        ("quad", 2.5, {}),
        (("quad", "tri"), 1, {}),
        ("quad", (3, 3), {"periodic": "x"}),
        ("quad", (3, 3), {"periodic": ("z",)}),
        ("quad", (3, 3), {"periodic": (0,)}),
        ("quad", (3, 3), {"periodic": None}),
        ("quad", (2, 3), {"periodic": ("x",)}),
    ],
)
def test_bad_boxes(names, counts, arguments) -> None:
    with pytest.raises(ArgumentError):
        box(names, counts, **arguments)


def test_a_box_of_too_many_boxes_is_told() -> None:
    with pytest.raises(ArgumentError, match=r"3 counts >= 1, .*their product <= 1e\+11, not 100000"):
        box("hex", 10**5)


def test_one_count_is_for_all_directions() -> None:
    for name, dim in (("quad", 2), ("tet", 3)):
        assert np.array_equal(box(name, 3).cells[0].nodes, box(name, (3,) * dim).cells[0].nodes)
    assert hp.box is box


PERIODIC = [
    ("quad", (3, 4), ("x",)), (("quad", "tri"), (4, 3), ("x", "y")), ("hex", (3, 3, 3), ("z", "x", "y")),
    ("prism", (3, 2, 3), ("x", "z")), ("pyramid", (3, 3, 3), ("y",)), ("tet", (3, 4, 3), ("x", "y", "z")),
    (ALL_3D, (8, 3, 3), ("x", "y", "z")), (("tet", "hex"), (4, 3, 3), ("x",)), (("hex", "tet"), (6, 3, 3), ("x", "y")),
]  # fmt: skip


@pytest.mark.parametrize(("names", "counts", "directions"), PERIODIC)
def test_periodic_boxes_are_closed_in_these_directions(names, counts, directions) -> None:
    mesh = box(names, counts, upper=[2.0 + i for i in range(len(counts))], periodic=directions)
    assert mesh.periodic
    left = [axis + end for axis in "xyz"[: mesh.dim] if axis not in directions for end in ("min", "max")]
    assert list(mesh.boundaries) == left
    everything = np.concatenate([np.zeros(0, int), *mesh.boundaries.values()])
    assert np.array_equal(np.sort(everything), mesh.facets.boundary)
    grid = [n if axis in directions else n + 1 for axis, n in zip("xyz", counts, strict=False)]
    assert mesh.n_vertices - sum(1 for p in mesh.points if off_grid(p, counts)) == np.prod(grid)
    assert mesh.summary().volume == pytest.approx(np.prod([2.0 + i for i in range(mesh.dim)]))


def off_grid(point, counts) -> bool:
    """Whether a point is the middle of a small box."""
    places = [x * n / (2.0 + i) for i, (x, n) in enumerate(zip(point, counts, strict=True))]
    return bool(np.abs(np.array(places) - np.rint(places)).max() > 0.1)


@pytest.mark.parametrize(("names", "counts", "directions"), PERIODIC)
def test_waves_on_periodic_boxes(names, counts, directions) -> None:
    """A function of the period is continuous, one of half of it is not; and -div grad u + u = f is solved."""
    mesh = box(names, counts, periodic=directions)
    axis = "xyz".index(directions[0])
    space = hp.Space(mesh, 5)
    c0 = hp.C0Space(space)

    def wave(*x):
        return np.sin(2 * np.pi * x[axis] + 0.3)

    def half(*x):
        return np.cos(np.pi * x[axis])

    u = hp.solve_helmholtz(space, 1.0, lambda *x: (1 + 4 * np.pi**2) * wave(*x), c0=c0, tol=1e-12, bar=False)
    best = hp.l2_error(c0.scatter(c0.project(wave)), wave)
    assert hp.l2_error(u, wave) < 2 * best < 1e-2
    assert hp.l2_error(c0.scatter(c0.project(half)), half) > 0.1


def test_periodic_boxes_are_refined_and_bent() -> None:
    mesh = box(("hex", "tet"), (4, 3, 3), periodic=("x", "y"))
    fine = mesh.elevated(2).transformed(lambda x: x + 0.02 * np.sin(2 * np.pi * x[:, [1, 0, 0]])).refined()
    assert list(fine.boundaries) == ["zmin", "zmax"]
    assert len(fine.facets.boundary) == 4 * len(mesh.facets.boundary)
    assert fine.summary().volume == pytest.approx(1, rel=1e-13)
