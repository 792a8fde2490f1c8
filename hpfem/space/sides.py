"""Sides of cells: facets of a boundary, with points on them, in the cells that they belong to.

In collapsed coordinates a facet is where one of them is -1 or 1. So a rule with one point in that direction is a rule
of the cell, on which its basis and its map are evaluated as on any other; what differs is the measure, which is here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from hpfem.shapes import Shape, Tabulation, TensorRule, make_rule
from hpfem.shapes.arguments import name_of, real
from hpfem.shapes.arrays import Array, Indices
from hpfem.shapes.cached import cached_property

from ..errors import ArgumentError
from ..geometry import BlockGeometry
from ..geometry.jacobians import determinant, determinant_and_inverse
from ..mesh import Mesh
from .block import Block
from .evaluation import evaluate_on_blocks, evaluated, positional
from .field import Field, FieldSpace, check_state

# More points than P + 1 in each direction: data and curved facets are not polynomial.
_MORE = 6


@cache
def _place(shape: Shape, facet: int) -> tuple[int, int]:
    """The collapsed coordinate that is -1 or 1 on a facet, and which."""
    middle = shape.vertices[list(shape.facets[facet].vertices)].mean(axis=0)
    eta = shape.inverse_collapse(middle[None])[0]
    direction = int(np.argmax(np.abs(eta)))
    return direction, int(np.sign(eta[direction]))


@dataclass(frozen=True, eq=False)
class Side:
    """Facets of cells of one block, with the same number in each cell."""

    number: int  # of the block in the space
    rows: Indices  # [E], elements of that block
    facet: int  # its number in each cell
    block: Block  # the elements, on a rule with points on the facets
    outer: bool  # whether no facet has a cell beyond it

    @property
    def _jacobian(self) -> Array:
        geometry = self.block.geometry
        return np.asarray(geometry.jacobian(geometry.gradient_eta))

    @cached_property
    def coordinates(self) -> Array:
        """Coordinates of the points, [D, E, Q]."""
        return np.asarray(self.block.geometry.coordinates())

    @cached_property
    def weights(self) -> Array:
        """Weights times surface element, [E, Q]."""
        direction, _ = _place(self.block.shape, self.facet)
        own = self.block.rule.weights / 2  # without the weights of the direction across, whose sum is 2
        tangents = np.delete(self._jacobian, direction, axis=1)
        area = np.linalg.norm(tangents[:, 0], axis=0) if tangents.shape[1] == 1 else determinant(tangents)
        return np.asarray(own * area)

    @cached_property
    def normals(self) -> Array:
        """Outward unit normals, [D, E, Q]; for a surface in space they are tangential to it."""
        direction, end = _place(self.block.shape, self.facet)
        outward = end * determinant_and_inverse(self._jacobian)[1][direction]
        return np.asarray(outward / np.linalg.norm(outward, axis=0))


def sides_of(space: FieldSpace, boundary: str) -> list[Side]:
    """Facets of a boundary, in the cells of a space that they belong to."""
    named = space.mesh.boundaries
    return facet_sides(space, named[name_of(boundary, named, "boundary")])


def facet_sides(space: FieldSpace, facets: Indices) -> list[Side]:
    """Facets [n] in the cells of a space, the first of two cells each; see `Side`."""
    mesh, topology = space.mesh, space.mesh.aligned_topology
    cells = mesh.facets.cells[facets, 0]
    local = np.empty(len(cells), dtype=np.int64)
    group = mesh.locations[0][cells]
    for number, ids in enumerate(topology.sides.ids):
        here = group == number
        local[here] = np.argmax(ids[topology.locations[1][cells[here]]] == facets[here, None], axis=1)
    found = []
    for number, block in enumerate(space.blocks):
        row = np.full(mesh.n_cells, -1)
        row[block.elements] = np.arange(block.n_elements)
        rows = row[cells]
        for facet in np.unique(local[rows >= 0]):
            here = (rows >= 0) & (local == facet)
            outer = bool(mesh.facets.on_boundary[facets[here]].all())
            found.append(_side(number, block, rows[here], int(facet), outer))
    return found


def no_side(space: FieldSpace) -> Side:
    """A side without facets, for a boundary that only other processes have."""
    return _side(0, space.blocks[0], np.empty(0, dtype=np.int64), 0, True)


def _side(number: int, block: Block, rows: Indices, facet: int, outer: bool) -> Side:
    direction, end = _place(block.shape, facet)
    rules = [make_rule("gauss", block.order + 1 + _MORE)] * block.shape.dim
    rules[direction] = make_rule("radau" if end < 0 else "right radau", 1)
    rule, own = TensorRule(tuple(rules)), block.geometry
    geometry = BlockGeometry(own.shape, own.order, own.coefficients_of(rows), rule, own.kind)
    return Side(number, rows, facet, Block(Tabulation(block.basis, rule), geometry, block.elements[rows]), outer)


def check_outer(mesh: Mesh, boundary: str, what: str = "normal") -> None:
    """Refuse what differs on both sides of a facet between two cells; collective."""
    if mesh.comm.any(not mesh.facets.on_boundary[mesh.boundaries[boundary]].all()):
        raise ArgumentError(f"boundary {boundary!r} lies between cells in part: its {what} is not unique there")


def boundary_values(function: Any, side: Side, boundary: str) -> Array:
    """Values of a field, a number or a function at the points of sides; -> [components, E, Q]."""
    block, shape = side.block, side.coordinates.shape
    if isinstance(function, Field):
        check_state(function, "coeff", "an integral over a boundary")
        local = np.asarray(function.data[side.number].read()[:, side.rows], dtype=np.float64)
        return np.asarray(local @ block.tabulation.dense)
    if not callable(function):
        return np.full((1, *shape[1:]), real(function, "what is integrated over a boundary"))
    if positional(function) != 2 * shape[0]:
        return np.asarray(evaluate_on_blocks(function, [block], np.dtype(np.float64))[0])
    values = evaluated(function, [*side.coordinates, *side.normals], shape[1:])
    if not np.isfinite(values).all():
        raise ArgumentError(f"what is integrated over boundary {boundary!r} is not finite")
    return values
