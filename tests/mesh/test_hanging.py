"""Vertices that hang inside the sides of other cells: found whatever the size, place and shape; slits are not."""

import tracemalloc

import numpy as np
import pytest

import hpfem as hp
from hpfem.mesh import box
from tests.assembly.meshes import OURS

# A quad beside two of half its height.
POINTS = np.array([[0, 0], [1, 0], [1, 1], [0, 1], [2, 0], [2, 0.5], [1, 0.5], [2, 1]])
QUADS = [[0, 1, 3, 2], [1, 4, 6, 5], [6, 5, 2, 7]]


def stepped():
    return hp.Mesh.from_cells(POINTS, [("quad", 1, QUADS)])


def joined(coarse, fine, shift):
    """Two boxes side by side whose cells do not match."""
    both = [coarse, fine.transformed(lambda p: p + shift)]
    starts = np.cumsum([0, len(coarse.points)])
    cells = [(g.shape.name, 1, g.nodes + start) for m, start in zip(both, starts, strict=True) for g in m.cells]
    points, number = np.unique(np.round(np.concatenate([m.points for m in both]), 12), axis=0, return_inverse=True)
    return hp.Mesh.from_cells(points, [(name, k, number.ravel()[nodes]) for name, k, nodes in cells])


def rotated(p):
    return p @ np.array([[0.6, 0.8], [-0.8, 0.6]])


@pytest.mark.parametrize("scale", [1e-12, 1e-3, 1.0, 1e12])
@pytest.mark.parametrize(
    "move", [lambda p: p, lambda p: rotated(p) + 7, lambda p: np.column_stack([p, p[:, 0] * p[:, 1]])]
)
def test_one_in_the_plane_and_on_surfaces(scale, move):
    mesh = stepped().transformed(lambda p: scale * move(p))
    assert len(mesh.hanging) == 1
    assert np.allclose(mesh.hanging.places, scale * move(POINTS[6:7]), rtol=1e-12)
    assert mesh.hanging.cells.tolist() == [0]


@pytest.mark.parametrize("order", [2, 3, 5])
def test_one_on_a_curved_side(order):
    curved = stepped().elevated(order).transformed(lambda p: p + 0.2 * np.sin(2 * p[:, ::-1]))
    assert len(curved.hanging) == 1


@pytest.mark.parametrize("shape", ["hex", "tet", "prism", "pyramid"])
def test_those_inside_faces_and_edges(shape):
    mesh = joined(box(shape, (1, 1, 1)), box("hex", (2, 2, 2)), np.array([1.0, 0, 0]))
    # Four in the edges of the common side, one inside it.
    assert len(mesh.hanging) == 5 and np.all(mesh.hanging.places[:, 0] == 1)


def test_a_space_is_refused_and_the_summary_says_where():
    mesh = stepped()
    summary = mesh.summary()
    assert summary.n_hanging == 1
    assert "a vertex at (1, 0.5) hangs inside a side of element 1 (quad)" in str(summary)
    with pytest.raises(hp.MeshError, match=r"a vertex at \(1, 0.5\) hangs inside a side of element 1 \(quad\)"):
        hp.C0Space(hp.Space(mesh, 2))


def test_a_slit_is_not_hanging():
    slit = hp.Mesh.from_cells(
        [[0, 0], [1, 0], [1, 1], [0, 1], [2, 0], [2, 1], [1, 0], [1, 1]], [("quad", 1, [[0, 1, 3, 2], [6, 4, 7, 5]])]
    )
    assert len(slit.hanging) == 0 and slit.summary().n_coincident == 2
    assert hp.C0Space(hp.Space(slit, 1)).size == 8


@pytest.mark.parametrize("path", OURS, ids=lambda p: p.stem)
def test_conforming_meshes_have_none(path):
    assert len(hp.read_mesh(path).hanging) == 0


def test_cells_of_very_different_sizes_have_none():
    graded = box("tri", (12, 12)).transformed(lambda p: p**6)
    assert len(graded.hanging) == 0


def test_many_layers_of_flat_cells_take_little_memory():
    """A side is compared with what is near it, not with all layers."""
    layers = box("hex", (2, 1, 400)).transformed(lambda p: p * [1, 1, 0.01])
    _ = layers.topology
    tracemalloc.start()
    assert len(layers.hanging) == 0
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20  # 162 MiB with cubes


@pytest.mark.parametrize("gap", [0.0, 1e-3, 0.2])
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("shape", ["hex", "tet", "prism", "pyramid"])
def test_bodies_beside_each_other_do_not_hang(shape, order, gap):
    """A gap of a thousandth of a side is no contact, whatever the shape of the side."""
    mesh = joined(box(shape, (1, 1, 1)), box(shape, (2, 2, 2)), np.array([1 + gap, 0.0, 0.0])).elevated(order)
    assert (len(mesh.hanging) == 0) == (gap > 0)
