"""Numbers in shared memory: rows of the tree's nodes, and a stride without bank conflicts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ....forms.form import BlockProblem
from ..codegen.tables import Levels

BANKS = 32  # of shared memory, 4 bytes wide


def wavefronts(addresses: NDArray[np.int64], itemsize: int) -> NDArray[np.int64]:
    """Shared-memory accesses of a block, by bank conflicts; addresses [candidates, items] -> [candidates]."""
    group = 4 * BANKS // itemsize  # threads that are served at once
    candidates, items = addresses.shape
    groups = -(-items // group)
    # Threads per candidate, group and bank.
    slot = (np.arange(candidates)[:, None] * groups + np.arange(items) // group) * group + addresses % group
    hits = np.bincount(slot.ravel(), minlength=candidates * groups * group)
    return hits.reshape(candidates, groups, group).max(axis=-1).sum(axis=-1)


def row_stride(problem: BlockProblem, levels: Levels, elements: int, rows: tuple[int, int], split: int) -> int:
    """Distance of rows in shared memory, with the fewest bank conflicts over all phases."""
    q1, q2, q3 = levels.counts
    lanes, r2 = q3 * elements, rows[1]
    stride = np.arange(lanes, lanes + 17)[:, None]
    gradients = problem.form.gradients
    collocated, pairs = gradients and problem.collocated, gradients and not problem.collocated
    cost = np.zeros(len(stride))

    def add(weight: float, row: NDArray[np.int64], lane: NDArray[np.int64]) -> None:
        cost[:] += weight * wavefronts(row * stride + lane, problem.dtype.itemsize)

    line, item = np.arange(q2 * lanes), np.arange(q1 * lanes)
    add(2 * levels.n_rows + (7 * q1 if collocated else 4 * levels.n_rows * gradients), line // lanes, line % lanes)
    if collocated:
        add(4 * q2, item // lanes * r2, item % lanes)
        if q3 > 1:
            z = np.arange(q1 * q2 * elements)
            add(4 * q3, z // elements // q2 * r2 + z // elements % q2, z % elements)
    if levels.reverse:  # lines of the last direction, those of an element side by side
        n = levels.n_nodes if q3 > 1 else levels.n_rows
        item = np.arange(n * elements)
        add((2 + 2 * pairs) * max(q2, q3), item % n % levels.n_rows * r2 + item % n // levels.n_rows, item // n)
    if levels.uniform(1) and not (levels.reverse and levels.trivial):
        row = np.arange(levels.n_rows * lanes)
        add((2 + 3 * pairs) * 2 * q2, row // lanes * r2, row % lanes)
    if split:
        nodes = last_nodes(levels, r2)
        item = np.arange(len(nodes) * split)
        add((2 + 2 * pairs) * q3, nodes[item // split, 0], item % split)
    return lanes + int(np.argmin(cost))


def last_nodes(levels: Levels, r2: int) -> NDArray[np.int64]:
    """Lines of the last direction, long ones first, so that a warp's are about as long; -> [lines, 4]."""
    if levels.trivial:
        nodes = [r2 * np.arange(levels.n_rows), levels.child[1], levels.start[1], levels.count[1]]
    else:
        nodes = [node_rows(levels, r2), levels.child[2], levels.start[2], levels.count[2]]
    return np.column_stack(nodes)[np.argsort(-nodes[3], kind="stable")]


def node_rows(levels: Levels, r2: int) -> NDArray[np.int64]:
    """Rows of the nodes of level 2 in shared memory; -> [n_nodes]."""
    parent = np.repeat(np.arange(levels.n_rows), levels.count[1])
    return parent * r2 + np.arange(levels.n_nodes) - levels.child[1][parent]
