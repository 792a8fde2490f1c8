"""The part of a kernel that walks the mode tree: scratch, one-dimensional matrices, leaves to rows of eta_1 and back.

Level k holds, for every node of the tree at that level, the points of directions k and above:
node * block[k] + point. Nodes of equal rows share one unrolled body.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Many
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....forms.form import BlockProblem
from .factors import Factors
from .ir import Builder, Index, Pack
from .levels import Sequence, groups, shared_leaves
from .line import Line
from .pointwise import CalledExpressions

Array = NDArray[np.floating[Any]]
Name = tuple[Any, ...]

# Rows of a dense product that are formed together.
DENSE_ROWS = 8


class TreePasses:
    """Writer of the passes over the tree, and what all passes share.

    Parameters
    ----------
    problem : BlockProblem
    lanes : int
        Elements of a group.
    width : int
        Fibers that share their coefficients.
    prefetch : bool
        Whether the next group's geometry and input are fetched while a group is worked on: for data out of cache.
    """

    def __init__(self, problem: BlockProblem, lanes: int, width: int = 1, prefetch: bool = False) -> None:
        self.p, self.width, self.prefetch = problem, width, prefetch
        self.b = Builder(lanes, problem.dtype)
        form, tabulation = problem.form, problem.tabulation
        self.tree, self.counts, self.dim = tabulation.basis.tree, tabulation.rule.counts, problem.shape.dim
        self.space_dim = problem.geometry.space_dim
        self.n = form.components
        self.trace = form.trace
        self.called: CalledExpressions | None = None
        self.form = form
        self.by_rows = form.gradients and problem.collocated
        self.direction = self.dim - 1 if self.by_rows else 0
        self.groups = [groups(self.tree, k) for k in range(self.dim)]
        self.first, self.others, self.targets = shared_leaves(self.tree)
        self.rest = [int(np.prod(self.counts[k + 1 :])) for k in range(self.dim)]
        self.block = [0] * (self.dim + 1)
        self.block[self.dim] = 1
        for k in range(self.dim - 1, -1, -1):
            self.block[k] = self.counts[k] * self.block[k + 1]
            if k == 1:
                self.block[k] |= 1  # odd strides of eta_1 fibers: no two of their vectors in one cache set
        self.plane = self.block[1]
        self.n_points = self.counts[0] * self.plane
        self.factors = Factors(self.b, problem, self.direction)
        self.scratch_size = 0
        self._places: dict[Name, int] = {}
        self._pointers: dict[Name, str] = {}
        self._lines: dict[tuple[str, int, int, bool], Line] = {}
        # Of the group at work: its number, the pointwise function's parameters, where its points are.
        self.group = Index("%group")
        self.parameters: dict[str, str] = {}
        self.coordinates: Pack = ()

    # --- scratch --------------------------------------------------------------------------------------------------

    def area(self, *name: Any, size: int) -> str:
        """Pointer to a named area of the scratch buffer, made when first asked for."""
        if name not in self._places:
            self._places[name] = self.scratch_size
            self.scratch_size += size + (size + 1) % 2
            # Written once, at the head of the kernel.
            label = "%a_" + "_".join(str(part) for part in name)
            self._pointers[name] = label
        return self._pointers[name]

    def leaves(self, c: int) -> str:
        """The leaves of a component."""
        return self.level(self.dim, "v", c)

    def level(self, k: int, chain: str, c: int) -> str:
        """Level k of a chain ("v" the value, "s0".. the derivative of a direction) of component c."""
        if k == 1 or self.dim == 1:
            return self.area("level", 1, chain, c, size=self.tree.n_nodes(1) * self.block[1])
        return self.area("level", k, chain, size=self.tree.n_nodes(k) * self.block[k])

    def values(self, c: int) -> str:
        """Values at the points."""
        return self.area("u", c, size=self.n_points)

    # --- one-dimensional matrices ---------------------------------------------------------------------------------

    def weights(self, direction: int) -> Array:
        """What the matrices that test carry: the rule's weights for affine elements."""
        n = self.counts[direction]
        if not self.p.geometry.affine:
            return np.ones(n)
        return self.p.tabulation.rule.rules[direction].weights

    def line(self, kind: str, direction: int, functions: slice, test: bool) -> Line:
        """Table of some 1-D functions ("B") or their derivatives ("S"), points by functions."""
        key = (kind, direction, functions.start, test)
        if key not in self._lines:
            tables = self.p.tabulation.values if kind == "B" else self.p.tabulation.derivatives
            matrix = tables[direction][functions].T
            self._lines[key] = Line(matrix * self.weights(direction)[:, None] if test else matrix)
        return self._lines[key]

    def derivative(self, direction: int, test: bool = False) -> Line:
        """Differentiation matrix; to test with, the one that commutes with the weights that come after."""
        key = ("D", direction, 0, test)
        if key not in self._lines:
            matrix, w = self.p.tabulation.differentiation[direction], self.weights(direction)
            self._lines[key] = Line(w[:, None] * matrix / w[None, :] if test else matrix)
        return self._lines[key]

    # --- the tree -------------------------------------------------------------------------------------------------

    def walk(self, k: int, body: Callable[[slice, Any, Any, Any], None]) -> None:
        """Run a body over the fibers of level k: (functions, node, first child, point across)."""
        b = self.b
        for group in self.groups[k]:
            nodes, children = Sequence(b, group.nodes), Sequence(b, group.children)
            if self.rest[k] == 1:

                def alone(pack: Any, f: slice = group.functions, n: Sequence = nodes, c: Sequence = children) -> None:
                    body(f, tuple(n[i] for i in pack), tuple(c[i] for i in pack), 0)

                self.fibers(len(group.nodes), self.width, alone)
                continue

            def across(t: int | Index, f: slice = group.functions, n: Sequence = nodes, c: Sequence = children) -> None:
                node, child = n[t], c[t]
                self.fibers(self.rest[k], self.width, lambda pack: body(f, node, child, pack))

            if len(group.nodes) == 1:
                across(0)
            else:
                with b.loop(len(group.nodes)) as t:
                    across(t)

    def evaluate(self, k: int, c: int, chains: Many[str]) -> None:
        """Level k from level k + 1, of the chains wanted at level k."""
        b, inner = self.b, self.block[k + 1]

        def body(functions: slice, node: Any, child: Any, across: Any) -> None:
            n = functions.stop - functions.start
            sources: dict[str, list[Pack]] = {}
            for chain in chains:
                below = "v" if chain == f"s{k}" else chain
                if below not in sources:
                    start = b.at(self.level(k + 1, below, c), (child, inner), (across, 1))
                    sources[below] = b.load_fiber(start, inner, n)
                line = self.line("S" if chain == f"s{k}" else "B", k, functions, False)
                result = line.apply(b, sources[below])
                b.store_fiber(result, b.at(self.level(k, chain, c), (node, self.block[k]), (across, 1)), inner)

        self.walk(k, body)

    def test(self, k: int, c: int, chains: Many[str]) -> None:
        """Level k + 1 from the chains of level k: the transpose of `evaluate`."""
        b, q, inner = self.b, self.counts[k], self.block[k + 1]

        def body(functions: slice, node: Any, child: Any, across: Any) -> None:
            results: dict[str, list[Pack]] = {}
            for chain in chains:
                below = "v" if chain == f"s{k}" else chain
                start = b.at(self.level(k, chain, c), (node, self.block[k]), (across, 1))
                fiber = b.load_fiber(start, inner, q)
                line = self.line("S" if chain == f"s{k}" else "B", k, functions, True)
                results[below] = line.test(b, fiber, results.get(below))
            for below, result in results.items():
                b.store_fiber(result, b.at(self.level(k + 1, below, c), (child, inner), (across, 1)), inner)

        self.walk(k, body)

    def chains(self, k: int, value: bool, gradient: bool) -> list[str]:
        """Chains of level k: the value, and derivatives of directions k and above."""
        derivatives = [f"s{j}" for j in range(k, self.dim)] if gradient else []
        # The derivative of a direction below k will start from the value.
        return (["v"] if value or (gradient and k) else []) + derivatives

    def root(self) -> slice:
        """Functions of eta_1."""
        return self.groups[0][0].functions

    def fibers(self, n: int, width: int, body: Callable[[Any], None]) -> None:
        """Run a body over packs of fibers, each of which prefetches its share of the next group."""

        def with_prefetch(pack: Any) -> None:
            if self.prefetch:
                self.b.prefetch()
            body(pack)

        self.b.packs(n, width, with_prefetch)

    def share(self, leaves: str, scatter: bool) -> None:
        """Copy the first leaf of shared modes to the others, or add the others to it."""
        if not len(self.others):
            return
        b, others, targets = self.b, Sequence(self.b, self.others), Sequence(self.b, self.targets)

        def body(i: int | Index) -> None:
            other, first = b.at(leaves, (others[i], 1)), b.at(leaves, (targets[i], 1))
            if scatter:
                b.store(b.add(b.load(first), b.load(other)), first)
            else:
                b.store(b.load(first), other)

        if len(self.others) == 1:
            body(0)
        else:
            with b.loop(len(self.others)) as i:
                body(i)

    def dense(self, matrix: Array, source: str, target: str) -> None:
        """Write matrix @ source to target, a few rows at a time."""
        b, (rows, columns) = self.b, matrix.shape
        full, rest = divmod(rows, DENSE_ROWS)

        def some(first: int | Index, n: int, table: str, base: int | Index) -> None:
            start = self.b.at(table, (base, DENSE_ROWS * columns), unit=b.real)[0]

            def column(j: Index, sums: list[Pack]) -> list[Pack]:
                x = b.load(b.at(source, (j, 1)))
                return [b.fma(b.load_scalar(start, (j, n), (i, 1)), x, s) for i, s in enumerate(sums)]

            sums = b.reduce(columns, [(b.splat(0.0),)] * n, column)
            for i, s in enumerate(sums):
                b.store(s, b.at(target, (first, DENSE_ROWS), (i, 1)))

        if full:
            blocks = matrix[: full * DENSE_ROWS].reshape(full, DENSE_ROWS, columns).transpose(0, 2, 1)
            table = b.real_table(blocks)
            with b.loop(full) as i:
                some(i, DENSE_ROWS, table, i)
        if rest:
            some(full, rest, b.real_table(matrix[full * DENSE_ROWS :].T), 0)
