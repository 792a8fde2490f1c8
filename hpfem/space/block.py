"""A block: elements of a space of equal shape, order, quadrature and geometry kind, which are computed together."""

from __future__ import annotations

from dataclasses import dataclass

from hpfem.shapes import Basis, Shape, ShapeRule, Tabulation
from hpfem.shapes.arrays import Indices
from hpfem.shapes.cached import cached_property

from ..geometry.block_geometry import BlockGeometry
from ..support.immutable import Immutable


@dataclass(frozen=True, eq=False)
class Block(Immutable):
    """Elements of equal shape, order, quadrature and geometry kind.

    Attributes
    ----------
    tabulation : Tabulation
        The basis at the points of the rule.
    geometry : BlockGeometry
    elements : ndarray of int, [E]
        Cell numbers in the mesh.
    """

    tabulation: Tabulation
    geometry: BlockGeometry
    elements: Indices

    def __repr__(self) -> str:
        kind = self.geometry.kind.name
        return f"Block({self.n_elements} {kind} {self.shape.name}, P={self.order}, Q={self.rule.counts})"

    @property
    def shape(self) -> Shape:
        """The elements' shape."""
        return self.basis.shape

    @property
    def basis(self) -> Basis:
        """The elements' basis."""
        return self.tabulation.basis

    @property
    def rule(self) -> ShapeRule:
        """The elements' quadrature."""
        return self.tabulation.rule

    @property
    def order(self) -> int:
        """Polynomial order P."""
        return self.basis.order

    @property
    def affine(self) -> bool:
        """Whether the Jacobian is constant in every element."""
        return self.geometry.affine

    @cached_property
    def n_elements(self) -> int:
        """Number of elements."""
        return len(self.elements)

    @cached_property
    def n_modes(self) -> int:
        """Modes of an element."""
        return self.basis.n_modes

    @cached_property
    def n_points(self) -> int:
        """Quadrature points of an element."""
        return len(self.rule)
