"""The mode tree: the data of a basis for sum factorisation.

A basis function is a product of one 1-D function per direction. Written as a tree, level k+1 holds the children of
level k's nodes, and a node's children are a contiguous range of the function table of direction k:

    u(eta) = sum_p F0_p(eta_1) sum_q F1_{start(p)+q}(eta_2) sum_r F2_{start(p,q)+r}(eta_3) u_{leaf(p,q,r)}

`leaf_to_mode` is not injective: a collapsed vertex is a leaf under every row that shares it. BwdTrans gathers through
it, its transpose scatter-adds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .arrays import Indices
from .cached import cached_property


@dataclass(frozen=True, eq=False)
class ModeTree:
    """Integer tables of a basis.

    Attributes
    ----------
    start, count : tuple of ndarray
        Per direction k, for every node of level k in tree order: first function of its children in the table of
        direction k, and how many. Level 0 has one node, the root.
    n_functions : tuple of int
        Length of each direction's function table.
    leaf_to_mode : ndarray, [n_leaves]
        Mode of each leaf.
    """

    start: tuple[Indices, ...]
    count: tuple[Indices, ...]
    n_functions: tuple[int, ...]
    leaf_to_mode: Indices

    @property
    def dim(self) -> int:
        """Number of directions."""
        return len(self.start)

    @property
    def n_leaves(self) -> int:
        """Number of leaves."""
        return len(self.leaf_to_mode)

    @cached_property
    def n_modes(self) -> int:
        """Number of modes."""
        return int(self.leaf_to_mode.max()) + 1

    @cached_property
    def injective(self) -> bool:
        """Whether every mode is one leaf."""
        return self.n_modes == self.n_leaves

    @cached_property
    def product(self) -> bool:
        """Whether there are several directions, each with functions that all those of the others are multiplied by."""
        uniform = all(np.ptp(numbers) == 0 for numbers in (*self.start, *self.count))
        return self.dim > 1 and uniform and np.array_equal(self.leaf_to_mode, np.arange(self.n_leaves))

    @cached_property
    def first_leaves(self) -> tuple[Indices, Indices]:
        """The first leaf of every mode, and all other leaves."""
        first = np.unique(self.leaf_to_mode, return_index=True)[1]
        return first, np.setdiff1d(np.arange(self.n_leaves), first)

    def n_nodes(self, level: int) -> int:
        """Number of nodes of a level, 0 (the root) to dim (the leaves); see `ModeTree`."""
        return len(self.start[level]) if level < self.dim else self.n_leaves

    def parent(self, level: int) -> Indices:
        """Parent, a node of the level above, of every node of a level from 1 on, [n_nodes]; see `n_nodes`."""
        return np.repeat(np.arange(self.n_nodes(level - 1)), self.count[level - 1])

    def function(self, level: int) -> Indices:
        """Function of every node of a level, in the table of direction `level` - 1, [n_nodes]; see `n_nodes`."""
        start, count = self.start[level - 1], self.count[level - 1]
        offset = np.cumsum(count) - count
        return np.arange(count.sum()) - np.repeat(offset - start, count)

    @cached_property
    def leaf_functions(self) -> Indices:
        """Function ids of every leaf, [n_leaves, dim]."""
        columns: list[Indices] = []
        ancestor = np.arange(self.n_leaves)
        for level in range(self.dim, 0, -1):
            columns.append(self.function(level)[ancestor])
            ancestor = self.parent(level)[ancestor]
        return np.stack(columns[::-1], axis=1)
