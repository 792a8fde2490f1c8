"""A basis on a rule for kernels in three directions: tables and mode tree; missing directions are made trivial."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpfem.shapes import Tabulation
from hpfem.shapes.arrays import Array, Indices

from ....forms.form import BlockProblem
from ....geometry.jacobians import inverse_collapse

# Numbers of fields from which on they decide about the order of directions: six and ten were measured. Of coupled
# components that gains a tenth to a fifth with 4 to 6 points in a line, and with 8 it costs half of the time.
MANY, _SHORT = 4, 6


def read_at_points(problem: BlockProblem) -> int:
    """Count the numbers of fields that a kernel reads at a point."""
    return 0 if problem.form.trace is None else sum(key[0] == "field" for key in problem.form.trace.inputs)


@dataclass(eq=False)
class Levels:
    """Tables of a basis on a rule, in three directions."""

    counts: tuple[int, ...]  # points per direction
    values: list[Array]  # of 1-D functions, [n_functions, Q_k]
    derivatives: list[Array]
    differentiation: list[Array]  # [Q_k, Q_k]
    start: list[Indices]  # per level 0, 1, 2 and node: first function, number and first of its children
    count: list[Indices]
    child: list[Indices]
    leaf_to_mode: Indices
    n_modes: int
    dim: int  # directions that are not trivial
    # Whether the directions are the basis' last first: modes that are next to each other in memory then belong to
    # different lines of the direction that a kernel begins and ends with, and it reads them coalesced.
    reverse: bool = False

    def __post_init__(self) -> None:
        self.n_rows, self.n_nodes, self.n_leaves = len(self.start[1]), len(self.start[2]), len(self.leaf_to_mode)
        # Whether the third direction is none, leaf l is mode l, and every mode is one leaf.
        self.trivial = self.counts[2] == 1 and self.n_leaves == self.n_nodes and len(self.values[2]) == 1
        self.identity = np.array_equal(self.leaf_to_mode, np.arange(self.n_modes))
        self.injective = self.n_modes == self.n_leaves

    @classmethod
    def plain(cls, tabulation: Tabulation, lines: bool = False) -> Levels:
        """Tables of a tabulation, directions in its order; of a rule without directions, points are those of the first
        one, or `lines`, and there is no tree.
        """
        tree, rule, dim = tabulation.basis.tree, tabulation.rule, tabulation.basis.shape.dim
        if not rule.tensor:
            counts = (1, len(rule), 1) if lines else (len(rule), 1, 1)
            one, zero, node = [np.ones((1, 1))] * 3, [np.zeros((1, 1))] * 3, [np.zeros(1, np.int64)] * 3
            return cls(counts, one, zero, zero, node, [n + 1 for n in node], node, node[0], tree.n_modes, dim)
        more = 3 - dim
        start = [*tree.start, *[np.zeros(tree.n_leaves, np.int64)] * more]
        count = [*tree.count, *[np.ones(tree.n_leaves, np.int64)] * more]
        ones, zeros = [np.ones((1, 1))] * more, [np.zeros((1, 1))] * more
        values, derivatives = [*tabulation.values, *ones], [*tabulation.derivatives, *zeros]
        tables = values, derivatives, [*tabulation.differentiation, *zeros]
        nodes = start, count, [np.cumsum(n) - n for n in count]
        return cls((*rule.counts, *[1] * more), *tables, *nodes, tree.leaf_to_mode, tree.n_modes, dim)

    @classmethod
    def of(cls, problem: BlockProblem) -> Levels:
        """Tables for sumfac_top.h: products of segments have their directions last first, unless those of three read
        many fields, or write many numbers at points, which those of a warp have beside each other then; see
        `Levels.plain`.
        """
        tabulation, made = problem.tabulation, cls.plain(problem.tabulation)
        if not (tabulation.rule.tensor and tabulation.basis.tree.product):
            return made
        if made.dim > 2 and not problem.form.to_modes and problem.given >= MANY:
            return made
        many = made.dim > 2 and read_at_points(problem) >= MANY
        return made if many and (problem.form.components == 1 or made.counts[2] <= _SHORT) else made._reversed()

    def _reversed(self) -> Levels:
        order = [*range(self.dim)[::-1], *range(self.dim, 3)]
        sizes = [int(self.count[k][0]) for k in order]
        nodes = np.cumprod([1, *sizes])[:3]
        return replace(
            self,
            counts=tuple(self.counts[k] for k in order),
            values=[self.values[k] for k in order],
            derivatives=[self.derivatives[k] for k in order],
            differentiation=[self.differentiation[k] for k in order],
            start=[np.full(n, self.start[k][0]) for n, k in zip(nodes, order, strict=True)],
            count=[np.full(n, size) for n, size in zip(nodes, sizes, strict=True)],
            child=[size * np.arange(n) for n, size in zip(nodes, sizes, strict=True)],
            leaf_to_mode=np.arange(self.n_modes).reshape(sizes[: self.dim][::-1]).transpose().ravel(),
            reverse=True,
        )

    def points(self, values: NDArray[Any], axis: int) -> NDArray[Any]:
        """Values at the points of a rule in the order of these directions."""
        if not self.reverse:
            return values
        shape = values.shape
        split = values.reshape(*shape[:axis], *self.counts[: self.dim][::-1], *shape[axis + 1 :])
        return split.swapaxes(axis, axis + self.dim - 1).reshape(shape)

    @property
    def grid(self) -> bool:
        """Whether functions are products of those of three directions, in the basis' order."""
        return self.identity and not self.reverse and not self.trivial and self.uniform(1) and self.uniform(2)

    def uniform(self, level: int) -> bool:
        """Whether all nodes of a level have the same functions as children."""
        start, count = self.start[level], self.count[level]
        return bool(np.all(start == start[0]) and np.all(count == count[0]))

    def chains(self) -> tuple[Indices, Indices]:
        """Leaves by their modes; -> first [n_modes], following [n_leaves]."""
        first, following = np.full(self.n_modes, -1), np.full(self.n_leaves, -1)
        for leaf in range(self.n_leaves - 1, -1, -1):
            mode = self.leaf_to_mode[leaf]
            following[leaf], first[mode] = first[mode], leaf
        return first, following


@dataclass(frozen=True, eq=False)
class Collapse:
    """The matrix K = d eta / d xi at the points of a rule, entry by entry as products of 1-D functions."""

    ones: tuple[bool, ...]  # per direction, whether K[a][a] is constantly 1
    entries: list[tuple[int, int]]  # those that are not constantly 0 or 1 (off-diagonal ones are never 1)
    x: Array  # [n_entries, Q_1]
    yz: Array  # [n_entries, Q_2 Q_3]
    weights_x: Array
    weights_yz: Array

    @classmethod
    def none(cls, dim: int) -> Collapse:
        """No entries, where the collapse is part of the stored factors."""
        return cls((False,) * dim, [], *[np.zeros(1)] * 4)

    @classmethod
    def of(cls, tabulation: Tabulation, levels: Levels) -> Collapse:
        """Collapse of a tabulation's shape at its rule."""
        rule, shape = tabulation.rule, tabulation.basis.shape
        inverse = inverse_collapse(shape, rule.eta)
        if levels.reverse:
            inverse = inverse[:, ::-1, ::-1]
        inverse = levels.points(inverse, 0).reshape(levels.counts[0], -1, shape.dim, shape.dim)
        weights = levels.points(rule.weights, 0).reshape(levels.counts[0], -1)
        ones, entries = list[bool](), list[tuple[int, int]]()
        x: Any = []
        yz: Any = []
        for a in range(shape.dim):
            for b in range(shape.dim):
                entry = inverse[..., a, b]
                if a == b:
                    ones.append(bool(np.allclose(entry, 1, atol=1e-14, rtol=0)))
                if not (ones[-1] if a == b else np.allclose(entry, 0, atol=1e-13, rtol=0)):
                    first, second = separated(entry)
                    entries.append((a, b))
                    x.append(first)
                    yz.append(second)
        x, yz = (np.array(own).reshape(len(entries), n) for own, n in zip((x, yz), weights.shape, strict=True))
        return cls(tuple(ones), entries, x, yz, *separated(weights))


def separated(matrix: NDArray[Any]) -> tuple[Array, Array]:
    """Factors a, b of a matrix a[i] b[j]; matrix [I, J]."""
    i, j = np.unravel_index(np.argmax(np.abs(matrix)), matrix.shape)
    first, second = matrix[:, j] / matrix[i, j], matrix[i]
    assert np.allclose(np.outer(first, second), matrix, rtol=1e-12, atol=1e-13 * np.abs(matrix).max())
    return first, second
