"""The visible surface of a mesh: its cells if they are flat or a surface, the outer facets of solid cells.

Each is cut into triangles on an equispaced lattice, and its edges into short lines. Points are computed with the cells'
maps, and values with the fields' polynomials, so that curved cells look curved and fields smooth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpfem.shapes import Basis, Entity, Shape, equispaced_nodes
from hpfem.shapes.arrays import Array, Indices, Mask

from ..geometry import ElementMap
from ..mesh import Mesh
from ..mesh.mesh import CellGroup
from ..mesh.symmetry import mapped, spanning
from ..space import Field
from ..vtu.pattern import linear_pattern

_MOST_TRIANGLES = 400_000
# Of two sides of a periodic mesh that are one, over their distance from the origin of the box around the mesh.
_APART = 1e-6


@dataclass(frozen=True, eq=False)
class Piece:
    """Cells that are drawn together."""

    geometry: ElementMap
    group: CellGroup  # with the cells, in its `rows`
    rows: Indices
    basis: Basis | None = None
    coefficients: NDArray[Any] | None = None  # [components, E, n_modes], of a field
    whole: Mask | None = None  # [E]; the edges of pieces of others are not shown


@dataclass(frozen=True, eq=False)
class Surface:
    """Triangles, those of one cell or facet sharing points, and lines."""

    points: Array  # [n, D]
    triangles: Indices  # [m, 3], rows of `points`
    cells: Indices  # [m], numbers in the mesh
    facets: Indices  # [m], -1 where whole cells are visible
    lines: Array  # [l, k, D], points along visible edges
    edges: Indices  # [l], their numbers
    values: Array | None  # [n, components], of a field


def field_pieces(field: Field) -> list[Piece]:
    """Take the blocks of a field's space as pieces."""
    mesh, pieces = field.space.mesh, []
    for pair, block in zip(field.data, field.space.blocks, strict=True):
        group = mesh.aligned[int(mesh.locations[0][block.elements[0]])]
        pieces.append(
            Piece(block.geometry, group, mesh.aligned_topology.locations[1][block.elements], block.basis, pair.read())
        )
    return pieces


def mesh_pieces(mesh: Mesh) -> list[Piece]:
    """Take the cells of a mesh as pieces."""
    return [Piece(ElementMap.of(g, mesh.points), g, np.arange(len(g))) for g in mesh.cells]


def nodal_pieces(mesh: Mesh, values: Array, whole: Mask) -> list[Piece]:
    """Take the cells of a mesh as pieces, with values at its points; values [n, components], whole [n_cells]."""
    pieces = []
    for g in mesh.cells:
        geometry, coefficients = ElementMap.of(g, mesh.points), ElementMap.of(g, values).coefficients.swapaxes(0, 1)
        pieces.append(Piece(geometry, g, np.arange(len(g)), geometry.basis, coefficients, whole[g.indices]))
    return pieces


def surface_of(mesh: Mesh, pieces: Sequence[Piece], subdivide: int) -> Surface:
    """Cut the visible surface into triangles and lines."""
    seen = [_seen(mesh, piece) for piece in pieces]
    count = max(1, min(subdivide, int(np.sqrt(_MOST_TRIANGLES / (2 * sum(int(own.sum()) for own in seen))))))
    points, triangles, values, cells, facets, lines, edges = ([] for _ in range(7))
    first = 0
    for piece, own in zip(pieces, seen, strict=True):
        shape, geometry, group = piece.geometry.shape, piece.geometry, piece.group
        for number, side in enumerate(shape.faces):  # of a solid cell, or the cell itself
            rows = np.flatnonzero(own[:, number])
            nodes, cut = _triangles(side.shape, count)
            xi = _placed(shape, side, nodes)
            points.append(_positions(geometry, xi, rows).reshape(-1, geometry.space_dim))
            if piece.basis is not None and piece.coefficients is not None:
                own_values = piece.coefficients[:, rows] @ piece.basis.evaluate(xi)
                values.append(own_values.reshape(len(own_values), -1).T.astype(np.float64))
            triangles.append(first + (len(nodes) * np.arange(len(rows))[:, None, None] + cut).reshape(-1, 3))
            first += len(nodes) * len(rows)
            cells.append(np.repeat(group.indices[piece.rows[rows]], len(cut)))
            ids = group.facets[piece.rows[rows], number] if shape.dim == 3 else np.full(len(rows), -1)
            facets.append(np.repeat(ids, len(cut)))
        for number, edge in enumerate(shape.edges):
            beside = [set(edge.vertices) <= set(side.vertices) for side in shape.faces]
            shown = own[:, beside].any(axis=1)
            rows = np.flatnonzero(shown if piece.whole is None else shown & piece.whole)
            lines.append(_positions(geometry, _placed(shape, edge, equispaced_nodes(edge.shape, count)), rows))
            edges.append(group.edges[piece.rows[rows], number])
    line, edge_ids = np.concatenate(lines), np.concatenate(edges)
    if not mesh.periodic:  # else an edge may be visible in several places
        edge_ids, once = np.unique(edge_ids, return_index=True)
        line = line[once]
    return Surface(
        np.concatenate(points),
        np.concatenate(triangles),
        np.concatenate(cells),
        np.concatenate(facets),
        line,
        edge_ids,
        np.concatenate(values) if values else None,
    )


def _seen(mesh: Mesh, piece: Piece) -> Mask:
    """Which sides of each cell are visible, [E, n]."""
    if mesh.dim == 2:
        return np.ones((len(piece.rows), 1), dtype=bool)
    return _outer(mesh)[piece.group.facets[piece.rows]]


def _outer(mesh: Mesh) -> Mask:
    """Facets with a cell on one side only, or with cells that are neighbours because the mesh is periodic."""
    outer = mesh.facets.on_boundary
    if not mesh.periodic:
        return outer
    lowest, highest = np.full((2, len(outer), mesh.points.shape[1]), [[[np.inf]], [[-np.inf]]])
    for group in mesh.cells:
        for number, facet in enumerate(group.shape.facets):
            middle = mesh.points[group.corners[:, list(facet.vertices)]].mean(axis=1)
            np.minimum.at(lowest, group.facets[:, number], middle)
            np.maximum.at(highest, group.facets[:, number], middle)
    return outer | (np.max(highest - lowest, axis=1) > _APART * np.ptp(mesh.points, axis=0).max())


@cache
def _triangles(shape: Shape, count: int) -> tuple[Array, Indices]:
    """Lattice points of a shape of two dimensions, and the triangles between them."""
    pattern = linear_pattern(shape, count)
    # A polygon in VTK's order is a fan of triangles around its first corner.
    fans = [rows[:, [0, i, i + 1]] for _, rows in pattern.cells for i in range(1, rows.shape[1] - 1)]
    return pattern.nodes, np.concatenate(fans)


def _placed(shape: Shape, entity: Entity, nodes: Array) -> Array:
    """Points of an entity's shape in the cell, where it is a segment, a triangle or a parallelogram."""
    corners = shape.vertices[list(entity.vertices)][spanning(entity.shape)]
    return np.clip(mapped(entity.shape, corners, nodes), -1, 1)


def _positions(geometry: ElementMap, xi: Array, rows: Indices) -> Array:
    """Points of some cells in space, [E, n, D]."""
    return np.asarray(geometry.positions(geometry.basis.evaluate(xi), rows).transpose(1, 2, 0))
