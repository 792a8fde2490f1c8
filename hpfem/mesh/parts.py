"""Cells of one shape and geometry order on their way into a mesh, and what messages call them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hpfem.errors import ArgumentError
from hpfem.shapes import SHAPES, Shape, equispaced_nodes
from hpfem.shapes.arguments import MAX_ORDER, as_array, integer, name_of, shown

from .node_order import vertex_positions
from .symmetry import Indices, mirror

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Part:
    """Cells of one shape and geometry order.

    Attributes
    ----------
    shape : Shape
        The reference shape.
    order : int
        Geometry order.
    nodes : ndarray of int, [E, n_nodes]
        Point numbers in canonical equispaced order.
    indices : ndarray of int, [E]
        Global cell numbers.
    """

    shape: Shape
    order: int
    nodes: Indices
    indices: Indices

    @property
    def corners(self) -> Indices:
        """Point numbers of the vertices, [E, n_vertices]."""
        return self.nodes[:, vertex_positions(self.shape, self.order)]


@dataclass(frozen=True)
class Labels:
    """What messages call a mesh and its cells.

    Attributes
    ----------
    name : str
        The file, or what stands for it.
    numbers : ndarray of int, [n_cells], or None
        The file's number of each cell; None to count from 1.
    """

    name: str
    numbers: Indices | None = None

    def cell(self, shape: Shape, index: int) -> str:
        """E.g. "element 17 (hex)"."""
        return f"element {index + 1 if self.numbers is None else self.numbers[index]} ({shape.name})"


def as_parts(cells: Iterable[tuple[str, int, ArrayLike]]) -> list[Part]:
    """Arrays of cells, checked for their kind and numbered as they come.

    Raises
    ------
    ArgumentError
        For an unknown shape, an order below 1, or an array that does not fit them.
    """
    parts, start = [], 0
    if not isinstance(cells, (list, tuple)) or not all(isinstance(c, (list, tuple)) and len(c) == 3 for c in cells):
        raise ArgumentError(f"cells are a list of (shape name, geometry order, nodes), got {shown(cells)}")
    for name, order, rows in cells:
        name_of(name, SHAPES, "shape")
        order = integer(order, 1, f"the geometry order of a {name}", MAX_ORDER)
        nodes = as_array(rows, f"{name} cells", "iu")
        count = len(equispaced_nodes(SHAPES[name], order))
        if nodes.ndim != 2 or nodes.shape[1] != count:
            raise ArgumentError(
                f"{name} cells of order {order} take an integer array [n, {count}], not {nodes.dtype} {nodes.shape}"
            )
        if len(nodes):
            indices = np.arange(start, start + len(nodes))
            parts.append(Part(SHAPES[name], int(order), nodes.astype(np.int64), indices))
            start += len(nodes)
    return parts


def merged(parts: Sequence[Part]) -> list[Part]:
    """One part for each shape and order, in order of appearance."""
    kinds: dict[tuple[Shape, int], list[Part]] = {}
    for part in parts:
        kinds.setdefault((part.shape, part.order), []).append(part)
    return [
        same[0]
        if len(same) == 1
        else Part(shape, order, np.concatenate([p.nodes for p in same]), np.concatenate([p.indices for p in same]))
        for (shape, order), same in kinds.items()
    ]


def compressed(points: Array, parts: Sequence[Part]) -> tuple[Array, list[Part], Indices]:
    """Only the points that cells use; a flat third coordinate of 2-D cells is dropped.

    Returns
    -------
    points : ndarray, [n, D]
    parts : list of Part
        With the new point numbers.
    new_number : ndarray of int, [n_old]
        -1 for a point that is left out.
    """
    used = np.zeros(len(points), dtype=bool)
    for part in parts:
        used[part.nodes.ravel()] = True
    if used.all():
        new_number, kept, renumbered = np.arange(len(points)), points, list(parts)
    else:
        new_number = np.where(used, np.cumsum(used) - 1, -1)
        kept = points[used]
        renumbered = [Part(p.shape, p.order, new_number[p.nodes], p.indices) for p in parts]
    if kept.shape[1] == 3 and parts[0].shape.dim == 2:
        extent = np.ptp(kept, axis=0)
        if extent[2] <= 1e-14 * extent.max():
            kept = kept[:, :2]
    return np.ascontiguousarray(kept), renumbered, new_number


def turned(part: Part, chosen: NDArray[np.bool_]) -> Part:
    """With the chosen cells turned inside out."""
    if not chosen.any():
        return part
    nodes = part.nodes.copy()
    nodes[chosen] = nodes[chosen][:, mirror(part.shape, part.order)]
    return Part(part.shape, part.order, nodes, part.indices)
