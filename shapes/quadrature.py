"""Quadrature rules of one direction, and their tensor products over a shape.

A rule integrates against the collapse factor of its direction: ``sum(w f(z)) = integral of f(z) ((1-z)/2)^alpha dz``
over [-1, 1], so that the product of the directions' weights integrates over the reference shape and sums to its volume.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from scipy.special import roots_jacobi

from .errors import ArgumentError
from .polynomials import Array, jacobi
from .shape import Shape


@dataclass(frozen=True, eq=False)
class Rule:
    """A quadrature rule of one direction.

    Attributes
    ----------
    kind : str
        "gauss", "lobatto" or "radau".
    alpha : int
        Exponent of the weight ((1-z)/2)^alpha.
    points, weights : ndarray, [n]
        Ascending points in [-1, 1] and positive weights.
    degree : int
        Highest degree integrated exactly.
    """

    kind: str
    alpha: int
    points: Array
    weights: Array
    degree: int

    def __len__(self) -> int:
        return len(self.points)

    def __reduce__(self) -> tuple[Callable[..., Rule], tuple[str, int, int]]:
        return make_rule, (self.kind, len(self), self.alpha)


def _jacobi_rule(n: int, alpha: float, beta: float) -> tuple[Array, Array]:
    """Gauss-Jacobi points polished to rounding by Newton, with the weights of (1-z)^alpha (1+z)^beta."""
    z, w = roots_jacobi(n, alpha, beta)
    for _ in range(2):
        z = z - jacobi(n, alpha, beta, z) / jacobi(n, alpha, beta, z, 1)
    return z, w


def _interior(n: int, alpha: int, fixed: tuple[float, ...], beta: int, alpha_shift: int) -> tuple[Array, Array]:
    """Points of a Radau or Lobatto rule: the fixed ones and the zeros of the Jacobi polynomial beside them."""
    free = n - len(fixed)
    inner = _jacobi_rule(free, alpha + alpha_shift, beta)[0] if free > 0 else np.empty(0)
    z = np.sort(np.concatenate([np.asarray(fixed), inner]))
    # Weights by exact moments in the orthonormal Jacobi basis: well conditioned for any count.
    zg, wg = _jacobi_rule(n, alpha, 0)
    basis = np.array([jacobi(k, alpha, 0.0, z) for k in range(n)])
    gauss = np.array([jacobi(k, alpha, 0.0, zg) for k in range(n)])
    return z, np.linalg.solve(basis, gauss @ wg)


@lru_cache(maxsize=None)
def make_rule(kind: str, n: int, alpha: int = 0) -> Rule:
    """Make the rule of `n` points of one direction.

    Parameters
    ----------
    kind : str
        "gauss" (Gauss-Jacobi), "lobatto" (Gauss-Lobatto-Legendre; alpha 0 only, both ends included) or "radau"
        (Gauss-Radau-Jacobi with the fixed point -1, never the collapsed end +1).
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
    if alpha < 0:
        raise ArgumentError(f"quadrature weight exponent must be >= 0, got {alpha}")
    if kind == "gauss":
        _at_least(n, 1, kind)
        z, w = _jacobi_rule(n, alpha, 0)
        degree = 2 * n - 1
    elif kind == "radau":
        _at_least(n, 1, kind)
        z, w = _interior(n, alpha, (-1.0,), 1, 0)
        degree = 2 * n - 2
    elif kind == "lobatto":
        _at_least(n, 2, kind)
        if alpha:
            raise ArgumentError("a Gauss-Lobatto rule has a point at the collapsed end; use 'radau' or 'gauss' there")
        z, w = _interior(n, 0, (-1.0, 1.0), 1, 1)
        degree = 2 * n - 3
    else:
        raise ArgumentError(f"unknown quadrature rule {kind!r}; valid: 'gauss', 'lobatto', 'radau'")
    w = w / 2.0**alpha
    if kind != "radau" and alpha == 0:  # exact parity: even-odd kernels rely on it
        z, w = 0.5 * (z - z[::-1]), 0.5 * (w + w[::-1])
    z.flags.writeable = w.flags.writeable = False
    return Rule(kind, alpha, z, w, degree)


def _at_least(n: int, least: int, kind: str) -> None:
    if n < least:
        raise ArgumentError(f"a {kind!r} rule needs at least {least} point(s), got {n}")


@dataclass(frozen=True, eq=False)
class TensorRule:
    """The tensor product of one rule per direction, first direction slowest.

    Attributes
    ----------
    rules : tuple of Rule
        One per collapsed direction.
    """

    rules: tuple[Rule, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """Points per direction."""
        return tuple(len(rule) for rule in self.rules)

    @property
    def key(self) -> tuple[tuple[str, int, int], ...]:
        """What identifies the rule: kind, count and exponent of each direction."""
        return tuple((rule.kind, len(rule), rule.alpha) for rule in self.rules)

    @property
    def points(self) -> tuple[Array, ...]:
        """The one-dimensional points of each direction."""
        return tuple(rule.points for rule in self.rules)

    def __len__(self) -> int:
        return int(np.prod(self.counts))

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
        If the lengths do not fit the shape, or a rule has too few points.
    """
    if kinds is None:
        kinds = ["radau" if direction.collapsed else "lobatto" for direction in shape.directions]
    if len(counts) != shape.dim or len(kinds) != shape.dim:
        raise ArgumentError(
            f"a {shape.name} has {shape.dim} directions, got counts {tuple(counts)}, rules {tuple(kinds)}"
        )
    return TensorRule(
        tuple(make_rule(kind, int(n), d.alpha) for kind, n, d in zip(kinds, counts, shape.directions, strict=True))
    )


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
    """
    return tuple(order + (1 if direction.collapsed else 2) + more for direction in shape.directions)
