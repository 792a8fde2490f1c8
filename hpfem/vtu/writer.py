"""Write fields to a VTU file: cell by cell, as VTK Lagrange cells, so that programs see the functions as they are."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpfem.shapes.arguments import MAX_ORDER, flag, integer

from ..errors import ArgumentError, StateError
from ..mesh.io.vtk_cells import LINEAR_TYPES
from ..space import Block, Field, Space
from ..support.files import atomic_path, file_path, path_text
from .pattern import Pattern, linear_pattern, vtk_pattern
from .xml import write_unstructured_grid

Array = NDArray[np.float64]


def write_vtu(
    path: str | PathLike[str],
    fields: Field | Mapping[str, Field],
    subdivide: int | None = None,
    *,
    compress: bool = True,
) -> None:
    """Write fields to a VTU file, which ParaView, pyvista and VTK open.

    Each cell has points of its own, so that what jumps between cells does so in the file. Its order there is the
    larger of P and the geometry order: the file holds the functions and the curved cells exactly. VTK has no
    pyramids above order 1 and no cells above order 10: these are cut into linear cells on their lattice of points,
    which is where programs that draw Lagrange cells by pieces cut the neighbours' faces, too: no gaps are seen.
    Vectors of two components get a third one, zero, as VTK's vectors have three.

    Cell data: "cell" (number in the mesh), "shape" (VTK's number for the linear cell of that shape), "order" (P),
    "geometry_order", "block", and where the mesh has regions "region": counted from 1, 0 for none, the first of those
    that the cell is in. The file's field data has (number, dimension) under each region's name.

    Parameters
    ----------
    path : path
        File to write, ending in .vtu. Written whole or not at all.
    fields : Field or mapping of str to Field
        Fields of one space in state "coeff" or "phys", the latter being projected first; a single field is called "u".
    subdivide : int, optional
        Write linear cells instead, this many along each edge, for programs without Lagrange cells.
    compress : bool
        Whether to compress the arrays.

    Raises
    ------
    StateError
        For a "dual" field, or fields on different spaces.
    ArgumentError
        For no fields, anything that is no field, a value that is not finite, a bad number of subdivisions, a path that
        does not end in .vtu, or a file that cannot be written.
    """
    target = file_path(path)
    # Programs choose their reader by it.
    if target.suffix != ".vtu":
        raise ArgumentError(f"cannot write {path_text(path)}: give a name that ends in .vtu")
    named = _checked(fields, subdivide)
    compress = flag(compress, "compress")
    space = next(iter(named.values())).space
    patterns = [_pattern(block, subdivide) for block in space.blocks]
    point_data = {name: _values(field, patterns) for name, field in named.items()}
    points = np.concatenate([_points(block, p) for block, p in zip(space.blocks, patterns, strict=True)])
    cells, cell_data = _cells(space, patterns)
    names = enumerate(space.mesh.regions, start=1)
    regions = {name: np.array([[number, space.mesh.dim]], dtype=np.int32) for number, name in names}
    with atomic_path(target) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as file:
        write_unstructured_grid(file, points, cells, point_data, cell_data, regions, compress)


def _checked(fields: Field | Mapping[str, Field], subdivide: int | None) -> dict[str, Field]:
    """Fields by name, all in state "coeff"."""
    if subdivide is not None:
        integer(subdivide, 1, "subdivide", MAX_ORDER)
    named = {"u": fields} if isinstance(fields, Field) else fields
    if not isinstance(named, Mapping):
        raise ArgumentError(f"fields must be a Field or a mapping of names to Fields, got {type(fields).__name__}")
    if not named:
        raise ArgumentError("there are no fields to write; give a Field or a mapping of names to Fields")
    result: dict[str, Field] = {}
    for name, field in named.items():
        if not isinstance(name, str) or not name:
            given = "an empty one" if isinstance(name, str) else type(name).__name__
            raise ArgumentError(f"the name of a field must be a text that is not empty, got {given}")
        if not isinstance(field, Field):
            raise ArgumentError(f"{name!r} is no Field but a {type(field).__name__}; make one with space.project")
        if result and field.space is not next(iter(result.values())).space:
            raise StateError(f"field {name!r} is on another space than the first; write one file per space")
        if field.state == "dual":
            raise StateError(
                f"field {name!r} is in state 'dual': a functional, which has no values at points; solve with the mass"
                " for the function it stands for, or write the 'coeff' field it was made from"
            )
        # Before the projection, which would spread a NaN over its cell and stop at nothing.
        _check_finite(name, field)
        result[name] = field if field.state == "coeff" else field.space.project(field)
    return result


def _check_finite(name: str, field: Field) -> None:
    """Refuse a field with a value that is not finite."""
    for pair, block in zip(field.data, field.space.blocks, strict=True):
        finite = np.isfinite(pair.read()).all(axis=(0, 2))
        if not finite.all():
            cell = block.elements[np.argmin(finite)]
            raise ArgumentError(
                f"field {name!r} is not finite in {field.space.mesh.describe_cell(cell)}; {np.count_nonzero(~finite)}"
                f" {block.shape.name} cell(s) are not"
            )


def _pattern(block: Block, subdivide: int | None) -> Pattern:
    if subdivide is not None:
        return linear_pattern(block.shape, int(subdivide))
    return vtk_pattern(block.shape, max(block.order, block.geometry.order))


def _points(block: Block, pattern: Pattern) -> Array:
    """Coordinates of the points of a block's elements, [E n, 3]."""
    geometry = block.geometry
    x = np.zeros((block.n_elements, len(pattern.nodes), 3))
    x[:, :, : geometry.space_dim] = geometry.positions(geometry.basis.evaluate(pattern.nodes)).transpose(1, 2, 0)
    return x.reshape(-1, 3)


def _values(field: Field, patterns: list[Pattern]) -> NDArray[Any]:
    """Values of a field at the points of all blocks, [n, components]."""
    parts = []
    for pair, block, pattern in zip(field.data, field.space.blocks, patterns, strict=True):
        modes = block.basis.evaluate(pattern.nodes).astype(field.dtype, copy=False)
        values = (pair.read() @ modes).transpose(1, 2, 0)
        parts.append(values.reshape(-1, field.components))
    result = np.concatenate(parts)
    if field.components == 2:
        result = np.column_stack([result, np.zeros(len(result), dtype=result.dtype)])
    return np.ascontiguousarray(result)


def _cells(space: Space, patterns: list[Pattern]) -> tuple[list[tuple[int, NDArray[np.int64]]], dict[str, Any]]:
    """Connectivity by VTK cell type, and what is said of each cell."""
    cells: list[tuple[int, NDArray[np.int64]]] = []
    owners: list[NDArray[np.int64]] = []
    facts: list[NDArray[np.int32]] = []
    first = 0
    for number, (block, pattern) in enumerate(zip(space.blocks, patterns, strict=True)):
        starts = first + len(pattern.nodes) * np.arange(block.n_elements, dtype=np.int64)
        first += len(pattern.nodes) * block.n_elements
        told = np.array([LINEAR_TYPES[block.shape.name], block.order, block.geometry.order, number], dtype=np.int32)
        for kind, rows in pattern.cells:
            cells.append((kind, (starts[:, None, None] + rows[None]).reshape(-1, rows.shape[1])))
            owners.append(np.repeat(block.elements, len(rows)))
            facts.append(np.tile(told, (len(owners[-1]), 1)))
    owner, table = np.concatenate(owners), np.concatenate(facts)
    data: dict[str, Any] = {"cell": owner}
    for column, name in enumerate(("shape", "order", "geometry_order", "block")):
        data[name] = np.ascontiguousarray(table[:, column])
    if len(space.mesh.regions):
        region = np.zeros(space.mesh.n_cells, dtype=np.int32)
        for number, members in reversed(list(enumerate(space.mesh.regions.values(), start=1))):
            region[members] = number
        data["region"] = region[owner]
    return cells, data
