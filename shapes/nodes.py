"""Point lattices of the shapes: equispaced ones for geometry, Gauss-Lobatto ones for nodal bases.

Both are indexed by the lattice of the shape: integer tuples built by the same product and cone as its modes,
first index slowest.

    product:  (base index, i),  i = 0..n
    cone:     (base index, i),  i = 0..n - level(base index)

where the level of an index is the largest index on a product, and on a cone its base's level plus the last index.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from .arguments import MAX_ORDER, instance, integer
from .arrays import Array, Indices, frozen
from .errors import ArgumentError
from .quadrature import make_rule
from .shape import Shape


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
        First index slowest; read-only.

    Raises
    ------
    ArgumentError
        If the order is not an integer >= 0.
    """
    order = integer(order, 0, "the order of a lattice", MAX_ORDER)
    return _lattice(instance(shape, Shape, "the shape of a lattice"), order)[0]


@cache
def _lattice(shape: Shape, order: int) -> tuple[Indices, Indices]:
    """Lattice indices [n, dim] and the level of each."""
    if shape.base is None:
        indices, levels = np.zeros((1, 0), dtype=np.int64), np.zeros(1, dtype=np.int64)
    else:
        base, level = _lattice(shape.base, order)
        count = order + 1 - level if shape.collapsed else np.full(len(base), order + 1)
        last = np.concatenate([np.arange(c) for c in count])
        parent = np.repeat(np.arange(len(base)), count)
        levels = level[parent] + last if shape.collapsed else np.maximum(level[parent], last)
        indices = np.column_stack([base[parent], last])
    return frozen(indices), levels


def node_entities(shape: Shape, order: int) -> tuple[tuple[int, int], ...]:
    """The entity (dimension, number) that owns each lattice point of a shape, in order; see `equispaced_nodes`."""
    order = _checked(shape, order)
    return tuple(_owner(shape, tuple(int(i) for i in index), order) for index in lattice(shape, order))


def _owner(shape: Shape, index: tuple[int, ...], order: int) -> tuple[int, int]:
    """Entity that owns a lattice point."""
    if shape.base is None:
        return 0, 0
    *rest, last = index
    # The points of a cone at height `last` are a lattice of its base with fewer subdivisions.
    below = _owner(shape.base, tuple(rest), order - last if shape.collapsed else order)
    return shape.lift(below, "low" if last == 0 else "high" if last == order else "swept")


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
        Read-only.

    Raises
    ------
    ArgumentError
        If the order is not an integer >= 1.
    """
    order = _checked(shape, order)
    return frozen(2.0 * lattice(shape, order) / order - 1.0)


def interpolation_nodes(shape: Shape, order: int) -> Array:
    """Unisolvent nodes that are Gauss-Lobatto on every edge and agree on faces of equal shape.

    Products are tensor products, simplices take the recursive nodes of [Isaac], the pyramid blends those of its faces.
    A cone over another base is refused; for the rest see `equispaced_nodes`.
    """
    order = _checked(shape, order)
    return _interpolation_nodes(shape, order)


def _checked(shape: Shape, order: int) -> int:
    """The order of the nodes of a shape."""
    instance(shape, Shape, "the shape of nodes")
    return integer(order, 1, "the order of nodes", MAX_ORDER)


@cache
def _interpolation_nodes(shape: Shape, order: int) -> Array:
    indices = lattice(shape, order)
    if shape.base is None:
        nodes = np.zeros((1, 0))
    elif not shape.collapsed:
        # The lattice of a product is the base's lattice times a line.
        base, line = _interpolation_nodes(shape.base, order), 2 * _gll(order) - 1
        nodes = np.column_stack([np.repeat(base, len(line), axis=0), np.tile(line, len(base))])
    elif _alphas(shape) == tuple(range(shape.dim)):
        nodes = 2 * _simplex_nodes(order, indices) - 1
    elif _alphas(shape) == (0, 0, 2):
        nodes = 2 * _blended_nodes(order, indices) - 1
    else:
        raise ArgumentError(
            f"there are no interpolation nodes for the shape {shape.name!r}: cones have them over segments, tris, quads"
            " and other simplices only; take the basis 'modified' or 'orthogonal'"
        )
    return frozen(nodes)


def _alphas(shape: Shape) -> tuple[int, ...]:
    return tuple(direction.alpha for direction in shape.directions)


def _gll(n: int) -> Array:
    """Gauss-Lobatto points of [0, 1] with n subdivisions; the midpoint for n = 0."""
    return (1 + make_rule("lobatto", n + 1).points) / 2 if n > 0 else np.array([0.5])


@cache
def _recursive(alpha: tuple[int, ...]) -> tuple[float, ...]:
    """Barycentric coordinates of one recursive interpolation node ([Isaac] eq. 2)."""
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
    return tuple((point / total).tolist())


def _simplex_nodes(order: int, indices: Indices) -> Array:
    """Nodes of a simplex in [0, 1]^dim at lattice indices [n, dim]."""
    return np.array([_recursive((order - sum(index), *index))[1:] for index in indices.tolist()])


def _blended_nodes(order: int, indices: Indices) -> Array:
    """Nodes in [0, 1]^dim of the cone over a product of segments."""
    # Collapsed positions of the triangle's nodes in each direction, so that each tri face gets its own nodes back. At
    # the faces of the other direction the triangle's height is Gauss-Lobatto; inside, the one of the two heights that
    # differs more from it serves (Lebesgue constants 15 and 25 at orders 10 and 12; with both deviations 45 and 100).
    flat, tall = indices[:, :-1], indices[:, -1]
    columns = [_simplex_nodes(order, np.column_stack([i, tall])) for i in flat.T]
    heights, level = np.array([node[:, 1] for node in columns]), _gll(order)[tall]
    height = np.take_along_axis(heights, np.abs(heights - level).argmax(axis=0)[None], axis=0)[0]
    apex = tall == order
    position = [np.where(apex, 0.0, node[:, 0] / np.where(apex, 1.0, 1 - node[:, 1])) for node in columns]
    return np.column_stack([*(x * (1 - height) for x in position), height])
