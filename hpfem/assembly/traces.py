"""Modes of a cell on its vertices, edges and faces, and what a change of the entity's orientation does to them.

The modes that a cell has on an entity are, restricted to it, the interior modes of the same basis on the entity's own
shape. Two cells that meet may see the entity in different orientations. Its global modes are those in the entity's
global vertex order; in a cell's own order they are combinations of the cell's modes,

    global mode j = sum_i T[i, j] local mode i,    so that    local coefficients = T global coefficients.

T is the sign (-1)^p on edges, a signed permutation on quads, a permutation for nodal bases. On tris the interior modes
turn into dense combinations, and so do the edge modes: the values of an edge mode inside a tri
depend on the edge that it belongs to, so that a rotated tri's local interior coefficients depend on the global
coefficients of its edges too. T is computed: both sides are evaluated at the same points and solved for T.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from hpfem.shapes import Basis, Shape, make_basis, quadrature
from hpfem.shapes.arrays import Array, Indices, frozen
from hpfem.shapes.low_energy import interior_modes, modal_entity_modes

from ..errors import ArgumentError
from ..mesh.symmetry import entity_nodes, interior_nodes, symmetries

# Largest rounding error of an entry of R that is 0, 1 or -1.
_ROUNDING = 1e-10


@cache
def entity_modes(basis: Basis, dim: int, number: int) -> Indices:
    """Modes of a cell that belong to one of its entities; -> [n]."""
    shape = basis.shape
    if basis.name == "orthogonal":
        raise ArgumentError("the 'orthogonal' basis is not continuous across cells; use basis='modified' or 'lagrange'")
    entity = shape.entities[dim][number]
    if basis.nodes is not None and dim > 0:
        nodes = entity_nodes(shape, basis.order, dim, number)
        return frozen(nodes[interior_nodes(entity.shape, basis.order)])
    return frozen(modal_entity_modes(basis, dim, number))


@cache
def modes_by_entity(basis: Basis) -> Indices:
    """Modes of a cell in the order of its entities: of its vertices, edges, faces, and its own; -> [n_modes]."""
    return frozen(np.concatenate(_by_entity(basis)))


def _by_entity(basis: Basis) -> list[Indices]:
    """The modes of each of a cell's entities."""
    entities = ((dim, number) for dim, own in enumerate(basis.shape.entities) for number in range(len(own)))
    return [entity_modes(basis, *entity) for entity in entities]


@cache
def sizes_by_entity(basis: Basis) -> Indices:
    """Numbers of modes of the entities of a cell, in the order of `modes_by_entity`; -> [entities]."""
    return frozen(np.array([len(modes) for modes in _by_entity(basis)]))


@cache
def orientation_matrix(name: str, shape: Shape, order: int, code: int) -> Array:
    """Coefficients of all an entity's modes in its local order from its global order; -> [n_modes, n_modes]."""
    if shape.dim == 0:
        return frozen(np.eye(1))
    basis = make_basis(name, shape, order)
    if code == 0:
        return frozen(np.eye(basis.n_modes))
    rule = quadrature(shape, [order + 2] * shape.dim, ["gauss"] * shape.dim)
    seen_globally = shape.collapse(rule.eta)
    # Where the affine map that takes vertex i to vertex images[i] takes the points.
    corners, images = np.column_stack([shape.vertices, np.ones(shape.n_vertices)]), symmetries(shape)[code]
    affine = np.linalg.lstsq(corners, shape.vertices[images], rcond=None)[0]
    seen_locally = np.column_stack([seen_globally, np.ones(len(seen_globally))]) @ affine
    weight = np.sqrt(rule.weights)[:, None]
    ours = weight * basis.evaluate(seen_locally).T
    theirs = weight * basis.evaluate(seen_globally).T
    scale = np.linalg.norm(ours, axis=0)
    matrix = np.linalg.lstsq(ours / scale, theirs, rcond=None)[0] / scale[:, None]
    whole = np.rint(matrix)
    near = (np.abs(matrix - whole) < _ROUNDING * np.maximum(1.0, np.abs(matrix))) & (np.abs(whole) <= 1)
    return frozen(np.where(near, whole, matrix))


@cache
def inner_block(name: str, shape: Shape, order: int, code: int) -> Array:
    """The part of `orientation_matrix` between interior modes; -> [n, n]."""
    if shape.dim == 0:
        return frozen(np.eye(1))
    inside = interior_modes(make_basis(name, shape, order))
    return frozen(orientation_matrix(name, shape, order, code)[np.ix_(inside, inside)])


@cache
def edge_block(name: str, shape: Shape, order: int, code: int, edge: int) -> Array:
    """The part of `orientation_matrix` from an edge's modes, in global order, to the interior modes; -> [n, n_edge]."""
    basis = make_basis(name, shape, order)
    part = np.ix_(interior_modes(basis), entity_modes(basis, 1, edge))
    return frozen(orientation_matrix(name, shape, order, code)[part])
