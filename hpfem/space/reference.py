"""Reference elements in place of the elements of a space, for forms that carry the geometry in their coefficients."""

from __future__ import annotations

from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from hpfem.shapes import Shape, equispaced_nodes

from ..backends.base import vectors_on
from ..geometry import BlockGeometry
from ..geometry.element_map import ElementMap, chunks
from ..geometry.jacobians import triangular
from ..geometry.kinds import AFFINE
from ..memory import Device, PairArray
from .block import Block
from .field import Field
from .space import Space


class _Cell:
    """The reference element as a cell; see `hpfem.geometry.element_map.Cells`."""

    order = 1

    def __init__(self, shape: Shape, n_nodes: int) -> None:
        self.shape, self.nodes = shape, np.arange(n_nodes)[None]


def reference_geometry(block: Block, count: int) -> BlockGeometry:
    """A number of elements that are all the reference element."""
    nodes = equispaced_nodes(block.shape, 1)
    cell = ElementMap.of(_Cell(block.shape, len(nodes)), nodes)
    given = np.repeat(cell.coefficients, count, axis=0)
    return BlockGeometry(block.shape, 1, given, block.rule, AFFINE, unit=True)


# By space and device, for as long as somebody has it.
_MADE: WeakKeyDictionary[Space, WeakValueDictionary[tuple[str, bool], Field]] = WeakKeyDictionary()


def jacobians(space: Space, device: Device, rotated: bool) -> Field:
    """The inverse Jacobians, row by row, and determinants at the points: a field on a space of reference elements. With
    x rotated at every point, such that those are lower triangular, the lower triangles alone.
    """
    made = _MADE.setdefault(space, WeakValueDictionary())
    found = made.get((device.name, rotated))
    if found is None:
        xp, blocks, pairs = vectors_on(device).xp, [], []
        for block in space.blocks:
            geometry, d = reference_geometry(block, block.n_elements), block.shape.dim
            collapse = xp.asarray(block.shape.collapse_matrix(block.rule.eta))
            n = d * (d + 1) // 2 if rotated else d * d
            out = xp.empty((n + (not rotated), block.n_elements, block.n_points), space.dtype)
            for some in chunks(block.n_elements, 2 * block.n_points * (d * d + 1)):
                inverse, weights = block.geometry.inverse_and_weights(some, xp)
                inverse = xp.einsum("qka,aieq->kieq", collapse, inverse)
                out[:n, some] = xp.stack(triangular(inverse, xp) if rotated else [*inverse.reshape(n, *weights.shape)])
                if not rotated:
                    out[n, some] = weights / xp.asarray(block.rule.weights)
            blocks.append(Block(block.tabulation, geometry, block.elements))
            pairs.append(PairArray.of(out, device))
            pairs[-1].constant = True
        found = made[device.name, rotated] = Field(space.on_blocks(blocks), "phys", pairs)
    return found
