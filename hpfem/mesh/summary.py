"""Counts of a mesh and the quality of its cells, in a form for printing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hpfem.shapes.arrays import Array, Indices

from ..geometry.element_map import ElementMap
from ..geometry.kinds import AFFINE, GEOMETRY_KINDS, first_kinds
from ..support.notebook import Printed
from .topology import Topology

# Named sets of a mesh, and their titles.
SETS = {"regions": "regions", "boundaries": "boundaries", "edge_sets": "sets of edges", "point_sets": "sets of points"}


def lines_of_sets(counts: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Print the numbers of members by title and name."""
    return [
        f"  {title}: " + ", ".join(f"{name} ({count:,})" for name, count in own.items())
        for title, own in counts.items()
        if own
    ]


def percent(part: float, whole: float) -> str:
    """Write a share; 0% and 100% are none and all."""
    share = part / whole
    return "<1%" if 0 < share < 0.005 else ">99%" if 0.995 <= share < 1 else f"{share:.0%}"


@dataclass(frozen=True, repr=False)
class MeshSummary(Printed):
    """Counts and quality of a mesh."""

    name: str  # the file
    dim: int  # of the cells
    n_coordinates: int  # of space
    plane: str  # where all points of 2-D cells in space are, if that is a coordinate plane: "y = 0"
    n_cells: int
    n_vertices: int
    n_points: int
    counts: Mapping[str, int]  # cells per shape
    orders: Mapping[str, tuple[int, ...]]  # geometry orders per shape
    kinds: Mapping[str, Mapping[str, int]]  # cells per shape and kind of their geometry
    volume: float  # sum over the cells (areas in 2-D)
    worst_scaled_jacobian: float  # least min det J / max det J of a cell; 1 when all are affine
    worst_cell: int  # the cell that has it
    worst_label: str  # its name in messages
    n_mirrored: int  # cells that were renumbered because det J was negative
    n_stray: int  # named elements and points that are no facet, edge or vertex of a cell
    n_coincident: int  # vertices on the boundary at the place of another: the cells there touch, but are not joined
    n_hanging: int  # vertices inside sides of cells without them as corners: the cells are not joined either
    hanging: str  # the place of the first of them
    periodic: bool  # whether periodic sides are identified
    regions: Mapping[str, int]  # cells per region
    boundaries: Mapping[str, int]  # facets per boundary
    edge_sets: Mapping[str, int]
    point_sets: Mapping[str, int]
    cell_data: tuple[str, ...]  # names of the values that the cells have
    n_unnamed: int  # facets on the boundary that are in no named boundary
    unnamed: tuple[float, ...]  # the least, then the largest of each coordinate of their corners

    @property
    def affine(self) -> dict[str, int]:
        """Affine cells per shape."""
        return {shape: own[AFFINE.name] for shape, own in self.kinds.items()}

    @property
    def affine_share(self) -> float:
        """Affine cells over all cells."""
        return sum(self.affine.values()) / self.n_cells

    def __str__(self) -> str:
        space = "" if self.dim == self.n_coordinates else f" in {self.n_coordinates}-D space"
        space += f", in the plane {self.plane}" if self.plane else ""
        lines = [
            f"{self.name}: {self.dim}-D mesh{space}, {self.n_cells:,} cells, {self.n_vertices:,} vertices, "
            f"{self.n_points:,} points" + (", periodic" if self.periodic else "")
        ]
        for shape, count in self.counts.items():
            orders = ", ".join(map(str, self.orders[shape]))
            kinds = [f"{percent(own, count)} {kind}" for kind, own in self.kinds[shape].items() if own]
            lines.append(f"  {shape:8}{count:>12,}  geometry order {orders}, {', '.join(kinds)}")
        lines.append(
            f"  {'volume' if self.dim == 3 else 'area'} {self.volume:.12g}, affine share {self.affine_share:.1%}"
        )
        lines.append(f"  worst scaled Jacobian {self.worst_scaled_jacobian:.4g}, {self.worst_label}")
        if self.n_mirrored:
            lines.append(f"  {self.n_mirrored:,} mirrored cells were renumbered")
        if self.n_stray:
            lines.append(f"  {self.n_stray:,} elements or points with a name are no facet, edge or vertex of a cell")
        if self.n_coincident:
            lines.append(f"  {self.n_coincident:,} boundary vertices lie on others: the cells there are not joined")
        if self.n_hanging:
            lines.append(f"  {self.hanging}: the cells there are not joined, and no C0Space is made")
        lines += lines_of_sets({title: getattr(self, name) for name, title in SETS.items()})
        if self.cell_data:
            lines.append(f"  cell data: {', '.join(self.cell_data)}")
        if self.n_unnamed:
            low, high = np.split(np.array(self.unnamed), 2)
            ranges = ", ".join(
                f"{name} {a:.4g}" if a == b else f"{name} {a:.4g} to {b:.4g}"
                for name, a, b in zip("xyz", low, high, strict=False)
            )
            lines.append(f"  {self.n_unnamed:,} boundary facets without a name, within {ranges}")
        return "\n".join(lines)

    __repr__ = __str__


def together(parts: Sequence[MeshSummary]) -> MeshSummary:
    """Join the summaries of the parts of a mesh."""
    first, worst = parts[0], min(parts, key=lambda part: part.worst_scaled_jacobian)

    def total(name: str) -> dict[str, int]:
        return {key: sum(getattr(part, name)[key] for part in parts) for key in getattr(first, name)}

    boxes = np.array([part.unnamed for part in parts if part.unnamed])
    lower, upper = np.split(boxes, 2, axis=1) if len(boxes) else (boxes, boxes)
    numbers = ("n_cells", "n_vertices", "n_points", "volume", "n_unnamed")
    changes: dict[str, Any] = {name: sum(getattr(part, name) for part in parts) for name in numbers}
    changes |= {name: total(name) for name in ("counts", *SETS)}
    kinds = {shape: Counter[str]() for shape in first.kinds}
    for part in parts:
        for shape, own in part.kinds.items():
            kinds[shape].update(own)
    changes["kinds"] = kinds
    changes |= {name: getattr(worst, name) for name in ("worst_scaled_jacobian", "worst_cell", "worst_label")}
    changes["unnamed"] = (*lower.min(axis=0).tolist(), *upper.max(axis=0).tolist()) if len(boxes) else ()
    return replace(first, **changes)


def cell_statistics(points: Array, topology: Topology) -> dict[str, Any]:
    """Look at every cell of a mesh; points [n, D]."""
    counts: dict[str, int] = {}
    orders: dict[str, set[int]] = {}
    kinds: dict[str, Counter[str]] = {}
    volume, worst, worst_cell = 0.0, np.inf, -1
    for group in topology.cells:
        name = group.shape.name
        counts[name] = counts.get(name, 0) + len(group)
        orders.setdefault(name, set()).add(group.order)
        elements = ElementMap.of(group, points)
        found = np.bincount(first_kinds(elements), minlength=len(GEOMETRY_KINDS)).tolist()
        kinds.setdefault(name, Counter()).update(dict(zip((kind.name for kind in GEOMETRY_KINDS), found, strict=True)))
        volume += float(elements.volumes().sum())
        ratio = elements.quality().ratio
        if ratio.min(initial=np.inf) < worst:
            worst, worst_cell = float(ratio.min()), int(group.indices[np.argmin(ratio)])
    return {
        "counts": counts,
        "orders": {name: tuple(sorted(own)) for name, own in orders.items()},
        "kinds": kinds,
        "volume": volume,
        "worst_scaled_jacobian": worst,
        "worst_cell": worst_cell,
    }


def unnamed_facets(points: Array, topology: Topology, named: Iterable[Indices]) -> tuple[int, tuple[float, ...]]:
    """Find the facets of the boundary that have no name; points [n, D]."""
    unnamed = topology.facets.on_boundary.copy()
    for facets in named:
        unnamed[facets] = False
    rows = [
        topology.cells[position].corners[unnamed[topology.sides.ids[position][:, number]]][:, facet.vertices].ravel()
        for position, number, facet in topology.local_entities(topology.dim - 1)
    ]
    places = points[np.concatenate(rows)]
    ends = (*places.min(axis=0).tolist(), *places.max(axis=0).tolist()) if len(places) else ()
    return int(unnamed.sum()), ends
