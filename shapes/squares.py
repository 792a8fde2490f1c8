"""Squares of modes, and products of their derivatives, as sums of products of 1-D functions: for diagonals.

A mode is a sum of leaves of the mode tree; only modes at collapsed vertices and edges have several. Its square is the
sum over all ordered pairs of its leaves, and each pair a product, per direction, of a pair of 1-D functions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby, product
from typing import Any

import numpy as np

from .arrays import Array, Indices
from .basis import Basis
from .tabulation import Tabulation
from .tree import ModeTree

Pair = tuple[int, int]


@dataclass(frozen=True, eq=False)
class PairTree:
    """The pairs of leaves of every mode as a tree."""

    tree: ModeTree  # its leaves are pairs, its 1-D functions products of two
    pairs: tuple[Indices, ...]  # per direction, the two factors of each function of the tree, [n_functions, 2]

    def table(self, tabulation: Tabulation, direction: int, derivatives: tuple[bool, bool]) -> Array:
        """Products of 1-D functions at the points of a direction; -> [n_functions, Q_k]."""
        tables = (tabulation.values[direction], tabulation.derivatives[direction])
        left, right = (tables[d][rows] for d, rows in zip(derivatives, self.pairs[direction].T, strict=True))
        return np.asarray(left * right)


@cache
def pair_tree(basis: Basis) -> PairTree:
    """Make the tree of pairs of a basis."""
    functions, modes = basis.tree.leaf_functions.tolist(), basis.tree.leaf_to_mode
    leaves: list[tuple[tuple[Pair, ...], int]] = []
    for mode in range(basis.n_modes):
        own = [functions[leaf] for leaf in np.flatnonzero(modes == mode)]
        leaves += [(tuple(zip(left, right, strict=True)), mode) for left, right in product(own, repeat=2)]
    leaves.sort()
    start, count, pairs = [], [], []
    for level in range(basis.shape.dim):
        # The children of a node are the distinct pairs of the next direction; nodes with the same ones share them.
        nodes = [
            tuple(dict.fromkeys(key[level] for key, _ in own))
            for _, own in groupby(leaves, lambda leaf, level=level: leaf[0][:level])  # type: ignore[misc]
        ]
        first: dict[tuple[Any, ...], int] = {}
        rows: list[Pair] = []
        for children in nodes:
            if children not in first:
                first[children] = len(rows)
                rows += children
        start.append(np.array([first[children] for children in nodes]))
        count.append(np.array([len(children) for children in nodes]))
        pairs.append(np.array(rows))
    sizes = tuple(len(rows) for rows in pairs)
    return PairTree(ModeTree(tuple(start), tuple(count), sizes, np.array([mode for _, mode in leaves])), tuple(pairs))


def squared(tabulation: Tabulation) -> Tabulation:
    """The tabulation with the tree of pairs in place of the basis' own; its tables are `PairTree.table`."""
    return Tabulation(replace(tabulation.basis, tree=pair_tree(tabulation.basis).tree), tabulation.rule)
