"""The sum-factorised kernel of a form, for all shapes, written from the mode tree.

One element per lane, fibers in registers, everything of a group of elements in one scratch buffer:

    leaves  --B_d..B_2-->  rows of eta_1 functions  --points-->  rows  --B_2^T..B_d^T-->  leaves

The middle is one of two passes. By columns (no gradient, or not collocated): fibers along eta_1 are evaluated, go
through the pointwise function in registers and are tested at once. By rows (collocated): fibers along eta_1 are
evaluated and differentiated; then, plane by plane, the other derivatives, the pointwise function along rows of the last
direction, and the transposed derivatives; then fibers along eta_1 are tested. Level k holds, for every node of the tree
at that level, the points of directions k and above:  node * block[k] + point.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Many
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..form import BlockProblem
from .border import Shape, write_reader, write_writer
from .factors import Factors
from .ir import ARGUMENTS, Builder, Index, Pack
from .levels import Sequence, groups, shared_leaves
from .line import Line, join, split
from .pointwise import Expressions

Array = NDArray[np.floating[Any]]
Name = tuple[Any, ...]

# Rows of a dense product that are formed together.
DENSE_ROWS = 8


class Generator:
    """Writer of one kernel.

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
        testing = form.stage == "iproduct_wrt_deriv_base"
        self.trial_gradient = form.stage == "phys_deriv" or (self.trace is not None and self.trace.uses_gradient)
        self.test_gradient = testing or "grad" in form.test
        self.test_value = form.stage == "iproduct_wrt_base" or "value" in form.test
        gradients = self.trial_gradient or self.test_gradient
        self.by_rows = form.stage == "phys_deriv" or (gradients and problem.algorithm == "collocated")
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
        self._calls: list[Callable[[], None]] = []

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
        """Level k of a chain ("v" the value, "s0".. the slope of a direction) of component c."""
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
        """Table of some 1-D functions ("B") or their slopes ("S"), points by functions."""
        key = (kind, direction, functions.start, test)
        if key not in self._lines:
            tables = self.p.tabulation.values if kind == "B" else self.p.tabulation.slopes
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
        """Chains of level k: the value, and slopes of directions k and above."""
        slopes = [f"s{j}" for j in range(k, self.dim)] if gradient else []
        # The slope of a direction below k will start from the value.
        return (["v"] if value or (gradient and k) else []) + slopes

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

    # --- borders --------------------------------------------------------------------------------------------------

    def modes_shape(self) -> Shape:
        """How the modes of an element lie inside."""
        return Shape(self.p.n_modes)

    def points_shape(self, plane: int) -> Shape:
        """How the points of an element lie inside."""
        if plane == self.rest[0]:
            return Shape(self.p.n_points)
        return Shape(self.rest[0], self.counts[0], plane)

    def write_borders(self) -> None:
        """Write the functions that transpose users' arrays."""
        b, stage = self.b, self.p.form.stage
        identity = bool(np.array_equal(self.first, np.arange(len(self.first))))
        slots = None if identity or self.p.tabulation.basis.transform is not None else b.index_table(self.first)
        if stage in ("bwd_trans", "weak"):
            write_reader(b, "read_modes", self.modes_shape(), slots)
        else:
            write_reader(b, "read_values", self.points_shape(self.plane))
        if stage in ("bwd_trans", "phys_deriv"):
            write_writer(b, "write_values", self.points_shape(self.plane))
        else:
            write_writer(b, "write_modes", self.modes_shape(), slots)
        if self.field_inputs():
            write_reader(b, "read_field", self.points_shape(self.rest[0]))

    def call_border(self, name: str, outside: str, inside: str) -> None:
        """Call a function of `write_borders` on the present group."""
        self.b.emit(f"call void @{name}(ptr {outside}, ptr {inside}, i64 {self.group.value}, i64 %last)")

    def component(self, base: str, c: Any, numbers: int) -> str:
        """Pointer to component c of a user's array: (run-time first component, multiplier, constant)."""
        b = self.b
        first, times, more = c
        index = b.new(f"mul nsw i64 {first.value}, {times}") if isinstance(first, Index) else str(first * times)
        index = b.new(f"add nsw i64 {index}, {more}")
        index = b.new(f"mul nsw i64 {index}, %elements")
        index = b.new(f"mul nsw i64 {index}, {numbers}")
        return b.new(f"getelementptr {b.real}, ptr {base}, i64 {index}")

    def read_modes(self, c: Any, into: int) -> None:
        """Modes of a component to its leaves."""
        source = self.component("%in", c, self.p.n_modes)
        transform = self.p.tabulation.basis.transform
        leaves = self.leaves(into)
        if transform is not None:
            nodal = self.area("nodal", size=self.p.n_modes)
            self.call_border("read_modes", source, nodal)
            self.dense(transform[self.tree.leaf_to_mode], nodal, leaves)
            return
        self.call_border("read_modes", source, leaves)
        self.share(leaves, scatter=False)

    def write_modes(self, c: Any, from_: int) -> None:
        """Leaves of a component to its modes."""
        target = self.component("%out", c, self.p.n_modes)
        transform = self.p.tabulation.basis.transform
        leaves = self.leaves(from_)
        if transform is not None:
            nodal = self.area("nodal", size=self.p.n_modes)
            self.dense(transform[self.tree.leaf_to_mode].T, leaves, nodal)
            self.call_border("write_modes", target, nodal)
            return
        self.share(leaves, scatter=True)
        self.call_border("write_modes", target, leaves)

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

    # --- pointwise ------------------------------------------------------------------------------------------------

    def field_inputs(self) -> list[tuple[str, int]]:
        """Field components that the pointwise function uses."""
        if self.trace is None:
            return []
        return sorted((key[1], key[2]) for key in self.trace.inputs if key[0] == "field")

    def parameter_inputs(self) -> list[str]:
        """Parameters that the pointwise function uses."""
        return [] if self.trace is None else sorted(key[1] for key in self.trace.inputs if key[0] == "param")

    def uses_points(self) -> bool:
        """Whether the pointwise function uses x."""
        return self.trace is not None and any(key[0] == "x" for key in self.trace.inputs)

    def start_fields(self) -> None:
        """Fields of the group to vectors."""
        for i, (name, c) in enumerate(self.field_inputs()):
            (entry,) = self.b.at("%fields", (i, 1), unit="ptr")
            source = self.b.new(f"load ptr, ptr {entry}")
            self.call_border("read_field", source, self.area("field", name, c, size=self.p.n_points))

    def physics(
        self, outer: Any, k: int, values: Many[Pack | None], slopes: Many[Many[Pack] | None]
    ) -> tuple[list[Pack | None], list[list[Pack] | None]]:
        """Pointwise function at point k of a fiber: what tests the value, and what tests the slopes, per component."""
        b, factors, trace, n_fiber = self.b, self.factors, self.trace, self.factors.fiber_points
        assert trace is not None
        gradients: dict[int, list[Pack]] = {}

        def source(key: tuple[Any, ...]) -> Pack:
            kind = key[0]
            if kind == "u":
                return values[key[1]] or ()
            if kind == "du":
                if key[1] not in gradients:
                    gradients[key[1]] = factors.physical(k, slopes[key[1]] or ())
                return gradients[key[1]][key[2]]
            if kind == "param":
                return (self._parameters[key[1]],)
            if kind == "x":
                return b.load(b.at(self._points, (outer, n_fiber * self.space_dim)), k * self.space_dim + key[1])
            field = self.area("field", key[1], key[2], size=self.p.n_points)
            if self.by_rows:
                return b.load(b.at(field, (outer, n_fiber)), k)
            return b.load(b.at(field, (outer, 1)), k * self.rest[0])

        node = Expressions(b, trace, source)
        tested: list[Pack | None] = [None] * self.n
        fluxes: list[list[Pack] | None] = [None] * self.n
        for c in range(self.n):
            if trace.value is not None:
                tested[c] = b.mul(node[trace.value[c]], factors.weight(k))
            if trace.scaled is not None:
                fluxes[c] = factors.metric(k, self.combine(node, trace.scaled[c], slopes))
            elif trace.flux is not None:
                fluxes[c] = factors.pull_back(k, [node[component] for component in trace.flux[c]])
        return tested, fluxes

    def combine(self, node: Expressions, terms: dict[int, Any], slopes: Many[Many[Pack] | None]) -> list[Pack]:
        """Linear combination of the components' slopes."""
        b = self.b
        total: list[Pack] = []
        for c, scale in terms.items():
            factor, slope = node[scale], slopes[c] or ()
            if total:
                total = [b.fma(factor, x, t) for x, t in zip(slope, total)]
            else:
                total = list(slope) if factor == 1.0 else [b.mul(factor, x) for x in slope]
        return total

    def at_points(
        self,
        outer: Any,
        values: Many[list[Pack] | None],
        slopes: Many[list[list[Pack]] | None],
        given: Many[list[Pack]] = (),
    ) -> tuple[list[list[Pack]], list[list[list[Pack]]]]:
        """What happens at the points of a fiber, geometry included.

        Parameters
        ----------
        outer : index
            Number of the fiber.
        values, slopes : sequence
            Per component, values and derivatives by eta along the fiber; None where they are not wanted.
        given : sequence
            The form's own input where it is not made of modes: values, or the components of a vector.

        Returns
        -------
        tested : list
            Per component, what multiplies the test value along the fiber; empty if it is not tested.
        fluxes : list
            Per component and direction, what multiplies the test function's derivative; empty likewise.
        """
        b, n, factors = self.b, self.n, self.factors
        tested: list[list[Pack]] = [[] for _ in range(n)]
        fluxes: list[list[list[Pack]]] = [[[] for _ in range(self.dim)] for _ in range(n)]
        factors.start_fiber(outer)
        for k in range(factors.fiber_points):
            t: list[Pack | None] = [None] * n
            f: list[list[Pack] | None] = [None] * n
            if self.trace is not None:
                here = [None if v is None else v[k] for v in values]
                there = [None if s is None else [part[k] for part in s] for s in slopes]
                t, f = self.physics(outer, k, here, there)
            elif self.test_gradient:
                f[0] = factors.pull_back(k, [part[k] for part in given])
            else:
                t[0] = b.mul(given[0][k], factors.weight(k))
            for c in range(n):
                value = t[c]
                if value is not None:
                    tested[c].append(value)
                for a, flux in enumerate(f[c] or ()):
                    fluxes[c][a].append(flux)
        return tested, fluxes

    # --- passes ---------------------------------------------------------------------------------------------------

    def column_pass(self) -> None:
        """Evaluate fibers along eta_1, apply the pointwise function, test: all in registers."""
        b, n, plane, q = self.b, self.n, self.plane, self.counts[0]
        functions = self.root()
        m = functions.stop - functions.start

        def load(chain: str, c: int, across: Any) -> list[Pack]:
            return b.load_fiber(b.at(self.level(1, chain, c), (across, 1)), plane, m)

        def body(across: Any) -> None:
            values: list[list[Pack] | None] = [None] * n
            slopes: list[list[list[Pack]] | None] = [None] * n
            given: list[list[Pack]] = []
            line = self.line("B", 0, functions, False)
            if self.trace is None:
                inputs = self.space_dim if self.test_gradient else 1
                given = [b.load_fiber(b.at(self.values(i), (across, 1)), plane, q) for i in range(inputs)]
            for c in range(n if self.trace is not None else 0):
                chain = load("v", c, across)
                if self.p.form.uses_value:
                    values[c] = line.apply(b, chain)
                if self.trial_gradient:
                    others = [line.apply(b, load(f"s{a}", c, across)) for a in range(1, self.dim)]
                    slopes[c] = [self.line("S", 0, functions, False).apply(b, chain), *others]
            tested, fluxes = self.at_points(across, values, slopes, given)
            for c in range(n):
                result: list[Pack] | None = None
                if tested[c]:
                    result = self.line("B", 0, functions, True).test(b, tested[c])
                if fluxes[c][0]:
                    result = self.line("S", 0, functions, True).test(b, fluxes[c][0], result)
                    for a in range(1, self.dim):
                        line = self.line("B", 0, functions, True)
                        target = b.at(self.level(1, f"s{a}", c), (across, 1))
                        b.store_fiber(line.test(b, fluxes[c][a]), target, plane)
                b.store_fiber(result or (), b.at(self.level(1, "v", c), (across, 1)), plane)

        self.fibers(self.rest[0], self.width, body)

    def first_derivative(self, c: int) -> str:
        """Derivatives by eta_1 at the points, or the fluxes that multiply them."""
        return self.area("d0", c, size=self.n_points)

    def to_points(self, c: int, differentiate: bool) -> None:
        """Fibers along eta_1: values, and their derivative."""
        b, plane, functions = self.b, self.plane, self.root()
        line, slope = self.line("B", 0, functions, False), self.derivative(0)
        m = functions.stop - functions.start

        def body(across: Any) -> None:
            chain = b.load_fiber(b.at(self.level(1, "v", c), (across, 1)), plane, m)
            if differentiate and line.has_parity and slope.mirrors:
                halves = line.halves(b, chain)
                values, derivatives = join(b, halves), join(b, slope.apply_halves(b, halves))
            else:
                values = line.apply(b, chain)
                derivatives = slope.apply(b, values) if differentiate else []
            b.store_fiber(values, b.at(self.values(c), (across, 1)), plane)
            if differentiate:
                b.store_fiber(derivatives, b.at(self.first_derivative(c), (across, 1)), plane)

        self.fibers(self.rest[0], self.width, body)

    def differentiate_points(self, c: int) -> None:
        """Fibers along eta_1 of given values: their derivative."""
        b, plane, q = self.b, self.plane, self.counts[0]

        def body(across: Any) -> None:
            values = b.load_fiber(b.at(self.values(c), (across, 1)), plane, q)
            slope = self.derivative(0).apply(b, values)
            b.store_fiber(slope, b.at(self.first_derivative(c), (across, 1)), plane)

        self.fibers(self.rest[0], self.width, body)

    def from_points(self, c: int, differentiated: bool) -> None:
        """Fibers along eta_1: test values, and the fluxes of their derivative."""
        b, plane, q, functions = self.b, self.plane, self.counts[0], self.root()
        line, slope = self.line("B", 0, functions, True), self.derivative(0, True)

        def body(across: Any) -> None:
            values = b.load_fiber(b.at(self.values(c), (across, 1)), plane, q)
            if differentiated:
                fluxes = b.load_fiber(b.at(self.first_derivative(c), (across, 1)), plane, q)
                if line.has_parity and slope.mirrors:
                    halves = slope.test_split(b, split(b, fluxes), split(b, values))
                    result = line.test_halves(b, halves)
                else:
                    result = line.test(b, slope.test(b, fluxes, values))
            else:
                result = line.test(b, values)
            b.store_fiber(result, b.at(self.level(1, "v", c), (across, 1)), plane)

        self.fibers(self.rest[0], self.width, body)

    def plane_pass(self, trial: bool, row: Callable[[Any, int | Index, Any], None]) -> None:
        """Plane by plane: derivatives by eta_2 where there are three directions, rows, and back."""
        b = self.b
        if self.dim == 1:
            row(0, 0, (0,))
            return
        if self.dim == 2:
            self.fibers(self.counts[0], 1, lambda pack: row(0, pack[0], pack))
            return
        q1, q2 = self.counts[1:]
        with b.loop(self.counts[0]) as i:
            for c in range(self.n) if trial else ():
                self.middle(b.at(self.values(c), (i, self.plane)), self.middle_area(c))
            self.fibers(q1, 1, lambda pack: row(pack, i, self.row_numbers(i, pack)))
            for c in range(self.n) if self.test_gradient else ():
                values = b.at(self.values(c), (i, self.plane))

                def back(across: Any, v: Pack = values, c: int = c) -> None:
                    fluxes = b.load_fiber(b.at(self.middle_area(c), (across, 1)), q2, q1)
                    target = b.at(v, (across, 1))
                    onto = b.load_fiber(target, q2, q1)
                    b.store_fiber(self.derivative(1, True).test(b, fluxes, onto), target, q2)

                self.fibers(q2, self.width, back)

    def middle_area(self, c: int) -> str:
        """Derivatives by eta_2 of one plane, or the fluxes that multiply them."""
        return self.area("d1", c, size=self.rest[0])

    def middle(self, values: Pack, target: str) -> None:
        """Derivatives by eta_2 of one plane."""
        b, (q1, q2) = self.b, self.counts[1:]

        def body(across: Any) -> None:
            fiber = b.load_fiber(b.at(values, (across, 1)), q2, q1)
            b.store_fiber(self.derivative(1).apply(b, fiber), b.at(target, (across, 1)), q2)

        self.fibers(q2, self.width, body)

    def row_numbers(self, i: Index, pack: Any) -> Any:
        """Numbers of rows among all rows of an element."""
        value = self.b.new(f"mul nsw i64 {i.value}, {self.counts[1]}")
        out = []
        for j in pack:
            if isinstance(j, int):
                out.append(Index(value, j))
            else:
                out.append(Index(self.b.new(f"add nsw i64 {value}, {j.value}"), j.offset))
        return tuple(out)

    def row_places(self, j: Any, i: int | Index, c: int) -> tuple[Pack, list[Pack]]:
        """Where a row starts: among the values, and in the other directions' derivatives."""
        b = self.b
        if self.dim == 1:
            return (self.values(c),), []
        if self.dim == 2:
            return b.at(self.values(c), (i, self.plane)), [b.at(self.first_derivative(c), (i, self.plane))]
        q2 = self.counts[2]
        first = b.at(self.first_derivative(c), (i, self.plane), (j, q2))
        return b.at(self.values(c), (i, self.plane), (j, q2)), [first, b.at(self.middle_area(c), (j, q2))]

    def weak_row(self, j: Any, i: int | Index, outer: Any) -> None:
        """Pointwise function along a row of the last direction."""
        b, n, q, last = self.b, self.n, self.counts[-1], self.dim - 1
        values: list[list[Pack] | None] = [None] * n
        slopes: list[list[list[Pack]] | None] = [None] * n
        places = [self.row_places(j, i, c) for c in range(n)]
        given: list[list[Pack]] = []
        if self.trace is None:
            given = [b.load_fiber(self.row_places(j, i, x)[0], 1, q) for x in range(self.space_dim)]
        for c in range(n if self.trace is not None else 0):
            value = b.load_fiber(places[c][0], 1, q)
            values[c] = value
            if self.trial_gradient:
                others = [b.load_fiber(place, 1, q) for place in places[c][1]]
                slopes[c] = [*others, self.derivative(last).apply(b, value)]
        tested, fluxes = self.at_points(outer, values, slopes, given)
        for c in range(n):
            total: list[Pack] | None = tested[c] or None
            if self.test_gradient:
                for place, along in zip(places[c][1], fluxes[c]):
                    b.store_fiber(along, place, 1)
                total = self.derivative(last, True).test(b, fluxes[c][last], total)
            b.store_fiber(total or (), places[c][0], 1)

    def derivative_row(self, j: Any, i: int | Index, outer: Any) -> None:
        """Derivatives by x along a row; the first one takes the place of the derivative by eta_1."""
        b, q = self.b, self.counts[-1]
        self.factors.start_fiber(outer)
        value, places = self.row_places(j, i, 0)
        fiber = b.load_fiber(value, 1, q)
        slopes = [*(b.load_fiber(place, 1, q) for place in places), self.derivative(self.dim - 1).apply(b, fiber)]
        results: list[list[Pack]] = [[] for _ in range(self.space_dim)]
        for k in range(q):
            for x, result in enumerate(self.factors.physical(k, [part[k] for part in slopes])):
                results[x].append(result)
        for x, along in enumerate(results):
            target = self.area("x", x, size=self.n_points)
            where = b.at(target, (i, self.plane), (j, self.counts[-1] if self.dim == 3 else 1))
            b.store_fiber(along, where, 1)

    # --- forms ----------------------------------------------------------------------------------------------------

    def climb(self, c: int, value: bool, gradient: bool) -> None:
        """From leaves to level 1."""
        for k in range(self.dim - 1, 0, -1):
            self.evaluate(k, c, self.chains(k, value, gradient))

    def descend(self, c: int, value: bool, gradient: bool) -> None:
        """From level 1 to leaves."""
        for k in range(1, self.dim):
            self.test(k, c, self.chains(k, value, gradient))

    def bwd_trans(self, c: Index) -> None:
        """Modes to values."""
        self.read_modes((c, 1, 0), 0)
        self.climb(0, True, False)
        self.to_points(0, False)
        self.call_border("write_values", self.component("%out", (c, 1, 0), self.p.n_points), self.values(0))

    def iproduct_wrt_base(self, c: Index) -> None:
        """Values to modes."""
        self.call_border("read_values", self.component("%in", (c, 1, 0), self.p.n_points), self.values(0))
        self.column_pass()
        self.descend(0, True, False)
        self.write_modes((c, 1, 0), 0)

    def phys_deriv(self, c: Index) -> None:
        """Values to their derivatives by x."""
        self.call_border("read_values", self.component("%in", (c, 1, 0), self.p.n_points), self.values(0))
        if self.dim > 1:
            self.differentiate_points(0)
        self.plane_pass(True, self.derivative_row)
        for x in range(self.space_dim):
            target = self.component("%out", (c, self.space_dim, x), self.p.n_points)
            self.call_border("write_values", target, self.area("x", x, size=self.n_points))

    def iproduct_wrt_deriv_base(self, c: Index) -> None:
        """Vectors at the points to modes."""
        for x in range(self.space_dim):
            source = self.component("%in", (c, self.space_dim, x), self.p.n_points)
            self.call_border("read_values", source, self.values(x))
        if self.by_rows:
            self.plane_pass(False, self.weak_row)
            self.from_points(0, self.dim > 1)
        else:
            self.column_pass()
        self.descend(0, not self.test_gradient or self.by_rows, not self.by_rows)
        self.write_modes((c, 1, 0), 0)

    def weak(self, c: Index) -> None:
        """Modes through the points to modes."""
        columns = not self.by_rows
        for i in range(self.n):
            self.read_modes((c, self.n, i), i)
            self.climb(i, True, columns and self.trial_gradient)
        if columns:
            self.column_pass()
        else:
            for i in range(self.n):
                self.to_points(i, self.trial_gradient and self.dim > 1)
            self.plane_pass(self.trial_gradient, self.weak_row)
            for i in range(self.n):
                self.from_points(i, self.test_gradient and self.dim > 1)
        for i in range(self.n):
            self.descend(i, self.by_rows or self.test_value, columns and self.test_gradient)
            self.write_modes((c, self.n, i), i)

    def write(self) -> str:
        """The module, with the function `run`."""
        b = self.b
        self.write_borders()
        with b.function("run", ARGUMENTS, internal=False):
            head = len(b.lines)
            self._parameters = {}
            for i, name in enumerate(self.parameter_inputs()):
                (pointer,) = b.at("%parameters", (i, 1), unit=b.real)
                self._parameters[name] = b.broadcast(b.new(f"load {b.real}, ptr {pointer}"))
            b.emit("%last = sub nsw i64 %elements, 1")
            with b.loop("%g1", "%g0", trips=1) as self.group:
                self.factors.start_group("%geometry", self.group)
                if self.prefetch:
                    following = Index(self.group.value, 1)
                    geometry = b.at("%geometry", (following, self.factors.per_group))
                    b.start_prefetch(geometry + b.at("%in", (following, self.p.n_input)))
                self._points = b.at("%points", (self.group, self.p.n_points * self.space_dim))
                self.start_fields()
                with b.loop("%components", trips=1) as c:
                    getattr(self, self.p.form.stage)(c)
            areas = [
                f"  {self._pointers[name]} = getelementptr {b.vector}, ptr %scratch, i64 {offset}"
                for name, offset in self._places.items()
            ]
            if self.prefetch:
                areas += b.finish_prefetch([n * b.nbytes for n in (self.factors.per_group, self.p.n_input)])
            b.lines[head:head] = areas
        return b.module()
