"""Connected parts of a mesh: cells that share unknowns, directly or through other cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from hpfem.shapes.arrays import Indices

from ..memory import as_numpy, every, xp_for
from ..mesh import Mesh
from ..mesh.sorting import marked, unique
from ..mesh.topology import classes
from ..space.space import Space
from .numbering import Numbering


@dataclass(frozen=True, eq=False)
class Parts:
    """The parts of a mesh, numbered by their first cells' vertices."""

    count: int
    of_cells: Indices  # [n_cells]
    of_unknowns: Indices  # of the global degrees of freedom of one component, [size]

    def name(self, number: int, mesh: Mesh) -> str:
        """Name of a part in messages: its regions and the middle of its cells; collective."""
        if self.count == 1:
            return "the mesh"
        chosen = self.of_cells == number
        inside = mesh.comm.allgather({name for name, cells in mesh.regions.items() if chosen[cells].any()})
        regions = [name for name in mesh.regions if name in set().union(*inside)]
        nodes = [cells.nodes[chosen[cells.indices]].ravel() for cells in mesh.cells]
        points = mesh.points[unique(np.concatenate(nodes))]
        ends = [points.min(axis=0, initial=np.inf), -points.max(axis=0, initial=-np.inf)]
        lower, upper = np.min(mesh.comm.allgather(np.array(ends)), axis=0)
        middle = ", ".join(f"{x:.3g}" for x in (lower - upper) / 2)
        named = f"{', '.join(regions)}, " if regions else ""
        count = int(mesh.comm.sum(np.count_nonzero(chosen)))
        return f"part {number + 1} of {self.count} ({named}{count} cells around ({middle}))"


def connected_parts(numbering: Numbering, space: Space) -> Parts:
    """Find the parts. Cells that share an edge or a face share its vertices, so that vertices tell."""
    groups, n = range(len(numbering.cells)), len(numbering.offsets[0])
    xp = xp_for(sum(own.vertices.size for own in numbering.cells), space.array_module())
    of_all = as_numpy(_lowest([numbering.of_group(group, 0).ids_on(xp) for group in groups], n, xp))
    of_cells = np.empty(space.n_cells, dtype=np.int64)
    for cells in numbering.cells:
        of_cells[cells.indices] = of_all[cells.vertices[:, 0]]
    has_cells = marked(n, [of_cells])  # a vertex of no cell is no part
    new = np.cumsum(has_cells) - 1
    total, of_parts = _joined(space.mesh, int(has_cells.sum()), new[of_all])
    of_cells = of_parts[new[of_cells]]
    if total == 1:
        return Parts(total, of_cells, np.zeros(numbering.size, dtype=np.int64))
    of_entities = [np.zeros(len(sizes), dtype=np.int64) for sizes in numbering.sizes]
    for cells in numbering.cells:
        for dim, found in enumerate(of_entities):
            found[cells.ids(dim)] = of_cells[cells.indices][:, None]
    return Parts(total, of_cells, numbering.of_unknowns(of_entities))


def _lowest(cells: Sequence[Any], n: int, xp: Any) -> Any:
    """The lowest of the vertices that are connected to each one; cells [n_cells, n_vertices] -> [n]."""
    every_label = xp.arange(n + 1)
    label = every_label[:n]
    while True:
        # The lowest label beside each one, by any cell; the last place is for those that are the lowest of a cell.
        beside = every_label.copy()
        for vertices in cells:
            found = [label[column] for column in vertices.T]
            low = reduce(xp.minimum, found)
            for own in found:
                beside[xp.where(low < own, own, n)] = low
        beside[n] = n
        if every(beside == every_label):
            return label
        while not every((further := beside[beside]) == beside):
            beside = further
        label = beside[label]


def _joined(mesh: Mesh, count: int, of_vertices: Indices) -> tuple[int, Indices]:
    """Number of parts of the whole mesh, and which of them each part here belongs to; collective."""
    if mesh.part is None:
        return count, np.arange(count)
    comm, counts = mesh.comm, mesh.comm.allgather(count)
    first = sum(counts[: comm.rank])
    here = {rank: first + of_vertices[ids] for rank, ids in mesh.part.corners[0].items()}
    theirs = comm.alltoall(here)
    pairs = [np.column_stack([own, theirs[rank]]) for rank, own in here.items()]
    links = comm.allgather(np.unique(np.concatenate([np.empty((0, 2), dtype=np.int64), *pairs]), axis=0))
    total, of_all = classes(sum(counts), np.concatenate(links))
    return total, of_all[first : first + count]
