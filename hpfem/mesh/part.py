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

from hpfem.shapes.arrays import Array, Indices, Mask

from ..support.communicator import Communicator
from .hanging import Hanging
from .sorting import in_order, marked, sorted_rows, unique, with_marked
from .symmetry import entity_nodes, interior_nodes
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
    corners: tuple[Shared, ...]  # per dimension, of the entities of each neighbour; see `shared_corners`
    counts_of_cells: tuple[int, ...]  # by process

    @property
    def beyond(self) -> Indices:
        """Vertices of the sides whose second cell another process has; see `Topology.cut`."""
        return beyond(self.corners)

    def shared(self, topology: Topology) -> tuple[Shared, ...]:
        """Per dimension, ids of the entities of each neighbour, listed in its order."""
        result = [self.corners[0]]
        for own, name in zip(self.corners[1:], ("edges", "faces"), strict=False):
            result.append({rank: getattr(topology, name).index.find(rows) for rank, rows in own.items()})
        return tuple(result)

    def counts(self, points: Array, topology: Topology) -> tuple[int, int]:
        """Count vertices and points, each on one process only; collective; points [n, D]."""
        others = self._points_of_others(points, topology)
        lower = [rank for rank in self.corners[0] if rank < self.comm.rank]
        none = np.empty(0, dtype=np.int64)
        vertices, other = (unique(np.concatenate([none, *(o[r] for r in lower)])) for o in (self.corners[0], others))
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
        found: dict[int, list[Indices]] = {rank: [] for rank in self.corners[0]}
        for dim, shared in enumerate(self.shared(topology)):
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


def shared_vertices(ids: Indices, comm: Communicator) -> Shared:
    """Find which of some vertices others have too, by their ids in the whole mesh, ascending; collective; ids [n]."""
    given = comm.alltoall({rank: ids[ids % comm.size == rank] for rank in range(comm.size)})
    asked = np.concatenate(list(given.values()))
    ranks = np.repeat(list(given), [len(own) for own in given.values()])
    ranks, asked = in_order(asked, int(asked.max(initial=0)) + 1, ranks, comm.size)
    pairs = [np.empty((0, 3), dtype=np.int64)]
    for step in range(1, comm.size):
        same = np.flatnonzero(asked[step:] == asked[:-step])
        here, there = ranks[same], ranks[same + step]
        pairs += [np.column_stack([here, there, asked[same]]), np.column_stack([there, here, asked[same]])]
    known = np.concatenate(pairs)
    told = comm.alltoall({rank: known[known[:, 0] == rank, 1:] for rank in range(comm.size)})
    found = np.concatenate(list(told.values()))
    others = {rank: np.sort(found[found[:, 0] == rank, 1]) for rank in np.unique(found[:, 0]).tolist()}
    return {rank: np.searchsorted(ids, own) for rank, own in others.items()}


def shared_corners(
    topology: Topology, vertices: Indices, shared: Shared, comm: Communicator
) -> tuple[tuple[Shared, ...], bool]:
    """Find the vertices of entities that neighbours have too, from cells beside them alone, and whether no side of
    these has more than two cells; collective; vertices [n_vertices].

    Each entity is a row of ascending vertices, of tris -1 first, and a vertex a number. Rows ascend, as they do with
    the ids in the whole mesh.
    """
    corners, once, has = [shared], True, {rank: marked(len(vertices), [own]) for rank, own in shared.items()}
    any_has = marked(len(vertices), shared.values())
    near = [with_marked(own, any_has) for own in topology.vertices]
    for dim in range(1, topology.dim):
        rows, claims = _corners(topology, dim, near, any_has)
        inside = {rank: np.flatnonzero(_all(marks, rows)) for rank, marks in has.items()}
        known = np.append(vertices, -1)[rows]
        theirs = comm.alltoall({rank: known[own] for rank, own in inside.items()})
        found = {rank: own[_common(known[own], theirs[rank])] for rank, own in inside.items()}
        corners.append({rank: rows[own] for rank, own in found.items() if len(own)})
        others = np.bincount(np.concatenate([np.empty(0, np.int64), *found.values()]), minlength=len(rows))
        once = bool((claims + others <= 2)[others > 0].all())
    return tuple(corners), once


def beyond(corners: Sequence[Shared]) -> Indices:
    """Vertices of the sides that other processes have too; see `shared_corners`."""
    return np.concatenate([np.empty((0, 2 * len(corners) - 2), dtype=np.int64), *corners[-1].values()])


def _corners(topology: Topology, dim: int, near: Sequence[Indices], marks: Mask) -> tuple[Indices, Indices]:
    """Edges or faces of some cells of each array with all vertices marked, as rows [n, 2 or 4], and their cells [n]."""
    parts = [np.empty((0, 2 * dim), dtype=np.int64)]
    of_cells = [own[rows] for own, rows in zip(topology.vertices, near, strict=True)]
    for position, _, entity in topology.local_entities(dim):
        own = np.full((len(near[position]), 2 * dim), -1, dtype=np.int64)
        own[:, 2 * dim - len(entity.vertices) :] = sorted_rows(of_cells[position][:, list(entity.vertices)])
        parts.append(own[_all(marks, own)])
    rows = np.concatenate(parts)
    rows = rows[np.lexsort(rows.T[::-1])]
    starts = np.flatnonzero(np.append(True, (rows[1:] != rows[:-1]).any(axis=1))[: len(rows)])
    return rows[starts], np.diff(starts, append=len(rows))


def _all(marks: Mask, rows: Indices) -> Mask:
    """Whether all vertices of rows are marked; -1 is none; marks [n_vertices], rows [n, m]."""
    return np.asarray(np.append(marks, True)[rows].all(axis=1))


def _common(rows: Indices, others: Indices) -> Mask:
    """Which rows of one table are in another; the rows of each are distinct."""
    every = np.concatenate([rows, others])
    order = np.lexsort(every.T)
    same = (every[order[1:]] == every[order[:-1]]).all(axis=1)
    found = np.zeros(len(every), dtype=bool)
    found[order[:-1][same]] = True  # sorting is stable
    return found[: len(rows)]
