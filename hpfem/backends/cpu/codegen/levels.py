"""The mode tree as loops: nodes of equal rows share one unrolled body (DESIGN section 4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hpfem.shapes import ModeTree

from .ir import Builder, Index

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Group:
    """Nodes of a level whose children are the same functions.

    Attributes
    ----------
    functions : slice
        Rows of the direction's table.
    nodes, children : ndarray, [n]
        Number of each node in its level, and of its first child in the next.
    """

    functions: slice
    nodes: Indices
    children: Indices


def groups(tree: ModeTree, level: int) -> list[Group]:
    """Nodes of a level by the functions of their children."""
    start, count = tree.start[level], tree.count[level]
    first = np.cumsum(count) - count
    rows, which = np.unique(np.column_stack([start, count]), axis=0, return_inverse=True)
    which = np.ravel(which)
    return [
        Group(slice(int(s), int(s + c)), np.flatnonzero(which == i), first[which == i])
        for i, (s, c) in enumerate(rows)
        if c
    ]


class Sequence:
    """Integers that a loop walks through: an arithmetic progression, or a table.

    Parameters
    ----------
    b : Builder
    values : ndarray of int
    """

    def __init__(self, b: Builder, values: Indices) -> None:
        self.b, self.values = b, values
        steps = np.diff(values)
        self.step = int(steps[0]) if len(steps) and np.all(steps == steps[0]) else None
        self._table: str | None = None

    def __getitem__(self, index: int | Index) -> int | Index:
        if isinstance(index, int):
            return int(self.values[index])
        if self.step is not None:
            first = int(self.values[0])
            value = index.value if self.step == 1 else self.b.new(f"mul nsw i64 {index.value}, {self.step}")
            return Index(value, first + index.offset * self.step)
        if self._table is None:
            self._table = self.b.index_table(self.values)
        return self.b.load_index(self._table, index)


def shared_leaves(tree: ModeTree) -> tuple[Indices, Indices, Indices]:
    """First leaf of every mode; then, of every further leaf of a mode, that leaf and the first one."""
    first = np.unique(tree.leaf_to_mode, return_index=True)[1]
    others = np.setdiff1d(np.arange(tree.n_leaves), first)
    return first, others, first[tree.leaf_to_mode[others]]
