"""Numbers of the lattice points of all cells; cells share the points on their common vertices, edges and faces."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
from numpy.typing import NDArray

from hpfem.shapes import Shape
from hpfem.shapes.arrays import Indices

from .sorting import marked
from .symmetry import entity_nodes, interior_nodes, lattice_permutations
from .topology import Topology


@cache
def _own_positions(shape: Shape, order: int) -> Indices:
    """Where each interior lattice point of an entity goes under each orientation code, [n_symmetries, n_interior]."""
    interior = interior_nodes(shape, order)
    if shape.dim == 0:
        return np.zeros((1, 1), dtype=np.int64)
    count = np.full(len(lattice_permutations(shape, order)[0]), -1)
    count[interior] = np.arange(len(interior))
    # The global point j is the local point p[j], so the local point l is the global one where p is l.
    return count[np.argsort(lattice_permutations(shape, order), axis=1)[:, interior]]


def lattice_numbering(topology: Topology, order: int) -> tuple[tuple[Indices, ...], int]:
    """Number the lattice points of a mesh; cells share those of common edges and faces; -> numbers [E, n_nodes]."""
    numbers = [
        np.empty((len(cells), len(lattice_permutations(cells.shape, order)[0])), dtype=np.int64)
        for cells in topology.cells
    ]
    start = 0
    for dim in range(topology.dim + 1):
        points, count = inner_points(topology, order, dim)
        for position, inside, own in points:
            numbers[position][:, inside] = start + own
        start += count
    used = marked(start, numbers)
    compact = np.cumsum(used) - 1
    return tuple(compact[own] for own in numbers), int(used.sum())


def inner_points(topology: Topology, order: int, dim: int) -> tuple[Iterator[tuple[int, Indices, Indices]], int]:
    """Number the lattice points inside the entities of one dimension, with gaps between shapes; -> points [n]."""
    stride = max(len(interior_nodes(e.shape, order)) for cells in topology.cells for e in cells.shape.entities[dim])
    codes: tuple[NDArray[np.int8], ...] | None = None
    if dim == 0:
        n, ids = topology.n_vertices, topology.vertices
    elif dim == topology.dim:
        n, ids = topology.n_cells, tuple(cells.indices[:, None] for cells in topology.cells)
    else:
        entities = topology.edges if dim == 1 else topology.faces
        n, ids, codes = entities.count, entities.ids, entities.orientation

    def points() -> Iterator[tuple[int, Indices, Indices]]:
        for position, cells in enumerate(topology.cells):
            for number, entity in enumerate(cells.shape.entities[dim]):
                inside = entity_nodes(cells.shape, order, dim, number)[interior_nodes(entity.shape, order)]
                own = _own_positions(entity.shape, order)
                where = own[:1] if codes is None or len(inside) == 1 else own[codes[position][:, number]]
                yield position, inside, stride * ids[position][:, number, None] + where

    return points(), stride * n
