"""Connected parts of a mesh: cells that share unknowns, directly or through other cells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from hpfem.shapes.arrays import Indices

from ..mesh import Mesh
from ..mesh.sorting import unique
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
    vertices = [cells.vertices for cells in numbering.cells]
    n = len(numbering.offsets[0])
    # A graph of vertices: the first one of every cell is linked to the others.
    first = np.concatenate([np.repeat(own[:, 0], own.shape[1] - 1) for own in vertices])
    others = np.concatenate([own[:, 1:].ravel() for own in vertices])
    links = csr_array((np.ones(len(first), np.int32), (first, others)), shape=(n, n))
    count, of_all = connected_components(links, directed=False)
    of_cells = np.empty(space.n_cells, dtype=np.int64)
    for cells in numbering.cells:
        of_cells[cells.indices] = of_all[cells.vertices[:, 0]]
    has_cells = np.bincount(of_cells, minlength=count) > 0  # a vertex of no cell is no part
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
