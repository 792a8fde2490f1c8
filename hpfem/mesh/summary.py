"""What a mesh holds and how good its cells are, in a form that prints well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..geometry.element_map import ElementMap
from .node_order import vertex_positions

if TYPE_CHECKING:
    from .mesh import Mesh


@dataclass(frozen=True)
class MeshSummary:
    """Counts and quality of a mesh.

    Attributes
    ----------
    name : str
        The file.
    dim, n_coordinates : int
        Dimension of the cells and of space.
    n_cells, n_vertices, n_points : int
        How many there are.
    counts : mapping of str to int
        Cells per shape.
    orders : mapping of str to tuple of int
        Geometry orders per shape.
    affine : mapping of str to int
        Affine cells per shape.
    volume : float
        Sum of the cells' volumes (areas in 2-D).
    worst_scaled_jacobian : float
        Smallest over the cells of min det J / max det J; 1 when all are affine.
    worst_cell : int
        The cell it belongs to.
    worst_label : str
        What messages call that cell.
    n_mirrored : int
        Cells that were renumbered because det J was negative.
    n_stray : int
        Boundary elements of the file that are no facet of any cell.
    n_coincident : int
        Vertices on the boundary at the place of another one: the cells there touch without being joined.
    n_hanging : int
        Vertices inside sides of cells that do not have them as corners: the cells there are not joined either.
    hanging : str
        Where the first of them is.
    periodic : bool
        Whether periodic sides are identified.
    regions, boundaries : mapping of str to int
        Cells per region and facets per boundary.
    """

    name: str
    dim: int
    n_coordinates: int
    n_cells: int
    n_vertices: int
    n_points: int
    counts: Mapping[str, int]
    orders: Mapping[str, tuple[int, ...]]
    affine: Mapping[str, int]
    volume: float
    worst_scaled_jacobian: float
    worst_cell: int
    worst_label: str
    n_mirrored: int
    n_stray: int
    n_coincident: int
    n_hanging: int
    hanging: str
    periodic: bool
    regions: Mapping[str, int]
    boundaries: Mapping[str, int]

    @property
    def affine_share(self) -> float:
        """Affine cells over all cells."""
        return sum(self.affine.values()) / self.n_cells

    def __str__(self) -> str:
        space = "" if self.dim == self.n_coordinates else f" in {self.n_coordinates}-D space"
        lines = [
            f"{self.name}: {self.dim}-D mesh{space}, {self.n_cells:,} cells, {self.n_vertices:,} vertices, "
            f"{self.n_points:,} points" + (", periodic" if self.periodic else "")
        ]
        for shape, count in self.counts.items():
            orders = ", ".join(map(str, self.orders[shape]))
            lines.append(f"  {shape:8}{count:>12,}  geometry order {orders}, {self.affine[shape] / count:.0%} affine")
        lines.append(
            f"  {'volume' if self.dim == 3 else 'area'} {self.volume:.12g}, affine share {self.affine_share:.1%}"
        )
        lines.append(f"  worst scaled Jacobian {self.worst_scaled_jacobian:.4g}, {self.worst_label}")
        if self.n_mirrored:
            lines.append(f"  {self.n_mirrored:,} mirrored cells were renumbered")
        if self.n_stray:
            lines.append(f"  {self.n_stray:,} boundary elements are no facet of a cell")
        if self.n_coincident:
            lines.append(f"  {self.n_coincident:,} boundary vertices lie on others: the cells there are not joined")
        if self.n_hanging:
            lines.append(f"  {self.hanging}: the cells there are not joined, and no C0Space is made")
        for kind, sets in (("regions", self.regions), ("boundaries", self.boundaries)):
            if sets:
                lines.append(f"  {kind}: " + ", ".join(f"{name} ({count:,})" for name, count in sets.items()))
        return "\n".join(lines)


def summarise(mesh: Mesh) -> MeshSummary:
    """Look at every cell of a mesh.

    Parameters
    ----------
    mesh : Mesh
        Any mesh.

    Returns
    -------
    MeshSummary
    """
    counts: dict[str, int] = {}
    orders: dict[str, list[int]] = {}
    affine: dict[str, int] = {}
    volume, worst, worst_cell = 0.0, np.inf, -1
    for group in mesh.cells:
        name = group.shape.name
        counts[name] = counts.get(name, 0) + len(group)
        orders.setdefault(name, []).append(group.order)
        elements = ElementMap.of(group, mesh.points)
        affine[name] = affine.get(name, 0) + int(elements.affine_elements.sum())
        volume += float(elements.volumes().sum())
        ratio = elements.quality().ratio
        if ratio.min() < worst:
            worst, worst_cell = float(ratio.min()), int(group.indices[np.argmin(ratio)])
    return MeshSummary(
        name=mesh.name,
        dim=mesh.dim,
        n_coordinates=mesh.points.shape[1],
        n_cells=mesh.n_cells,
        n_vertices=mesh.n_vertices,
        n_points=len(mesh.points),
        counts=counts,
        orders={name: tuple(sorted(set(own))) for name, own in orders.items()},
        affine=affine,
        volume=volume,
        worst_scaled_jacobian=worst,
        worst_cell=worst_cell,
        worst_label=mesh.describe_cell(worst_cell),
        n_mirrored=mesh.n_mirrored,
        n_stray=mesh.n_stray,
        n_coincident=0 if mesh.periodic else _coincident(mesh),
        n_hanging=len(mesh.hanging),
        hanging=mesh.hanging.described(mesh) if len(mesh.hanging) else "",
        periodic=mesh.periodic,
        regions={name: len(cells) for name, cells in mesh.regions.items()},
        boundaries={name: len(facets) for name, facets in mesh.boundaries.items()},
    )


def _coincident(mesh: Mesh) -> int:
    """Vertices of the boundary less the places where they are."""
    is_open = np.zeros(len(mesh.facets), dtype=bool)
    is_open[mesh.facets.boundary] = True
    vertices, points = [], []
    for group in mesh.cells:
        corners = group.nodes[:, vertex_positions(group.shape, group.order)]
        for number, facet in enumerate(group.shape.facets):
            chosen = is_open[group.facets[:, number]]
            vertices.append(group.vertices[chosen][:, facet.vertices].ravel())
            points.append(corners[chosen][:, facet.vertices].ravel())
    ids, first = np.unique(np.concatenate(vertices), return_index=True)
    places = mesh.points[np.concatenate(points)[first]]
    step = 1e-10 * np.ptp(mesh.points, axis=0).max()
    return len(ids) - len(np.unique(np.round(places / step), axis=0))
