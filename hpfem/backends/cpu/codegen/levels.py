"""The mode tree as loops: nodes of equal rows share one unrolled body."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpfem.shapes import ModeTree
from hpfem.shapes.arrays import Indices

from .ir import Builder, Where


@dataclass(frozen=True)
class Group:
    """Nodes of a level whose children are the same functions."""

    functions: slice  # of the direction's table
    nodes: Indices  # number of each in its level
    children: Indices  # number of the first child of each in the next level


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


class Integers:
    """Integers that a loop walks through: an arithmetic progression, or a table."""

    def __init__(self, b: Builder, values: Indices) -> None:
        self._b, self._values = b, values
        steps = np.diff(values)
        self._step = int(steps[0]) if len(steps) and np.all(steps == steps[0]) else None

    def __getitem__(self, index: Where) -> Where:
        if isinstance(index, int):
            return int(self._values[index])
        if self._step is None:
            return self._b.load_index(self._b.index_table(self._values), index)
        return self._b.index((int(self._values[0]), 1), (index, self._step))
