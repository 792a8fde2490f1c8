"""Quadrature rules of one direction, their tensor products over a shape, and symmetric rules of simplices.

A rule of one direction integrates against its collapse factor: ``sum(w f(z)) = integral of f(z) ((1-z)/2)^alpha dz``
over [-1, 1], so that the product of the directions' weights integrates over the reference shape and sums to its volume.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import permutations
from math import prod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from .arguments import MAX_ORDER, MAX_POINTS, instance, integer, name_of, shown
from .arrays import Array
from .cached import cached_property
from .errors import ArgumentError
from .polynomials import jacobi, lagrange
from .shape import Shape

# Highest order whose default is the simplex rule, by shape, on every device: as accurate as the collapsed rule, and at
# least 1.2 times as fast on a GPU and 0.9 times on a processor (`benchmarks/SIMPLEX.md`).
SIMPLEX_UP_TO = {"tet": 5}

# Per kind: its fixed points, and the exponents that they add to the Jacobi polynomial whose zeros are the other points.
_KINDS: dict[str, tuple[tuple[float, ...], int, int]] = {
    "gauss": ((), 0, 0),
    "lobatto": ((-1.0, 1.0), 1, 1),
    "radau": ((-1.0,), 0, 1),
    "right radau": ((1.0,), 1, 0),
}


@dataclass(frozen=True, eq=False)
class Rule:
    """A quadrature rule of one direction; made by `make_rule`.

    Attributes
    ----------
    kind : str
        "gauss", "lobatto", "radau" or "right radau".
    alpha : int
        Exponent of the weight ((1-z)/2)^alpha.
    points, weights : ndarray, [n]
        Ascending points in [-1, 1] and positive weights.
    degree : int
        Highest degree integrated exactly.
    """

    kind: str
    alpha: int
    points: Array = field(repr=False)
    weights: Array = field(repr=False)
    degree: int

    def __len__(self) -> int:
        return len(self.points)

    def __reduce__(self) -> tuple[Callable[..., Rule], tuple[str, int, int]]:
        return make_rule, (self.kind, len(self), self.alpha)


def make_rule(kind: str, n: int, alpha: int = 0) -> Rule:
    """Make the rule of `n` points of one direction; the same arguments give the same object.

    Parameters
    ----------
    kind : str
        "gauss" (Gauss-Jacobi), "lobatto" (Gauss-Lobatto-Legendre; alpha 0 only, both ends included), "radau"
        (Gauss-Radau-Jacobi with the fixed point -1, never the collapsed end +1) or "right radau" (with the fixed point
        +1; alpha 0 only).
    n : int
        Number of points, >= 1 (>= 2 for "lobatto").
    alpha : int
        Exponent of the weight ((1-z)/2)^alpha, >= 0.

    Returns
    -------
    Rule

    Raises
    ------
    ArgumentError
        For an unknown kind, too few points, or a collapsed "lobatto".
    """
    kind = name_of(kind, _KINDS, "quadrature rule")
    n = integer(n, max(1, len(_KINDS[kind][0])), f"the number of points of a {kind!r} rule", MAX_POINTS)
    alpha = integer(alpha, 0, "the exponent of a quadrature weight", MAX_ORDER)
    if 1.0 in _KINDS[kind][0] and alpha:
        raise ArgumentError(f"a {kind!r} rule has a point at the collapsed end; use 'radau' or 'gauss' there")
    return _make_rule(kind, n, alpha)


@cache
def _make_rule(kind: str, n: int, alpha: int) -> Rule:
    fixed, more_alpha, beta = _KINDS[kind]
    z = np.sort(np.concatenate([fixed, _jacobi_zeros(n - len(fixed), alpha + more_alpha, beta)]))
    gauss = z if kind == "gauss" else _jacobi_zeros(n, alpha, 0)
    # Gauss-Jacobi weights (Abramowitz & Stegun 25.4.33) over 2^alpha; other rules integrate their Lagrange basis.
    w = 2 / ((1 - gauss**2) * jacobi(n, alpha, 0, gauss, 1) ** 2)
    if kind != "gauss":
        w = lagrange(z, gauss) @ w
    if kind in ("gauss", "lobatto") and alpha == 0:  # exact parity: even-odd kernels rely on it
        z, w = 0.5 * (z - z[::-1]), 0.5 * (w + w[::-1])
    z.flags.writeable = w.flags.writeable = False
    return Rule(kind, alpha, z, w, 2 * n - 1 - len(fixed))


def _jacobi_zeros(n: int, alpha: int, beta: int) -> Array:
    """Zeros of P_n^{alpha,beta}, polished to rounding by Newton's method."""
    if n == 0:
        return np.empty(0)
    from scipy.special import roots_jacobi  # a third of the time of importing hpfem

    z = np.asarray(roots_jacobi(n, alpha, beta)[0], dtype=float)
    for _ in range(2):
        z = z - jacobi(n, alpha, beta, z) / jacobi(n, alpha, beta, z, 1)
    return z


@dataclass(frozen=True, eq=False)
class TensorRule:
    """The tensor product of one rule per direction, first direction slowest.

    Attributes
    ----------
    rules : tuple of Rule
        One per collapsed coordinate.
    tensor : bool
        Whether it is a tensor product of rules of one direction.
    """

    rules: tuple[Rule, ...]
    tensor: ClassVar[bool] = True

    def __reduce__(self) -> tuple[Callable[..., TensorRule], tuple[tuple[Rule, ...]]]:
        return TensorRule, (self.rules,)

    @property
    def counts(self) -> tuple[int, ...]:
        """Points per direction."""
        return tuple(len(rule) for rule in self.rules)

    @property
    def key(self) -> tuple[tuple[str, int, int], ...]:
        """Key of the rule: kind, count and exponent of each direction."""
        return tuple((rule.kind, len(rule), rule.alpha) for rule in self.rules)

    @property
    def points(self) -> tuple[Array, ...]:
        """The one-dimensional points of each direction."""
        return tuple(rule.points for rule in self.rules)

    def __len__(self) -> int:
        return prod(self.counts)

    @cached_property
    def eta(self) -> Array:
        """Points in collapsed coordinates, [Q, dim]."""
        return np.stack([a.ravel() for a in np.meshgrid(*self.points, indexing="ij")], axis=-1)

    @cached_property
    def weights(self) -> Array:
        """Weights, collapse included: their sum is the reference volume, [Q]."""
        weights = np.ones(1)
        for rule in self.rules:
            weights = np.multiply.outer(weights, rule.weights).ravel()
        return weights

    def resolves(self, order: int) -> bool:
        """Tell whether values at the points determine polynomials, and products of two of these are integrated exactly.

        Parameters
        ----------
        order : int
            Of the polynomials.

        Returns
        -------
        bool
        """
        return min(self.counts) > order


@dataclass(frozen=True, eq=False)
class PointRule:
    """A rule without directions, symmetric in the vertices; made by `simplex_quadrature`.

    Points that are mirror images in eta_1 come in pairs: q and `pairs` + q for q < `pairs`. After them are those on
    the mirror.

    Attributes
    ----------
    shape : Shape
    degree : int
        Highest degree integrated exactly.
    eta : ndarray, [Q, dim]
        Points in collapsed coordinates.
    weights : ndarray, [Q]
        Weights, collapse included: their sum is the reference volume.
    pairs : int
        Pairs of mirror images.
    """

    shape: Shape
    degree: int
    eta: Array = field(repr=False)
    weights: Array = field(repr=False)
    pairs: int
    tensor: ClassVar[bool] = False

    def __reduce__(self) -> tuple[Callable[..., PointRule], tuple[Shape, int]]:
        return simplex_quadrature, (self.shape, self.degree // 2)

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of points."""
        return (len(self),)

    @property
    def key(self) -> tuple[tuple[str, int, int], ...]:
        """Key of the rule: its name, number of points and degree."""
        return (("simplex", len(self), self.degree),)

    def __len__(self) -> int:
        return len(self.weights)

    def resolves(self, order: int) -> bool:
        """Tell whether products of two polynomials are integrated; see `TensorRule.resolves`."""
        return self.degree >= 2 * order


# A quadrature rule of a shape.
ShapeRule = TensorRule | PointRule


def simplex_quadrature(shape: Shape, order: int) -> PointRule:
    """Symmetric quadrature of a triangle ([XG]) or a tet ([JS]), of degree 2P: all points inside, all weights positive.

    Parameters
    ----------
    shape : Shape
    order : int
        Polynomial order P; the same arguments give the same object.

    Returns
    -------
    PointRule

    Raises
    ------
    ArgumentError
        If there is no such rule of this shape or order.
    """
    instance(shape, Shape, "the shape of a quadrature")
    order = integer(order, 1, "the order", MAX_ORDER)
    if order not in _orbits().get(shape.name, {}):
        known = ", ".join(f"{name} up to order {max(orders)}" for name, orders in _orbits().items())
        raise ArgumentError(f"there is no simplex rule of order {order} on a {shape.name}; there are those of {known}")
    return _simplex_quadrature(shape, order)


@cache
def _orbits() -> dict[str, dict[int, list[list[float]]]]:
    """Simplex rules by shape and P: of each orbit under the permutations of the vertices, its share of the volume a
    point, and the barycentric coordinates of one point, the last left out; written by
    tests/shapes/record_simplex_rules.py.
    """
    text = Path(__file__).with_name("simplex_rules.json").read_text(encoding="utf-8")
    return {shape: {int(order): rows for order, rows in rules.items()} for shape, rules in json.loads(text).items()}


@cache
def _simplex_quadrature(shape: Shape, order: int) -> PointRule:
    points: list[tuple[float, ...]] = []
    shares: list[float] = []
    for share, *others in _orbits()[shape.name][order]:
        point = [*others, 1 - sum(others)]
        point = [next(other for other in point if abs(x - other) < 1e-9) for x in point]  # equal ones to the last bit
        orbit = sorted(set(permutations(point)))
        points += orbit
        shares += [share] * len(orbit)
    barycentric, weights = np.array(points), np.array(shares) * shape.volume
    # Vertices 0 and 1 change places in the mirror.
    first = np.flatnonzero(barycentric[:, 1] > barycentric[:, 0])
    middle = np.flatnonzero(barycentric[:, 1] == barycentric[:, 0])
    chosen = np.concatenate([first, middle])
    eta = shape.inverse_collapse(barycentric[chosen] @ shape.vertices)
    eta[len(first) :, 0] = 0
    eta = np.concatenate([eta[: len(first)], eta[: len(first)] * ([-1.0] + [1.0] * (shape.dim - 1)), eta[len(first) :]])
    weights = weights[np.concatenate([first, first, middle])]
    eta.flags.writeable = weights.flags.writeable = False
    return PointRule(shape, 2 * order, eta, weights, len(first))


def quadrature(shape: Shape, counts: Sequence[int], kinds: Sequence[str] | None = None) -> TensorRule:
    """Tensor-product quadrature of a shape in collapsed coordinates.

    Parameters
    ----------
    shape : Shape
    counts : sequence of int
        Points per direction.
    kinds : sequence of str, optional
        Rule per direction ("gauss", "lobatto", "radau"); Gauss-Lobatto on ordinary and Gauss-Radau-Jacobi on
        collapsed directions when left out.

    Returns
    -------
    TensorRule

    Raises
    ------
    ArgumentError
        If the lengths do not fit the shape, or a rule is unknown or has too few points.
    """
    instance(shape, Shape, "the shape of a quadrature")
    if kinds is None:
        kinds = ["radau" if direction.collapsed else "lobatto" for direction in shape.directions]
    both: tuple[Any, Any] = (counts, kinds)
    listed = [isinstance(g, (list, tuple)) or (isinstance(g, np.ndarray) and g.ndim == 1) for g in both]
    if not all(listed) or len(counts) != shape.dim or len(kinds) != shape.dim:
        raise ArgumentError(
            f"a {shape.name} has {shape.dim} directions, got counts {shown(counts)}, rules {shown(kinds)}"
        )
    return _tensor_rule(tuple(make_rule(kind, n, d.alpha) for kind, n, d in zip(kinds, counts, shape.directions)))


# The same object for the same rules, which keeps its points and is a key of tables at them.
_tensor_rule = lru_cache(maxsize=256)(TensorRule)


def default_counts(shape: Shape, order: int, more: int = 0) -> tuple[int, ...]:
    """Points per direction that integrate mass and stiffness of order P exactly on affine elements.

    Parameters
    ----------
    shape : Shape
    order : int
        Polynomial order P.
    more : int
        Points added in each direction.

    Returns
    -------
    tuple of int
        P + 2 in ordinary, P + 1 in collapsed directions, and `more`.

    Raises
    ------
    ArgumentError
        If the numbers are no integers, or the order is negative.
    """
    instance(shape, Shape, "the shape of a quadrature")
    order, more = (
        integer(order, 0, "the order", MAX_ORDER),
        integer(more, -MAX_POINTS, "the number of additional points", MAX_POINTS),
    )
    return tuple(order + (1 if direction.collapsed else 2) + more for direction in shape.directions)
