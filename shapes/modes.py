"""The modes of a basis that is built direction by direction, with their tree and their 1-D functions.

A base mode of degree mu is multiplied by a row of 1-D functions of the new direction:

    family        product                    cone
    modified      A_0 .. A_P                 mu = 1: A_0 .. A_P,  mu > 1: C_{mu,0} .. C_{mu,P-mu}
    orthogonal    P_0 .. P_P (Legendre)      ((1-z)/2)^mu P^{2mu+d-1,0}_r,  r = 0..P-mu
    lagrange      l_0 .. l_P (at GLL)        -

The base modes of degree 1 of a modified basis are its vertex modes. They sum to one, so that the modes "vertex mode
times A_1 = (1+z)/2" of a cone are one mode, that of the apex: leaves of the tree, one below each vertex mode, share it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from .arrays import Array, Indices
from .polynomials import lagrange, lagrange_derivative, modified_a, modified_c, orthogonal_c
from .quadrature import make_rule
from .shape import Shape
from .tree import ModeTree

Function = Callable[[Array, int], Array]
Family = Literal["modified", "orthogonal", "lagrange"]


@dataclass(frozen=True)
class Mode:
    """The entity and the indices of a mode.

    Attributes
    ----------
    degree : int
        mu of the mode; for nodal modes the order of the basis.
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
class TensorModes:
    """Modes that are products of 1-D functions."""

    tree: ModeTree  # the functions of each mode
    functions: tuple[tuple[Function, ...], ...]  # per direction, (z, derivative) -> values
    modes: tuple[Mode, ...]  # in the order of the tree


def tensor_modes(family: Family, shape: Shape, order: int) -> TensorModes:
    """Build the modes of a family on a shape."""
    if shape.base is None:
        return TensorModes(ModeTree((), (), (), np.zeros(1, dtype=np.int64)), (), (Mode(0, (0, 0), ()),))
    base = tensor_modes(family, shape.base, order)
    parents = [base.modes[m] for m in base.tree.leaf_to_mode]
    # On a product every base mode has the same row, that of degree 0.
    degrees = [mode.degree if shape.collapsed else 0 for mode in parents]
    functions: list[Function] = []
    rows: dict[int, range] = {}
    for mu in sorted(set(degrees)):
        row = _row(family, shape, order, mu)
        rows[mu] = range(len(functions), len(functions) + len(row))
        functions += row
    number: dict[Mode, int] = {}
    leaves = [
        number.setdefault(_child(family, shape, mode, k), len(number))
        for mode, mu in zip(parents, degrees)
        for k in range(len(rows[mu]))
    ]
    tree = ModeTree(
        (*base.tree.start, _indices([rows[mu].start for mu in degrees])),
        (*base.tree.count, _indices([len(rows[mu]) for mu in degrees])),
        (*base.tree.n_functions, len(functions)),
        _indices(leaves),
    )
    return TensorModes(tree, (*base.functions, tuple(functions)), tuple(number))


def _row(family: Family, shape: Shape, order: int, mu: int) -> list[Function]:
    """The functions of the last direction of a shape that multiply a base mode of degree mu (any mode if mu = 0)."""
    alpha = shape.directions[-1].alpha
    if family == "lagrange":
        nodes = make_rule("lobatto", order + 1).points
        return [_lagrange_function(nodes, i) for i in range(order + 1)]
    if family == "orthogonal":
        return [_function(orthogonal_c, mu, r, alpha) for r in range(order + 1 - mu)]
    if mu > 1:
        return [_function(modified_c, mu, r) for r in range(order + 1 - mu)]
    return [_function(modified_a, p) for p in range(order + 1)]


def _child(family: Family, shape: Shape, mode: Mode, k: int) -> Mode:
    """The mode of a shape that is the product of a base mode and the k-th function of its row."""
    to: Literal["low", "high", "swept"] = "swept"
    degree = mode.degree + k if shape.collapsed else max(mode.degree, k)
    if family == "modified" and k == 0:
        to, degree = "low", max(mode.degree, 1)
    elif family == "modified" and (not shape.collapsed or mode.degree == 1):
        # A row of A_0 .. A_P.
        to, degree = "high" if k == 1 else "swept", max(mode.degree, k)
    return Mode(degree, shape.lift(mode.entity, to), mode.indices + ((k,) if to == "swept" else ()))


def _function(formula: Callable[..., Array], *arguments: int) -> Function:
    return lambda z, derivative: formula(*arguments, z, derivative)


def _lagrange_function(nodes: Array, i: int) -> Function:
    return lambda z, derivative: (lagrange_derivative if derivative else lagrange)(nodes, z)[i]


def _indices(values: list[int]) -> Indices:
    return np.array(values, dtype=np.int64)
