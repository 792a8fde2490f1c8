"""Serendipity cells: second-order cells of files with nodes at corners and edges only, completed by their own map.

The serendipity functions of the square and the cube are polynomials of superlinear degree 2. A function of this kind
has at the centre d times its mean over the edge nodes minus d - 1 times its mean over the corners, d the dimension:
this holds for 1, for each x_k^2, and for all functions that are odd in some x_k. The nodes that a cell of order 2 has
besides are centres of square faces and of the cube. So the completed cell has the same map, prisms and pyramids too:
their serendipity functions are those of order 2 that are serendipity functions on each square face.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from hpfem.shapes import Shape, node_entities
from hpfem.shapes.arrays import Array

from .cells import Cells
from .node_order import serendipity_positions
from .sorting import TupleIndex


@cache
def _centres(shape: Shape) -> list[tuple[int, int, list[int], list[int]]]:
    """Nodes inside faces and cells: position, dimension, positions of the corners and of the edge nodes around."""
    at = {owner: position for position, owner in enumerate(node_entities(shape, 2))}
    result = []
    for (dim, number), position in at.items():
        if dim >= 2:
            corners = shape.entities[dim][number].vertices
            edges = [k for k, edge in enumerate(shape.edges) if set(edge.vertices) <= set(corners)]
            result.append((position, dim, [at[0, k] for k in corners], [at[1, k] for k in edges]))
    return result


def completed(points: Array, arrays: Sequence[Cells]) -> tuple[Array, list[Cells]]:
    """Add the nodes that serendipity cells lack; neighbours share them; points [n, D] -> points [n + n_added, D]."""
    result, added = [], []
    for array in arrays:
        centres = _centres(array.shape) if array.order == 2 else []
        if centres and array.nodes.shape[1] == len(serendipity_positions(array.shape)):
            nodes = np.full((len(array), array.nodes.shape[1] + len(centres)), -1)
            nodes[:, serendipity_positions(array.shape)] = array.nodes
            known = ((array.nodes >= 0) & (array.nodes < len(points))).all(axis=1)
            added += [(nodes, known, *centre) for centre in centres]
            array = replace(array, nodes=nodes)
        result.append(array)
    if not added:
        return points, result
    # A centre is known by its corners. Sums are over ascending nodes, so that they do not depend on the cell.
    around = [
        [np.sort(nodes[known][:, near], axis=1) for near in (corners, middles)]
        for nodes, known, _, _, corners, middles in added
    ]
    keys = [np.pad(corners, ((0, 0), (8 - corners.shape[1], 0)), constant_values=-1) for corners, _ in around]
    index = TupleIndex(np.concatenate(keys), len(points))
    places, start = np.empty((index.count, points.shape[1])), 0
    for (nodes, known, position, dim, _, _), (corners, middles) in zip(added, around, strict=True):
        ids = index.ids[start : start + len(corners)]
        start += len(corners)
        origin = points[corners[:, :1]]
        inner, outer = ((points[near] - origin).mean(axis=1) for near in (middles, corners))
        places[ids] = origin[:, 0] + dim * inner - (dim - 1) * outer
        nodes[known, position] = len(points) + ids
    return np.concatenate([points, places]), result
