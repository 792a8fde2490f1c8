"""A patch of cells many times over: large problems whose geometry is computed once, and stored for every element."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..geometry.block_geometry import BlockGeometry
from ..mesh import Mesh
from ..space import Block, Space


class RepeatedGeometry(BlockGeometry):
    """Copies of the elements of a patch, each moved by 1 along x from the one before.

    Factors other than the points' coordinates are those of the patch; every element has its own in memory.

    Parameters
    ----------
    patch : BlockGeometry
    copies : int
        At least 1.
    """

    def __init__(self, patch: BlockGeometry, copies: int) -> None:
        coefficients = np.tile(patch.coefficients, (copies, 1, 1))
        # The first mode is the constant one.
        one = float(patch.basis.evaluate(np.zeros((1, patch.dim)))[0, 0])
        coefficients[:, 0, 0] += np.repeat(np.arange(copies), patch.n_elements) / one
        super().__init__(patch.shape, patch.order, coefficients, patch.rule, patch.kind)
        self.patch = patch
        self.copies = copies

    def __reduce__(self) -> tuple[type[BlockGeometry], tuple[Any, ...]]:
        return RepeatedGeometry, (self.patch, self.copies)

    def _make_factors(self, kind: str, lanes: int, dtype: DTypeLike) -> NDArray[np.floating[Any]]:
        if kind == "points":
            return super()._make_factors(kind, lanes, dtype)
        n = self.patch.n_elements
        if n % lanes == 0:
            return np.tile(self.patch.factors(kind, lanes, dtype), (self.copies, 1, 1, 1))
        # Groups run over the ends of patches: each is a window of the elements in a ring.
        ring = self.patch.factors(kind, 1, dtype)[np.arange(n + lanes) % n, :, :, 0].transpose(1, 2, 0).copy()
        out = np.empty((-(-self.n_elements // lanes), *ring.shape[:2], lanes), dtype)
        for group, first in zip(out, range(0, self.n_elements, lanes), strict=True):
            group[...] = ring[:, :, first % n : first % n + lanes]
        out[-1, ..., self.n_elements - (len(out) - 1) * lanes :] = 0
        return out


class RepeatedSpace(Space):
    """A space on copies of a mesh, each moved by 1 along x from the one before.

    Elements and geometry are there `copies` times; `mesh` is one copy, and the blocks' cell numbers are those in it.

    Parameters
    ----------
    mesh : Mesh
        The patch.
    copies : int
        At least 1.
    order : int
    **options
        See `Space`.
    """

    def __init__(self, mesh: Mesh, copies: int, order: int, **options: Any) -> None:
        self.copies = copies
        super().__init__(mesh, order, **options)

    def _make_blocks(self) -> list[Block]:
        return [
            Block(block.tabulation, RepeatedGeometry(block.geometry, self.copies), np.tile(block.elements, self.copies))
            for block in super()._make_blocks()
        ]
