"""Bases of a shape: tables of 1-D functions, a mode tree, and the entity each mode belongs to.

    modified     C0 hierarchical ([KS]): vertex, edge, face and interior modes
    orthogonal   Legendre, Dubiner, [Bergot]: diagonal mass on the reference shape
    lagrange     nodal: tensor Gauss-Lobatto on products of segments, elsewhere `interpolation_nodes` through V^-1

The modified basis of a cone has, for every base mode m of degree mu(m), the modes m C_{mu,r} with r = 0..P-mu, and one
apex mode, the sum of the base's vertex modes times (1+z)/2. The orthogonal one has m ((1-z)/2)^mu P^{2mu+d-1,0}_r.
Mode order: the modified one's is drawn in each shape's module; the orthogonal and the nodal modes are in the order of
`lattice`, first index slowest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import cast

import numpy as np

from .arguments import MAX_ORDER, coordinates, instance, integer, name_of, reals, shown
from .arrays import Array, frozen
from .errors import ArgumentError
from .modes import Family, Function, Mode, tensor_modes
from .nodes import interpolation_nodes, lattice, node_entities
from .shape import Shape
from .tree import ModeTree

BASES = ("modified", "orthogonal", "lagrange")


@dataclass(frozen=True, eq=False)
class Basis:
    """A basis of order P on a shape; made by `make_basis`.

    Attributes
    ----------
    name : str
        "modified", "orthogonal" or "lagrange".
    shape : Shape
    order : int
        Polynomial order P >= 1 (>= 0 for "orthogonal").
    tree : ModeTree
        Integer tables of the sum factorisation.
    functions : tuple of tuple of callable
        Per direction the 1-D functions (z, derivative) -> values, in table order.
    modes : tuple of Mode
        In the public mode order, which is the tree's order; for a basis with a `transform`, the order of its nodes.
    transform : ndarray or None, [tree modes, n_modes]
        Coefficients of the tree's modes from those of the basis; None is the identity.
    nodes : ndarray or None, [n_modes, dim]
        Interpolation nodes of a nodal basis.
    """

    name: str
    shape: Shape
    order: int
    tree: ModeTree
    functions: tuple[tuple[Function, ...], ...]
    modes: tuple[Mode, ...]
    transform: Array | None = None
    nodes: Array | None = None

    def __reduce__(self) -> tuple[Callable[..., Basis], tuple[str, Shape, int]]:
        return make_basis, (self.name, self.shape, self.order)

    def __repr__(self) -> str:
        return f"Basis({self.name!r}, {self.shape.name!r}, order={self.order})"

    @property
    def n_modes(self) -> int:
        """Number of modes."""
        return len(self.modes)

    def table(self, direction: int, z: Array, derivative: int = 0) -> Array:
        """Values of the 1-D functions of one direction.

        Parameters
        ----------
        direction : int
            0 to dim - 1.
        z : ndarray, [n]
            Collapsed coordinates.
        derivative : int
            0 or 1.

        Returns
        -------
        ndarray, [n_functions, n]

        Raises
        ------
        ArgumentError
            If there is no such direction or derivative, or the coordinates are not numbers.
        """
        direction = integer(direction, 0, "the number of a direction", self.shape.dim - 1)
        derivative = integer(derivative, 0, "the number of derivatives", 1)
        z = reals(z, "collapsed coordinates")
        return np.array([function(z, derivative) for function in self.functions[direction]])

    def tables(self, points: Iterable[Array], derivative: int = 0) -> tuple[Array, ...]:
        """Tables of every direction at its own points [n_k]; -> [n_functions, n_k] each; see `table`."""
        try:
            listed = list(points)
        except TypeError:
            raise ArgumentError(f"tables take the points of each direction, got {shown(points)}") from None
        return tuple(self.table(k, z, derivative) for k, z in enumerate(listed))

    def evaluate(self, xi: Array) -> Array:
        """Values of all modes at xi [n, dim], -> [n_modes, n]; see `gradient`."""
        return self.evaluate_eta(self.shape.inverse_collapse(xi))

    def evaluate_eta(self, eta: Array) -> Array:
        """Values of all modes at collapsed coordinates [n, dim], as for `evaluate`."""
        return self.product(self.tables(coordinates(eta, self.shape.dim, self.shape.name).T))

    def gradient_eta(self, eta: Array) -> Array:
        """Derivatives of all modes by collapsed coordinates, at such [n, dim], as for `gradient`."""
        columns = coordinates(eta, self.shape.dim, self.shape.name).T
        values, derivatives = self.tables(columns), self.tables(columns, 1)
        mixed = [[*values[:k], derivatives[k], *values[k + 1 :]] for k in range(self.shape.dim)]
        return np.array([self.product(tables) for tables in mixed])

    def gradient(self, xi: Array) -> Array:
        """Derivatives of all modes by local coordinates.

        Parameters
        ----------
        xi : ndarray, [n, dim]
            Local coordinates, none of them at a collapsed vertex or edge.

        Returns
        -------
        ndarray, [dim, n_modes, n]

        Raises
        ------
        ArgumentError
            If a point is where the collapse is singular.
        """
        eta = self.shape.inverse_collapse(xi)
        matrix = self.shape.collapse_matrix(eta)
        if np.any(np.linalg.det(matrix) < 1e-14):
            raise ArgumentError(f"gradients of a {self.shape.name} are not evaluated at its collapsed vertex or edge")
        return np.einsum("nki,kmn->imn", np.linalg.inv(matrix), self.gradient_eta(eta), optimize=True)

    def product(self, tables: Sequence[Array]) -> Array:
        """Multiply 1-D functions to modes; tables [n_functions, n] by direction -> [n_modes, n]; see `table`."""
        leaves = self.tree.leaf_functions
        values = tables[0][leaves[:, 0]]
        for k in range(1, self.tree.dim):
            values *= tables[k][leaves[:, k]]
        return self.from_leaves(values)

    def from_leaves(self, values: Array) -> Array:
        """Add up products of 1-D functions to modes; values [n_leaves, n] -> [n_modes, n]; see `product`."""
        tree = self.tree
        if not tree.injective:
            first, others = tree.first_leaves
            modes = values[first]
            for leaf in others:
                modes[tree.leaf_to_mode[leaf]] += values[leaf]
            values = modes
        return values if self.transform is None else self.transform.T @ values


def make_basis(name: str, shape: Shape, order: int) -> Basis:
    """Make a basis; the same arguments give the same object.

    Parameters
    ----------
    name : str
        "modified", "orthogonal" or "lagrange".
    shape : Shape
        Any of the seven shapes with a direction.
    order : int
        Polynomial order P >= 1; "orthogonal" also takes 0.

    Returns
    -------
    Basis

    Raises
    ------
    ArgumentError
        For an unknown name or a bad order.
    """
    name = name_of(name, BASES, "basis")
    instance(shape, Shape, "the shape of a basis")
    order = integer(order, 0 if name == "orthogonal" else 1, f"the order of a {name} basis", MAX_ORDER)
    if shape.dim == 0:
        raise ArgumentError("a point has no basis; take one of the shapes of dimension 1 to 3")
    return _make_basis(cast(Family, name), shape, order)


@cache
def _make_basis(name: Family, shape: Shape, order: int) -> Basis:
    through = "orthogonal" if name == "lagrange" and any(d.collapsed for d in shape.directions) else name
    made = tensor_modes(through, shape, order)
    carrier = Basis(through, shape, order, made.tree, made.functions, made.modes)
    if name != "lagrange":
        return carrier
    nodes = interpolation_nodes(shape, order)
    modes = tuple(
        Mode(order, entity, tuple(int(i) for i in index))
        for entity, index in zip(node_entities(shape, order), lattice(shape, order))
    )
    transform = None
    if through != name:
        transform = frozen(np.asarray(np.linalg.inv(carrier.evaluate(nodes)).T, dtype=float))
    return Basis(name, shape, order, made.tree, made.functions, modes, transform, nodes)
