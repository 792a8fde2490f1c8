"""The map of each cell from its reference shape: coefficients, Jacobian, determinant, affine or not.

A cell of geometry order k is x(xi) = sum_m c_m phi_m(xi) in the orthogonal basis of order k; the coefficients solve
the Vandermonde system at the equispaced nodes. J = dx/dxi is D x d with D >= d, its determinant for D > d being
sqrt(det(J^T J)).

Arrays: coefficients [E, D, n_modes], Jacobian [E, D, d, Q].
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hpfem.shapes import Shape, default_counts, equispaced_nodes, make_basis, quadrature

Array = NDArray[np.float64]

AFFINE_TOLERANCE = 1e-10
FLAT_TOLERANCE = 1e-12
ROUNDING = 1e-14
_CHUNK = 4_000_000  # numbers held at a time


class Cells(Protocol):
    """Cells of one shape and geometry order: a `CellGroup` or what becomes one."""

    @property
    def shape(self) -> Shape:
        """The reference shape."""
        ...

    @property
    def order(self) -> int:
        """Geometry order k."""
        ...

    @property
    def nodes(self) -> NDArray[np.int64]:
        """Point numbers in canonical equispaced order, [E, n_nodes]."""
        ...


@cache
def _inverse_vandermonde(shape: Shape, order: int) -> Array:
    """Modes from node values, [n_modes, n_nodes]."""
    values = make_basis("orthogonal", shape, order).evaluate(equispaced_nodes(shape, order))
    inverse = np.asarray(np.linalg.inv(values.T), dtype=np.float64)
    inverse.flags.writeable = False
    return inverse


def geometry_coefficients(group: Cells, points: Array) -> Array:
    """Coefficients of the cells' maps in the orthogonal basis of their order.

    Parameters
    ----------
    group : Cells
        Cells of one shape and geometry order.
    points : ndarray, [n, D]
        Of the mesh.

    Returns
    -------
    ndarray, [E, D, n_modes]
    """
    inverse = _inverse_vandermonde(group.shape, group.order)
    coefficients = np.empty((len(group.nodes), points.shape[1], len(inverse)))
    for part in chunks(len(group.nodes), coefficients.shape[1] * len(inverse)):
        np.matmul(points[group.nodes[part]].swapaxes(1, 2), inverse.T, out=coefficients[part])
    return coefficients


def positions(coefficients: Array, values: Array) -> Array:
    """Points x of the cells.

    Parameters
    ----------
    coefficients : ndarray, [E, D, n_modes]
        From `geometry_coefficients`.
    values : ndarray, [n_modes, Q]
        The orthogonal basis of the same order at the points, ``basis.evaluate(xi)``.

    Returns
    -------
    ndarray, [E, D, Q]
    """
    return coefficients @ values


def jacobian(coefficients: Array, gradient: Array) -> Array:
    """Jacobian dx_i / dxi_j of the cells' maps.

    Parameters
    ----------
    coefficients : ndarray, [E, D, n_modes]
        From `geometry_coefficients`.
    gradient : ndarray, [d, n_modes, Q]
        Gradient of the orthogonal basis of the same order at the points, ``basis.gradient(xi)``.

    Returns
    -------
    ndarray, [E, D, d, Q]
    """
    d, n_modes, n_points = gradient.shape
    flat = coefficients @ np.swapaxes(gradient, 0, 1).reshape(n_modes, d * n_points)
    return flat.reshape(*coefficients.shape[:2], d, n_points)


def determinant(J: Array) -> Array:
    """Det J, or sqrt(det(J^T J)) where there are more coordinates than directions.

    Parameters
    ----------
    J : ndarray, [E, D, d, Q]
        From `jacobian`.

    Returns
    -------
    ndarray, [E, Q]
    """
    if J.shape[1] == J.shape[2]:
        return _square_determinant(J)
    gram = np.einsum("eijq,eikq->ejkq", J, J)
    return np.sqrt(np.maximum(_square_determinant(gram), 0.0))


def _square_determinant(M: Array) -> Array:
    if M.shape[1] == 1:
        return M[:, 0, 0]
    if M.shape[1] == 2:
        return M[:, 0, 0] * M[:, 1, 1] - M[:, 0, 1] * M[:, 1, 0]
    return (
        M[:, 0, 0] * (M[:, 1, 1] * M[:, 2, 2] - M[:, 1, 2] * M[:, 2, 1])
        - M[:, 0, 1] * (M[:, 1, 0] * M[:, 2, 2] - M[:, 1, 2] * M[:, 2, 0])
        + M[:, 0, 2] * (M[:, 1, 0] * M[:, 2, 1] - M[:, 1, 1] * M[:, 2, 0])
    )


@cache
def _nodes_of_modes(shape: Shape, order: int) -> tuple[Array, Array]:
    """Node values from coefficients, and what is left when their best polynomial of degree 1 is taken off."""
    nodes = equispaced_nodes(shape, order)
    values = make_basis("orthogonal", shape, order).evaluate(nodes)
    linear = np.column_stack([np.ones(len(nodes)), nodes])
    rest = np.eye(len(nodes)) - linear @ np.linalg.pinv(linear)
    return values, values @ rest


def affine_elements(group: Cells, coefficients: Array, tolerance: float = AFFINE_TOLERANCE) -> NDArray[np.bool_]:
    """Which cells' maps are polynomials of degree 1, so that J is constant.

    Parameters
    ----------
    group : Cells
        Cells of one shape and geometry order.
    coefficients : ndarray, [E, D, n_modes]
        From `geometry_coefficients`.
    tolerance : float
        Largest departure of a node from the nearest such polynomial, relative to the size of the cell. Mesh files
        carry about 12 digits.

    Returns
    -------
    ndarray of bool, [E]
    """
    values, rest = _nodes_of_modes(group.shape, group.order)
    result = np.empty(len(coefficients), dtype=bool)
    for part in chunks(len(coefficients), 2 * coefficients.shape[1] * values.shape[1]):
        size = np.ptp(coefficients[part] @ values, axis=2).max(axis=1)
        result[part] = np.abs(coefficients[part] @ rest).max(axis=(1, 2)) <= tolerance * size
    return result


def chunks(count: int, numbers_each: int) -> Iterator[slice]:
    """Slices of 0 to count that keep what is made of them at a time bounded."""
    step = max(1, _CHUNK // max(numbers_each, 1))
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))


@cache
def _check_gradient(shape: Shape, order: int) -> Array:
    """Gradient of the orthogonal basis at the default quadrature points of order k + 2; one point if it is constant."""
    rule = quadrature(shape, default_counts(shape, order + 2))
    gradient = make_basis("orthogonal", shape, order).gradient(shape.collapse(rule.eta))
    if np.ptp(gradient, axis=2).max() < 1e-10:
        gradient = gradient[:, :, :1].copy()
    gradient.flags.writeable = False
    return gradient


@dataclass(frozen=True, eq=False)
class Quality:
    """How far the cells are from being tangled, from det J at the default quadrature points of order k + 2.

    Attributes
    ----------
    smallest, largest : ndarray, [E]
        Extremes of det J in each cell. On a surface in space det J counts as negative where the normal points away
        from the cell's mean normal.
    least_fullness, most_fullness : ndarray, [E]
        Extremes of det J over the product of the lengths of J's columns: in [-1, 1], 0 where the map is singular.
    noise : ndarray, [E]
        What that can be by rounding of the coordinates alone.
    """

    smallest: Array
    largest: Array
    least_fullness: Array
    most_fullness: Array
    noise: Array

    @property
    def scaled_jacobian(self) -> Array:
        """Smallest over largest det J, 1 in an affine cell (Persson & Peraire 2009), [E]."""
        return self.smallest / self.largest

    @property
    def upright(self) -> NDArray[np.bool_]:
        """Cells with det J > 0 everywhere."""
        return self.least_fullness > self.noise

    @property
    def mirrored(self) -> NDArray[np.bool_]:
        """Cells with det J < 0 everywhere."""
        return self.most_fullness < -self.noise


def quality(group: Cells, points: Array) -> Quality:
    """Extremes of det J in each cell.

    Parameters
    ----------
    group : Cells
        Cells of one shape and geometry order.
    points : ndarray, [n, D]
        Of the mesh.

    Returns
    -------
    Quality
    """
    coefficients = geometry_coefficients(group, points)
    n_cells, D, _ = coefficients.shape
    gradient = _check_gradient(group.shape, group.order)
    results = np.empty((5, n_cells))
    magnitude = np.abs(points).max(axis=1)
    # In affine cells one point tells all.
    affine = affine_elements(group, coefficients)
    for chosen, at in ((np.flatnonzero(affine), gradient[:, :, :1]), (np.flatnonzero(~affine), gradient)):
        for part in chunks(len(chosen), (D + 2) * group.shape.dim * at.shape[2]):
            cells = chosen[part]
            J = jacobian(coefficients[cells], at)
            det = _signed_determinant(J)
            columns = np.sqrt(np.einsum("eijq,eijq->ejq", J, J))
            lengths = np.prod(columns, axis=1)
            fullness = np.divide(det, lengths, out=np.zeros_like(det), where=lengths > 0)
            error = ROUNDING * magnitude[group.nodes[cells]].max(axis=1)
            shortest = columns.min(axis=(1, 2))
            noise = FLAT_TOLERANCE + np.divide(error, shortest, out=np.full_like(error, np.inf), where=shortest > 0)
            results[:, cells] = (
                det.min(axis=1), det.max(axis=1), fullness.min(axis=1), fullness.max(axis=1), noise
            )  # fmt: skip
    return Quality(*results)


def _signed_determinant(J: Array) -> Array:
    """Det J; on a surface in space the area element times the cosine of the angle to the cell's mean normal."""
    if J.shape[1] == J.shape[2]:
        return _square_determinant(J)
    normal = np.cross(J[:, :, 0], J[:, :, 1], axis=1)
    mean = normal.mean(axis=2)
    length = np.linalg.norm(mean, axis=1, keepdims=True)
    mean = np.divide(mean, length, out=np.zeros_like(mean), where=length > 0)
    return np.einsum("eiq,ei->eq", normal, mean)


def volumes(group: Cells, points: Array) -> Array:
    """Volumes of the cells: exact where D = d, else by a rule of k + 5 more points.

    Parameters
    ----------
    group : Cells
        Cells of one shape, of dimension >= 1, and geometry order.
    points : ndarray, [n, D]
        Of the mesh.

    Returns
    -------
    ndarray, [E]
    """
    shape, order, D = group.shape, group.order, points.shape[1]
    # In each direction det J has degree d k at most.
    count = (shape.dim * order + 2) // 2 + (0 if shape.dim == D else order + 5)
    rule = quadrature(shape, (count,) * shape.dim, ("gauss",) * shape.dim)
    gradient = make_basis("orthogonal", shape, order).gradient(shape.collapse(rule.eta))
    coefficients = geometry_coefficients(group, points)
    result = np.empty(len(coefficients))
    for part in chunks(len(coefficients), (D + 2) * shape.dim * len(rule)):
        result[part] = determinant(jacobian(coefficients[part], gradient)) @ rule.weights
    return result


@cache
def _elevation(shape: Shape, order: int, to: int) -> Array:
    values = make_basis("orthogonal", shape, order).evaluate(equispaced_nodes(shape, to))
    return values.T @ _inverse_vandermonde(shape, order)


def elevated_nodes(group: Cells, points: Array, order: int) -> Array:
    """Where the nodes of a higher order lie.

    Parameters
    ----------
    group : Cells
        Cells of one shape and geometry order.
    points : ndarray, [n, D]
        Of the mesh.
    order : int
        Wanted geometry order, at least the present one.

    Returns
    -------
    ndarray, [E, n_nodes of the wanted order, D]
    """
    coordinates = points[group.nodes]
    return coordinates if order == group.order else _elevation(group.shape, group.order, order) @ coordinates
