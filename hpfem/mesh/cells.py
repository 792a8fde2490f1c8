"""Cells of one shape and geometry order, and the first step of a mesh: arrays of cells and points in canonical form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from hpfem.errors import ArgumentError, MeshError
from hpfem.shapes import SHAPES, Shape, equispaced_nodes
from hpfem.shapes.arguments import MAX_ORDER, as_array, integer, name_of, shown
from hpfem.shapes.arrays import Array, Indices, frozen

from ..support.log import warn
from .node_order import canonical_order, serendipity_positions, vertex_positions
from .sorting import marked

# Extent of the third coordinate, relative to the others, up to which it is noise, and up to which it is rounding.
_FLAT, _ROUNDING = 1e-10, 1e-14


@dataclass(frozen=True, eq=False)
class CellArray:
    """Cells of one shape and geometry order."""

    shape: Shape
    order: int
    nodes: Indices  # [E, n_nodes], rows of the points, in the canonical equispaced order
    indices: Indices  # [E], numbers of the cells: positions among the cells of the mesh

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def corners(self) -> Indices:
        """Rows of the points at the vertices, in our vertex order, [E, n_vertices]."""
        return self.nodes[:, vertex_positions(self.shape, self.order)]

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        frozen(self.nodes)
        frozen(self.indices)


Cells = TypeVar("Cells", bound=CellArray)


@dataclass(frozen=True)
class Labels:
    """Names of a mesh and of its cells in messages."""

    name: str  # the file, or another name of the mesh
    numbers: Indices | None = None  # [n_cells], as in the file; None to count from 1

    def cell(self, arrays: Iterable[CellArray], cell: int) -> str:
        """Name of a cell in messages, e.g. "element 17 (hex)"."""
        shape = next(array.shape for array in arrays if np.any(array.indices == cell))
        return f"element {cell + 1 if self.numbers is None else self.numbers[cell]} ({shape.name})"

    def first(self, array: CellArray, chosen: ArrayLike) -> str:
        """Name of the first of the chosen cells of an array in messages; see `cell`."""
        return self.cell([array], int(array.indices[np.argmax(chosen)]))

    def error(self, text: str) -> MeshError:
        """A `MeshError` about the mesh."""
        return MeshError(f"{self.name}: {text}")


def cell_arrays(cells: Iterable[tuple[str, int, ArrayLike]]) -> list[CellArray]:
    """Copy arrays of cells, check their kinds, and number the cells as they come."""
    arrays, start = [], 0
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
            arrays.append(CellArray(SHAPES[name], order, nodes.astype(np.int64), indices))
            start += len(nodes)
    return merged(arrays)


def ordered(array: Cells, ordering: str) -> Cells:
    """Bring the nodes of cells into the canonical order."""
    order = canonical_order(ordering, array.shape, array.order)
    if array.nodes.shape[1] < len(order):
        order = np.argsort(np.argsort(order[serendipity_positions(array.shape)]))
    return array if (order[1:] > order[:-1]).all() else replace(array, nodes=array.nodes[:, order])


def merged(arrays: Sequence[CellArray]) -> list[CellArray]:
    """Join arrays of the same shape and order."""
    groups: dict[tuple[Shape, int], list[CellArray]] = {}
    for array in arrays:
        groups.setdefault((array.shape, array.order), []).append(array)
    return [
        same[0]
        if len(same) == 1
        else CellArray(*key, np.concatenate([a.nodes for a in same]), np.concatenate([a.indices for a in same]))
        for key, same in groups.items()
    ]


def is_flat(extent: Array, name: str = "") -> bool:
    """Tell whether a coordinate of a mesh of 2-D cells in space is the same everywhere but for noise; extent [3]."""
    flat = bool(extent[-1] <= _FLAT * extent.max())
    if name and flat and extent[-1] > _ROUNDING * extent.max():
        warn(f"{name}: z varies by {extent[-1]:.2g} in a mesh of size {extent.max():.3g}: it is taken as plane")
    return flat


def used_points(
    points: Array, arrays: Sequence[CellArray], flat: bool | None = None, name: str = ""
) -> tuple[Array, list[CellArray], Indices]:
    """Keep the points that cells use; drop a flat z of 2-D cells; points [n, D] -> points, arrays, new number [n]."""
    used = marked(len(points), (array.nodes for array in arrays))
    if used.all():
        new_number, renumbered = np.arange(len(points)), list(arrays)
    else:
        new_number, points = np.where(used, np.cumsum(used) - 1, -1), points[used]
        renumbered = [replace(array, nodes=new_number[array.nodes]) for array in arrays]
    if points.shape[1] == 3 and arrays[0].shape.dim == 2:
        if flat is None:
            flat = is_flat(np.ptp(points, axis=0), name)
        if flat:
            points = points[:, :2]
    return np.ascontiguousarray(points), renumbered, new_number
