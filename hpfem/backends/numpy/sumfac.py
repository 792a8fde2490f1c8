"""Sum factorisation over the mode tree, as batched products with elements fastest ([Xing] Alg. 3), and collocation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from hpfem.shapes import ModeTree, Tabulation
from hpfem.shapes.arrays import Floats, Indices

from .plan import ADD, Plans, Step


class Collocation:
    """Collocated derivatives of a chunk of elements, elements fastest."""

    def __init__(self, tabulation: Tabulation, dtype: DTypeLike) -> None:
        counts, matrices = tabulation.rule.counts, tabulation.differentiation
        # Views [points before, Q_k, the rest] whose middle axis runs along direction k, or through all points.
        before = [int(np.prod(counts[:k], dtype=int)) if tabulation.rule.tensor else 1 for k in range(len(matrices))]
        self._lines = [(n, len(matrix), -1) for n, matrix in zip(before, matrices, strict=True)]
        self._matrices = [np.ascontiguousarray(d, dtype) for d in matrices]
        self._transposes = [np.ascontiguousarray(d.T, dtype) for d in matrices]

    def allocate(self) -> None:
        """Begin the plans, which are made for the buffers of a kernel."""
        self._plans = Plans()

    def _differentiation(self, values: Floats, out: Floats) -> Iterator[Step]:
        for matrix, lines, derivative in zip(self._matrices, self._lines, out, strict=True):
            yield matrix, values.reshape(lines), derivative.reshape(lines)

    def _transposition(self, fluxes: Floats, work: Floats, out: Floats, overwrite: bool) -> Iterator[Step]:
        for k, (matrix, lines) in enumerate(zip(self._transposes, self._lines, strict=True)):
            target = out if overwrite and k == 0 else work
            yield matrix, fluxes[k].reshape(lines), target.reshape(lines)
            if target is work:
                yield ADD, work, out

    def differentiate(self, values: Floats, out: Floats) -> None:
        """Derivatives by collapsed coordinates; values [Q, lanes], out [dim, Q, lanes]."""
        self._plans.run(self._differentiation, values, out)

    def add_transpose(self, fluxes: Floats, work: Floats, out: Floats, overwrite: bool) -> None:
        """Out (+)= sum_k D_k^T fluxes[k]; fluxes [dim, Q, lanes], work, out [Q, lanes]."""
        self._plans.run(self._transposition, fluxes, work, out, overwrite)


@dataclass(frozen=True)
class _Group:
    """Nodes of one level whose children are the same functions: one batched product."""

    parents: slice
    children: slice
    batch: int
    functions: slice


class _Level:
    """One direction of the tree, equal rows beside each other: its nodes in `order`, the next level's as `children`."""

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
    """Evaluation and testing of a chunk of elements by sum factorisation; see `Dense`."""

    def __init__(self, tabulation: Tabulation, lanes: int, dtype: DTypeLike, gradients: bool) -> None:
        tree, counts = tabulation.basis.tree, tabulation.rule.counts
        self._dim, self._gradients, self._dtype = tree.dim, gradients, np.dtype(dtype)
        self._levels = [_Level(tree, k) for k in range(tree.dim)]
        self._values = [self._matrices(k, table) for k, table in enumerate(tabulation.values)]
        self._derivatives = [self._matrices(k, table) for k, table in enumerate(tabulation.derivatives) if gradients]
        # Between levels: rows as they are stored -> rows as the level above wants them, and back.
        self._down: list[Indices | None] = [None] * tree.dim
        self._up: list[Indices | None] = [None] * tree.dim
        for k in range(1, tree.dim):
            down = np.argsort(self._levels[k].order)[self._levels[k - 1].children]
            self._down[k], self._up[k] = _unless_identity(down), _unless_identity(np.argsort(down))
        leaf_to_mode = tree.leaf_to_mode[self._levels[-1].children]
        self._gather = _unless_identity(leaf_to_mode)
        # Leaves -> modes: the first leaf of each mode, then what the shared modes add, in layers.
        order = np.argsort(leaf_to_mode, kind="stable")
        rank = np.arange(len(order)) - np.searchsorted(leaf_to_mode[order], leaf_to_mode[order])
        self._first = _unless_identity(order[rank == 0])
        self._layers = [(leaf_to_mode[order[rank == r]], order[rank == r]) for r in range(1, int(rank.max()) + 1)]
        transform = tabulation.basis.transform
        self._transform = None if transform is None else np.ascontiguousarray(transform, dtype)
        self._transform_t = None if transform is None else np.ascontiguousarray(transform.T, dtype)
        rest = [int(np.prod(counts[k:], dtype=int)) for k in range(tree.dim)]
        self._sizes = [(tree.n_nodes(k), rest[k] * lanes) for k in range(tree.dim)]
        self._ends = (tree.n_leaves, lanes), (tree.n_modes, lanes)

    def allocate(self) -> None:
        """Make the scratch, and forget the plans for what was there before."""
        dtype, sizes = self._dtype, self._sizes
        self._plans = Plans()
        self._leaves, self._modes = (np.empty(size, dtype) for size in self._ends)
        # At level k: the value's chain and the derivatives of directions k to dim - 1.
        chains = [self._dim - k + 1 if self._gradients else 1 for k in range(self._dim)]
        self._work = [[np.empty(size, dtype) for _ in range(n)] for n, size in zip(chains, sizes, strict=True)]
        self._sorted = [[np.empty(size, dtype) for _ in range(n)] for n, size in zip(chains, sizes, strict=True)]
        self._sum = [np.empty(size, dtype) for size in [*sizes[1:], self._ends[0]] if self._gradients]

    def _matrices(self, k: int, table: Floats) -> list[tuple[Floats, Floats]]:
        rows = [table[group.functions] for group in self._levels[k].groups]
        return [(np.ascontiguousarray(row.T, self._dtype), np.ascontiguousarray(row, self._dtype)) for row in rows]

    def _expand(self, k: int, matrices: list[tuple[Floats, Floats]], source: Floats, out: Floats) -> Iterator[Step]:
        """Products of one direction, children to points: source [children, rest] -> out [nodes, Q_k * rest]."""
        for group, (matrix, transpose) in zip(self._levels[k].groups, matrices, strict=True):
            children = source[group.children].reshape(group.batch, len(transpose), -1)
            yield matrix, children, out[group.parents].reshape(group.batch, len(matrix), -1)

    def _contract(self, k: int, matrices: list[tuple[Floats, Floats]], source: Floats, out: Floats) -> Iterator[Step]:
        """Transpose of `_expand`: source [nodes, Q_k * rest] -> out [children, rest]."""
        for (_, children, nodes), (_, transpose) in zip(self._expand(k, matrices, out, source), matrices):
            yield transpose, nodes, children

    def _to_leaves(self, modes: Floats) -> Floats:
        if self._transform is not None:
            modes = np.matmul(self._transform, modes, out=self._modes)
        return modes if self._gather is None else np.take(modes, self._gather, axis=0, out=self._leaves, mode="clip")

    def _from_leaves(self, out: Floats) -> None:
        """Scatter-add the leaves to modes, into `out`."""
        modes = out if self._transform_t is None else self._modes
        if self._first is None:
            np.copyto(modes, self._leaves[: len(modes)])
        else:
            np.take(self._leaves, self._first, axis=0, out=modes, mode="clip")
        for mode, leaf in self._layers:
            modes[mode] += self._leaves[leaf]
        if self._transform_t is not None:
            np.matmul(self._transform_t, modes, out=out)

    def _evaluation(self, leaves: Floats, value: Floats | None, gradient: Floats | None) -> list[Step]:
        steps: list[Step] = []
        current = [leaves]  # the value's chain, then the derivatives of the directions done, last one first
        for k in range(self._dim - 1, 0, -1):
            targets = self._work[k][: len(current) + (gradient is not None)]
            steps += self._expand(k, self._values[k], current[0], targets[0])
            if gradient is not None:
                steps += self._expand(k, self._derivatives[k], current[0], targets[-1])
            for source, target in zip(current[1:], targets[1:]):
                steps += self._expand(k, self._values[k], source, target)
            current = self._moved(steps, self._down[k], targets, self._sorted[k])
        if gradient is not None:
            steps += self._expand(0, self._derivatives[0], current[0], gradient[0].reshape(1, -1))
            for source, target in zip(current[1:], gradient[::-1]):
                steps += self._expand(0, self._values[0], source, target.reshape(1, -1))
        if value is not None:
            steps += self._expand(0, self._values[0], current[0], value.reshape(1, -1))
        return steps

    def _testing(self, value: Floats | None, fluxes: Floats | None) -> list[Step]:
        steps: list[Step] = []
        chain = None if value is None else value.reshape(1, -1)
        derivatives = [] if fluxes is None else [flux.reshape(1, -1) for flux in fluxes]  # directions k.. at level k
        for k in range(self._dim):
            last = k + 1 == self._dim
            targets = [self._leaves] if last else self._work[k + 1][: max(1, len(derivatives))]
            if derivatives:
                steps += self._contract(k, self._derivatives[k], derivatives[0], targets[0])
            if chain is not None:
                total = self._sum[k] if derivatives else targets[0]
                steps += self._contract(k, self._values[k], chain, total)
                steps += [(ADD, total, targets[0])] * bool(derivatives)
            for source, target in zip(derivatives[1:], targets[1:], strict=True):
                steps += self._contract(k, self._values[k], source, target)
            if not last:
                chain, *derivatives = self._moved(steps, self._up[k + 1], targets, self._sorted[k + 1])
        return steps

    @staticmethod
    def _moved(
        steps: list[Step], permutation: Indices | None, sources: list[Floats], targets: list[Floats]
    ) -> list[Floats]:
        """Rows in another order: a step each, unless the order is the same."""
        if permutation is None:
            return sources
        moves = [(permutation, source, target) for source, target in zip(sources, targets)]
        steps += moves
        return [target for _, _, target in moves]

    def evaluate(self, modes: Floats, out: Floats) -> None:
        """Evaluate at the points; see `Dense.evaluate`."""
        self._plans.run(self._evaluation, self._to_leaves(modes), out, None)

    def evaluate_gradient(self, modes: Floats, value: Floats | None, out: Floats) -> None:
        """Differentiate at the points; see `Dense.evaluate_gradient`."""
        self._plans.run(self._evaluation, self._to_leaves(modes), value, out)

    def test_value(self, values: Floats, out: Floats) -> None:
        """Test with the basis; see `Dense.test_value`."""
        self._plans.run(self._testing, values, None)
        self._from_leaves(out)

    def test_gradients(self, value: Floats | None, fluxes: Floats, out: Floats) -> None:
        """Test with the derivatives of the basis, and its values; see `Dense.test_gradients`."""
        self._plans.run(self._testing, value, fluxes)
        self._from_leaves(out)
