"""Symmetries of the reference shapes: the orientations in which cells can have a common edge or face.

A symmetry of a shape is a permutation p of its vertices that an affine map extends to the whole shape. The
symmetries are numbered in lexicographic order of p, and that number is the orientation code used everywhere:

    global[i] = local[p[i]]

- segment: 0 = (0, 1), 1 = (1, 0): reversed.
- tri: 0 = (0,1,2), 1 = (0,2,1), 2 = (1,0,2), 3 = (1,2,0), 4 = (2,0,1), 5 = (2,1,0).
- quad (tensor order 00, 10, 01, 11): code = 4 reversed_2 + 2 reversed_1 + (swap xor reversed_2), where the global
  origin is at the far end of a local axis that is reversed, and swap says that the first global axis is along the
  second local one.
"""

from __future__ import annotations

from functools import cache
from itertools import permutations

import numpy as np

from hpfem.shapes import Shape, equispaced_nodes, node_entities
from hpfem.shapes.arrays import Array, Indices, frozen

from .node_order import lattice_positions, permutation


def spanning(shape: Shape) -> Indices:
    """Vertices that span a shape; -> [dim + 1]."""
    if shape.dim == 0:
        return np.zeros(1, dtype=np.int64)
    wanted = np.full((shape.dim + 1, shape.dim), -1.0)
    wanted[1:] += 2 * np.eye(shape.dim)
    distance = np.abs(shape.vertices[None] - wanted[:, None]).max(axis=2)
    return np.argmin(distance, axis=1)


def mapped(shape: Shape, images: Array, points: Array) -> Array:
    """Map points of a shape by the affine map of its spanning vertices to images [.., dim + 1, D]; -> [.., n, D]."""
    if shape.dim == 0:
        return images
    source = np.column_stack([shape.vertices[spanning(shape)], np.ones(shape.dim + 1)])
    return np.column_stack([points, np.ones(len(points))]) @ np.linalg.solve(source, images)


@cache
def symmetries(shape: Shape) -> Indices:
    """Vertex permutations by orientation code, the identity first, [n_symmetries, n_vertices]; see `parities`."""
    if shape.dim == 0:
        return frozen(np.zeros((1, 1), dtype=np.int64))
    images = np.array(list(permutations(range(shape.n_vertices), shape.dim + 1)))
    moved = mapped(shape, shape.vertices[images], shape.vertices)
    match = np.abs(moved[:, :, None] - shape.vertices).max(axis=3) < 1e-9
    found = np.argmax(match, axis=2)[(match.any(axis=1) & match.any(axis=2)).all(axis=1)]
    return frozen(found[np.lexsort(found.T[::-1])])


@cache
def parities(shape: Shape) -> Indices:
    """Whether each symmetry keeps (+1) or mirrors (-1) the shape; -> [n_symmetries]."""
    corners = shape.vertices[symmetries(shape)[:, spanning(shape)]]
    return frozen(np.sign(np.linalg.det(corners[:, 1:] - corners[:, :1])).astype(np.int64))


@cache
def lattice_permutations(shape: Shape, order: int) -> Indices:
    """Permutation of the lattice of a shape by each of its symmetries; -> [n_symmetries, n_nodes]."""
    nodes, frame = equispaced_nodes(shape, order), spanning(shape)
    moved = [mapped(shape, shape.vertices[p[frame]], nodes) for p in symmetries(shape)]
    return frozen(np.array([permutation(nodes, own, order) for own in moved]))


def mirrored_vertices(shape: Shape) -> Indices:
    """The vertex permutation of the first mirroring symmetry; -> [n_vertices]."""
    return symmetries(shape)[np.argmin(parities(shape))]


@cache
def mirror(shape: Shape, order: int) -> Indices:
    """A node permutation that turns a cell inside out: the first mirroring symmetry; -> [n_nodes]."""
    return lattice_permutations(shape, order)[np.argmin(parities(shape))]


@cache
def entity_nodes(shape: Shape, order: int, dim: int, number: int) -> Indices:
    """Which lattice points of a cell lie on one of its entities; -> [n_nodes of the entity]."""
    entity = shape.entities[dim][number]
    corners = shape.vertices[list(entity.vertices)][spanning(entity.shape)]
    points = mapped(entity.shape, corners, equispaced_nodes(entity.shape, order) if dim else corners)
    return frozen(lattice_positions(shape, order, np.rint((points + 1) * order / 2).astype(np.int64)))


@cache
def interior_nodes(shape: Shape, order: int) -> Indices:
    """Lattice points of a shape on none of its sides; -> [n]."""
    if shape.dim == 0:
        return frozen(np.zeros(1, dtype=np.int64))
    owners = node_entities(shape, order)
    return frozen(np.flatnonzero([dim == shape.dim for dim, _ in owners]))


@cache
def outward_signs(shape: Shape) -> Indices:
    """Whether the normal by the vertex order of each facet is outward (+1) or inward (-1); -> [n_facets]."""
    signs = []
    middle = shape.vertices.mean(axis=0)
    for facet in shape.facets:
        corners = shape.vertices[list(facet.vertices)]
        frame = spanning(facet.shape)
        axes = corners[frame[1:]] - corners[frame[0]]
        volume = np.linalg.det(np.vstack([corners.mean(axis=0) - middle, axes]))
        signs.append(int(np.sign(volume)))
    return frozen(np.array(signs))
