"""Sum factorisation over the mode tree, as batched matrix products with elements fastest ([X] Alg. 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hpfem.shapes import ModeTree, Tabulation

from .plan import Plans, Step

Array = NDArray[np.floating[Any]]
Indices = NDArray[np.int64]


_ADD: Array = np.empty(0)


@dataclass(frozen=True)
class _Group:
    """Nodes of one level whose children are the same functions: one batched product."""

    parents: slice
    children: slice
    batch: int
    functions: slice


class _Level:
    """One direction of the tree: nodes sorted so that equal rows are adjacent.

    Attributes
    ----------
    order : ndarray
        Nodes of the level in the order in which their results are stored.
    children : ndarray
        Nodes of the next level in the order in which they are wanted.
    """

    def __init__(self, tree: ModeTree, level: int) -> None:
        start, count = tree.start[level], tree.count[level]
        self.order = np.lexsort((np.arange(len(start)), count, start))
        first = np.cumsum(count) - count
        self.children = np.concatenate([np.arange(first[p], first[p] + count[p]) for p in self.order])
        rows = np.column_stack([start[self.order], count[self.order]])
        breaks = np.flatnonzero(np.any(np.diff(rows, axis=0) != 0, axis=1)) + 1
        self.groups: list[_Group] = []
        child = 0
        for part in np.split(np.arange(len(rows)), breaks):
            s, c = (int(v) for v in rows[part[0]])
            end = child + c * len(part)
            group = _Group(slice(int(part[0]), int(part[-1]) + 1), slice(child, end), len(part), slice(s, s + c))
            self.groups.append(group)
            child = end


def _unless_identity(permutation: Indices) -> Indices | None:
    return None if np.array_equal(permutation, np.arange(len(permutation))) else permutation


class SumFac:
    """Evaluation and testing of a chunk of elements by sum factorisation, in scratch that `allocate` makes.

    Parameters
    ----------
    tabulation : Tabulation
    lanes : int
        Elements of a chunk.
    dtype : dtype
    gradients : bool
        Whether gradients are evaluated or tested without collocation.
    """

    def __init__(self, tabulation: Tabulation, lanes: int, dtype: DTypeLike, gradients: bool) -> None:
        tree = tabulation.basis.tree
        self.dim, self.lanes = tree.dim, lanes
        self.counts = tabulation.rule.counts
        self.n_modes = tabulation.basis.n_modes
        self.levels = [_Level(tree, k) for k in range(tree.dim)]
        self.values = [self._matrices(k, table, dtype) for k, table in enumerate(tabulation.values)]
        self.derivatives = (
            [self._matrices(k, table, dtype) for k, table in enumerate(tabulation.derivatives)] if gradients else []
        )
        # Between levels: rows as they are stored -> rows as the level above wants them, and back.
        self.down: list[Indices | None] = [None] * tree.dim
        self.up: list[Indices | None] = [None] * tree.dim
        for k in range(1, tree.dim):
            position = np.empty(len(self.levels[k].order), dtype=np.int64)
            position[self.levels[k].order] = np.arange(len(position))
            self.down[k] = _unless_identity(position[self.levels[k - 1].children])
            self.up[k] = _unless_identity(np.argsort(position[self.levels[k - 1].children]))
        leaf_to_mode = tree.leaf_to_mode[self.levels[-1].children]
        self.gather = _unless_identity(leaf_to_mode)
        self._plan_scatter(leaf_to_mode, tree.n_modes)

        self.transform = self.transform_t = None
        if tabulation.basis.transform is not None:
            self.transform = np.ascontiguousarray(tabulation.basis.transform, dtype)
            self.transform_t = np.ascontiguousarray(tabulation.basis.transform.T, dtype)
        self._dtype, self._gradients = np.dtype(dtype), gradients
        rest = [int(np.prod(self.counts[k:], dtype=int)) for k in range(tree.dim + 1)]
        self._sizes = [(tree.n_nodes(k), rest[k] * lanes) for k in range(tree.dim)]
        self._ends = (tree.n_leaves, lanes), (tree.n_modes, lanes)

    def allocate(self) -> None:
        """Make the scratch, and forget the plans for what was there before."""
        dtype, sizes = self._dtype, self._sizes
        self._plan = Plans()
        self.leaves, self.modes = (np.empty(size, dtype) for size in self._ends)
        # At level k: the value's chain and the derivatives of directions k to dim - 1.
        chains = [self.dim - k + 1 if self._gradients else 1 for k in range(self.dim)]
        self.work = [[np.empty(size, dtype) for _ in range(n)] for n, size in zip(chains, sizes, strict=True)]
        self.sorted = [[np.empty(size, dtype) for _ in range(n)] for n, size in zip(chains, sizes, strict=True)]
        self.sum = [np.empty(size, dtype) for size in [*sizes[1:], self._ends[0]]] if self._gradients else []

    def _matrices(self, k: int, table: Array, dtype: DTypeLike) -> list[tuple[Array, Array]]:
        rows = [table[group.functions] for group in self.levels[k].groups]
        return [(np.ascontiguousarray(row.T, dtype), np.ascontiguousarray(row, dtype)) for row in rows]

    def _plan_scatter(self, leaf_to_mode: Indices, n_modes: int) -> None:
        """Leaves -> modes: the first leaf of each mode, then what the shared modes add, in layers."""
        order = np.argsort(leaf_to_mode, kind="stable")
        rank = np.arange(len(order)) - np.searchsorted(leaf_to_mode[order], leaf_to_mode[order])
        self.first = _unless_identity(order[rank == 0])
        self.layers = [(leaf_to_mode[order[rank == r]], order[rank == r]) for r in range(1, int(rank.max()) + 1)]

    def _expand(self, k: int, matrices: list[tuple[Array, Array]], source: Array, out: Array) -> list[Step]:
        """Products of one direction, children to points: source [children, rest] -> out [nodes, Q_k * rest]."""
        steps = []
        for group, (matrix, _) in zip(self.levels[k].groups, matrices, strict=True):
            q, c = matrix.shape
            children = source[group.children].reshape(group.batch, c, -1)
            steps.append((matrix, children, out[group.parents].reshape(group.batch, q, -1)))
        return steps

    def _contract(self, k: int, matrices: list[tuple[Array, Array]], source: Array, out: Array) -> list[Step]:
        """Transpose of `_expand`: source [nodes, Q_k * rest] -> out [children, rest]."""
        steps = []
        for group, (_, matrix) in zip(self.levels[k].groups, matrices, strict=True):
            c, q = matrix.shape
            nodes = source[group.parents].reshape(group.batch, q, -1)
            steps.append((matrix, nodes, out[group.children].reshape(group.batch, c, -1)))
        return steps

    def _to_leaves(self, modes: Array) -> Array:
        if self.transform is not None:
            modes = np.matmul(self.transform, modes, out=self.modes)
        return modes if self.gather is None else np.take(modes, self.gather, axis=0, out=self.leaves, mode="clip")

    def _from_leaves(self, out: Array) -> None:
        """Scatter-add `self.leaves` to modes, into `out`."""
        modes = out if self.transform_t is None else self.modes
        if self.first is None:
            np.copyto(modes, self.leaves[: len(modes)])
        else:
            np.take(self.leaves, self.first, axis=0, out=modes, mode="clip")
        for mode, leaf in self.layers:
            modes[mode] += self.leaves[leaf]
        if self.transform_t is not None:
            np.matmul(self.transform_t, modes, out=out)

    def _evaluation(self, leaves: Array, out: Array) -> list[Step]:
        steps, current = [], leaves
        for k in range(self.dim - 1, -1, -1):
            target = self.work[k][0] if k else out.reshape(1, -1)
            steps += self._expand(k, self.values[k], current, target)
            current = self._moved(steps, self.down[k], target, self.sorted[k][0])
        return steps

    def _gradient_evaluation(self, leaves: Array, value: Array, out: Array) -> list[Step]:
        steps: list[Step] = []
        current = [leaves]  # the value's chain, then the derivatives of the directions done, last one first
        for k in range(self.dim - 1, 0, -1):
            targets = self.work[k][: len(current) + 1]
            steps += self._expand(k, self.values[k], current[0], targets[0])
            steps += self._expand(k, self.derivatives[k], current[0], targets[-1])
            for source, target in zip(current[1:], targets[1:-1], strict=True):
                steps += self._expand(k, self.values[k], source, target)
            pairs = zip(targets, self.sorted[k], strict=False)
            current = [self._moved(steps, self.down[k], target, store) for target, store in pairs]
        steps += self._expand(0, self.derivatives[0], current[0], out[0].reshape(1, -1))
        for j, source in enumerate(current[1:]):
            steps += self._expand(0, self.values[0], source, out[self.dim - 1 - j].reshape(1, -1))
        if value is not out:
            steps += self._expand(0, self.values[0], current[0], value.reshape(1, -1))
        return steps

    def _value_test(self, values: Array) -> list[Step]:
        steps, current = [], values.reshape(1, -1)
        for k in range(self.dim):
            target = self.work[k + 1][0] if k + 1 < self.dim else self.leaves
            steps += self._contract(k, self.values[k], current, target)
            if k + 1 < self.dim:
                current = self._moved(steps, self.up[k + 1], target, self.sorted[k + 1][0])
        return steps

    def _gradient_test(self, value: Array, fluxes: Array) -> list[Step]:
        steps: list[Step] = []
        chain = None if value is fluxes else value.reshape(1, -1)
        derivatives = [flux.reshape(1, -1) for flux in fluxes]  # of the directions k.. at level k
        for k in range(self.dim):
            last = k + 1 == self.dim
            targets = [self.leaves] if last else self.work[k + 1][: self.dim - k]
            steps += self._contract(k, self.derivatives[k], derivatives[0], targets[0])
            if chain is not None:
                steps += self._contract(k, self.values[k], chain, self.sum[k])
                steps.append((_ADD, self.sum[k], targets[0]))
            for source, target in zip(derivatives[1:], targets[1:], strict=True):
                steps += self._contract(k, self.values[k], source, target)
            if not last:
                pairs = zip(targets, self.sorted[k + 1], strict=False)
                chain, *derivatives = [self._moved(steps, self.up[k + 1], target, store) for target, store in pairs]
        return steps

    @staticmethod
    def _moved(steps: list[Step], permutation: Indices | None, source: Array, out: Array) -> Array:
        """Rows in another order: a step, unless the order is the same."""
        if permutation is None:
            return source
        steps.append((permutation, source, out))
        return out

    @staticmethod
    def _run(steps: list[Step]) -> None:
        for matrix, source, target in steps:
            if matrix is _ADD:
                target += source
            elif matrix.dtype == np.int64:
                np.take(source, matrix, axis=0, out=target, mode="clip")
            else:
                np.matmul(matrix, source, out=target)

    def evaluate(self, modes: Array, out: Array) -> None:
        """Evaluate at the points; see `Dense.evaluate`."""
        self._run(self._plan(self._evaluation, self._to_leaves(modes), out))

    def evaluate_gradient(self, modes: Array, value: Array | None, out: Array) -> None:
        """Differentiate at the points; see `Dense.evaluate_gradient`."""
        leaves = self._to_leaves(modes)
        self._run(self._plan(self._gradient_evaluation, leaves, out if value is None else value, out))

    def test_value(self, values: Array, out: Array) -> None:
        """Test with the basis; see `Dense.test_value`."""
        self._run(self._plan(self._value_test, values))
        self._from_leaves(out)

    def test_gradients(self, value: Array | None, fluxes: Array, out: Array) -> None:
        """Test with the derivatives of the basis, and its values; see `Dense.test_gradients`."""
        self._run(self._plan(self._gradient_test, fluxes if value is None else value, fluxes))
        self._from_leaves(out)
