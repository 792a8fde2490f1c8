"""Geometric factors: the kinds of numbers that kernels multiply by at the points, from the maps of elements.

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
to get the deformed ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any

import numpy as np

from hpfem.shapes import Basis, Shape, ShapeRule, make_basis
from hpfem.shapes.arrays import Array
from hpfem.shapes.cached import cached_property

from ..errors import ArgumentError
from ..support.tables import on_disk
from .element_map import ElementMap, Elements, chunks
from .jacobians import determinant, determinant_and_inverse, inverse_collapse, metric, symmetric_pairs
from .kinds import AFFINE, GeometryKind
from .map_lines import MapLines

KINDS = ("wJ", "metric", "jacobian", "points", "scale", "map")


class FactorSource(StrEnum):
    """Where a kernel has geometric factors from; the words are those of options, results and messages."""

    STORED = "stored"
    MERGED = "merged"
    RECOMPUTED = "recomputed"
    SCALED = "scaled"
    SCALED_MERGED = "scaled merged"

    @property
    def recomputes(self) -> bool:
        """Whether factors are recomputed from the elements' maps, and not read."""
        return self not in (FactorSource.STORED, FactorSource.MERGED)

    @property
    def scales(self) -> bool:
        """Whether w / |J| is read at every point beside the maps, instead of the division ([Cao] section 4.1.2)."""
        return self in (FactorSource.SCALED, FactorSource.SCALED_MERGED)

    @property
    def merges(self) -> bool:
        """Whether coefficients of the form are multiplied into what is read (`hpfem.forms.merged`)."""
        return self in (FactorSource.MERGED, FactorSource.SCALED_MERGED)


# Tables of all elements of a shape and order at the points of a rule: they serve the blocks of all spaces.
@lru_cache(maxsize=64)
@on_disk
def _tables(basis: Basis, rule: ShapeRule) -> tuple[Array, Array]:
    return basis.evaluate(basis.shape.collapse(rule.eta)), basis.gradient_eta(rule.eta)


@lru_cache(maxsize=128)
def _reference(kind: GeometryKind, basis: Basis, rule: ShapeRule) -> tuple[Array, Array]:
    return kind.reference(basis.shape, rule, _tables(basis, rule)[1])


_lines = lru_cache(maxsize=64)(MapLines.of)


class PointMap(ElementMap):
    """The maps of elements of a geometry kind at the points of one rule, and the factors that follow from them."""

    def __init__(
        self, shape: Shape, order: int, coefficients: Any, rule: ShapeRule, kind: GeometryKind, xp: Any, n_scales: int
    ) -> None:
        super().__init__(shape, order, coefficients, xp)
        self.rule, self.n_scales = rule, n_scales  # w |J| may be a second factor "scale"
        self.kind, self.affine = kind, kind is AFFINE

    @property
    def values(self) -> Array:
        """Values of `basis` at the points, [n_geometry_modes, Q]."""
        return _tables(self.basis, self.rule)[0]

    @property
    def gradient_eta(self) -> Array:
        """Gradient of `basis` by eta at the points, [d, n_geometry_modes, Q]."""
        return _tables(self.basis, self.rule)[1]

    @cached_property
    def gradient(self) -> Array:
        """Gradient of `basis` by xi at the points, [d, n_geometry_modes, Q]."""
        inverse = inverse_collapse(self.shape, self.rule.eta)
        return np.asarray(np.einsum("amq,qab->bmq", self.gradient_eta, inverse, optimize=True))

    @cached_property
    def map_basis(self) -> Basis:
        """Basis of the coordinates of the kind's order."""
        return make_basis("orthogonal", self.shape, self.kind.order or self.order)

    def map_lines(self, axes: Sequence[int]) -> MapLines:
        """Tables that recompute Jacobians from factors "map"; axes: direction of the lines, then the others."""
        return _lines(self.map_basis, self.rule, tuple(axes))

    def reference(self, kind: GeometryKind | None = None) -> tuple[Array, Array]:
        """Reference data of the factors of a kind, by default the stored ones; see `GeometryKind.reference`."""
        return _reference(kind or self.kind, self.basis, self.rule)

    def n_factors(self, kind: str) -> int:
        """Count the numbers of a kind of factors, per stored point."""
        d, space_dim = self.dim, self.space_dim
        counts = {"wJ": 1, "metric": d * (d + 1) // 2 + 1, "jacobian": d * space_dim + 1, "points": space_dim}
        counts["scale"] = self.n_scales
        counts["map"] = space_dim * (self.map_basis.n_modes - 1)
        if kind not in counts:
            raise ArgumentError(f"unknown kind of geometric factors {kind!r}; valid: {', '.join(KINDS)}")
        return counts[kind]

    def n_points(self, kind: str) -> int:
        """Count the points that a kind of factors is stored at: Q, or 1 if an element has one set of factors."""
        if kind == "map":
            return 1
        return len(self.rule) if kind == "points" else len(self.reference()[1])

    def chunks(self, lanes: int = 1, size: int | None = None) -> Iterator[slice]:
        """Ranges of elements, `lanes` together: tens of megabytes of values, or `size` entries of Jacobians."""
        # Everything computed from a Jacobian has ten times as many numbers.
        each = 2 * len(self.rule) * self.dim * self.space_dim
        return chunks(self.n_elements, each, lanes, None if size is None else 2 * size)

    def coordinates(self, elements: Elements = slice(None), xp: Any = np) -> Any:
        """Points of the rule in space, [D, E, Q]."""
        return self.positions(self.values, elements, xp)

    def plain_factors(self, kind: str, elements: Elements, xp: Any = np) -> Iterator[Any]:
        """Factors of some elements, one [E, S] after the other, without coefficients of a form."""
        if kind == "points":
            yield from self.coordinates(elements, xp)
            return
        if kind == "map":
            modes = self.positions(self.restricted(self.map_basis.order).T[:, 1:], elements, xp)
            yield from modes.transpose(2, 0, 1).reshape(-1, modes.shape[1], 1)
            return
        gradient, weights = self.reference()
        J, weights = self.jacobian(gradient, elements, xp), xp.asarray(weights)
        if kind in ("wJ", "scale"):
            det = determinant(J, xp)
            if kind == "scale":
                yield weights / det
            if kind == "wJ" or self.n_scales == 2:
                yield weights * det
            return
        if kind == "metric":
            yield from metric(J, weights, xp)
            return
        det, inverse = determinant_and_inverse(J, xp)
        for row in inverse:
            yield from row
        yield weights * det


def expansion(geometry: PointMap, kind: str) -> Array:
    """Matrix from an affine element's factors to those at the points: the collapse; -> [factors, Q, factors]."""
    if kind not in ("wJ", "metric", "jacobian"):
        raise ArgumentError(f"geometric factors {kind!r} have no affine form; valid: wJ, metric, jacobian")
    n, w = geometry.n_factors(kind), geometry.rule.weights
    matrix = np.zeros((n, len(w), n))
    matrix[-1, :, -1] = w
    inverse = inverse_collapse(geometry.shape, geometry.rule.eta)
    if kind == "metric":
        pairs = symmetric_pairs(geometry.dim)
        for row, (a, b) in enumerate(pairs):
            for column, (i, j) in enumerate(pairs):
                term = inverse[:, a, i] * inverse[:, b, j]
                matrix[row, :, column] = w * (term if i == j else term + inverse[:, a, j] * inverse[:, b, i])
    elif kind == "jacobian":
        matrix[:-1, :, :-1] = np.einsum("qai,kl->akqil", inverse, np.eye(geometry.space_dim)).reshape(n - 1, -1, n - 1)
    return matrix


def by_group(rows: Any, chunk: slice, values: Any, xp: Any) -> Iterator[tuple[Any, Any]]:
    """Parts of a factor [group, *points, lane], and the values [elements of a chunk, points] that belong there."""
    lanes, points, by_point = rows.shape[-1], rows.shape[1:-1], values.transpose(1, 0)
    first, (full, rest) = chunk.start // lanes, divmod(chunk.stop - chunk.start, lanes)
    groups = xp.moveaxis(by_point[:, : full * lanes].reshape(len(by_point), full, lanes), 1, 0)
    yield rows[first : first + full], groups.reshape(full, *points, lanes)
    if rest:
        yield rows[first + full][..., :rest], by_point[:, full * lanes :].reshape(*points, rest)
