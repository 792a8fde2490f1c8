"""A basis tabulated on a tensor rule: the tables that every strategy and backend starts from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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
