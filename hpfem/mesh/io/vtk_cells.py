"""Cells of VTK files, legacy and XML, from connectivity, offsets and type numbers.

meshio 5.3.5 drops cells of unknown types, keeps only the last piece of an XML file, refuses XML files of
version 2 and Lagrange cells in legacy files; hence readers of our own.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from hpfem.errors import MeshError
from hpfem.shapes import SHAPES, Shape, equispaced_nodes, get_shape
from hpfem.shapes.arrays import Array, Indices, Mask

from ..node_order import serendipity_nodes, vtk_nodes
from .mesh_file import Elements, canonical, grouped

# VTK's numbers of the cell types: linear, complete quadratic (which list their nodes as the Lagrange cells of order 2
# do), serendipity cells (the first of these nodes), and Lagrange ones of any order.
LINEAR_TYPES = {"point": 1, "segment": 3, "tri": 5, "quad": 9, "tet": 10, "hex": 12, "prism": 13, "pyramid": 14}
_QUADRATIC_TYPES = {"segment": 21, "tri": 22, "tet": 24, "quad": 28, "hex": 29, "prism": 32}
_SERENDIPITY = {23: "quad", 25: "hex", 26: "prism", 27: "pyramid"}
LAGRANGE_TYPES = {"segment": 68, "tri": 69, "quad": 70, "tet": 71, "hex": 72, "prism": 73}
_FIXED = {
    **{number: (name, 1) for name, number in LINEAR_TYPES.items()},
    **{number: (name, 2) for name, number in _QUADRATIC_TYPES.items()},
    35: ("segment", 3),
}
_LAGRANGE = {number: name for name, number in LAGRANGE_TYPES.items()} | {74: "pyramid"}
# Linear cells whose corners come in our tensor order.
_TENSOR_ORDER = {8: "quad", 11: "hex"}
# Several points, several lines: the type of one, and its dimension.
_EMPTY, _SEVERAL = 0, {2: (1, 0), 4: (3, 1)}
_REFUSED = {
    6: "triangle strip",
    7: "polygon",
    30: "6-node quad",
    31: "12-node prism",
    33: "24-node hex",
    34: "7-node triangle",
    36: "6-node quad",
    37: "19-node pyramid",
    42: "polyhedron",
}

# NumPy's kinds and sizes of the numbers in VTK's arrays.
NUMBER_TYPES = {
    f"{name}{8 * size}": f"{kind}{size}" for name, kind in (("Int", "i"), ("UInt", "u")) for size in (1, 2, 4, 8)
} | {"Float32": "f4", "Float64": "f8"}

# Bits of "vtkGhostType": cells that are copies (1), refined elsewhere (8) or hidden (32), and hidden points.
_NOT_SEEN, _HIDDEN_POINT = 1 | 8 | 32, 2
# Cell data that are no values of the user; and those that `hpfem.write_vtu` writes, always together.
_NO_DATA = {"vtkGhostType", "vtkGhostLevels", "HigherOrderDegrees"}
CELL_FACTS = ("shape", "order", "geometry_order", "block")

# Names, in files of several programs, of integer cell data for regions and boundaries.
SET_NAMES = ("material", "attribute", "region", "cellentityids", "gmsh:physical", "physicalids", "elementid")


def cell_blocks(
    connectivity: Indices,
    offsets: Indices,
    types: Indices,
    data: dict[str, NDArray[np.generic]],
    *,
    before_2_1: bool,
    first_number: int = 1,
    point_data: dict[str, NDArray[np.generic]] | None = None,
) -> list[Elements]:
    """Make elements of cells that are no copies or hidden, by runs of equal type and size; offsets [n_cells + 1]."""
    sizes = np.diff(offsets)
    if len(types) != len(sizes):
        raise MeshError(f"there are {len(types)} cell types for {len(sizes)} cells")
    if len(sizes) == 0:
        return []
    if offsets[0] != 0 or sizes.min() < 0 or offsets[-1] != len(connectivity):
        raise MeshError("the offsets of the cells do not fit their connectivity")
    _same_degrees(data, types, first_number)
    tags = _tags(data, len(types))
    seen = _seen(data, point_data or {}, connectivity, sizes)
    left_out = _NO_DATA | ({"cell", "process", *CELL_FACTS} if data.keys() >= set(CELL_FACTS) else set())
    data = {name: own[:, 0] if own.shape[1:] == (1,) else own for name, own in data.items() if name not in left_out}
    numbers = np.arange(len(types)) + first_number
    breaks = np.flatnonzero((np.diff(types) != 0) | (np.diff(sizes) != 0)) + 1
    blocks = []
    for start, stop in zip([0, *breaks], [*breaks, len(types)], strict=True):
        cell_type, size = int(types[start]), int(sizes[start])
        if cell_type == _EMPTY or (cell_type in _SEVERAL and size <= _SEVERAL[cell_type][1]):
            continue
        nodes = connectivity[offsets[start] : offsets[stop]].reshape(stop - start, size)
        rows = np.flatnonzero(seen[start:stop])
        nodes, at = (nodes, slice(start, stop)) if len(rows) == len(nodes) else (nodes[rows], start + rows)
        if cell_type in _SEVERAL:
            cell_type, dim = _SEVERAL[cell_type]
            nodes = sliding_window_view(nodes, dim + 1, axis=1).reshape(-1, dim + 1)
            at, size = np.repeat(start + rows, size - dim), dim + 1
        shape, order, reference = _of_type(cell_type, size, start + first_number, before_2_1)
        sets = {str(tag): members for tag, members in grouped(tags[at] if len(tags) else tags).items()}
        values = {name: array[at] for name, array in data.items()}
        blocks.append(canonical(shape, order, reference, nodes, numbers[at], sets, values))
    return blocks


def _of_type(cell_type: int, size: int, number: int, before_2_1: bool) -> tuple[Shape, int, Array]:
    """Shape, order and reference coordinates of the nodes of a cell type."""
    if cell_type in _TENSOR_ORDER:
        shape, order = SHAPES[_TENSOR_ORDER[cell_type]], 1
        reference = shape.vertices
    elif cell_type in _FIXED:
        shape, order = get_shape(_FIXED[cell_type][0]), _FIXED[cell_type][1]
        reference = vtk_nodes(shape.name, order)
    elif cell_type in _SERENDIPITY:
        shape, order = SHAPES[_SERENDIPITY[cell_type]], 2
        reference = serendipity_nodes("vtk", shape)
    elif cell_type in _LAGRANGE:
        shape = SHAPES[_LAGRANGE[cell_type]]
        order = _order_of(shape, size, number)
        reference = vtk_nodes(shape.name, order, before_2_1=before_2_1)
    else:
        what = f" ({_REFUSED[cell_type]})" if cell_type in _REFUSED else ""
        raise MeshError(
            f"element {number} is of VTK type {cell_type}{what}, which cannot be used; linear, quadratic and Lagrange "
            "cells can"
        )
    if len(reference) != size:
        raise MeshError(
            f"element {number} is a {shape.name} of order {order} with {size} nodes instead of {len(reference)}"
        )
    return shape, order, reference


def _order_of(shape: Shape, size: int, number: int) -> int:
    highest = 20 if shape.name in LAGRANGE_TYPES else 1
    for order in range(1, highest + 1):
        if len(equispaced_nodes(shape, order)) == size:
            return order
    raise MeshError(
        f"element {number} is a Lagrange {shape.name} of {size} nodes, which "
        + (f"no order from 1 to {highest} has" if highest > 1 else "cannot be used")
    )


def _same_degrees(data: dict[str, NDArray[np.generic]], types: Indices, first_number: int) -> None:
    """Lagrange cells must be of one degree in all directions."""
    degrees = data.get("HigherOrderDegrees")
    if degrees is None or degrees.shape != (len(types), 3):
        return
    solid, flat = np.isin(types, (72, 73)), types == 70
    wrong = (flat | solid) & (degrees[:, 0] != degrees[:, 1]) | solid & (degrees[:, 0] != degrees[:, 2])
    if wrong.any():
        where = int(np.argmax(wrong))
        raise MeshError(f"element {where + first_number} has degrees {degrees[where].tolist()}; they must be equal")


def _seen(
    data: dict[str, NDArray[np.generic]], point_data: dict[str, NDArray[np.generic]], nodes: Indices, sizes: Indices
) -> Mask:
    """Which cells are part of the grid: no copies of other pieces' cells, refined elsewhere, or hidden."""
    none = np.zeros((len(sizes), 1), dtype=np.int64)
    seen = (data.get("vtkGhostType", none)[:, 0].astype(np.int64) & _NOT_SEEN) == 0
    seen &= data.get("vtkGhostLevels", none)[:, 0] == 0
    marks = point_data.get("vtkGhostType")
    if marks is not None and len(marks):
        hidden = (marks[:, 0].astype(np.int64) & _HIDDEN_POINT) != 0
        seen[np.repeat(np.arange(len(sizes)), sizes)[hidden.take(nodes, mode="clip")]] = False
    return seen


def _tags(data: dict[str, NDArray[np.generic]], count: int) -> Indices:
    """The integers that group the cells, none if there are none."""
    for wanted in SET_NAMES:
        for name, values in data.items():
            if name.lower() == wanted and values.dtype.kind in "iu" and values.shape == (count, 1):
                return values[:, 0].astype(np.int64)
    return np.empty(0, dtype=np.int64)
