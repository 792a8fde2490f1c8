"""The mesh of a model in gmsh's memory: what its file would hold."""

from __future__ import annotations

from typing import Any

import numpy as np

from .mesh_file import MeshFile, canonical
from .msh import Content, element_type, mesh_file


def content_of_model(model: Any) -> MeshFile:
    """Read a model; cells in no physical group are left out if others are in one, as gmsh leaves them out of files."""
    content, mesh, entities, cells = Content(), model.mesh, model.getEntities(), []
    ids, points, _ = mesh.getNodes()
    content.ids, content.points = np.asarray(ids, np.int64), np.asarray(points, np.float64).reshape(-1, 3)
    for dim, group in model.getPhysicalGroups():
        if name := model.getPhysicalName(dim, group):
            content.names[dim][group] = name
    for dim, tag in entities:
        content.groups[dim, tag] = [abs(int(group)) for group in model.getPhysicalGroupsForEntity(dim, tag)]
        for number, own, nodes in zip(*mesh.getElements(dim, tag), strict=True):
            shape, order, reference = element_type(int(number), own[0])
            rows = np.asarray(nodes, np.int64).reshape(len(own), len(reference))
            sets = content.sets(dim, tag, len(own))
            cells.append(canonical(shape, order, reference, rows, np.asarray(own, np.int64), sets))
        _, here, there, _ = mesh.getPeriodicNodes(dim, tag)
        if len(here):
            content.periodic.append(np.column_stack([here, there]).astype(np.int64))
    most = max((own.shape.dim for own in cells), default=0)
    named = any(own.sets for own in cells if own.shape.dim == most)
    content.elements = [own for own in cells if own.sets or own.shape.dim < most or not named]
    return mesh_file(content)
