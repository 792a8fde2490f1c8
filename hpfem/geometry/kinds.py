"""Geometry kinds: what the maps of all elements of a block have in common, so that fewer factors are stored, or none.

A kind is a class in `GEOMETRY_KINDS`: its elements, and the number of points with stored factors. Most kernels need
nothing else; one that computes factors itself reads `BlockGeometry.kind`. A kind whose maps are of a low order names it
(`order`), so that kernels may recompute factors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hpfem.shapes import Shape, ShapeRule
from hpfem.shapes.arrays import Array, Indices

from ..memory import as_numpy
from .element_map import Cells, ElementMap, at_once, chunks
from .jacobians import inverse_collapse


class GeometryKind:
    """A property of the maps of all elements of a block. This class: no property, so factors are stored at every point.

    Another kind is a class like `_Affine`, in `GEOMETRY_KINDS` before the general one. Most kernels use factors at the
    points; a kernel that computes factors itself reads `BlockGeometry.kind`.
    """

    name = "deformed"  # in messages, keys and results
    # Of the maps, if it is low enough for kernels to recompute factors from their coefficients.
    order: int | None = None

    def __reduce__(self) -> str | tuple[Any, ...]:
        return _kind_named, (self.name,)

    def includes(self, elements: ElementMap) -> Any:
        """Tell the elements that are of this kind.

        Parameters
        ----------
        elements : ElementMap

        Returns
        -------
        array of the elements' module, of bool, [E]
        """
        return elements.xp.ones(elements.n_elements, dtype=bool)

    def reference(self, shape: Shape, rule: ShapeRule, gradient: Array) -> tuple[Array, Array]:
        """Reference data of the stored factors.

        Parameters
        ----------
        shape : Shape
        rule : ShapeRule
        gradient : ndarray, [d, n_geometry_modes, Q]
            Of the coordinates' basis by eta at the rule's points.

        Returns
        -------
        gradient : ndarray, [d, n_geometry_modes, S]
            Gradient of the coordinates' basis at the points with stored factors: S = Q here.
        weights : ndarray, [S]
            Factors of the Jacobian's determinant at these points.
        """
        # Both the rule's weights and the Jacobian contain the collapse.
        return gradient, rule.weights / np.linalg.det(shape.collapse_matrix(rule.eta))


class _Affine(GeometryKind):
    """The Jacobian is constant in every element: factors are stored once an element, by xi and without weights."""

    name = "affine"

    def includes(self, elements: ElementMap) -> Any:
        """Tell the affine elements; see `GeometryKind.includes`."""
        return elements.affine_elements

    def reference(self, shape: Shape, rule: ShapeRule, gradient: Array) -> tuple[Array, Array]:
        """Mean of the gradient by xi, exact where affinity holds to rounding, and 1; see `GeometryKind.reference`."""
        w = rule.weights / rule.weights.sum()
        collapse = inverse_collapse(shape, rule.eta)
        return np.einsum("q,amq,qab->bm", w, gradient, collapse, optimize=True)[..., None], np.ones(1)


class _OfOrder(GeometryKind):
    """The maps are of an order, possibly given in a higher one."""

    def __init__(self, name: str, order: int) -> None:
        self.name, self.order = name, order

    def includes(self, elements: ElementMap) -> Any:
        """Tell the elements whose nodes differ from such a map by rounding only; see `GeometryKind.includes`."""
        return elements.of_order(self.order or 0)


AFFINE = _Affine()
MULTILINEAR, QUADRATIC = _OfOrder("multilinear", 1), _OfOrder("quadratic", 2)
GENERAL = GeometryKind()
# An element is of the first kind that includes it.
GEOMETRY_KINDS: list[GeometryKind] = [AFFINE, MULTILINEAR, QUADRATIC, GENERAL]
# If fewer elements are of such a kind, they join the next kind that has elements: small blocks cost launches.
FEW = 1000


def _kind_named(name: str) -> GeometryKind:
    return {kind.name: kind for kind in GEOMETRY_KINDS}[name]


def by_kind(cells: Cells, points: Any, xp: Any = np) -> Iterator[tuple[GeometryKind, Indices, ElementMap]]:
    """Sort cells by the kind of their geometry; points [n, D] -> chosen [n]."""
    elements = ElementMap.of(cells, points, xp=xp)
    first = first_kinds(elements)
    for number, kind in enumerate(GEOMETRY_KINDS):
        if kind.order is not None and np.count_nonzero(first == number) < FEW and (first > number).any():
            first[first == number] = first[first > number].min()
    if len(first) and first.min() == first.max():
        yield GEOMETRY_KINDS[first[0]], np.arange(len(first)), elements
        return
    del elements  # before others are made
    for number, kind in enumerate(GEOMETRY_KINDS):
        chosen = np.flatnonzero(first == number)
        if len(chosen) or (number == 0 and not len(cells.nodes)):
            yield kind, chosen, ElementMap.of(cells, points, chosen, xp)


def first_kinds(elements: ElementMap, departure: float = 0.0) -> Indices:
    """Number of the first kind that includes each element, or would if nodes moved by this part of its size; [E]."""
    xp = elements.xp
    first = np.empty(elements.n_elements, dtype=np.int64)
    for rows in chunks(len(first), elements.given[:1].size, most=at_once(xp)):
        own = ElementMap(elements.shape, elements.order, elements.given[rows], xp, departure)
        first[rows] = as_numpy(xp.stack([kind.includes(own) for kind in GEOMETRY_KINDS]).argmax(axis=0))
    return first
