"""Geometric factors of a block, made at their first use, in the layout that a strategy asks for.

J = dx/d xi is D x d with D >= d; |J| = sqrt(det(J^T J)), the metric is (J^T J)^-1. With C = d xi/d eta the collapse:

    factors     affine (one value an element)          deformed (one value a point)
    "wJ"        |J|                                    w |J|
    "metric"    |J| (J^T J)^-1 in xi, then |J|         w |J| (J_eta^T J_eta)^-1 with J_eta = J C, then w |J|
    "jacobian"  d xi_a/dx_i, then |J|                  d eta_a/dx_i, then w |J|
    "points"    -                                      x_i (for all geometry kinds)
    "scale"     -                                      w / |J_eta|, beside "map"
    "map"       coefficients of x in the orthogonal basis of the kind's order, the constant one left out, one set an
                element: mode by mode, D numbers each. Kernels recompute factors from them (`MapLines`).

A symmetric matrix is stored as (0,0) (0,1) .. (0,d-1) (1,1) .. ; d xi_a/dx_i as a*D + i. Layout of every array:

    factors[group, factor, point, lane],  element = group * lanes + lane,  zeros past the last element

With one lane this is [element, factor, point]. Affine factors have one point; a kernel multiplies them by `expansion`
to get the deformed ones. `MergedGeometry` multiplies the coefficients of a form into deformed ones.

A geometry kind is a class in `GEOMETRY_KINDS`: its elements, and the number of points with stored factors. Most kernels
need nothing else; one that computes factors itself reads `BlockGeometry.kind`. A kind whose maps are of a low order
names it (`order`), so that kernels may recompute factors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hpfem.shapes import Basis, Shape, ShapeRule, make_basis
from hpfem.shapes.cached import cached_property

from ..errors import ArgumentError
from ..memory import as_numpy
from .element_map import CACHED, CHUNK, FLAT_TOLERANCE, SURE, Cells, ElementMap, Elements, Indices, at_once, chunks
from .jacobians import (
    determinant,
    determinant_and_inverse,
    inverse_collapse,
    metric,
    scaled_jacobian,
    symmetric_pairs,
)
from .map_lines import MapLines

Array = NDArray[np.float64]

KINDS = ("wJ", "metric", "jacobian", "points", "scale", "map")


class GeometryKind:
    """A property of the maps of all elements of a block. This class: no property, so factors are stored at every point.

    Another kind is a class like `_Affine`, in `GEOMETRY_KINDS` before the general one. Most kernels use factors at the
    points; a kernel that computes factors itself reads `BlockGeometry.kind`.

    Attributes
    ----------
    name : str
        Name in messages, keys and results.
    order : int or None
        Order of the maps, if it is low enough for kernels to recompute factors from their coefficients.
    """

    name = "deformed"
    order: int | None = None

    def __reduce__(self) -> str | tuple[Any, ...]:
        return _kind_named, (self.name,)

    def includes(self, elements: ElementMap) -> Any:
        """Tell the elements that are of this kind.

        Parameters
        ----------
        elements : ElementMap

        Returns
        -------
        array of the elements' module, of bool, [E]
        """
        return elements.xp.ones(elements.n_elements, dtype=bool)

    def reference(self, geometry: BlockGeometry) -> tuple[Array, Array]:
        """Reference data of the stored factors.

        Parameters
        ----------
        geometry : BlockGeometry
            Only its `shape`, `basis` and `rule` are used.

        Returns
        -------
        gradient : ndarray, [d, n_geometry_modes, S]
            Gradient of the coordinates' basis at the points with stored factors: S = Q here.
        weights : ndarray, [S]
            Factors of the Jacobian's determinant at these points.
        """
        rule = geometry.rule
        # Both the rule's weights and the Jacobian contain the collapse.
        return geometry.gradient_eta, rule.weights / np.linalg.det(geometry.shape.collapse_matrix(rule.eta))


class _Affine(GeometryKind):
    """The Jacobian is constant in every element: factors are stored once an element, by xi and without weights."""

    name = "affine"

    def includes(self, elements: ElementMap) -> Any:
        """Tell the affine elements; see `GeometryKind.includes`."""
        return elements.affine_elements

    def reference(self, geometry: BlockGeometry) -> tuple[Array, Array]:
        """Mean of the gradient by xi, and 1; see `GeometryKind.reference`.

        The Jacobian through the mean is exact where the test of affinity holds to rounding.
        """
        rule = geometry.rule
        w = rule.weights / rule.weights.sum()
        collapse = inverse_collapse(geometry.shape, rule.eta)
        return np.einsum("q,amq,qab->bm", w, geometry.gradient_eta, collapse, optimize=True)[..., None], np.ones(1)


class _OfOrder(GeometryKind):
    """The maps are of an order, possibly given in a higher one.

    Parameters
    ----------
    name : str
    order : int
    """

    def __init__(self, name: str, order: int) -> None:
        self.name, self.order = name, order

    def includes(self, elements: ElementMap) -> Any:
        """Tell the elements whose nodes differ from such a map by rounding only; see `GeometryKind.includes`."""
        return elements.of_order(self.order or 0)


AFFINE = _Affine()
MULTILINEAR, QUADRATIC = _OfOrder("multilinear", 1), _OfOrder("quadratic", 2)
GENERAL = GeometryKind()
# An element is of the first kind that includes it.
GEOMETRY_KINDS: list[GeometryKind] = [AFFINE, MULTILINEAR, QUADRATIC, GENERAL]
# If fewer elements are of such a kind, they join the next kind that has elements: small blocks cost launches.
FEW = 1000


def _kind_named(name: str) -> GeometryKind:
    return {kind.name: kind for kind in GEOMETRY_KINDS}[name]


def by_kind(cells: Cells, points: Any, xp: Any = np) -> Iterator[tuple[GeometryKind, NDArray[np.int64], ElementMap]]:
    """Sort cells by the kind of their geometry; points [n, D] -> chosen [n]."""
    elements = ElementMap.of(cells, points, xp=xp)
    first = _first_kinds(elements)
    for number, kind in enumerate(GEOMETRY_KINDS):
        if kind.order is not None and np.count_nonzero(first == number) < FEW and (first > number).any():
            first[first == number] = first[first > number].min()
    if len(first) and first.min() == first.max():
        yield GEOMETRY_KINDS[first[0]], np.arange(len(first)), elements
        return
    del elements  # before others are made
    for number, kind in enumerate(GEOMETRY_KINDS):
        chosen = np.flatnonzero(first == number)
        if len(chosen) or (number == 0 and not len(cells.nodes)):
            yield kind, chosen, ElementMap.of(cells, points, chosen, xp)


def _first_kinds(elements: ElementMap) -> NDArray[np.int64]:
    """Number of the first kind that includes each element."""
    xp = elements.xp
    first = np.empty(elements.n_elements, dtype=np.int64)
    for rows in chunks(len(first), elements.given[:1].size, most=at_once(xp)):
        own = ElementMap(elements.shape, elements.order, elements.given[rows], xp)
        first[rows] = as_numpy(xp.stack([kind.includes(own) for kind in GEOMETRY_KINDS]).argmax(axis=0))
    return first


class Coefficients(Protocol):
    """Coefficients of a form at the points of a block, which are multiplied into its geometric factors.

    Attributes
    ----------
    tensor : bool
        Whether the diffusion is a symmetric matrix, [D, D], not a number.
    reacts : bool
        Whether a value is tested, so that there is a factor w |J|.
    """

    tensor: bool
    reacts: bool

    def values(self, geometry: BlockGeometry, elements: Elements, xp: Any) -> tuple[Any, Any]:
        """Evaluate them.

        Parameters
        ----------
        geometry : BlockGeometry
            Of all elements, with the points.
        elements : slice or ndarray of int
            Which elements.
        xp : module
            NumPy or CuPy.

        Returns
        -------
        diffusion : array, [E, Q], or a number; a list of these, row by row, for a tensor
        reaction : array, [E, Q], or a number
        """


class BlockGeometry(ElementMap):
    """The maps of the elements of one block, at the points of one rule.

    Parameters
    ----------
    shape : Shape
    order : int
        Geometry order k.
    coefficients : array of xp, [E, D, n_geometry_modes]
        Coordinates in the orthogonal basis of order k.
    rule : ShapeRule
        The points of the factors.
    kind : GeometryKind
        The kind of all the elements.
    xp : module
        As for `ElementMap`.

    Attributes
    ----------
    affine : bool
        Whether the Jacobian is constant in every element.
    by_element : bool
        Whether every element has its coefficients, so that factors need not be made by `write_factors`.
    merged : bool
        Whether coefficients of a form are multiplied into the factors: a `MergedGeometry`.
    tensor : bool
        Whether one of them is a matrix.
    """

    by_element, merged, tensor = True, False, False

    def __init__(
        self, shape: Shape, order: int, coefficients: Any, rule: ShapeRule, kind: GeometryKind, xp: Any = np
    ) -> None:
        super().__init__(shape, order, coefficients, xp)
        self.rule = rule
        self.kind, self.affine = kind, kind is AFFINE
        self._deviation: float | None = None
        # Operators on the same block share their factors for as long as one of them lives.
        self._made: WeakValueDictionary[tuple[str, int, str], NDArray[np.floating[Any]]] = WeakValueDictionary()
        self._merged: WeakValueDictionary[int, BlockGeometry] = WeakValueDictionary()

    def __reduce__(self) -> tuple[type[BlockGeometry], tuple[Any, ...]]:
        return BlockGeometry, (self.shape, self.order, self.coefficients, self.rule, self.kind)

    def part(self, n_elements: int) -> BlockGeometry:
        """Take the first elements by themselves.

        Parameters
        ----------
        n_elements : int
            At most as many as there are.

        Returns
        -------
        BlockGeometry
            A new one, which shares no factors with this one.
        """
        return BlockGeometry(self.shape, self.order, self.given[:n_elements], self.rule, self.kind, self.xp)

    def without_elements(self) -> BlockGeometry:
        """Take the same kind and rule without elements, and without coefficients' values.

        Returns
        -------
        BlockGeometry
            It is small when pickled.
        """
        return self.part(0)

    def on_rule(self, rule: ShapeRule) -> BlockGeometry:
        """Take the same elements at the points of a rule.

        Parameters
        ----------
        rule : ShapeRule

        Returns
        -------
        BlockGeometry
            A new one without factors.
        """
        other = BlockGeometry(self.shape, self.order, self.given, rule, self.kind, self.xp)
        other._copies = self._copies
        return other

    def straightened(self) -> BlockGeometry:
        """Take the same elements as affine ones, with their mean Jacobians.

        Returns
        -------
        BlockGeometry
            A new one without factors.
        """
        other = BlockGeometry(self.shape, self.order, self.given, self.rule, AFFINE, self.xp)
        other._copies = self._copies
        return other

    def deviation(self, xp: Any = np) -> float:
        """Bound how far Jacobians are from their element's mean J_0: |J_0^-1 J - I| at the points.

        Parameters
        ----------
        xp : module
            NumPy or CuPy: where it is computed.

        Returns
        -------
        float
            At least the largest Frobenius norm of all elements; 0 without elements.
        """
        if self._deviation is None:
            self._deviation = self._largest_deviation(xp)
        return self._deviation

    def _largest_deviation(self, xp: Any) -> float:
        mean, _ = AFFINE.reference(self)
        collapse = inverse_collapse(self.shape, self.rule.eta)
        gradient = np.einsum("amq,qab->bmq", self.gradient_eta, collapse, optimize=True)
        # J_0^-1 J - I is a sum over the modes of the map of J_0^-1 c times what differs from the mean gradient.
        lengths = np.linalg.norm(gradient - mean, axis=0).max(axis=1)
        largest = 0.0
        for some in chunks(self.n_elements, 4 * self.space_dim * self.basis.n_modes):
            _, inverse = determinant_and_inverse(self.jacobian(mean, some, xp), xp)
            moved = xp.matmul(inverse[..., 0].transpose(2, 0, 1), self.coefficients_of(some, xp))
            largest = max(largest, float((xp.sqrt((moved**2).sum(axis=1)) @ xp.asarray(lengths)).max()))
        return largest

    @cached_property
    def values(self) -> Array:
        """Values of `basis` at the points, [n_geometry_modes, Q]."""
        return self.basis.evaluate(self.shape.collapse(self.rule.eta))

    @cached_property
    def gradient_eta(self) -> Array:
        """Gradient of `basis` by eta at the points, [d, n_geometry_modes, Q]."""
        return self.basis.gradient_eta(self.rule.eta)

    @cached_property
    def map_basis(self) -> Basis:
        """Basis of the coordinates of the kind's order."""
        return make_basis("orthogonal", self.shape, self.kind.order or self.order)

    def map_lines(self, axes: Sequence[int]) -> MapLines:
        """Tables that recompute Jacobians from factors "map"; see `MapLines.of`.

        Parameters
        ----------
        axes : sequence of int
            Direction of the lines, then the others.

        Returns
        -------
        MapLines
        """
        return MapLines.of(self.map_basis, self.rule, axes)

    @cached_property
    def stored_reference(self) -> tuple[Array, Array]:
        """Reference data of the stored factors; see `GeometryKind.reference`."""
        return self.kind.reference(self)

    @cached_property
    def widths(self) -> Array:
        """Sizes of the elements, roughly: of their largest coefficients but the constant ones, [E]."""
        xp, widths = self.xp, np.empty(len(self.given))
        for part in chunks(len(widths), self.given[:1].size, most=at_once(xp)):
            own = abs(self.given[part, :, 1:])
            widths[part] = as_numpy(own.reshape(len(own), -1).max(axis=1))
        return widths

    def outside(self, dtype: DTypeLike) -> Indices:
        """Find the elements whose volumes leave the range of a type, with room for its rounding.

        Parameters
        ----------
        dtype : dtype
            float64 or float32.

        Returns
        -------
        ndarray of int
        """
        return self._outside(dtype, np.ones(1))

    def _outside(self, dtype: DTypeLike, scale: Array) -> Indices:
        """Elements whose volumes times a scale, [E] or [1], leave the range."""
        limits, digits = np.finfo(np.dtype(dtype)), np.log10(np.finfo(np.dtype(dtype)).eps)
        volumes = self.dim * np.log10(self.widths) + np.log10(scale)
        inside = (volumes > np.log10(limits.tiny) - digits) & (volumes < np.log10(limits.max) + digits)
        return np.flatnonzero(~inside)

    def rounding_error(self, kind: str, dtype: DTypeLike, points: int) -> float:
        """Measure what factors change if they are rounded: the weights, and the energies of gradients.

        Parameters
        ----------
        kind : str
            "wJ", "metric" or "jacobian".
        dtype : dtype
            To which they are rounded.
        points : int
            That are looked at, more or less: those of elements spread over the block, one at least.

        Returns
        -------
        float
            Largest relative change of w|J| and, with gradients, of w|J| |grad u|^2 at these points, for any u. So the
            energy of a function, and of its gradient, on these elements changes by no larger share. Coefficients that
            are in the factors belong to these energies; large or infinite if one is a singular tensor.
        """
        n = min(self.n_elements, max(1, points // self.n_points(kind)))
        some = np.unique(np.linspace(0, self.n_elements - 1, n).astype(int)) if n else np.empty(0, dtype=int)
        if not len(some):
            return 0.0
        exact = np.stack(list(self._factors(kind, some)), axis=-1)  # [E, S, factor]
        rounded = exact.astype(dtype).astype(np.float64)
        there = exact[..., -1] != 0  # a coefficient in the factors may be 0, which is not rounded
        change = np.abs(rounded[..., -1][there] / exact[..., -1][there] - 1).max(initial=0.0)
        if kind == "wJ":
            return float(change)
        before, after = (self._metrics(kind, own) for own in (exact, rounded))
        there = before.any(axis=(-2, -1))
        try:
            relative = np.linalg.solve(before[there], (after - before)[there])
        except np.linalg.LinAlgError:  # a gradient without energy gets some
            return np.inf
        return float(max(change, np.abs(np.linalg.eigvals(relative)).max(initial=0.0)))

    def _metrics(self, kind: str, factors: Array) -> Array:
        """Matrices w|J| J^-1 J^-T, [.., d, d], of factors [.., n_factors]."""
        if kind == "jacobian":
            inverse = factors[..., :-1].reshape(*factors.shape[:-1], self.dim, self.space_dim)
            return np.asarray(inverse @ (factors[..., -1:, None] * inverse.swapaxes(-1, -2)))
        matrices = np.empty((*factors.shape[:-1], self.dim, self.dim))
        for number, (a, b) in enumerate(symmetric_pairs(self.dim)):
            matrices[..., a, b] = matrices[..., b, a] = factors[..., number]
        return matrices

    def n_factors(self, kind: str) -> int:
        """Count the numbers that are stored of a kind of factors.

        Parameters
        ----------
        kind : str
            One of `KINDS`.

        Returns
        -------
        int
            Number per stored point, see `n_points`.

        Raises
        ------
        ArgumentError
            For an unknown kind.
        """
        d, space_dim = self.dim, self.space_dim
        counts = {"wJ": 1, "metric": d * (d + 1) // 2 + 1, "jacobian": d * space_dim + 1, "points": space_dim}
        counts["scale"] = 1
        counts["map"] = space_dim * (self.map_basis.n_modes - 1)
        if kind not in counts:
            raise ArgumentError(f"unknown kind of geometric factors {kind!r}; valid: {', '.join(KINDS)}")
        return counts[kind]

    def n_points(self, kind: str) -> int:
        """Count the points that a kind of factors is stored at.

        Parameters
        ----------
        kind : str
            See `n_factors`.

        Returns
        -------
        int
            Q, or 1 if an element has one set of factors.
        """
        if kind == "map":
            return 1
        return len(self.rule) if kind == "points" else len(self.stored_reference[1])

    def with_coefficients(self, coefficients: Coefficients) -> BlockGeometry:
        """Take the same elements with factors that coefficients are multiplied into.

        Parameters
        ----------
        coefficients : Coefficients

        Returns
        -------
        BlockGeometry
            With factors "wJ", "metric" and "scale"; made anew, and shared with nobody.
        """
        found = MergedGeometry(self, coefficients)
        self._merged[id(found)] = found
        return found

    def related(self) -> list[BlockGeometry]:
        """List this geometry and those that were made of it by `with_coefficients` and are in use.

        Returns
        -------
        list of BlockGeometry
        """
        # Taken at once: other threads may make some meanwhile.
        return [self, *(found for ref in self._merged.valuerefs() if (found := ref()) is not None)]

    def chunks(self, lanes: int = 1, size: int | None = None) -> Iterator[slice]:
        """Go through the elements such that values at the points take tens of megabytes.

        Parameters
        ----------
        lanes : int
            Elements that are kept together.
        size : int, optional
            Entries of Jacobians of a range at most, if it has more than `lanes` elements.

        Returns
        -------
        iterator of slice
        """
        # Everything computed from a Jacobian has ten times as many numbers.
        each = 2 * len(self.rule) * self.dim * self.space_dim
        return chunks(self.n_elements, each, lanes, None if size is None else 2 * size)

    def coordinates(self, elements: Elements = slice(None), xp: Any = np) -> Any:
        """Points of the rule in space.

        Parameters
        ----------
        elements : slice or ndarray of int
            Which elements of the block.
        xp : module
            NumPy or CuPy: where they are computed.

        Returns
        -------
        array of xp, [D, E, Q]
        """
        return self.positions(self.values, elements, xp)

    def weights(self) -> Array:
        """Make the quadrature weights times |J|.

        Returns
        -------
        ndarray, [E, Q]
        """
        stored = self.factors("wJ")[:, 0, :, 0]
        return np.asarray(stored * self.rule.weights if self.affine else stored, dtype=np.float64)

    def inverse_and_weights(self, elements: Elements, xp: Any = np) -> tuple[Any, Any]:
        """Factors for derivatives in space and for integrals at the points, for any geometry kind.

        Parameters
        ----------
        elements : slice or ndarray of int
            Which elements of the block.
        xp : module
            NumPy or CuPy: where they are computed.

        Returns
        -------
        inverse : array of xp, [d, D, E, Q]
            d eta_a/dx_i.
        weights : array of xp, [E, Q]
            Quadrature weights times |J|.
        """
        gradient, weights = GENERAL.reference(self)
        det, inverse = determinant_and_inverse(self.jacobian(gradient, elements, xp), xp)
        return inverse, xp.asarray(weights) * det

    def volume_factors(self, elements: Elements = slice(None), xp: Any = np) -> Any:
        """|J| by xi: the factor in integrals over the reference element.

        Parameters
        ----------
        elements : slice or ndarray of int
            Which elements of the block.
        xp : module
            NumPy or CuPy: where they are computed.

        Returns
        -------
        array of xp, [E, Q], or [E, 1] where it is constant in every element
        """
        gradient, weights = self.stored_reference
        det = determinant(self.jacobian(gradient, elements, xp), xp)
        return det if self.affine else det * xp.asarray(weights / self.rule.weights)

    def surely_regular(self) -> NDArray[np.bool_]:
        """Tell elements that a bound proves not to be tangled at any point of the rule, see `sure_signs`.

        Returns
        -------
        ndarray of bool, [E]
            Their scaled Jacobians are above `FLAT_TOLERANCE`.
        """
        # det J C over the product of its columns' lengths is at least that share of det J over the largest length.
        C = self.shape.collapse_matrix(self.rule.eta)
        share = np.linalg.det(C) / np.abs(C).sum(axis=1).prod(axis=1)
        if share.min() * SURE <= FLAT_TOLERANCE:
            return np.zeros(self.n_elements, dtype=bool)
        signs = self.sure_signs(self.basis.gradient(self.shape.collapse(self.rule.eta)))
        return np.asarray(as_numpy(signs > 0))

    def scaled_jacobian(self, elements: Indices, xp: Any = np) -> Array:
        """Smallest scaled Jacobian at the points, of each of some elements; see `scaled_jacobian`.

        Parameters
        ----------
        elements : ndarray of int, [n]
        xp : module
            NumPy or CuPy: where it is computed.

        Returns
        -------
        ndarray, [n]
            Where it is not positive, the element is tangled at a point of the rule.
        """
        smallest = np.empty(len(elements))
        numbers = 2 * len(self.rule) * self.dim * self.space_dim
        for chunk in chunks(len(elements), numbers, most=CACHED if xp is np else CHUNK):
            J = self.jacobian(self.gradient_eta, elements[chunk], xp)
            smallest[chunk] = as_numpy(scaled_jacobian(J, determinant(J, xp), xp).min(axis=1))
        return smallest

    def _factors(self, kind: str, elements: Elements, xp: Any = np) -> Iterator[Any]:
        """Factors of a chunk, one [E, S] after the other."""
        if kind == "points":
            yield from self.positions(self.values, elements, xp)
            return
        if kind == "map":
            modes = self.positions(self.restricted(self.map_basis.order).T[:, 1:], elements, xp)
            yield from modes.transpose(2, 0, 1).reshape(-1, modes.shape[1], 1)
            return
        gradient, weights = self.stored_reference
        J, weights = self.jacobian(gradient, elements, xp), xp.asarray(weights)
        if kind in ("wJ", "scale"):
            det = determinant(J, xp)
            if kind == "scale":
                yield weights / det
            if kind == "wJ" or self.n_factors(kind) == 2:
                yield weights * det
            return
        if kind == "metric":
            yield from metric(J, weights, xp)
            return
        det, inverse = determinant_and_inverse(J, xp)
        for row in inverse:
            yield from row
        yield weights * det

    def factors(self, kind: str, lanes: int = 1, dtype: DTypeLike = np.float64) -> NDArray[np.floating[Any]]:
        """Make the factors of a kind.

        Parameters
        ----------
        kind : str
            One of `KINDS`.
        lanes : int
            Elements stored next to each other.
        dtype : dtype
            float64 or float32; computed in float64.

        Returns
        -------
        ndarray, [groups, n_factors, n_points, lanes]
            C-ordered and read-only; zeros past the last element.
        """
        key = (kind, lanes, np.dtype(dtype).name)
        made = self._made.get(key)
        if made is None:
            made = self._make_factors(kind, lanes, dtype)
            made.flags.writeable = False
            self._made[key] = made
        return made

    def _make_factors(self, kind: str, lanes: int, dtype: DTypeLike) -> NDArray[np.floating[Any]]:
        groups = -(-self.n_elements // lanes)
        out = np.empty((groups, self.n_factors(kind), self.n_points(kind), lanes), dtype)
        self.write_factors(kind, out)
        return out

    def write_factors(self, kind: str, out: Any, xp: Any = np, size: int | None = None) -> None:
        """Write the factors of a kind into an array.

        Parameters
        ----------
        kind : str
            One of `KINDS`.
        out : array of xp, [groups, n_factors, *points, lanes]
            Overwritten: computed in float64, then rounded; zeros past the last element. It may be a view with any
            strides, with its points in as many axes as that takes, the first direction slowest.
        xp : module
            NumPy or CuPy: the module of `out`, which computes everything.
        size : int, optional
            See `chunks`.
        """
        lanes = out.shape[-1]
        for chunk in self.chunks(lanes, size):
            for row, values in enumerate(self._factors(kind, chunk, xp)):
                for place, own in _by_group(out[:, row], chunk, values, xp):
                    place[...] = own
        if rest := self.n_elements % lanes:
            out[-1, ..., rest:] = 0

    def held(self) -> dict[str, int]:
        """Count the bytes of the factors on the host that are in use now.

        Returns
        -------
        dict
            By kind.
        """
        found: dict[str, int] = {}
        # Taken at once: other threads may make factors meanwhile.
        for reference in [reference for one in self.related() for reference in one._made.valuerefs()]:
            array = reference()
            if array is not None:
                kind = reference.key[0]
                found[kind] = found.get(kind, 0) + array.nbytes
        return found

    def expansion(self, kind: str) -> Array:
        """Matrix from the affine factors of an element to the factors at the points: the collapse, as reference data.

        Parameters
        ----------
        kind : str
            "wJ", "metric" or "jacobian".

        Returns
        -------
        ndarray, [n_factors at a point, Q, n_factors of the element]

        Raises
        ------
        ArgumentError
            For another kind.
        """
        if kind not in ("wJ", "metric", "jacobian"):
            raise ArgumentError(f"geometric factors {kind!r} have no affine form; valid: wJ, metric, jacobian")
        n, w = self.n_factors(kind), self.rule.weights
        matrix = np.zeros((n, len(w), n))
        matrix[-1, :, -1] = w
        inverse = inverse_collapse(self.shape, self.rule.eta)
        if kind == "metric":
            pairs = symmetric_pairs(self.dim)
            for row, (a, b) in enumerate(pairs):
                for column, (i, j) in enumerate(pairs):
                    term = inverse[:, a, i] * inverse[:, b, j]
                    matrix[row, :, column] = w * (term if i == j else term + inverse[:, a, j] * inverse[:, b, i])
        elif kind == "jacobian":
            matrix[:-1, :, :-1] = np.einsum("qai,kl->akqil", inverse, np.eye(self.space_dim)).reshape(n - 1, -1, n - 1)
        return matrix


def _by_group(rows: Any, chunk: slice, values: Any, xp: Any) -> Iterator[tuple[Any, Any]]:
    """Parts of a factor [group, *points, lane], and the values [elements of a chunk, points] that belong there."""
    lanes, points, by_point = rows.shape[-1], rows.shape[1:-1], values.transpose(1, 0)
    first, (full, rest) = chunk.start // lanes, divmod(chunk.stop - chunk.start, lanes)
    groups = xp.moveaxis(by_point[:, : full * lanes].reshape(len(by_point), full, lanes), 1, 0)
    yield rows[first : first + full], groups.reshape(full, *points, lanes)
    if rest:
        yield rows[first + full][..., :rest], by_point[:, full * lanes :].reshape(*points, rest)


@dataclass
class _NoCoefficients:
    """Coefficients without values; see `Coefficients`."""

    tensor: bool
    reacts: bool

    def values(self, geometry: BlockGeometry, elements: Elements, xp: Any) -> tuple[Any, Any]:
        raise NotImplementedError


class MergedGeometry(BlockGeometry):
    """Elements whose stored factors have the coefficients of a form in them: source "merged" of factors.

    "wJ" is then m w |J|, "metric" w |J| J^-1 A J^-T and m w |J|, and "scale" A w / |J| and, if a value is tested,
    m w |J|, with the diffusion A and the reaction m.

    Parameters
    ----------
    base : BlockGeometry
        Not of affine elements, which store too few factors.
    coefficients : Coefficients
    """

    merged = True

    def __init__(self, base: BlockGeometry, coefficients: Coefficients) -> None:
        super().__init__(base.shape, base.order, base.given, base.rule, base.kind, base.xp)
        self._copies, self._base, self._of = base._copies, base, coefficients
        self.tensor = coefficients.tensor
        self.by_element = not self.tensor

    def __reduce__(self) -> tuple[type[BlockGeometry], tuple[Any, ...]]:
        return MergedGeometry, (super().part(self.n_elements), self._of)

    def part(self, n_elements: int) -> BlockGeometry:
        """Take the first elements by themselves; see `BlockGeometry.part`."""
        return MergedGeometry(super().part(n_elements), self._of)

    def without_elements(self) -> BlockGeometry:
        """Take the same without elements; see `BlockGeometry.without_elements`."""
        return MergedGeometry(super().part(0), _NoCoefficients(self._of.tensor, self._of.reacts))

    def outside(self, dtype: DTypeLike) -> Indices:
        """Find the elements whose volumes, or products of these and coefficients, leave the range of a type."""
        found = [self._outside(dtype, scale) for scale in (np.ones(1), *self._magnitudes)]
        return np.unique(np.concatenate(found))

    @cached_property
    def _magnitudes(self) -> tuple[Array, Array]:
        """Of each element's coefficients that are not 0: the largest and the smallest, or 1, [E]."""
        largest, smallest = np.ones(self.n_elements), np.ones(self.n_elements)
        for chunk in self.chunks():
            diffusion, reaction = self._of.values(self, chunk, np)
            for values in (*(diffusion if self.tensor else [diffusion]), reaction):
                size = np.abs(np.broadcast_to(values, (chunk.stop - chunk.start, len(self.rule))))
                largest[chunk] = np.maximum(largest[chunk], size.max(axis=1))
                smallest[chunk] = np.minimum(smallest[chunk], size.min(axis=1, where=size > 0, initial=1.0))
        return largest, smallest

    def n_factors(self, kind: str) -> int:
        """Count the numbers that are stored of a kind of factors; see `BlockGeometry.n_factors`."""
        return 1 + self._of.reacts if kind == "scale" else super().n_factors(kind)

    @cached_property
    def values(self) -> Array:
        """See `BlockGeometry.values`."""
        return self._base.values

    @cached_property
    def stored_reference(self) -> tuple[Array, Array]:
        """See `BlockGeometry.stored_reference`."""
        return self._base.stored_reference

    def _multipliers(self, kind: str, elements: Elements, xp: Any) -> list[Any]:
        """What each factor of a kind is multiplied by."""
        if kind in ("points", "map"):
            return [1.0] * self.n_factors(kind)
        diffusion, reaction = self._of.values(self, elements, xp)
        if kind == "metric":
            return [*[diffusion] * (self.n_factors(kind) - 1), reaction]
        return [reaction] if kind == "wJ" else [diffusion, reaction][: self.n_factors(kind)]

    def _factors(self, kind: str, elements: Elements, xp: Any = np) -> Iterator[Any]:
        """Factors of a chunk, multiplied by coefficients."""
        multipliers = self._multipliers(kind, elements, xp)
        if kind != "metric" or not self.tensor:
            yield from (
                own * scale for own, scale in zip(super()._factors(kind, elements, xp), multipliers, strict=True)
            )
            return
        gradient, weights = self.stored_reference
        det, inverse = determinant_and_inverse(self.jacobian(gradient, elements, xp), xp)
        weighted, tensor, n = xp.asarray(weights) * det, multipliers[0], range(self.space_dim)
        for a, b in symmetric_pairs(self.dim):
            along = [sum(tensor[i * len(n) + j] * inverse[b, j] for j in n) for i in n]
            yield weighted * sum(inverse[a, i] * along[i] for i in n)
        yield weighted * multipliers[-1]

    def multiply(self, kind: str, out: NDArray[np.floating[Any]]) -> None:
        """Multiply factors of the elements without coefficients by these; out [groups, n_factors, *points, lanes]."""
        if kind in ("points", "map"):
            return
        for chunk in self.chunks(out.shape[-1]):
            for row, scale in enumerate(self._multipliers(kind, chunk, np)):
                values = np.broadcast_to(scale, (chunk.stop - chunk.start, self.n_points(kind)))
                for place, own in _by_group(out[:, row], chunk, values, np):
                    place *= own
