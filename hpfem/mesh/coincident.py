"""Points at one place that are not one point: found, joined, counted; and the cells that meet there apart.

Two points are at one place if they are closer than a millionth of the shortest distance of corners in the cells around
them, or than the rounding of coordinates: so cells of any size and stretching keep their corners. Only points on sides
without a neighbour can be at the place of others, as other points have cells all around.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from hpfem.shapes.arrays import Array, Indices

from ..geometry.element_map import CACHED, chunks
from ..support.communicator import ALONE, Communicator
from ..support.threads import in_parts
from .cells import CellArray
from .hanging import near, open_sides
from .named_sets import looked_up
from .sorting import marked, unique
from .topology import Topology, classes

# Words of the warning after the number of points.
JOINED = "points at the place of others were joined with them; join=False leaves them apart"

_CLOSE = 1e-6
# Rounding is a few units of the last digit of the largest coordinate, and never a larger part of a cell.
_UNITS, _MOST = 4, 1e-3
# Points are sorted by their coordinate in a direction in which those of regular meshes differ.
_DIRECTION = np.array([0.5479, 0.6132, 0.5691])


def first_points(
    points: Array,
    topology: Topology,
    others: Iterable[Indices],
    ids: Indices,
    keys: Indices | None = None,
    comm: Communicator = ALONE,
) -> tuple[Indices, Array]:
    """Find the first point at each place; collective; points [n, D], others [.., corners] -> ids [n], places [n, D]."""
    used = marked(len(points), (cells.nodes for cells in topology.cells))
    loose = [rows for rows in others if not used[rows].all()]
    tolerance = _tolerance_of_points(points, topology, loose, comm)
    nodes = np.flatnonzero(np.isfinite(tolerance))
    result, places = ids.copy(), points.copy()
    # Nodes that serendipity cells lack, behind the others, have no key.
    own = np.full(len(nodes), -1) if keys is None else looked_up(keys, nodes)
    result[nodes], places[nodes] = _lowest(points[nodes], tolerance[nodes], ids[nodes], own, comm)
    return result, places


def coincident_vertices(points: Array, topology: Topology, ids: Indices, comm: Communicator = ALONE) -> int:
    """Count boundary vertices at the place of another vertex; collective; points [n, D], ids [n_vertices]."""
    tolerance = _tolerance_of_points(points, topology, (), comm)
    vertex = np.full(len(points), -1, dtype=np.int64)
    for cells, vertices in zip(topology.cells, topology.vertices, strict=True):
        vertex[cells.corners] = vertices
    nodes = np.flatnonzero(np.isfinite(tolerance) & (vertex >= 0))
    own = ids[vertex[nodes]]
    found = _lowest(points[nodes], tolerance[nodes], own, np.zeros_like(own), comm)[0]
    return len(unique(np.concatenate(comm.allgather(own[found != own]))))


def facing_sides(points: Array, topology: Topology, comm: Communicator = ALONE) -> tuple[int, str]:
    """Find sides without a neighbour that lie on each other; collective; points [n, D]."""
    sides = open_sides(topology)
    n = int(sum(map(len, sides)))
    corners = np.full((n, 4, points.shape[1]), np.nan)
    cells = np.empty(n, dtype=np.int64)
    end = 0
    for own in sides:
        start, end = end, end + len(own)
        corners[start:end, : own.shape.n_vertices], cells[start:end] = points[own.corners], own.indices
    number = np.isfinite(corners[:, :, 0]).sum(axis=1)
    middles = np.nansum(corners, axis=1) / number[:, None]
    tolerance = _tolerances(_sizes(points, topology, sides)[cells], _rounding(points))
    middles, tolerance, corners, number = near(middles, [middles, tolerance, corners, number], comm)
    pairs = _coincident(middles, tolerance, number)
    one, other = pairs[(pairs < n).any(axis=1)].T
    # Each corner of the one is at the place of a corner of the other.
    apart = np.sqrt(((corners[one, :, None] - corners[other, None]) ** 2).sum(axis=-1))
    met = (apart <= 2 * tolerance[one, None, None]).any(axis=2).sum(axis=1)
    same = np.flatnonzero((met == number[one]) & (met == number[other]))
    # Two processes count the same pair.
    count = comm.sum(np.where((one[same] < n) & (other[same] < n), 1.0, 0.5).sum())
    place = ", ".join(f"{c:.6g}" for c in middles[one[same[0]]]) if len(same) else ""
    return round(float(count)), next(filter(None, comm.allgather(place)), "")


def _rounding(points: Array) -> float:
    """How far rounding, in the type of number that the points were in, moves them."""
    with np.errstate(over="ignore"):
        parts = (points[part] for part in chunks(len(points), points.shape[1], most=CACHED))
        single = all((own == own.astype(np.float32)).all() for own in parts)
    largest = max(points.max(initial=0), -points.min(initial=0))
    return float(_UNITS * np.finfo(np.float32 if single else np.float64).eps * largest)


def _tolerances(size: Array, rounding: float) -> Array:
    """How close points are that are at one place, by the shortest distances of corners in their cells."""
    return np.minimum(_CLOSE * size + rounding, _MOST * size)


def _shortest(points: Array, rows: Indices) -> Array:
    """Shortest distance of corners of each element."""
    found = np.full(len(rows), np.inf)

    def write(part: slice) -> None:
        x = np.ascontiguousarray(points[rows[part]].transpose(1, 2, 0))
        for a, b in combinations(range(rows.shape[1]), 2):
            np.minimum(found[part], ((x[a] - x[b]) ** 2).sum(axis=0), out=found[part])

    in_parts(write, chunks(len(rows), rows.shape[1] * points.shape[1], most=CACHED))
    return np.sqrt(found)


def _sizes(points: Array, topology: Topology, sides: Sequence[CellArray] | None) -> Array:
    """Shortest distance of corners in each cell with one of the sides, or in each cell; infinite in others."""
    size = np.full(topology.n_cells, np.inf)
    chosen = np.full(len(size), sides is None)
    for own in sides or ():
        chosen[own.indices] = True
    for cells in topology.cells:
        rows = chosen[cells.indices]
        size[cells.indices[rows]] = _shortest(points, replace(cells, nodes=cells.nodes[rows]).corners)
    return size


def _tolerance_of_points(points: Array, topology: Topology, others: Sequence[Indices], comm: Communicator) -> Array:
    """How close a point is to another at its place; infinite for those at the place of no other; collective."""
    sides = open_sides(topology)
    # Elements with points of their own, of any process, may be on any side.
    everywhere = comm.any(bool(others))
    size = _sizes(points, topology, None if everywhere else sides)
    largest = comm.max(size.max(initial=0))
    found = np.full(len(points), np.inf)
    for cells in topology.cells if everywhere else sides:
        np.minimum.at(found, cells.nodes.ravel(), np.repeat(size[cells.indices], cells.nodes.shape[1]))
    for rows in others:
        # What is close to a lone point is up to the other one.
        own = _shortest(points, rows) if rows.shape[1] > 1 else np.full(len(rows), largest)
        np.minimum.at(found, rows.ravel(), np.repeat(own, rows.shape[1]))
    return _tolerances(found, _rounding(points))


def _lowest(places: Array, tolerance: Array, ids: Indices, keys: Indices, comm: Communicator) -> tuple[Indices, Array]:
    """The lowest id of each place and key, and the exact place of its point; collective."""
    here = len(places)
    places, tolerance, ids, keys = near(places, [places, tolerance, ids, keys], comm)
    pairs = _coincident(places, tolerance, keys)
    if not len(pairs):
        return ids[:here], places[:here]
    _, group = classes(len(places), pairs)
    order = np.lexsort((ids, group))
    first = order[np.searchsorted(group[order], group[:here])]
    return ids[first], places[first]


def _coincident(places: Array, tolerance: Array, keys: Indices) -> Indices:
    """Pairs of points of one place and key: each with the next one, so that all of a place are connected; [n, 2]."""
    along = places @ _DIRECTION[: places.shape[1]]
    order = np.argsort(along)
    along, x = along[order], places[order]
    within, keys = tolerance[order], keys[order]
    slack = 8 * np.finfo(np.float64).eps * np.abs(along).max(initial=0)
    pairs, left, step = [np.empty((0, 2), dtype=np.int64)], np.arange(len(order)), 0
    while len(left):
        step += 1
        left = left[: np.searchsorted(left, len(order) - step)]
        left = left[along[left + step] - along[left] <= within[left] + slack]
        apart = np.sqrt(((x[left] - x[left + step]) ** 2).sum(axis=1))
        close = (apart <= np.minimum(within[left], within[left + step])) & (keys[left] == keys[left + step])
        pairs.append(np.column_stack([order[left[close]], order[left[close] + step]]))
        left = left[~close]
    return np.concatenate(pairs)
