"""Cells turned so that collapsed directions agree: which vertices faces collapse at, and what stays as it was."""

import pickle

import numpy as np
import pytest

import hpfem as hp
from hpfem.geometry import ElementMap
from hpfem.mesh import Mesh, box, read_mesh
from tests.assembly.meshes import OURS, THEIRS, ours, rotated

# By shape: vertices at which a tri of the reference element is collapsed, by the vertices of the tri.
COLLAPSED = {
    "tet": {(0, 1, 2): 2, (0, 1, 3): 3, (0, 2, 3): 3, (1, 2, 3): 3},
    "prism": {(0, 1, 2): 2, (3, 4, 5): 5},
    "pyramid": {(0, 1, 4): 4, (0, 2, 4): 4, (1, 3, 4): 4, (2, 3, 4): 4},
}


def disagreements(mesh, cells):
    """Tris that the two cells beside them collapse at different vertices, of all between cells."""
    found = {}
    for group in cells:
        for own, apex in COLLAPSED.get(group.shape.name, {}).items():
            for vertices in group.vertices:
                found.setdefault(frozenset(vertices[list(own)].tolist()), []).append(int(vertices[apex]))
    shared = [apexes for apexes in found.values() if len(apexes) == 2]
    return sum(a != b for a, b in shared), len(shared)


@pytest.mark.parametrize("names", [("tet",), ("prism",), ("pyramid",), ("hex", "prism", "pyramid", "tet")])
def test_collapsed_directions_agree_on_boxes(names, rng):
    mesh = rotated(box(names, (2 * len(names), 2, 2)), rng)
    assert disagreements(mesh, mesh.cells)[0] > 0 or names == ("pyramid",)
    wrong, shared = disagreements(mesh, mesh.aligned)
    assert wrong == 0 and shared > 0
    assert hp.C0Space(hp.Space(mesh, 4)).signed


@pytest.mark.parametrize("path", [p for p in OURS if p.stem in ("ball", "curved_tet", "curved_prism", "pipe_mixed")])
def test_collapsed_directions_agree_in_files(path):
    mesh = read_mesh(path)
    assert disagreements(mesh, mesh.aligned)[0] == 0


def test_faces_that_cannot_agree_are_left():
    """A tet beside two pyramids that are collapsed at the two ends of one of its edges."""
    mesh = ours("cube_mixed.msh")
    wrong, shared = disagreements(mesh, mesh.aligned)
    assert 0 < wrong < 0.1 * shared


@pytest.mark.parametrize("name", ["cube_mixed.msh", "curved_tet.msh", "curved_prism.msh"])
def test_cells_are_rotated_and_nothing_else(name, rng):
    mesh = rotated(ours(name), rng)
    before, after = mesh.cells, mesh.aligned
    for old, new in zip(before, after, strict=True):
        assert (new.shape, new.order) == (old.shape, old.order) and np.array_equal(new.indices, old.indices)
        for names in ("nodes", "vertices", "edges", "faces"):
            assert np.array_equal(np.sort(getattr(new, names)), np.sort(getattr(old, names)))
        # An entity's vertices are those of its id, from wherever it is seen.
        for dim, table in ((1, "edges"), (2, "faces")):
            ids, own = getattr(new, table), new.shape.entities[dim]
            for number, entity in enumerate(own):
                seen = np.sort(new.vertices[:, entity.vertices])
                for k in range(0, len(seen), 5):
                    place = list(getattr(old, table)[k]).index(ids[k, number])
                    there = np.sort(old.vertices[k, list(old.shape.entities[dim][place].vertices)])
                    assert np.array_equal(seen[k], there)
        qualities = [ElementMap.of(group, mesh.points).quality() for group in (old, new)]
        assert not qualities[1].mirrored.any()
    assert mesh.cells is before


def test_hexes_and_plane_cells_stay():
    for mesh in (box("hex", (2, 2, 2)), box("quad", (3, 2)), box("tri", (3, 2))):
        for old, new in zip(mesh.cells, mesh.aligned, strict=True):
            assert new.nodes is old.nodes


@pytest.mark.parametrize("name", [n for n in THEIRS if "tet" in n or "prism" in n])
def test_meshes_of_others(name, shared_meshes):
    mesh = read_mesh(shared_meshes / name)
    assert disagreements(mesh, mesh.aligned)[0] == 0


def test_aligned_cells_can_be_pickled():
    mesh = box("tet", (2, 2, 2))
    topology = mesh.aligned_topology
    again = pickle.loads(pickle.dumps(topology))
    assert all(np.array_equal(a, b) for a, b in zip(topology.faces.ids, again.faces.ids, strict=True))


def test_rotating_a_mesh_changes_no_solution(rng):
    mesh = box("tet", (2, 2, 2))
    errors = []
    for own in (mesh, rotated(mesh, rng)):
        space = hp.Space(own, 3, backend="numpy")
        u = hp.solve_helmholtz(space, lam=1.0, f=lambda x, y, z: np.exp(x) * y + z, dirichlet=lambda x, y, z: x * y * z)
        errors.append(hp.l2_error(u, lambda x, y, z: x * y * z))
    assert errors[0] == pytest.approx(errors[1], rel=1e-6)
    assert isinstance(own, Mesh)
