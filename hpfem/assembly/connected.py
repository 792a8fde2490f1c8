"""Connected parts of a mesh: cells that share unknowns, directly or through other cells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from ..mesh import Mesh
from ..space.space import Space
from .numbering import Numbering

Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Parts:
    """The parts of a mesh, numbered by their first cells' vertices.

    Attributes
    ----------
    count : int
    of_cells : ndarray of int, [n_cells]
        Part of each cell.
    of_unknowns : ndarray of int, [size]
        Part of each global degree of freedom of one component.
    """

    count: int
    of_cells: Indices
    of_unknowns: Indices

    def name(self, number: int, mesh: Mesh) -> str:
        """What a part is called in messages: its regions and the middle of its cells.

        Parameters
        ----------
        number : int
            Of the part.
        mesh : Mesh

        Returns
        -------
        str
        """
        if self.count == 1:
            return "the mesh"
        chosen = self.of_cells == number
        regions = [name for name, cells in mesh.regions.items() if chosen[cells].any()]
        nodes = [cells.nodes[chosen[cells.indices]].ravel() for cells in mesh.cells]
        points = mesh.points[np.unique(np.concatenate(nodes))]
        middle = ", ".join(f"{x:.3g}" for x in (points.min(axis=0) + points.max(axis=0)) / 2)
        named = f"{', '.join(regions)}, " if regions else ""
        return f"part {number + 1} of {self.count} ({named}{np.count_nonzero(chosen)} cells around ({middle}))"


def connected_parts(numbering: Numbering, space: Space) -> Parts:
    """Find the parts. Cells that share an edge or a face share its vertices, so that vertices tell.

    Parameters
    ----------
    numbering : Numbering
    space : Space

    Returns
    -------
    Parts
    """
    vertices = [numbering.of_group(group, 0).ids for group in range(len(space.mesh.cells))]
    n = len(numbering.offsets[0])
    first = np.concatenate([np.repeat(ids[:, 0], ids.shape[1]) for ids in vertices])
    other = np.concatenate([ids.ravel() for ids in vertices])
    links = csr_array((np.ones(len(first), dtype=bool), (first, other)), shape=(n, n))
    _, of_vertices = connected_components(links, directed=False)
    of_cells = np.empty(space.n_cells, dtype=np.int64)
    for cells, ids in zip(space.mesh.cells, vertices, strict=True):
        of_cells[cells.indices] = of_vertices[ids[:, 0]]
    names, of_cells = np.unique(of_cells, return_inverse=True)  # a vertex of no cell is no part
    of_entities = [np.zeros(len(sizes), dtype=np.int64) for sizes in numbering.sizes]
    for cells in numbering.cells:
        for dim, found in enumerate(of_entities):
            found[cells.ids(dim)] = of_cells[cells.indices][:, None]
    return Parts(len(names), of_cells, numbering.of_unknowns(of_entities))
