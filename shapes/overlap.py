"""Which vertices, edges and faces of a stretched cell stand above each other along its strong directions."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from .low_energy import regular_jacobian
from .shape import Shape

Array = NDArray[np.float64]

# Ratio of energies from which on a direction is strong. Distances in the regular cell, whose edges are 2: of vertices
# that stand above each other, and of what only touches.
_STRONG, _ABOVE, _TOUCHES = 12.0, 0.5, 0.1


def stacked(shape: Shape, S: Array) -> dict[tuple[int, int], int]:
    """Group the vertices, edges and faces of a cell: those whose inner parts overlap if they are seen along the strong
    directions of a diffusion; none where no direction is strong; S [dim, dim] -> group by dimension and number.
    """
    R = regular_jacobian(shape)
    values, V = np.linalg.eigh(R @ S @ R.T)
    weak = V[:, values <= _STRONG * values[0]]
    if weak.shape[1] == shape.dim:
        return {}
    points = shape.vertices @ R.T @ weak
    near = np.linalg.norm(points[:, None] - points, axis=2) < _ABOVE
    at = connected_components(csr_array(near), directed=False)[1]
    points = np.array([points[at == own].mean(axis=0) for own in at])
    # Two convex sets without a common inner point are separated along a normal of one of their sides.
    axes = [points[i] - points[j] for i, j in combinations(range(len(points)), 2) if at[i] != at[j]]
    if weak.shape[1] > 1:
        axes += [np.array([-y, x]) for x, y in axes]
    along = np.array([axis / np.linalg.norm(axis) for axis in axes]) @ points.T
    places = [(dim, i) for dim in range(shape.dim) for i in range(len(shape.entities[dim]))]
    corners = [list(shape.entities[dim][i].vertices) for dim, i in places]
    low, high = (np.array([end(along[:, own], axis=1) for own in corners]) for end in (np.min, np.max))
    behind = (high[:, None] <= low + _TOUCHES) & (high - low[:, None] > _TOUCHES)
    behind = behind.any(axis=2)
    group = connected_components(csr_array(~(behind | behind.T)), directed=False)[1]
    return dict(zip(places, group.tolist(), strict=True))


def is_stretched_cone(shape: Shape, S: Array) -> bool:
    """Whether a cell is stretched, and its traces are those of the regular cell all the same; S [dim, dim]."""
    return shape.collapsed and bool(stacked(shape, S))
