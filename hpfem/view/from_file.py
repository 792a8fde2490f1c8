"""Pictures of files: of meshes, of VTU files with values, and of what `hp.save` wrote.

The values of a VTU file are used like coordinates, at the nodes of the same map.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np

from hpfem.shapes.arguments import name_of

from ..checkpoint import load
from ..errors import ArgumentError
from ..mesh import read_mesh
from ..mesh.io.vtk_xml import read_vtu_data
from ..support.files import file_path, path_text, read_file
from .drawing import Look, field_picture, mesh_picture
from .picture import Picture
from .surface import nodal_pieces

_HDF5 = b"\x89HDF"


def file_picture(
    path: str | PathLike[str],
    target: str | PathLike[str],
    field: str | None = None,
    by: str | None = None,
    look: Look | None = None,
) -> Picture:
    """Draw a field of a file, by default the first, or the mesh where it has no fields; see `Field.plot`."""
    look = Look() if look is None else look
    file = file_path(path)
    data = read_file(file)
    if data.startswith(_HDF5):
        fields = load(path)
        name = _chosen(field, fields)
        options: Any = {**vars(look), "name": name}
        return field_picture(fields[name], target, **options)
    mesh = read_mesh(path, join=False)  # values belong to the file's points
    values, cells = read_vtu_data(data) if file.suffix.lower() == ".vtu" else ({}, None)
    if not values:
        if field is not None:
            raise ArgumentError(f"{path_text(path)} has no fields, but a mesh only")
        return mesh_picture(mesh, target, by=by, edges=look.edges)
    name = _chosen(field, values)
    found = np.asarray(values[name], dtype=np.float64)
    if len(found) != len(mesh.points) or not np.isfinite(found).all():
        raise ArgumentError(f"{path_text(path)}: {name!r} has no finite value at every point of the cells")
    whole = np.ones(mesh.n_cells, dtype=bool)
    if cells is not None and len(cells) == mesh.n_cells:
        whole = np.bincount(cells)[cells] == 1
    look = replace(look, name=name)
    look.check(found.shape[1])
    order = max(group.order for group in mesh.cells)
    return look.picture(mesh, nodal_pieces(mesh, found, whole), order, target)


def _chosen(field: str | None, names: Iterable[str]) -> str:
    known = list(names)
    return known[0] if field is None else name_of(field, known, "field")
