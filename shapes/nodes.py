"""Point lattices of the shapes: equispaced ones for geometry, Gauss-Lobatto ones for nodal bases.

Both are indexed by the lattice of the shape: integer tuples built by the same product and cone as its modes,
first index slowest.

    product:  (base index, i),  i = 0..n
    cone:     (base index, i),  i = 0..n - level(base index)

where the level of an index is the largest index on a product, and on a cone its base's level plus the last index.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from .errors import ArgumentError
from .polynomials import Array
from .quadrature import make_rule
from .shape import Shape
from .tree import Indices


def _lattice(shape: Shape, order: int) -> tuple[Indices, Indices]:
    """Lattice indices [n, dim] and the level of each."""
    if shape.base is None:
        return np.zeros((1, 0), dtype=np.int64), np.zeros(1, dtype=np.int64)
    base, level = _lattice(shape.base, order)
    count = order + 1 - level if shape.collapsed else np.full(len(base), order + 1)
    last = np.concatenate([np.arange(c) for c in count])
    parent = np.repeat(np.arange(len(base)), count)
    levels = level[parent] + last if shape.collapsed else np.maximum(level[parent], last)
    return np.column_stack([base[parent], last]), levels


@lru_cache(maxsize=None)
def lattice(shape: Shape, order: int) -> Indices:
    """Lattice indices of a shape.

    Parameters
    ----------
    shape : Shape
    order : int
        Subdivisions of an edge, >= 0.

    Returns
    -------
    ndarray of int, [n, dim]
        First index slowest.
    """
    if order < 0:
        raise ArgumentError(f"lattice order must be >= 0, got {order}")
    indices = _lattice(shape, order)[0]
    indices.flags.writeable = False
    return indices


@lru_cache(maxsize=None)
def equispaced_nodes(shape: Shape, order: int) -> Array:
    """Equispaced points of order `order` in the bi-unit shape, in lattice order.

    This is the node order of a geometry of that order everywhere above this package.

    Parameters
    ----------
    shape : Shape
    order : int
        Subdivisions of an edge, >= 1.

    Returns
    -------
    ndarray, [n, dim]
    """
    if order < 1:
        raise ArgumentError(f"node order must be >= 1, got {order}")
    nodes = 2.0 * lattice(shape, order) / order - 1.0
    nodes.flags.writeable = False
    return nodes


def _gll(n: int) -> Array:
    """Gauss-Lobatto points of [0, 1] with n subdivisions; the midpoint for n = 0."""
    return (1 + make_rule("lobatto", n + 1).points) / 2 if n > 0 else np.array([0.5])


@lru_cache(maxsize=None)
def _recursive(alpha: tuple[int, ...]) -> tuple[float, ...]:
    """Barycentric coordinates of one recursive interpolation node (Isaac 2020, eq. 2)."""
    if len(alpha) == 1:
        return (1.0,)
    n = sum(alpha)
    gll = _gll(n)
    total, point = 0.0, np.zeros(len(alpha))
    for i, a in enumerate(alpha):
        weight = gll[n - a]
        rest = _recursive(alpha[:i] + alpha[i + 1 :])
        point += weight * np.insert(np.asarray(rest), i, 0.0)
        total += weight
    return tuple(point / total)


def _simplex_nodes(dim: int, order: int, indices: Indices) -> Array:
    return np.array([_recursive((order - int(row.sum()), *map(int, row)))[1:] for row in indices]).reshape(-1, dim)


@lru_cache(maxsize=None)
def interpolation_nodes(shape: Shape, order: int) -> Array:
    """Unisolvent nodes that are Gauss-Lobatto on every edge and agree on faces of equal shape.

    Products are tensor products, simplices take Isaac's recursive nodes ("Recursive, parameter-free, explicitly
    defined interpolation nodes for simplices", 2020), the pyramid blends those of its faces.

    Parameters
    ----------
    shape : Shape
    order : int
        Polynomial order, >= 1.

    Returns
    -------
    ndarray, [n, dim]
        In lattice order.
    """
    indices = lattice(shape, order)
    if shape.base is None:
        return np.zeros((1, 0))
    if not shape.collapsed:
        # The lattice of a product is the base's lattice times a line.
        base = interpolation_nodes(shape.base, order)
        line = 2 * _gll(order) - 1
        nodes = np.column_stack([np.repeat(base, len(line), axis=0), np.tile(line, len(base))])
    elif shape.base.collapsed or shape.base.dim == 1:
        nodes = 2 * _simplex_nodes(shape.dim, order, indices) - 1
    else:
        # Heights and collapsed positions of the triangle's nodes, blended so that each tri face gets its own nodes back.
        tall, flat = indices[:, -1], indices[:, :-1]
        height = np.zeros(len(indices))
        position = np.zeros(flat.shape)
        for k in range(flat.shape[1]):
            b = _simplex_nodes(2, order, np.column_stack([flat[:, k], tall]))
            rest = 1 - b[:, 1]
            apex = tall == order
            position[:, k] = np.where(apex, 0.0, b[:, 0] / np.where(apex, 1.0, rest))
            height += b[:, 1]
        height -= (flat.shape[1] - 1) * _gll(order)[tall]
        nodes = np.column_stack([2 * position * (1 - height)[:, None] - 1, 2 * height - 1])
    nodes.flags.writeable = False
    return nodes
