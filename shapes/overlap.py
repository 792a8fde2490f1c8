"""Which vertices, edges and faces of a stretched cell stand above each other along its strong directions."""

from __future__ import annotations

from functools import cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from .arrays import Array
from .basis import make_basis
from .low_energy import interior_modes, regular_jacobian
from .segment import SEGMENT
from .shape import Shape

# Ratio of energies from which on a direction is strong, so strong that pyramids lack functions, and so strong that low
# energy means constant along it.
# Distances in the regular cell, whose edges are 2: of vertices that stand above each other, and of what only touches.
_STRONG, _LACKS, _TALL, _ABOVE, _TOUCHES = 12.0, 30.0, 100.0, 0.5, 0.1


def thin(shape: Shape, S: Array, ratio: float = _TALL) -> bool:
    """Whether low energy means constant along some direction; S [dim, dim]."""
    values = np.linalg.eigvalsh(regular_jacobian(shape) @ S @ regular_jacobian(shape).T)
    return bool(values[-1] > ratio * values[0])


def _seen_along(shape: Shape, S: Array, strong: float) -> tuple[Array, NDArray[np.bool_]]:
    """Vertices seen along strong directions, and which are above each other: all, without any; -> [n, k], [n, n]."""
    R = regular_jacobian(shape)
    values, V = np.linalg.eigh(R @ S @ R.T)
    weak = values <= strong * values[0]
    points = shape.vertices @ R.T @ V[:, weak]
    return points, weak.all() | (np.linalg.norm(points[:, None] - points, axis=2) < _ABOVE)


def short_edges(shape: Shape, S: Array) -> list[bool]:
    """Whether the ends of an edge stand above each other along strong directions; S [dim, dim] -> [n_edges]."""
    near = _seen_along(shape, S, _TALL)[1]
    return [bool(near[edge.vertices] and not near.all()) for edge in shape.edges]


def walls(shape: Shape, short: NDArray[np.bool_]) -> NDArray[np.int8]:
    """Faces that stand along strong directions: an edge of theirs, counted from 1, which alone is short but for those
    that are parallel; else 0; short [E, n_edges] -> [E, n_faces].
    """
    faces = shape.boundary[2] if shape.dim > 2 else ()
    found = np.zeros((len(short), len(faces)), dtype=np.int8)
    for number, face in enumerate(faces):
        ends = [[face.vertices[vertex] for vertex in edge.vertices] for edge in face.shape.edges]
        own = short[:, [shape.entity_number(tuple(pair))[1] for pair in ends]]
        along = np.diff(face.shape.vertices[[edge.vertices for edge in face.shape.edges]], axis=1)[:, 0]
        parallel = np.abs(along[:, None, 0] * along[:, 1] - along[:, None, 1] * along[:, 0]) < _TOUCHES
        for edge, those in enumerate(parallel, start=1):
            found[(own == those).all(axis=1), number] = edge
    return found


def stacked(shape: Shape, S: Array) -> dict[tuple[int, int], int]:
    """Group the vertices, edges and faces of a cell: those whose inner parts overlap if they are seen along the strong
    directions of a diffusion; none where no direction is strong; S [dim, dim] -> group by dimension and number.
    """
    points, near = _seen_along(shape, S, _STRONG)
    parts, at = connected_components(csr_array(near), directed=False)
    if parts == 1:
        return {}
    points = np.array([points[at == own].mean(axis=0) for own in at])
    # Two convex sets without a common inner point are separated along a normal of one of their sides.
    axes = [points[i] - points[j] for i, j in combinations(range(len(points)), 2) if at[i] != at[j]]
    if points.shape[1] > 1:
        axes += [np.array([-y, x]) for x, y in axes]
    along = np.array([axis / np.linalg.norm(axis) for axis in axes]) @ points.T
    places = [(dim, i) for dim in range(shape.dim) for i in range(len(shape.entities[dim]))]
    corners = [list(shape.entities[dim][i].vertices) for dim, i in places]
    low, high = (np.array([end(along[:, own], axis=1) for own in corners]) for end in (np.min, np.max))
    behind = (high[:, None] <= low + _TOUCHES) & (high - low[:, None] > _TOUCHES)
    behind = behind.any(axis=2)
    group = connected_components(csr_array(~(behind | behind.T)), directed=False)[1]
    return dict(zip(places, group.tolist(), strict=True))


def apex(shape: Shape) -> int:
    """The vertex of a pyramid opposite its square base; -1 for other shapes."""
    pointed = shape.dim > 2 and shape.collapsed and shape.base is not None and not shape.base.collapsed
    return int(shape.vertices[:, -1].argmax()) if pointed else -1


def cut_off(shape: Shape, S: Array) -> bool:
    """Whether a stretched cell has fewer functions, constant along that direction, than the products beside it."""
    return apex(shape) >= 0 and thin(shape, S, _LACKS)


def flat(shape: Shape, S: Array) -> bool:
    """Whether a cell is `cut_off` by an apex that stands above its base, which is across; S [dim, dim]."""
    return cut_off(shape, S) and int(_seen_along(shape, S, _LACKS)[1].sum()) == len(shape.vertices)


@cache
def to_apex(shape: Shape) -> tuple[NDArray[np.int64], Array]:
    """Edges from the square base of a pyramid to its apex, and how many quadratic modes of theirs every vertex has if
    what is linear on them is to be bilinear in the base; -> [k], [k, n_vertices].
    """
    top = apex(shape)
    found = [i for i, edge in enumerate(shape.edges) if top in edge.vertices]
    beside = np.zeros((len(shape.vertices),) * 2, dtype=bool)
    for edge in shape.edges:
        beside[edge.vertices] = beside[edge.vertices[::-1]] = True
    # xy is 1 at the corner and t^2 on its edge, so that t - t^2 is to be taken away.
    segment = make_basis("modified", SEGMENT, 2)
    (middle,) = segment.evaluate(np.zeros((1, 1)))[interior_modes(segment), 0]
    weights = np.where(beside, 1.0, -1.0) / (16 * middle)
    weights[:, top] = 0
    corners = [next(v for v in shape.edges[i].vertices if v != top) for i in found]
    return np.array(found), weights[corners]
