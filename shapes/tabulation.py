"""A basis tabulated on a tensor rule: the tables that every strategy and backend starts from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .basis import Basis
from .cached import cached_property
from .polynomials import Array, differentiation_matrix
from .quadrature import TensorRule


@dataclass(frozen=True, eq=False)
class Tabulation:
    """A basis on a tensor rule: everything a kernel is specialised by.

    Attributes
    ----------
    basis : Basis
    rule : TensorRule
    """

    basis: Basis
    rule: TensorRule

    def __reduce__(self) -> tuple[Callable[..., Tabulation], tuple[Basis, TensorRule]]:
        return Tabulation, (self.basis, self.rule)

    @cached_property
    def values(self) -> tuple[Array, ...]:
        """Tables of values, one per direction, [n_functions, Q_k]."""
        return self.basis.tables(self.rule.points)

    @cached_property
    def nodal(self) -> bool:
        """Whether mode m is 1 at point m and 0 at the others: coefficients are the values at the points."""
        basis, tree = self.basis, self.basis.tree
        if basis.transform is not None or basis.n_modes != len(self.rule) or tree.n_leaves != basis.n_modes:
            return False
        in_order = np.array_equal(tree.leaf_to_mode, np.arange(basis.n_modes))
        square = all(len(own) == count for own, count in zip(self.values, self.rule.counts, strict=True))
        return in_order and square and all(np.abs(own - np.eye(len(own))).max() < 1e-14 for own in self.values)

    @cached_property
    def derivatives(self) -> tuple[Array, ...]:
        """Tables of derivatives, one per direction, [n_functions, Q_k]."""
        return self.basis.tables(self.rule.points, 1)

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
        """Collocated differentiation matrices, one per direction, [Q_k, Q_k]."""
        return tuple(differentiation_matrix(points) for points in self.rule.points)
