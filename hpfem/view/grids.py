"""Fields, meshes and VTU files as grids of pyvista."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpfem.shapes.arguments import instance

from ..mesh import Mesh
from ..space import Field
from ..support.optional import needed
from ..support.registry import VIEWS
from ..vtu.grid import Grid, grid_of, grid_of_mesh


@VIEWS.register("Field.to_pyvista")
def field_grid(field: Field, name: str = "u", subdivide: int | None = None) -> Any:
    """Make a grid of pyvista of a field; see `Field.to_pyvista`."""
    return _grid(grid_of({instance(name, str, "the name of a field"): field}, subdivide))


@VIEWS.register("Mesh.to_pyvista")
def mesh_grid(mesh: Mesh) -> Any:
    """Make a grid of pyvista of a mesh; see `Mesh.to_pyvista`."""
    return _grid(grid_of_mesh(mesh))


def _grid(grid: Grid) -> Any:
    pv = needed("pyvista", "to_pyvista", "hpfem[view]")
    widths = [np.full((len(rows), 1), rows.shape[1]) for _, rows in grid.cells]
    cells = [np.hstack([width, rows]).ravel() for width, (_, rows) in zip(widths, grid.cells, strict=True)]
    types = [np.full(len(rows), cell_type, dtype=np.uint8) for cell_type, rows in grid.cells]
    made = pv.UnstructuredGrid(np.concatenate(cells), np.concatenate(types), grid.points)
    for data, arrays in (
        (made.point_data, grid.point_data),
        (made.cell_data, grid.cell_data),
        (made.field_data, grid.field_data),
    ):
        for name, array in arrays.items():
            data[name] = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    return made
