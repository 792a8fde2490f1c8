"""A basis tabulated on a rule: the tables that every strategy and backend starts from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from .arrays import Array
from .basis import Basis, make_basis
from .cached import cached_property
from .errors import ArgumentError
from .polynomials import differentiation_matrix, lagrange
from .quadrature import Rule, ShapeRule, TensorRule, default_counts, quadrature


@dataclass(frozen=True, eq=False)
class Tabulation:
    """A basis on a rule: the data for which a kernel is specialised.

    Attributes
    ----------
    basis : Basis
    rule : ShapeRule
    """

    basis: Basis
    rule: ShapeRule

    def __reduce__(self) -> tuple[Callable[..., Tabulation], tuple[Basis, ShapeRule]]:
        return Tabulation, (self.basis, self.rule)

    @property
    def directions(self) -> tuple[Rule, ...]:
        """The rules of the directions.

        Raises
        ------
        ArgumentError
            If the rule has none.
        """
        if not isinstance(self.rule, TensorRule):
            raise ArgumentError("a simplex rule has no directions; use the tables of all points")
        return self.rule.rules

    @cached_property
    def values(self) -> tuple[Array, ...]:
        """Tables of values, one per direction, [n_functions, Q_k]."""
        return self.basis.tables(rule.points for rule in self.directions)

    @cached_property
    def nodal(self) -> bool:
        """Whether mode m is 1 at point m and 0 at the others: coefficients are the values at the points."""
        basis, tree = self.basis, self.basis.tree
        if (
            not self.rule.tensor
            or basis.transform is not None
            or basis.n_modes != len(self.rule)
            or tree.n_leaves != basis.n_modes
        ):
            return False
        in_order = np.array_equal(tree.leaf_to_mode, np.arange(basis.n_modes))
        square = all(len(own) == count for own, count in zip(self.values, self.rule.counts, strict=True))
        return in_order and square and all(np.abs(own - np.eye(len(own))).max() < 1e-14 for own in self.values)

    @cached_property
    def derivatives(self) -> tuple[Array, ...]:
        """Tables of derivatives, one per direction, [n_functions, Q_k]."""
        return self.basis.tables((rule.points for rule in self.directions), 1)

    @cached_property
    def dense(self) -> Array:
        """All modes at all points, B[m, q], [n_modes, Q] (StdMat; [Xing] Alg. 1)."""
        return self.basis.evaluate_eta(self.rule.eta)

    @cached_property
    def dense_gradient(self) -> Array:
        """Derivatives by collapsed coordinates of all modes at all points, [dim, n_modes, Q]."""
        return self.basis.gradient_eta(self.rule.eta)

    @cached_property
    def differentiation(self) -> tuple[Array, ...]:
        """Matrices that differentiate values at the points by a collapsed coordinate each.

        On a tensor rule [Q_k, Q_k], along the direction; else [Q, Q], of the values' projection onto the basis' space.
        """
        if isinstance(self.rule, TensorRule):
            return tuple(differentiation_matrix(points) for points in self.rule.points)
        basis, projection = projection_of_values(self.basis, self.rule)
        return tuple(gradient.T @ projection for gradient in basis.gradient_eta(self.rule.eta))

    @cached_property
    def dense_differentiation(self) -> Array:
        """`differentiation` as matrices of all points, [dim, Q, Q]."""
        matrices = self.differentiation
        if not self.rule.tensor:
            return np.array(matrices)
        kron: Callable[[Any, Any], Any] = np.kron
        ones = [np.eye(len(matrix)) for matrix in matrices]
        products = ([*ones[:k], matrix, *ones[k + 1 :]] for k, matrix in enumerate(matrices))
        return np.array([reduce(kron, factors) for factors in products])


def orthonormal(basis: Basis, rule: ShapeRule) -> Array:
    """Evaluate orthonormal functions of a basis' order, times the roots of a rule's weights; -> [n_modes, Q]."""
    orthogonal, exact = make_basis("orthogonal", basis.shape, basis.order), exact_rule(basis)
    size = np.sqrt(orthogonal.evaluate_eta(exact.eta) ** 2 @ exact.weights)
    return np.asarray(orthogonal.evaluate_eta(rule.eta) * np.sqrt(rule.weights) / size[:, None], dtype=float)


def exact_rule(basis: Basis) -> TensorRule:
    """Make a rule that integrates products of two modes."""
    return quadrature(basis.shape, default_counts(basis.shape, basis.order))


def projection_of_values(basis: Basis, rule: ShapeRule) -> tuple[Basis, Array]:
    """Project values at points onto the polynomials of a basis, in the sense of the rule; -> matrix [n_modes, Q]."""
    orthogonal, root = make_basis("orthogonal", basis.shape, basis.order), np.sqrt(rule.weights)
    return orthogonal, np.asarray(np.linalg.pinv((orthogonal.evaluate_eta(rule.eta) * root).T) * root, dtype=float)


def interpolation(tabulation: Tabulation, rule: ShapeRule) -> Array:
    """Values at the points of another rule from those at the tabulation's; -> [Q there, Q here]."""
    own = tabulation.rule
    if not isinstance(own, TensorRule):
        basis, projection = projection_of_values(tabulation.basis, own)
        return basis.evaluate_eta(rule.eta).T @ projection
    if isinstance(rule, TensorRule):
        kron: Callable[[Any, Any], Any] = np.kron
        return reduce(kron, [lagrange(z, x).T for z, x in zip(own.points, rule.points, strict=True)])
    products = np.ones((1, len(rule)))
    for z, x in zip(own.points, rule.eta.T, strict=True):
        products = (products[:, None] * lagrange(z, x)).reshape(-1, len(rule))
    return products.T
