"""The part of a mesh that one process has: its cells, and the entities that it shares with other processes.

A cell belongs to one process; a vertex, edge or face belongs to all processes with cells around it. All processes know
them by the ids of their vertices in the whole mesh. These ids determine the order in which processes list shared
entities and, as local ids ascend with them, every orientation.

A side that another process continues is not on the boundary. Every kind of cell has a group on every process, and a
process without cells has one block without elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..support.communicator import Communicator
from .cells import Array
from .hanging import Hanging
from .sorting import marked, sorted_rows, unique
from .symmetry import Indices, entity_nodes, interior_nodes
from .topology import Topology

Shared = Mapping[int, Indices]
# Points of processes are the same if they are as close, relative to the extent of the parts; no round number.
_CLOSE = 1e-10 * np.pi


@dataclass(frozen=True, eq=False)
class Part:
    """The place of a mesh in the whole mesh that processes share."""

    comm: Communicator
    cells: Indices  # numbers in the whole mesh
    vertices: Indices  # ids in the whole mesh, ascending
    ranks: Indices  # their order for spaces; see `hpfem.mesh.aligned`
    hanging: Hanging  # of the whole mesh
    shared: tuple[Shared, ...]  # per dimension, ids of the entities of each neighbour, listed in its order
    counts_of_cells: tuple[int, ...]  # by process

    @property
    def beyond(self) -> Indices:
        """Sides of this part whose second cell another process has; see `Topology.cut`."""
        return np.concatenate([np.empty(0, dtype=np.int64), *self.shared[-1].values()])

    def counts(self, points: Array, topology: Topology) -> tuple[int, int]:
        """Count vertices and points, each on one process only; collective; points [n, D]."""
        others = self._points_of_others(points, topology)
        lower = [rank for rank in self.shared[0] if rank < self.comm.rank]
        none = np.empty(0, dtype=np.int64)
        vertices, other = (unique(np.concatenate([none, *(o[r] for r in lower)])) for o in (self.shared[0], others))
        return topology.n_vertices - len(vertices), len(points) - len(other)

    def summed(self, values: Array, points: Array, topology: Topology) -> Array:
        """Sums over processes of values at points, the same to the bit on all; collective; values, points [n, D]."""
        others = self._points_of_others(points, topology)
        given = self.comm.exchanged({rank: values[own] for rank, own in others.items()})
        total = np.zeros_like(values)
        for rank, own in sorted({**given, self.comm.rank: values}.items()):
            total[others.get(rank, slice(None))] += own
        return total

    def _points_of_others(self, points: Array, topology: Topology) -> dict[int, Indices]:
        """The points that each neighbour has too, in the same order there; collective; points [n, D]."""
        # A periodic vertex, edge or face has points in several places, of which a process may have some.
        step = _CLOSE * self.comm.max(float(np.ptp(points, axis=0).max()) if len(points) else 0.0)
        found: dict[int, list[Indices]] = {rank: [] for rank in self.shared[0]}
        for dim, shared in enumerate(self.shared):
            owners, at = _points_inside(topology, dim)
            for rank, ids in shared.items():
                place = np.full(1 + max(int(own.max(initial=-1)) for own in (owners, ids)), -1)
                place[ids] = np.arange(len(ids))
                own = np.flatnonzero(place[owners] >= 0)
                where = np.rint(points[at[own]] / step).astype(np.int64)
                found[rank].append(np.column_stack([np.full(len(own), dim), place[owners[own]], where, at[own]]))
        here = {rank: np.unique(np.concatenate(rows), axis=0) for rank, rows in found.items()}  # sorted
        theirs = self.comm.alltoall({rank: rows[:, :-1] for rank, rows in here.items()})
        return {rank: rows[_common(rows[:, :-1], theirs[rank]), -1] for rank, rows in here.items()}


def _points_inside(topology: Topology, dim: int) -> tuple[Indices, Indices]:
    """Entities of a dimension and the points inside them: pairs, as often as cells have them."""
    ids = topology.vertices if dim == 0 else (topology.edges if dim == 1 else topology.faces).ids
    owners, points = [], []
    for position, number, entity in topology.local_entities(dim):
        cells = topology.cells[position]
        nodes = entity_nodes(cells.shape, cells.order, dim, number)[interior_nodes(entity.shape, cells.order)]
        points.append(cells.nodes[:, nodes].ravel())
        owners.append(np.repeat(ids[position][:, number], len(nodes)))
    return np.concatenate(owners), np.concatenate(points)


def combined(comm: Communicator, values: Indices, shared: Shared, operation: Callable[..., Any]) -> Indices:
    """Combine the values of all processes on shared entities; collective; values [n] -> [n]."""
    result = values.copy()
    for rank, other in comm.exchanged({rank: values[ids] for rank, ids in shared.items()}).items():
        result[shared[rank]] = operation(result[shared[rank]], other)
    return result


def shared_vertices(topology: Topology, vertices: Indices, comm: Communicator) -> Shared:
    """Find the vertices that others have too, if no process has the whole mesh; collective; vertices [n_vertices]."""
    is_open, on_open = topology.facets.on_boundary, np.zeros(len(vertices), dtype=bool)
    for position, number, facet in topology.local_entities(topology.dim - 1):
        chosen = is_open[topology.sides.ids[position][:, number]]
        on_open[topology.vertices[position][chosen][:, list(facet.vertices)].ravel()] = True
    asked = vertices[on_open]  # each of the process that its id determines
    given = comm.alltoall({rank: asked[asked % comm.size == rank] for rank in range(comm.size)})
    ids = np.concatenate(list(given.values()))
    ranks = np.repeat(list(given), [len(own) for own in given.values()])
    order = np.lexsort((ranks, ids))
    ids, ranks = ids[order], ranks[order]
    pairs = [np.empty((0, 3), dtype=np.int64)]
    for step in range(1, comm.size):
        same = np.flatnonzero(ids[step:] == ids[:-step])
        here, there = ranks[same], ranks[same + step]
        pairs += [np.column_stack([here, there, ids[same]]), np.column_stack([there, here, ids[same]])]
    known = np.concatenate(pairs)
    told = comm.alltoall({rank: known[known[:, 0] == rank, 1:] for rank in range(comm.size)})
    found = np.concatenate(list(told.values()))
    others = {rank: np.sort(found[found[:, 0] == rank, 1]) for rank in np.unique(found[:, 0]).tolist()}
    return {rank: np.searchsorted(vertices, own) for rank, own in others.items()}


def shared_entities(topology: Topology, vertices: Indices, shared: Shared, comm: Communicator) -> tuple[Shared, ...]:
    """Find the edges and faces that neighbours have too; collective; vertices [n_vertices]."""
    result: list[Shared] = [shared]
    there = marked(len(vertices), tuple(shared.values()))
    near = [np.flatnonzero(there[own].any(axis=1)) for own in topology.vertices]
    for dim in range(1, topology.dim):
        ids, corners = _corners(topology, dim, near)
        here = {rank: _candidates(ids, corners, own, vertices) for rank, own in shared.items()}
        theirs = comm.alltoall({rank: rows for rank, (_, rows) in here.items()})
        found = {rank: ids[_common(rows, theirs[rank])] for rank, (ids, rows) in here.items()}
        result.append({rank: ids for rank, ids in found.items() if len(ids)})
    return tuple(result)


def _corners(topology: Topology, dim: int, near: Sequence[Indices]) -> tuple[Indices, Indices]:
    """Edges or faces [n] of some cells of each array and their vertices, ascending, of tris -1 first [n, 2 or 4]."""
    entities = topology.edges if dim == 1 else topology.faces
    ids, rows = [np.empty(0, dtype=np.int64)], [np.empty((0, 2 * dim), dtype=np.int64)]
    for position, number, entity in topology.local_entities(dim):
        cells, n = near[position], len(entity.vertices)
        own = np.full((len(cells), 2 * dim), -1, dtype=np.int64)
        own[:, 2 * dim - n :] = sorted_rows(topology.vertices[position][cells][:, list(entity.vertices)])
        ids.append(entities.ids[position][cells, number])
        rows.append(own)
    found, first = np.unique(np.concatenate(ids), return_index=True)
    return found, np.concatenate(rows)[first]


def _candidates(entities: Indices, corners: Indices, shared: Indices, vertices: Indices) -> tuple[Indices, Indices]:
    """Entities whose vertices a neighbour has too, ordered by these vertices' ids in the whole mesh; with the ids."""
    has = np.zeros(len(vertices) + 1, dtype=bool)  # the last one is -1
    has[shared], has[-1] = True, True
    inside = has[corners].all(axis=1)
    rows = np.append(vertices, -1)[corners[inside]]
    order = np.lexsort(rows.T[::-1])
    return entities[inside][order], rows[order]


def _common(rows: Indices, others: Indices) -> Indices:
    """Which rows of one table are in another; rows are distinct."""
    known = {row.tobytes() for row in np.ascontiguousarray(others)}
    return np.array([row.tobytes() in known for row in np.ascontiguousarray(rows)], dtype=bool)
