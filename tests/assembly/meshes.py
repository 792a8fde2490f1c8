"""Meshes for the tests of global problems."""

from pathlib import Path

import numpy as np

from hpfem.mesh import Mesh, read_mesh
from hpfem.mesh.symmetry import entity_nodes, lattice_permutations, parities

OURS = sorted((Path(__file__).resolve().parents[2] / "meshes").glob("*.msh"))
SHARED = Path(__file__).resolve().parents[3] / "shared" / "meshes"
THEIRS = (
    "nektar/cube_all.msh", "nektar/cube_hex.msh", "nektar/cube_prism.msh", "nektar/cube_tet_lin.msh",
    "nektar/extract_square_circ.msh", "nektar/square_quad_lin.msh", "mfem/compass.msh", "mfem/fichera-mixed-p2.vtk",
    "mfem/nested_cubes.msh", "mfem/periodic-torus-sector.msh", "mfem/star-mixed-p2.vtk",
)  # fmt: skip


def ours(name):
    """A mesh of the project's own."""
    return read_mesh(Path(__file__).resolve().parents[2] / "meshes" / name)


def rotated(mesh, rng):
    """The same mesh with its vertices renumbered and every cell rotated within what its type allows, at random."""
    new = rng.permutation(len(mesh.points))
    points = np.empty_like(mesh.points)
    points[new] = mesh.points
    cells = []
    for group in mesh.cells:
        table = lattice_permutations(group.shape, group.order)[parities(group.shape) > 0]
        turn = table[rng.integers(len(table), size=len(group))]
        nodes = np.take_along_axis(new[group.nodes], turn, axis=1)
        cells.append((group.shape.name, group.order, rng.permutation(nodes)))
    boundaries = {name: _corners(mesh, facets, new) for name, facets in mesh.boundaries.items()}
    return Mesh.from_cells(points, cells, boundaries=boundaries, name=mesh.name)


def _corners(mesh, facets, new):
    """Points at the corners of facets, one array per number of corners."""
    group, row = mesh.locations
    found: dict[int, list] = {}
    for facet in facets:
        cell, local = mesh.facets.cells[facet, 0], mesh.facets.local[facet, 0]
        own = mesh.cells[group[cell]]
        vertices = own.shape.facets[local].vertices
        where = [entity_nodes(own.shape, own.order, 0, v)[0] for v in vertices]
        found.setdefault(len(where), []).append(new[own.nodes[row[cell]][where]])
    return [np.array(rows) for rows in found.values()]
