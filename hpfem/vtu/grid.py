"""Fields as a grid of VTK: each cell has points of its own, so that jumps between cells are kept."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpfem.shapes import equispaced_nodes
from hpfem.shapes.arguments import MAX_ORDER, integer
from hpfem.shapes.arrays import Array, Indices

from ..errors import ArgumentError, StateError
from ..mesh import Mesh
from ..mesh.io.vtk_cells import CELL_FACTS, LINEAR_TYPES
from ..mesh.node_order import permutation
from ..space import Block, Field, Space
from .pattern import Pattern, linear_pattern, vtk_pattern


@dataclass(frozen=True, eq=False)
class Grid:
    """A grid of VTK."""

    points: Array  # [n, 3]
    cells: list[tuple[int, Indices]]  # VTK's type and connectivity, [n_cells, n_points of the cell]
    point_data: dict[str, NDArray[Any]]
    cell_data: dict[str, NDArray[Any]]
    field_data: dict[str, NDArray[Any]]


def grid_of(fields: Field | Mapping[str, Field], subdivide: int | None = None) -> Grid:
    """Make the grid that `write_vtu` writes, from the cells of this process."""
    if subdivide is not None:
        integer(subdivide, 1, "subdivide", MAX_ORDER)
    named = as_functions(fields)
    space = next(iter(named.values())).space
    patterns = [
        vtk_pattern(block.shape, max(block.order, block.geometry.order))
        if subdivide is None
        else linear_pattern(block.shape, int(subdivide))
        for block in space.blocks
    ]
    points = np.concatenate([_points(block, p) for block, p in zip(space.blocks, patterns, strict=True)])
    cells, cell_data = _cells(space, patterns)
    values = {name: _values(field, patterns) for name, field in named.items()}
    return Grid(points, cells, values, cell_data, _region_names(space.mesh))


def grid_of_mesh(mesh: Mesh) -> Grid:
    """Make a grid of the cells of a mesh, which share points as in the mesh."""
    cells: list[tuple[int, Indices]] = []
    owners = []
    for group in mesh.cells:
        pattern = vtk_pattern(group.shape, group.order)
        places = permutation(equispaced_nodes(group.shape, group.order), pattern.nodes, group.order)
        for cell_type, rows in pattern.cells:
            cells.append((cell_type, group.nodes[:, places[rows]].reshape(-1, rows.shape[1])))
            owners.append(np.repeat(group.indices, len(rows)))
    data: dict[str, NDArray[Any]] = {"cell": np.concatenate(owners)}
    if len(mesh.regions):
        data["region"] = first_set(mesh.regions.values(), mesh.n_cells)[data["cell"]]
    points = np.zeros((len(mesh.points), 3))
    points[:, : mesh.points.shape[1]] = mesh.points
    return Grid(points, cells, {}, data, _region_names(mesh))


def _region_names(mesh: Mesh) -> dict[str, NDArray[Any]]:
    """Under each region's name its number, from 1, and its dimension."""
    return {name: np.array([[i, mesh.dim]], dtype=np.int32) for i, name in enumerate(mesh.regions, start=1)}


def first_set(sets: Collection[Indices], count: int) -> NDArray[np.int32]:
    """Number the first of some sets that each thing is in; -> [count]."""
    found = np.zeros(count, dtype=np.int32)
    for number, members in reversed(list(enumerate(sets, start=1))):
        found[members] = number
    return found


def as_functions(fields: Field | Mapping[str, Field]) -> dict[str, Field]:
    """Take fields by name, each as coefficients, which can be evaluated anywhere."""
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
            raise StateError(f"field {name!r} is on another space than the first one; draw or write them one by one")
        if field.state == "dual":
            raise StateError(
                f"field {name!r} is in state 'dual': a functional, which has no values at points; solve with the mass"
                " matrix for the function that it represents, or use the 'coeff' field that it was computed from"
            )
        # Before the projection, which would spread a NaN over its cell without an error.
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


def _cells(space: Space, patterns: list[Pattern]) -> tuple[list[tuple[int, Indices]], dict[str, Any]]:
    """Connectivity by VTK cell type, and the data of each cell."""
    cells: list[tuple[int, Indices]] = []
    owners: list[Indices] = []
    facts: list[NDArray[np.int32]] = []
    first = 0
    for number, (block, pattern) in enumerate(zip(space.blocks, patterns, strict=True)):
        starts = first + len(pattern.nodes) * np.arange(block.n_elements, dtype=np.int64)
        first += len(pattern.nodes) * block.n_elements
        told = np.array([LINEAR_TYPES[block.shape.name], block.order, block.geometry.order, number], dtype=np.int32)
        for cell_type, rows in pattern.cells:
            cells.append((cell_type, (starts[:, None, None] + rows[None]).reshape(-1, rows.shape[1])))
            owners.append(np.repeat(block.elements, len(rows)))
            facts.append(np.tile(told, (len(owners[-1]), 1)))
    owner, table = np.concatenate(owners), np.concatenate(facts)
    part = space.mesh.part
    data: dict[str, Any] = {"cell": owner if part is None else part.cells[owner]}
    if part is not None:
        data["process"] = np.full(len(owner), part.comm.rank, dtype=np.int32)
    for column, name in enumerate(CELL_FACTS):
        data[name] = np.ascontiguousarray(table[:, column])
    if len(space.mesh.regions):
        data["region"] = first_set(space.mesh.regions.values(), space.mesh.n_cells)[owner]
    return cells, data
