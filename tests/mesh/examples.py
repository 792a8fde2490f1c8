"""Meshes to test with, and the divergence theorem as a second opinion on them."""

import numpy as np

from hpfem.mesh import Mesh, box
from hpfem.mesh.node_order import vertex_positions
from hpfem.mesh.symmetry import entity_nodes, lattice_permutations, outward_signs, parities, symmetries
from hpfem.shapes import SHAPES, default_counts, equispaced_nodes, make_basis, quadrature
from hpfem.support.communicator import ALONE

ALL_3D = ("hex", "prism", "pyramid", "tet")
BOXES = {
    "quad": ("quad", (3, 2)), "tri": ("tri", (3, 2)), "2-D mixed": (("tri", "quad"), (4, 2)), "hex": ("hex", (2, 2, 1)),
    "prism": ("prism", (2, 1, 2)), "pyramid": ("pyramid", (1, 2, 1)), "tet": ("tet", (2, 1, 1)),
    "3-D mixed": (ALL_3D, (5, 1, 2)),
}  # fmt: skip

# Boxes that gmsh has cut (record_gmsh_files.py): box, order, number of partitions, whether files are binary.
PARTITIONED = {
    "solid": ((ALL_3D, (4, 1, 2)), 1, 3, 0),
    "curved": ((ALL_3D, (4, 1, 1)), 2, 3, 1),
    "flat": ((("quad", "tri"), (4, 2)), 3, 2, 0),
}


class Elsewhere:
    """A device's module of arrays, whose arrays are NumPy's."""

    def __getattr__(self, name: str) -> object:
        return getattr(np, name)


def bent(x: np.ndarray) -> np.ndarray:
    """A rotated, sheared, stretched and curved copy of space."""
    d = x.shape[1]
    matrix = np.array([[1.1, 0.3, -0.2], [-0.4, 0.9, 0.5], [0.1, -0.6, 1.2]])[:d, :d]
    return (x + 0.06 * np.sin(x[:, ::-1] + x.sum(axis=1, keepdims=True)) + 0.05 * x**2) @ matrix.T


def sample(name: str, order: int = 1) -> Mesh:
    """A small mesh, curved where its order allows it."""
    return box(*BOXES[name]).elevated(order).transformed(bent)


def partitioned(name: str) -> Mesh:
    """One of `PARTITIONED`, with a name for the sides between its first two shapes."""
    (shapes, counts), order, *_ = PARTITIONED[name]
    mesh = box(shapes, counts, comm=ALONE).elevated(order).transformed(bent)
    first, second = (np.isin(mesh.facets.cells, mesh.regions[shape]) for shape in shapes[:2])
    between = first[:, 0] & second[:, 1] | first[:, 1] & second[:, 0]
    sides = np.column_stack([mesh.facets.cells[between, 0], mesh.facets.local[between, 0]])
    return mesh.with_sides({**mesh.boundary_sides, "between": sides})


def scrambled(mesh: Mesh, rng: np.random.Generator, **arguments) -> Mesh:
    """The same mesh with points and cells in another order and the vertices of each cell rotated."""
    place = rng.permutation(len(mesh.points))
    points = np.empty_like(mesh.points)
    points[place] = mesh.points
    cells, old = [], []
    for group in mesh.cells:
        table = lattice_permutations(group.shape, group.order)
        proper = np.flatnonzero(parities(group.shape) > 0)
        chosen = table[rng.choice(proper, len(group))]
        order = rng.permutation(len(group))
        nodes = np.take_along_axis(place[group.nodes], chosen, axis=1)[order]
        half = len(nodes) // 2
        cells += [(group.shape.name, group.order, nodes[:half]), (group.shape.name, group.order, nodes[half:])]
        old.append(group.indices[order])
    boundaries = {name: corners_of(mesh, facets, place) for name, facets in mesh.boundaries.items()}
    new_number = np.argsort(np.concatenate(old))
    regions = {name: new_number[members] for name, members in mesh.regions.items()}
    return Mesh.from_cells(points, cells, boundaries=boundaries, regions=regions, **arguments)


def corners_of(mesh: Mesh, facets: np.ndarray, place: np.ndarray | None = None) -> list[np.ndarray]:
    """Points at the corners of facets, one array for each kind of facet."""
    rows: dict[int, list[np.ndarray]] = {}
    group_of, row_of = mesh.locations
    for cell, local in zip(mesh.facets.cells[facets, 0], mesh.facets.local[facets, 0], strict=True):
        group = mesh.cells[group_of[cell]]
        corners = group.nodes[row_of[cell]][vertex_positions(group.shape, group.order)]
        own = corners[list(group.shape.facets[local].vertices)]
        rows.setdefault(len(own), []).append(own if place is None else place[own])
    return [np.array(own) for own in rows.values()]


def flux(mesh: Mesh, facets: np.ndarray | None = None, *, absolute: bool = False) -> float:
    """(1/d) times the integral of x . n, or |x . n|, over the boundary, from the geometry of the facets alone."""
    facets = mesh.facets.boundary if facets is None else facets
    cells, local = mesh.facets.cells[facets, 0], mesh.facets.local[facets, 0]
    group_of, row_of = mesh.locations
    total = 0.0
    for position, group in enumerate(mesh.cells):
        for number, facet in enumerate(group.shape.facets):
            rows = row_of[cells[(group_of[cells] == position) & (local == number)]]
            if not len(rows):
                continue
            side, order = facet.shape, group.order
            nodes = group.nodes[rows][:, entity_nodes(group.shape, order, mesh.dim - 1, number)]
            rule = quadrature(side, default_counts(side, mesh.dim * order + 1))
            xi = side.collapse(rule.eta)
            basis = make_basis("lagrange" if order == 1 else "orthogonal", side, order)
            vandermonde = np.linalg.inv(basis.evaluate(equispaced_nodes(side, order)))
            coordinates = np.swapaxes(mesh.points[nodes], 1, 2) @ vandermonde
            x = coordinates @ basis.evaluate(xi)
            axes = [coordinates @ derivative for derivative in basis.gradient(xi)]
            normal = (
                np.stack([axes[0][:, 1], -axes[0][:, 0]], axis=1)
                if mesh.dim == 2
                else np.cross(axes[0], axes[1], axis=1)
            )
            sign = outward_signs(group.shape)[number]
            through = sign * np.einsum("fiq,fiq->fq", x, normal)
            total += float(((np.abs(through) if absolute else through) @ rule.weights).sum())
    return total / mesh.dim


__all__ = ["ALL_3D", "BOXES", "SHAPES", "bent", "corners_of", "flux", "sample", "scrambled", "symmetries"]
