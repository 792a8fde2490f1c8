"""The map of each element from its reference shape: coefficients, points, Jacobians, quality.

An element of geometry order k is x(xi) = sum_m c_m phi_m(xi) in the orthogonal basis of order k; the coefficients solve
the Vandermonde system at the equispaced nodes. J = dx/dxi is D x d with D >= d, its determinant for D > d being
sqrt(det(J^T J)).

What is evaluated has one layout, that of fields, components before elements before points:

    x [D, E, Q]    J [D, d, E, Q]    det J [E, Q]    J^-1 [d, D, E, Q]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import numpy as np

from hpfem.shapes import Basis, Shape, default_counts, equispaced_nodes, make_basis, quadrature
from hpfem.shapes.arrays import Array, Indices, Mask, frozen
from hpfem.shapes.cached import cached_property

from ..memory import HOST, PerDevice, as_numpy, device_of, home_of, moved
from .jacobians import determinant, normal, scaled_jacobian

Elements = slice | Indices

# Largest departure of an affine element's node from the nearest polynomial of degree 1, relative to the element's size:
# mesh files carry about 12 digits.
AFFINE_TOLERANCE = 1e-10
# The same for maps of a low order, whose factors are as exact as those of all other maps; and the error of either from
# rounding the coordinates, relative to the largest coordinate.
ORDER_TOLERANCE, COORDINATE_ROUNDING = 1e-13, 8 * 2.0**-53
FLAT_TOLERANCE = 1e-12
ROUNDING = 1e-14
# Threshold of a bound of det J, relative to the largest length of a column of J to the power of d.
SURE = 1e-9
CHUNK = 4_000_000  # numbers held at a time
CACHED = 1 << 16  # and for loops whose data should fit into a core's cache
ON_DEVICE = 16  # times as many on a device, where starting an operation takes longer than computing a few numbers


class Cells(Protocol):
    """Cells of one shape and geometry order: a `CellGroup`, or the data of a future one."""

    @property
    def shape(self) -> Shape:
        """The reference shape."""

    @property
    def order(self) -> int:
        """Geometry order k."""

    @property
    def nodes(self) -> Indices:
        """Point numbers in canonical equispaced order, [E, n_nodes]."""


def chunks(count: int, numbers_each: int, lanes: int = 1, most: int | None = None) -> Iterator[slice]:
    """Go through many things a bounded number at a time."""
    step = max(1, (CHUNK if most is None else most) // max(numbers_each, 1) // lanes) * lanes
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))


def at_once(xp: Any) -> int:
    """How many numbers short operations should hold at a time: what a core's cache has room for, more on a device."""
    return CACHED if xp is np else CHUNK


@dataclass(frozen=True, eq=False)
class Quality:
    """How far elements are from being tangled, from det J at the default quadrature points of order k + 2; [E] each."""

    smallest: Array  # det J, on a surface negative where the normal points away from the element's mean normal
    largest: Array
    least_scaled: Array  # scaled Jacobian: in [-1, 1], 0 where the map is singular
    most_scaled: Array
    noise: Array  # possible error of the scaled Jacobian from rounding of the coordinates

    @property
    def ratio(self) -> Array:
        """Smallest over largest det J, 1 in an affine element [PP], [E]."""
        return self.smallest / self.largest

    @property
    def positively_oriented(self) -> Mask:
        """Elements with det J > 0 everywhere."""
        return self.least_scaled > self.noise

    @property
    def mirrored(self) -> Mask:
        """Elements with det J < 0 everywhere."""
        return self.most_scaled < -self.noise


class ElementMap:
    """The coordinate maps of elements of one shape and geometry order k, from dimension d to D."""

    # Coefficients [E, D, n_modes] are those of the orthogonal basis, on the device of xp, where properties of the
    # elements are found. Kinds are told as if nodes could be elsewhere by this part (departure) of an element's size.

    def __init__(self, shape: Shape, order: int, coefficients: Any, xp: Any = np, departure: float = 0.0) -> None:
        self.shape = shape
        self.order = order
        self.given, self.xp = coefficients, xp
        self._copies: PerDevice[Any] = PerDevice()
        if xp is not np:
            self._copies.get(home_of(coefficients), lambda: coefficients)
        self._fetched = 0  # elements of which the host was given coefficients
        self.departure = departure
        self.dim, self.space_dim = shape.dim, int(coefficients.shape[1])

    def __reduce__(self) -> tuple[type[ElementMap], tuple[Any, ...]]:
        return ElementMap, (self.shape, self.order, self.coefficients)

    @property
    def coefficients(self) -> Array:
        """The coefficients on the host, copied at the first use if they are elsewhere."""
        return self.given if self.on_host else self._copies.get(HOST, lambda: np.asarray(as_numpy(self.given)))

    @property
    def on_host(self) -> bool:
        """Whether the coefficients were made on the host."""
        return self.xp is np

    @staticmethod
    def of(cells: Cells, points: Any, rows: Elements = slice(None), xp: Any = np) -> ElementMap:
        """Maps of some cells, rows, that are given by their nodes, made by xp; points [n, D] of the mesh."""
        inverse = _inverse_vandermonde(cells.shape, cells.order)
        n, dim = len(inverse), points.shape[1]
        nodes = cells.nodes[rows] if isinstance(rows, slice) else cells.nodes.take(rows, axis=0)
        if xp is not np:  # fewer bytes
            nodes = nodes.astype(np.int32 if len(points) < 2**31 else np.int64)
        coefficients, to_modes = xp.empty((len(nodes), dim, n)), moved(inverse.T, xp)
        for part in chunks(len(coefficients), n * dim, most=at_once(xp)):
            by_coordinate = points.take(moved(nodes[part], xp), axis=0).swapaxes(1, 2).reshape(-1, n)
            # Relative to the first node: far from the origin, numbers as small as the element keep their digits.
            xp.matmul(by_coordinate - by_coordinate[:, :1], to_modes, out=coefficients[part].reshape(-1, n))
            coefficients[part, :, 0] += by_coordinate[:, 0].reshape(-1, dim) * inverse[0].sum()
        return ElementMap(cells.shape, cells.order, coefficients, xp)

    @staticmethod
    def parts(cells: Cells, points: Array) -> Iterator[ElementMap]:
        """Maps of all cells, a few at a time to save memory; one without cells if there are none; points [n, D]."""
        some = list(chunks(len(cells.nodes), cells.nodes.shape[1] * points.shape[1], most=CACHED))
        for rows in some or [slice(0)]:
            yield ElementMap.of(cells, points, rows)

    def loads_of_nodes(self, moments: Any, xp: Any = np) -> Any:
        """Functionals of the nodes' functions from those of `basis`, [..., n_modes] -> [..., n_nodes]; see `of`."""
        return moments @ moved(_inverse_vandermonde(self.shape, self.order), xp)

    @property
    def n_elements(self) -> int:
        """Number of elements."""
        return len(self.given)

    @cached_property
    def basis(self) -> Basis:
        """Basis of the coordinates."""
        return make_basis("orthogonal", self.shape, self.order)

    def positions(self, values: Array, elements: Elements = slice(None), xp: Any = np) -> Any:
        """Points in space; values [n_modes, Q] of `basis` at the points -> [D, E, Q] of xp."""
        given = self.coefficients_of(elements, xp).transpose(1, 0, 2)  # as one product: devices make batches slowly
        return (given.reshape(-1, given.shape[2]) @ moved(values, xp)).reshape(*given.shape[:2], values.shape[1])

    def coefficients_of(self, elements: Elements, xp: Any = np) -> Any:
        """Coefficients [n, D, n_modes] of some elements on xp's device, where those of all may be kept."""
        if xp is np and not self.on_host and HOST.name not in self._copies:
            given = self.given[elements if isinstance(elements, slice) else self.xp.asarray(elements)]
            self._fetched += len(given)
            if self._fetched <= self.n_elements:
                return as_numpy(given)
        if xp is np:
            return self.coefficients[elements]
        copied = self._copies.get(device_of(xp), lambda: moved(self.coefficients, xp))
        return copied[elements if isinstance(elements, slice) else moved(elements, xp)]

    def jacobian(self, gradient: Array, elements: Elements = slice(None), xp: Any = np) -> Any:
        """Derivatives dx_i/d xi_a, or as those of the gradient [d, n_modes, Q], a view; -> [D, d, E, Q]."""
        c = self.coefficients_of(elements, xp)
        table = gradient.transpose(0, 2, 1).reshape(-1, gradient.shape[1])
        parts = self.space_dim, self.dim, gradient.shape[2], -1
        # Elements are contiguous; on a device points are: its threads work on neighbours along the last axis.
        if xp is np:
            return xp.matmul(table, c.transpose(1, 2, 0)).reshape(parts).transpose(0, 1, 3, 2)
        rows = xp.matmul(c.reshape(-1, c.shape[2]), moved(table.T, xp))
        return rows.reshape(len(c), *parts[:-1]).transpose(1, 2, 0, 3)

    def paired_positions(self, values: Array, elements: Indices) -> Array:
        """Points in space, one in each element; values [n_modes, n], elements [n] -> [D, n]."""
        return np.asarray(np.einsum("nim,mn->in", self.coefficients_of(elements), values))

    def paired_jacobian(self, gradient: Array, elements: Indices) -> Array:
        """Derivatives dx_i/d xi_a at one point in each element; gradient [d, n_modes, n], elements [n] -> [D, d, n]."""
        return np.asarray(np.einsum("nim,amn->ian", self.coefficients_of(elements), gradient))

    @cached_property
    def affine_elements(self) -> Any:
        """Which elements' maps are polynomials of degree 1, so that J is constant: array of `xp`, [E]."""
        return self._small(_nodes_of_modes(self.shape, self.order)[1].T, AFFINE_TOLERANCE)

    @cached_property
    def _size_and_place(self) -> tuple[Any, Any]:
        """Largest extent of the nodes of each element, and their largest coordinate, [E]."""
        values = _nodes_of_modes(self.shape, self.order)[0]
        size, place = self.xp.empty(self.n_elements), self.xp.empty(self.n_elements)
        for part in chunks(self.n_elements, self.space_dim * values.shape[1], most=at_once(self.xp)):
            nodes = self._combined(values.T, part)
            # One axis at a time, because NumPy takes ten times as long for several.
            low, high = nodes.min(axis=1), nodes.max(axis=1)
            size[part] = (high - low).max(axis=0)
            place[part] = self.xp.maximum(abs(low), abs(high)).max(axis=0)
        return size, place

    def _small(self, rest: Array, tolerance: float) -> Any:
        """Which elements' departures, rest [n, n_modes] times coefficients, are small or within rounding; -> [E]."""
        (size, place), tolerance = self._size_and_place, max(tolerance, self.departure)
        largest = self.xp.empty(self.n_elements)
        for part in chunks(self.n_elements, self.space_dim * len(rest), most=at_once(self.xp)):
            largest[part] = abs(self._combined(rest, part)).max(axis=1).max(axis=0)
        return largest <= self.xp.maximum(tolerance * size, COORDINATE_ROUNDING * place)

    def restricted(self, order: int) -> Array:
        """Matrix from coefficients to those of the map of lower order with the same nodes of that order."""
        return _restricted(self.shape, self.order, order)

    def of_order(self, order: int) -> Any:
        """Tell the elements whose maps are of a lower order, up to rounding; [E]."""
        if order >= self.order:
            return self.xp.ones(self.n_elements, dtype=bool)
        return self._small(_rest_of_order(self.shape, self.order, order), ORDER_TOLERANCE)

    def _combined(self, table: Array, part: slice, sizes: bool = False) -> Any:
        """Combinations [D, r, E] of coefficients, or of their sizes, with the rows of a table [r, n_modes]."""
        xp, c = self.xp, self.given[part]
        rows = c.reshape(-1, c.shape[2])
        combined = xp.matmul(moved(table, xp), (abs(rows) if sizes else rows).T).reshape(-1, *c.shape[:2])
        # NumPy sums over coordinates ten times as fast where they come first in memory.
        return xp.ascontiguousarray(combined.transpose(2, 0, 1))

    def sure_signs(self, gradient: Array) -> Any:
        """Sign of det J at points by a bound, 0 if it must be evaluated; gradient [d, n_modes, Q] by xi -> int8 [E]."""
        # Let J be the mean over the points, and e_a the largest distance of column a from its mean. Then det J differs
        # from that of the mean by at most prod(|J_a| + e_a) - prod |J_a|. It is sure beyond `SURE` times the largest
        # length of a column of J to the power of d, and beyond rounding of the coordinates.
        xp = self.xp
        signs = xp.zeros(self.n_elements, dtype=np.int8)
        if self.space_dim > self.dim:
            return signs
        low, high = gradient.min(axis=2), gradient.max(axis=2)
        largest = np.abs(_nodes_of_modes(self.shape, self.order)[0]).max(axis=1)
        bounds = np.vstack([(high - low) / 2, largest])
        for part in chunks(self.n_elements, (5 * self.dim + 2) * self.space_dim, most=at_once(xp)):
            J, apart = self._combined((low + high) / 2, part), self._combined(bounds, part, sizes=True)
            lengths, departs = (xp.sqrt((rows * rows).sum(axis=0)) for rows in (J, apart[:, :-1]))
            det, longest = determinant(J, xp), lengths + departs
            least = abs(det) - (longest.prod(axis=0) - lengths.prod(axis=0))
            noise = ROUNDING * apart[:, -1].max(axis=0)
            shortest = xp.maximum((lengths - departs).min(axis=0), 0.0)
            scale = longest.max(axis=0) ** self.dim
            sure = (least > SURE * scale) & (shortest * least > 10 * scale * (FLAT_TOLERANCE * shortest + noise))
            signs[part] = xp.where(sure, xp.sign(det), 0)
        return signs

    def quality(self) -> Quality:
        """Find the extremes of det J in each element."""
        gradient, values = check_gradient(self.shape, self.order), _nodes_of_modes(self.shape, self.order)[0]
        results = np.empty((5, self.n_elements))
        affine = as_numpy(self.affine_elements)
        # In affine elements one point is enough.
        for chosen, at in ((np.flatnonzero(affine), gradient[:, :, :1]), (np.flatnonzero(~affine), gradient)):
            for part in chunks(len(chosen), (self.space_dim + 2) * self.dim * at.shape[2], most=CACHED):
                own = chosen[part]
                J = self.jacobian(at, own)
                det = _signed_determinant(J)
                scaled = scaled_jacobian(J, det)
                error = ROUNDING * np.abs(self.positions(values, own)).max(axis=0).max(axis=1)
                shortest = np.sqrt(sum(row * row for row in J).min(axis=0).min(axis=1))
                noise = FLAT_TOLERANCE + np.divide(error, shortest, out=np.full_like(error, np.inf), where=shortest > 0)
                results[:, own] = det.min(axis=1), det.max(axis=1), scaled.min(axis=1), scaled.max(axis=1), noise
        return Quality(*results)

    def volumes(self) -> Array:
        """Integrate det J, [E]: exactly where D = d, else by a rule of k + 5 more points."""
        # In each direction det J has degree d k at most.
        count = (self.dim * self.order + 2) // 2 + (0 if self.dim == self.space_dim else self.order + 5)
        rule = quadrature(self.shape, (count,) * self.dim, ("gauss",) * self.dim)
        gradient = self.basis.gradient(self.shape.collapse(rule.eta))
        result = np.empty(self.n_elements)
        for part in chunks(self.n_elements, (self.space_dim + 2) * self.dim * len(rule)):
            result[part] = determinant(self.jacobian(gradient, part)) @ rule.weights
        return result


def _signed_determinant(J: Array) -> Array:
    """Det J, [E, Q]; on a surface in space the area element times the cosine of the angle to its mean normal."""
    if len(J) == J.shape[1]:
        return np.asarray(determinant(J))
    normals = normal(J)
    mean = normals.mean(axis=2)
    mean /= np.maximum(np.linalg.norm(mean, axis=0), np.finfo(np.float64).tiny)
    return np.einsum("ieq,ie->eq", normals, mean)


@cache
def _inverse_vandermonde(shape: Shape, order: int) -> Array:
    """Modes from node values, [n_modes, n_nodes]."""
    values = make_basis("orthogonal", shape, order).evaluate(equispaced_nodes(shape, order))
    return frozen(np.asarray(np.linalg.inv(values.T), dtype=np.float64))


@cache
def _nodes_of_modes(shape: Shape, order: int) -> tuple[Array, Array]:
    """Node values from coefficients, and the remainder after subtracting their best polynomial of degree 1."""
    nodes = equispaced_nodes(shape, order)
    values = make_basis("orthogonal", shape, order).evaluate(nodes)
    linear = np.column_stack([np.ones(len(nodes)), nodes])
    rest = values @ (np.eye(len(nodes)) - linear @ np.linalg.pinv(linear))
    rest[0] = 0  # the constant mode, exactly: it is large where the mesh is far from the origin
    return values, rest


@cache
def _restricted(shape: Shape, order: int, lower: int) -> Array:
    """Matrix from coefficients to those of a lower order; see `ElementMap.restricted`."""
    values = make_basis("orthogonal", shape, order).evaluate(equispaced_nodes(shape, lower))
    return np.asarray(_inverse_vandermonde(shape, lower) @ values.T, dtype=np.float64)


@cache
def _rest_of_order(shape: Shape, order: int, lower: int) -> Array:
    """Node values from coefficients, minus those of the map of a lower order, [n, n_modes]."""
    below = make_basis("orthogonal", shape, lower).evaluate(equispaced_nodes(shape, order))
    rest = np.asarray(_nodes_of_modes(shape, order)[0].T - below.T @ _restricted(shape, order, lower))
    rest[:, 0] = 0  # as in `_nodes_of_modes`
    return rest


@cache
def check_gradient(shape: Shape, order: int) -> Array:
    """Gradient of the orthogonal basis at the default quadrature points of order k + 2; -> [d, n_modes, Q]."""
    rule = quadrature(shape, default_counts(shape, order + 2))
    gradient = make_basis("orthogonal", shape, order).gradient(shape.collapse(rule.eta))
    return frozen(gradient[:, :, :1].copy() if np.ptp(gradient, axis=2).max() < 1e-10 else gradient)


@cache
def _elevation(shape: Shape, order: int, to: int) -> Array:
    values = make_basis("orthogonal", shape, order).evaluate(equispaced_nodes(shape, to))
    return values.T @ _inverse_vandermonde(shape, order)


def elevated_nodes(cells: Cells, points: Array, order: int) -> Array:
    """Where the nodes of a higher order lie; points [n, D] -> [E, n_nodes of the wanted order, D]."""
    coordinates = points[cells.nodes]
    return coordinates if order == cells.order else _elevation(cells.shape, cells.order, order) @ coordinates
