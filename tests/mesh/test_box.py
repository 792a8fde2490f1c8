"""Structured boxes."""

from __future__ import annotations

import numpy as np
import pytest

from hpfem.errors import ArgumentError
from hpfem.mesh import Mesh, box
from tests.mesh.examples import ALL_3D, flux

MIXES = [
    ("quad", (3, 2)),
    ("tri", (2, 3)),
    (("tri", "quad", "tri"), (4, 2)),
    ("hex", (2, 3, 1)),
    ("prism", (2, 1, 3)),
    ("pyramid", (2, 2, 2)),
    ("tet", (2, 3, 2)),
    (ALL_3D, (4, 2, 3)),
    (ALL_3D, (9, 1, 2)),
    (("tet", "hex", "tet"), (6, 2, 2)),
    (("tet", "hex", "tet"), (3, 2, 2)),
    (("hex", "tet", "prism"), (3, 1, 2)),
    (("hex", "tet", "prism"), (9, 1, 2)),
    (("pyramid", "tet"), (5, 2, 1)),
]


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
    ],
)
def test_bad_boxes(names, counts, arguments) -> None:
    with pytest.raises(ArgumentError):
        box(names, counts, **arguments)
