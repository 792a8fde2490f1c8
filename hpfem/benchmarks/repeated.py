"""Copies of a few elements: large blocks whose geometric factors are made once, but stored for every element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from hpfem.shapes.arrays import Array, Floats
from hpfem.shapes.cached import cached_property

from ..geometry.block_geometry import BlockGeometry
from ..geometry.products import Coefficients
from ..mesh import Mesh
from ..space import Block, Space


class RepeatedGeometry(BlockGeometry):
    """The elements of a patch, repeated to any number, each with factors in memory, so the traffic is that of a mesh.

    If copies are `moved`, each is 1 further along x; else all are in the same place, and only the patch's coefficients
    are stored. Unless it is `whole`, `factors` makes as many groups of lanes as there are before everything repeats,
    which `TiledKernel` copies on the device. `size` may be lowered; `lanes` are those of the last factors.
    """

    def __init__(self, patch: BlockGeometry, n_elements: int, moved: bool = False, whole: bool = True) -> None:
        coefficients = patch.coefficients
        if moved:
            copy, element = np.divmod(np.arange(n_elements), patch.n_elements)
            coefficients = coefficients[element]
            # The first mode is the constant one.
            coefficients[:, 0, 0] += copy / float(patch.basis.evaluate(np.zeros((1, patch.dim)))[0, 0])
        super().__init__(patch.shape, patch.order, coefficients, patch.rule, patch.kind, patch.merged)
        self.patch = patch
        self.size = n_elements
        self.by_element = moved
        self.whole = whole
        self.lanes = 1

    def __reduce__(self) -> tuple[type[BlockGeometry], tuple[Any, ...]]:
        return RepeatedGeometry, (self.patch, self.size, self.by_element, self.whole)

    def part(self, n_elements: int) -> RepeatedGeometry:
        """Take the first elements by themselves; see `BlockGeometry.part`."""
        return RepeatedGeometry(self.patch, n_elements, self.by_element, self.whole)

    def without_elements(self) -> BlockGeometry:
        """Take the same without elements; see `BlockGeometry.without_elements`."""
        return self.patch.without_elements()

    def with_coefficients(self, coefficients: Coefficients) -> BlockGeometry:
        """Take the same elements with other factors; see `BlockGeometry.with_coefficients`."""
        if self.by_element:
            return super().with_coefficients(coefficients)
        # Coefficients of copies in the same place repeat, too.
        return RepeatedGeometry(self.patch.with_coefficients(coefficients), self.size, whole=self.whole)

    @property
    def n_elements(self) -> int:
        """Number of elements."""
        return self.size

    @cached_property
    def magnitudes(self) -> tuple[Array, ...]:
        """Those of the patch; see `BlockGeometry.magnitudes`."""
        return self.patch.magnitudes

    def _period(self, kind: str, lanes: int, dtype: DTypeLike) -> Floats:
        """Factors of the groups of lanes in one period of the repetition."""
        self.lanes = lanes
        n = self.patch.n_elements
        if n % lanes == 0:
            return self.patch.factors(kind, lanes, dtype)
        groups = n // math.gcd(n, lanes)
        elements = (np.arange(groups * lanes) % n).reshape(groups, lanes)
        return np.ascontiguousarray(np.moveaxis(self.patch.factors(kind, 1, dtype)[elements, ..., 0], 1, -1))

    def _make_factors(self, kind: str, lanes: int, dtype: DTypeLike) -> Floats:
        return super()._make_factors(kind, lanes, dtype) if self.whole else self._period(kind, lanes, dtype)

    def write_factors(self, kind: str, out: Any, xp: Any = np, size: int | None = None) -> None:
        """Write the factors of a kind into an array; see `BlockGeometry.write_factors`."""
        if kind == "points" and self.by_element:
            super().write_factors(kind, out, xp, size)
            return
        lanes = out.shape[-1]
        period = xp.asarray(self._period(kind, lanes, out.dtype))
        for first, group in enumerate(period[: len(out)]):
            out[first :: len(period)] = group.reshape(out.shape[1:])
        if self.size % lanes:
            out[-1, ..., self.size % lanes :] = 0


class RepeatedSpace(Space):
    """A space on copies of a mesh, each moved by 1 along x; `mesh` and the cell numbers of blocks are one copy's."""

    def __init__(self, mesh: Mesh, copies: int, order: int, **options: Any) -> None:
        self.copies = copies
        super().__init__(mesh, order, **options)

    def _make_blocks(self) -> list[Block]:
        def repeated(block: Block) -> Block:
            geometry = RepeatedGeometry(block.geometry, self.copies * block.n_elements, moved=True)
            return Block(block.tabulation, geometry, np.tile(block.elements, self.copies))

        return list(map(repeated, super()._make_blocks()))
