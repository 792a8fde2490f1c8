"""Meshes for the tests of global problems."""

from pathlib import Path

import numpy as np

from hpfem.mesh import Mesh, read_mesh

OURS = sorted((Path(__file__).resolve().parents[2] / "meshes").glob("*.msh"))
SHARED = Path(__file__).resolve().parents[3] / "shared" / "meshes"
THEIRS = (
    "nektar/cube_all.msh",
    "nektar/cube_hex.msh",
    "nektar/cube_prism.msh",
    "nektar/cube_tet_lin.msh",
    "nektar/extract_square_circ.msh",
    "nektar/square_quad_lin.msh",
    "mfem/compass.msh",
    "mfem/fichera-mixed-p2.vtk",
    "mfem/nested_cubes.msh",
    "mfem/periodic-torus-sector.msh",
    "mfem/star-mixed-p2.vtk",
)


def ours(name):
    """A mesh of the project's own."""
    return read_mesh(Path(__file__).resolve().parents[2] / "meshes" / name)


def turned(mesh, rng):
    """The same mesh with its vertices renumbered and every cell turned within what its type allows, at random."""
    from hpfem.mesh.symmetry import lattice_permutations, parities

    new = rng.permutation(len(mesh.points))
    points = np.empty_like(mesh.points)
    points[new] = mesh.points
    cells, start = [], 0
    old_number = []
    for group in mesh.cells:
        table = lattice_permutations(group.shape, group.order)[parities(group.shape) > 0]
        order = rng.permutation(len(group))
        turn = rng.integers(len(table), size=len(group))
        nodes = np.take_along_axis(new[group.nodes], table[turn], axis=1)[order]
        cells.append((group.shape.name, group.order, nodes))
        old_number.append(group.indices[order])
        start += len(group)
    boundaries = {}
    group, row = mesh.locations
    for name, facets in mesh.boundaries.items():
        corners = []
        for facet in facets:
            cell, local = mesh.facets.cells[facet, 0], mesh.facets.local[facet, 0]
            own = mesh.cells[group[cell]]
            from hpfem.mesh.symmetry import entity_nodes

            entity = own.shape.facets[local]
            where = [entity_nodes(own.shape, own.order, 0, v)[0] for v in entity.vertices]
            corners.append(new[own.nodes[row[cell]][where]])
        sizes = {len(c) for c in corners}
        boundaries[name] = [np.array([c for c in corners if len(c) == size]) for size in sizes]
    return Mesh.from_cells(points, cells, boundaries=boundaries, name=mesh.name)
