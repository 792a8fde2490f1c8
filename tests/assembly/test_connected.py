"""Connected parts of meshes, in the file's order of cells or in none."""

import numpy as np
import pytest

import hpfem as hp
from hpfem.assembly.connected import _lowest
from hpfem.mesh import Mesh, box


def apart(shapes, counts, rng=None):
    """Three boxes beside each other that share nothing; the cells of all in any order."""
    one = box(shapes, counts)
    n = len(one.points)
    points = np.concatenate([one.points + 3 * k * np.eye(1, one.dim) for k in range(3)])
    cells = []
    for group in one.cells:
        nodes = np.concatenate([group.nodes + k * n for k in (1, 0, 2)])
        cells.append((group.shape.name, 1, nodes if rng is None else rng.permutation(nodes)))
    return Mesh.from_cells(points, cells)


@pytest.mark.parametrize("scattered", [False, True])
@pytest.mark.parametrize(("shapes", "counts"), [("tet", (6, 6, 6)), (("tri", "quad"), (60, 40))], ids=str)
def test_parts_are_those_of_cells_and_unknowns(shapes, counts, scattered, rng):
    mesh = apart(shapes, counts, rng if scattered else None)
    assert mesh.aligned_topology.scattered == scattered
    c0 = hp.C0Space(hp.Space(mesh, 2))
    parts = c0.parts
    assert parts.count == 3
    names = np.full(3, -1)
    for group in mesh.cells:
        side = np.rint(mesh.points[group.nodes][..., 0].mean(axis=1) // 3).astype(int)
        for k in range(3):
            own = np.unique(parts.of_cells[group.indices[side == k]])
            assert len(own) == 1 and names[k] in (-1, own[0])
            names[k] = own[0]
    assert sorted(names) == [0, 1, 2]
    # Unknowns of a part are those of its cells.
    assert c0.signed
    for number, block in enumerate(c0.space.blocks):
        of_modes = parts.of_unknowns[c0.block_matrix.codes[number] >> 1]
        np.testing.assert_array_equal(
            of_modes, np.broadcast_to(parts.of_cells[block.elements][:, None], of_modes.shape)
        )


def test_one_part():
    c0 = hp.C0Space(hp.Space(box("hex", (2, 2, 2)), 3))
    assert c0.parts.count == 1 and not c0.parts.of_cells.any() and c0.parts.of_unknowns.tolist() == [0] * c0.size


def test_a_line_of_cells_in_any_order_is_one_part(rng):
    """Labels go far along a chain, in whatever order its cells and vertices are."""
    n = 3000
    points = rng.permutation(n + 1)
    cells = rng.permutation(np.stack([points[:-1], points[1:]], axis=1))
    cells = np.concatenate([cells, [[n + 1, n + 2]]])
    assert np.array_equal(_lowest([cells], n + 3, np), [*[0] * (n + 1), n + 1, n + 1])
