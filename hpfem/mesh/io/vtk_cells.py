"""Cells of VTK files, legacy and XML, from connectivity, offsets and type numbers.

meshio 5.3.5 drops cells of types that it does not know, keeps the last piece only of an XML file, refuses XML files of
version 2 and Lagrange cells in legacy files; hence readers of our own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hpfem.errors import MeshError
from hpfem.shapes import SHAPES, Shape, equispaced_nodes

from ..node_order import vtk_nodes
from ..symmetry import Indices
from .mesh_file import Array, Block, canonical, shape_named

# Cell types of one order; the complete quadratic ones list their nodes as the Lagrange cells do.
_FIXED = {
    1: ("point", 1),
    3: ("segment", 1),
    5: ("tri", 1),
    9: ("quad", 1),
    10: ("tet", 1),
    12: ("hex", 1),
    13: ("prism", 1),
    14: ("pyramid", 1),
    21: ("segment", 2),
    22: ("tri", 2),
    24: ("tet", 2),
    28: ("quad", 2),
    29: ("hex", 2),
    32: ("prism", 2),
    35: ("segment", 3),
}
# Linear cells whose corners come in our tensor order.
_TENSOR_ORDER = {8: "quad", 11: "hex"}
_LAGRANGE = {68: "segment", 69: "tri", 70: "quad", 71: "tet", 72: "hex", 73: "prism", 74: "pyramid"}
_NO_SIDES = {0, 2, 4}  # empty, several points, several lines: never a cell or a side of one
_REFUSED = {
    6: "triangle strip",
    7: "polygon",
    23: "8-node quad",
    25: "20-node hex",
    26: "15-node prism",
    27: "13-node pyramid",
    30: "6-node quad",
    31: "12-node prism",
    33: "24-node hex",
    34: "7-node triangle",
    36: "6-node quad",
    37: "19-node pyramid",
    42: "polyhedron",
}
_HIGHEST_ORDER = {"pyramid": 1}

# Integer cell data that name regions and boundaries, as the programs that write VTK files call them.
SET_NAMES = ("material", "attribute", "region", "cellentityids", "gmsh:physical", "physicalids", "elementid")


def cell_blocks(
    connectivity: Indices,
    offsets: Indices,
    types: Indices,
    data: dict[str, NDArray[np.generic]],
    *,
    before_2_1: bool,
    first_number: int = 1,
) -> list[Block]:
    """Cells by runs of equal type and size.

    Parameters
    ----------
    connectivity : ndarray of int
        Point numbers of all cells, one after the other.
    offsets : ndarray of int, [n_cells + 1]
        Where each cell starts, and the end.
    types : ndarray of int, [n_cells]
        VTK's cell types.
    data : dict of str to ndarray, [n_cells, n_components]
        Cell data.
    before_2_1 : bool
        Whether hexes have the edge order of old files.
    first_number : int
        Number of the first cell, for messages.

    Returns
    -------
    list of Block
    """
    sizes = np.diff(offsets)
    if len(types) != len(sizes):
        raise MeshError(f"there are {len(types)} cell types for {len(sizes)} cells")
    if len(sizes) == 0:
        return []
    if offsets[0] != 0 or sizes.min() < 0 or offsets[-1] != len(connectivity):
        raise MeshError("the offsets of the cells do not fit their connectivity")
    _same_degrees(data, types, first_number)
    tags = _tags(data, len(types))
    breaks = np.flatnonzero((np.diff(types) != 0) | (np.diff(sizes) != 0)) + 1
    blocks = []
    for start, stop in zip([0, *breaks], [*breaks, len(types)], strict=True):
        kind, size = int(types[start]), int(sizes[start])
        if kind in _NO_SIDES:
            continue
        nodes = connectivity[offsets[start] : offsets[stop]].reshape(stop - start, size)
        shape, order, reference = _kind(kind, size, start + first_number, before_2_1)
        numbers = np.arange(start, stop) + first_number
        sets = {
            str(tag): np.flatnonzero(tags[start:stop] == tag)
            for tag in (np.unique(tags[start:stop]) if len(tags) else ())
        }
        blocks.append(Block(shape, order, canonical(shape, order, reference, nodes), numbers, sets))
    return blocks


def _kind(kind: int, size: int, number: int, before_2_1: bool) -> tuple[Shape, int, Array]:
    """Shape, order and reference coordinates of the nodes of a cell type."""
    if kind in _TENSOR_ORDER:
        shape, order = SHAPES[_TENSOR_ORDER[kind]], 1
        reference = shape.vertices
    elif kind in _FIXED:
        shape, order = shape_named(_FIXED[kind][0]), _FIXED[kind][1]
        reference = vtk_nodes(shape.name, order)
    elif kind in _LAGRANGE:
        shape = SHAPES[_LAGRANGE[kind]]
        order = _order_of(shape, size, number)
        reference = vtk_nodes(shape.name, order, before_2_1=before_2_1)
    else:
        what = f" ({_REFUSED[kind]})" if kind in _REFUSED else ""
        raise MeshError(
            f"element {number} is of VTK type {kind}{what}, which cannot be used; linear, complete quadratic and "
            "Lagrange cells can"
        )
    if len(reference) != size:
        raise MeshError(
            f"element {number} is a {shape.name} of order {order} with {size} nodes instead of {len(reference)}"
        )
    return shape, order, reference


def _order_of(shape: Shape, size: int, number: int) -> int:
    highest = _HIGHEST_ORDER.get(shape.name, 20)
    for order in range(1, highest + 1):
        if len(equispaced_nodes(shape, order)) == size:
            return order
    raise MeshError(
        f"element {number} is a Lagrange {shape.name} of {size} nodes, which no order from 1 to {highest} has"
    )


def _same_degrees(data: dict[str, NDArray[np.generic]], types: Indices, first_number: int) -> None:
    """Lagrange cells must be of one degree in all directions."""
    degrees = data.get("HigherOrderDegrees")
    if degrees is None or degrees.shape != (len(types), 3):
        return
    solid = np.isin(types, (72, 73))
    flat = np.isin(types, (70,))
    wrong = (flat | solid) & (degrees[:, 0] != degrees[:, 1]) | solid & (degrees[:, 0] != degrees[:, -1])
    if wrong.any():
        where = int(np.argmax(wrong))
        raise MeshError(f"element {where + first_number} has degrees {degrees[where].tolist()}; they must be equal")


def _tags(data: dict[str, NDArray[np.generic]], count: int) -> Indices:
    """The integers that group the cells, none if there are none."""
    for wanted in SET_NAMES:
        for name, values in data.items():
            if name.lower() == wanted and values.dtype.kind in "iu" and values.shape == (count, 1):
                return values[:, 0].astype(np.int64)
    return np.empty(0, dtype=np.int64)
