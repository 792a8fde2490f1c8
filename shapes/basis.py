"""Bases of a shape: tables of 1-D functions, a mode tree, and the entity each mode belongs to.

    modified     C0 hierarchical (Karniadakis & Sherwin 2005): vertex, edge, face and interior modes
    orthogonal   Legendre, Dubiner, Bergot et al. 2010: diagonal mass on the reference shape
    lagrange     nodal: tensor Gauss-Lobatto on products of segments, elsewhere `interpolation_nodes` through V^-1

The modified basis of a cone has, for every base mode m of degree mu(m), the modes m C_{mu,r} with r = 0..P-mu, and one
apex mode, the sum of the base's vertex modes times (1+z)/2. The orthogonal one has m ((1-z)/2)^mu P^{2mu+d-1,0}_r.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from .errors import ArgumentError
from .nodes import interpolation_nodes, lattice
from .polynomials import Array, lagrange, lagrange_derivative, modified_a, modified_c, orthogonal_c
from .quadrature import make_rule
from .shape import Shape
from .tree import Indices, ModeTree

Function = Callable[[Array, int], Array]


@dataclass(frozen=True)
class Mode:
    """Where a mode belongs.

    Attributes
    ----------
    degree : int
        mu of the mode (DESIGN section 3); for nodal modes the order of the basis.
    entity : tuple of int
        (dimension, number) of the entity of the shape that owns it.
    indices : tuple of int
        Index of the mode within the family of its entity: () for a vertex, (p,) with p >= 2 on an edge, (p, q) with
        p, q >= 2 on a quad, (p, r) with p >= 2, r >= 1 on a tri, and so on; lattice indices for nodal modes.
    """

    degree: int
    entity: tuple[int, int]
    indices: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Basis:
    """A basis of order P on a shape.

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
        In the public mode order, which is the tree's; for a basis with a `transform` the order of its nodes.
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
        """
        z = np.asarray(z, dtype=float)
        return np.array([function(z, derivative) for function in self.functions[direction]])

    def tables(self, points: Sequence[Array], derivative: int = 0) -> tuple[Array, ...]:
        """`table` of every direction at its own points."""
        return tuple(self.table(k, z, derivative) for k, z in enumerate(points))

    def evaluate(self, xi: Array) -> Array:
        """Values of all modes.

        Parameters
        ----------
        xi : ndarray, [n, dim]
            Local coordinates.

        Returns
        -------
        ndarray, [n_modes, n]
        """
        eta = self.shape.inverse_collapse(xi)
        return self._assemble([self.table(k, eta[:, k]) for k in range(self.shape.dim)])

    def gradient_eta(self, eta: Array) -> Array:
        """Derivatives of all modes by collapsed coordinates, [dim, n_modes, n]."""
        eta = np.asarray(eta, dtype=float)
        dim = self.shape.dim
        values = [self.table(k, eta[:, k]) for k in range(dim)]
        slopes = [self.table(k, eta[:, k], 1) for k in range(dim)]
        return np.array([self._assemble([slopes[j] if j == k else values[j] for j in range(dim)]) for k in range(dim)])

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
        if self.shape.dim and np.any(np.linalg.det(matrix) < 1e-14):
            raise ArgumentError(f"gradients of a {self.shape.name} are not evaluated at its collapsed vertex or edge")
        return np.einsum("nki,kmn->imn", np.linalg.inv(matrix), self.gradient_eta(eta), optimize=True)

    def _assemble(self, tables: Sequence[Array]) -> Array:
        """Product of the directions' tables (each [n_functions, n]) for every mode, [n_modes, n]."""
        tree, leaves = self.tree, self.tree.leaf_functions
        values = tables[0][leaves[:, 0]]
        for k in range(1, tree.dim):
            values = values * tables[k][leaves[:, k]]
        if not tree.injective:
            first = np.unique(tree.leaf_to_mode, return_index=True)[1]
            others = np.setdiff1d(np.arange(tree.n_leaves), first)
            modes = values[first]
            np.add.at(modes, tree.leaf_to_mode[others], values[others])
            values = modes
        return values if self.transform is None else self.transform.T @ values


def _function(formula: Callable[..., Array], *arguments: int) -> Function:
    return lambda z, derivative: formula(*arguments, z, derivative)


@dataclass
class _Draft:
    """A basis under construction: modes, and leaves as (function ids, mode)."""

    functions: list[tuple[Function, ...]]
    start: list[Indices]
    count: list[Indices]
    leaves: Indices  # mode of each leaf
    modes: list[Mode]


def _number_by_first_leaf(keys: list[tuple[int, ...]]) -> tuple[Indices, list[tuple[int, ...]]]:
    """Modes numbered in the order in which the leaves meet them."""
    seen: dict[tuple[int, ...], int] = {}
    leaf = np.array([seen.setdefault(key, len(seen)) for key in keys])
    return leaf, list(seen)


def _grow(
    draft: _Draft,
    functions: list[Function],
    rows: dict[int, tuple[int, int]],
    row_of: list[int],
    shared: int,
    new_mode: Callable[[Mode, int], Mode],
    apex: Mode | None,
) -> _Draft:
    """Add a direction: leaf l's children are the functions rows[row_of[mode of l]]; function `shared` is the apex's."""
    row = [rows[row_of[m]] for m in draft.leaves]
    start, count = (np.array(column) for column in zip(*row, strict=True))
    keys = [
        (-1, -1) if f == shared else (int(m), f)
        for m, (s, c) in zip(draft.leaves, row, strict=True)
        for f in range(s, s + c)
    ]
    leaves, numbered = _number_by_first_leaf(keys)
    modes = [
        apex if m < 0 and apex is not None else new_mode(draft.modes[m], f - rows[row_of[m]][0]) for m, f in numbered
    ]
    return _Draft([*draft.functions, tuple(functions)], [*draft.start, start], [*draft.count, count], leaves, modes)


def _lifted(shape: Shape, entity: tuple[int, int], where: int) -> tuple[int, int]:
    """Entity of `shape` above one of its base's: where = 0 the base (at -1), 1 the base at +1, 2 swept along."""
    assert shape.base is not None
    dim, number = entity
    below = len(shape.base.entities[dim]) if dim <= shape.base.dim else 0
    if where < 2:
        return dim, number + where * below
    above = len(shape.base.entities[dim + 1]) if dim < shape.base.dim else 0
    return dim + 1, number + above * (1 if shape.collapsed else 2)


def _build(shape: Shape, order: int, family: str) -> _Draft:
    """Recursion over the directions of a shape for the tensor families."""
    if shape.base is None:
        return _Draft([], [], [], np.zeros(1, dtype=np.int64), [Mode(0, (0, 0), ())])
    draft = _build(shape.base, order, family)
    if not shape.collapsed:
        if family == "modified":
            line = [_function(modified_a, p) for p in range(order + 1)]
            degree = [max(p, 1) for p in range(order + 1)]
            where = [0, 1] + [2] * (order - 1)
        elif family == "orthogonal":
            line = [_function(orthogonal_c, 0, p, 0) for p in range(order + 1)]
            degree, where = list(range(order + 1)), [2] * (order + 1)
        else:
            nodes = make_rule("lobatto", order + 1).points
            line = [_lagrange_function(nodes, i) for i in range(order + 1)]
            degree = [order] * (order + 1)
            where = [0] + [2] * (order - 1) + [1]

        def extruded(mode: Mode, p: int) -> Mode:
            swept = where[p] == 2
            return Mode(max(mode.degree, degree[p]), _lifted(shape, mode.entity, where[p]), mode.indices + (p,) * swept)

        return _grow(draft, line, {0: (0, order + 1)}, [0] * len(draft.modes), -1, extruded, None)

    functions: list[Function] = []
    rows: dict[int, tuple[int, int]] = {}
    shared = -1
    alpha = shape.directions[-1].alpha
    for mu in sorted({mode.degree for mode in draft.modes}):
        begin = len(functions)
        for r in range(order + 1 - mu):
            if family == "orthogonal":
                functions.append(_function(orthogonal_c, mu, r, alpha))
                continue
            functions.append(_function(modified_c, mu, r))
            if mu == 1 and r == 0:
                # With the apex second, the row of a vertex mode is the family A of an ordinary direction.
                shared = len(functions)
                functions.append(_function(modified_a, 1))
        rows[mu] = (begin, len(functions) - begin)

    def coned(mode: Mode, r: int) -> Mode:
        if family == "orthogonal":
            return Mode(mode.degree + r, _lifted(shape, mode.entity, 2), (*mode.indices, r))
        if mode.entity[0] == 0:  # a vertex row: r = 0 the vertex, 1 the apex, r >= 2 the edge to the apex
            return Mode(1, mode.entity, ()) if r == 0 else Mode(r, _lifted(shape, mode.entity, 2), (r,))
        if r == 0:
            return Mode(mode.degree, _lifted(shape, mode.entity, 0), mode.indices)
        return Mode(mode.degree + r, _lifted(shape, mode.entity, 2), (*mode.indices, r))

    apex = Mode(1, (0, shape.n_vertices - 1), ())
    return _grow(draft, functions, rows, [mode.degree for mode in draft.modes], shared, coned, apex)


def _lagrange_function(nodes: Array, i: int) -> Function:
    return lambda z, derivative: (lagrange_derivative if derivative else lagrange)(nodes, z)[i]


def _tensor(name: str, shape: Shape, order: int) -> Basis:
    draft = _build(shape, order, name)
    tree = ModeTree(
        tuple(draft.start), tuple(draft.count), tuple(len(table) for table in draft.functions), draft.leaves
    )
    nodes = interpolation_nodes(shape, order) if name == "lagrange" else None
    return Basis(name, shape, order, tree, tuple(draft.functions), tuple(draft.modes), nodes=nodes)


def _nodal(shape: Shape, order: int) -> Basis:
    carrier = make_basis("orthogonal", shape, order)
    nodes = interpolation_nodes(shape, order)
    transform = np.linalg.inv(carrier.evaluate(nodes)).T
    transform.flags.writeable = False
    modes = tuple(
        Mode(order, owner, tuple(map(int, index)))
        for owner, index in zip(node_entities(shape, order), lattice(shape, order), strict=True)
    )
    return Basis("lagrange", shape, order, carrier.tree, carrier.functions, modes, transform, nodes)


@lru_cache(maxsize=None)
def node_entities(shape: Shape, order: int) -> tuple[tuple[int, int], ...]:
    """The entity (dimension, number) that owns each lattice point of a shape.

    Parameters
    ----------
    shape : Shape
    order : int
        Lattice order >= 1.

    Returns
    -------
    tuple of (int, int)
        In lattice order.
    """
    # The vertex modes that do not vanish at a point span the entity it lies in.
    linear = make_basis("modified", shape, 1)
    values = linear.evaluate(2.0 * lattice(shape, order) / order - 1.0)
    vertex = [mode.entity[1] for mode in linear.modes]
    owners = []
    for column in np.abs(values.T) > 1e-12:
        present = tuple(vertex[i] for i in np.flatnonzero(column))
        owners.append(shape.entity_number(present))
    return tuple(owners)


BASES = ("modified", "orthogonal", "lagrange")


@lru_cache(maxsize=None)
def make_basis(name: str, shape: Shape, order: int) -> Basis:
    """Make a basis.

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
    if name not in BASES:
        raise ArgumentError(f"unknown basis {name!r}; valid: {', '.join(BASES)}")
    least = 0 if name == "orthogonal" else 1
    if isinstance(order, bool) or not isinstance(order, (int, np.integer)) or order < least:
        raise ArgumentError(f"order of a {name} basis must be an integer >= {least}, got {order!r}")
    if shape.dim == 0:
        raise ArgumentError("a point has no basis")
    if name == "lagrange" and any(direction.collapsed for direction in shape.directions):
        return _nodal(shape, int(order))
    return _tensor(name, shape, int(order))
