"""The part of a kernel at the points: from rows of eta_1 functions to the pointwise function and back.

By columns: fibers along eta_1 are evaluated, go through the pointwise function in registers and are tested at once. By
rows (collocated): fibers along eta_1 are evaluated and differentiated; then, plane by plane, the other derivatives, the
pointwise function along rows of the last direction, and the transposed derivatives; then fibers along eta_1 are tested.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Many
from typing import Any

from .ir import Index, Pack
from .line import join, split
from .pointwise import INLINED, CalledExpressions, Expressions
from .tree import TreePasses


class PointPasses(TreePasses):
    """Writer of the passes over the points."""

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

    def physics(
        self, outer: Any, k: int, values: Many[Pack | None], derivatives: Many[Many[Pack] | None]
    ) -> tuple[list[Pack | None], list[list[Pack] | None]]:
        """Pointwise function at point k of a fiber: what tests value and derivatives, per component."""
        b, factors, trace, n_fiber = self.b, self.factors, self.trace, self.factors.fiber_points
        assert trace is not None
        gradients: dict[int, list[Pack]] = {}

        def source(key: tuple[Any, ...]) -> Pack:
            kind = key[0]
            if kind == "u":
                return values[key[1]] or ()
            if kind == "du":
                if key[1] not in gradients:
                    gradients[key[1]] = factors.physical(k, derivatives[key[1]] or ())
                return gradients[key[1]][key[2]]
            if kind == "param":
                return (self.parameters[key[1]],)
            if kind == "x":
                return b.load(b.at(self.coordinates, (outer, n_fiber * self.space_dim)), k * self.space_dim + key[1])
            field = self.area("field", key[1], key[2], size=self.p.n_points)
            if self.by_rows:
                return b.load(b.at(field, (outer, n_fiber)), k)
            return b.load(b.at(field, (outer, 1)), k * self.rest[0])

        node: Expressions | CalledExpressions
        if trace.flops > INLINED:
            node = self.called = self.called or CalledExpressions(b, trace)
            node.call(source)
        else:
            node = Expressions(b, trace, source)
        tested: list[Pack | None] = [None] * self.n
        fluxes: list[list[Pack] | None] = [None] * self.n
        for c in range(self.n):
            if trace.value is not None:
                tested[c] = b.mul(node[trace.value[c]], factors.weight(k))
            if trace.scaled is not None:
                fluxes[c] = factors.metric(k, self.combine(node, trace.scaled[c], derivatives))
            elif trace.flux is not None:
                fluxes[c] = factors.pull_back(k, [node[component] for component in trace.flux[c]])
        return tested, fluxes

    def combine(
        self, node: Expressions | CalledExpressions, terms: dict[int, Any], derivatives: Many[Many[Pack] | None]
    ) -> list[Pack]:
        """Linear combination of the components' derivatives."""
        b = self.b
        total: list[Pack] = []
        for c, scale in terms.items():
            factor, derivative = node[scale], derivatives[c] or ()
            if total:
                total = [b.fma(factor, x, t) for x, t in zip(derivative, total)]
            else:
                total = list(derivative) if factor == 1.0 else [b.mul(factor, x) for x in derivative]
        return total

    def at_points(
        self,
        outer: Any,
        values: Many[list[Pack] | None],
        derivatives: Many[list[list[Pack]] | None],
        given: Many[list[Pack]] = (),
    ) -> tuple[list[list[Pack]], list[list[list[Pack]]]]:
        """What happens at the points of a fiber, geometry included.

        Parameters
        ----------
        outer : index
            Number of the fiber.
        values, derivatives : sequence
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
                there = [None if s is None else [part[k] for part in s] for s in derivatives]
                t, f = self.physics(outer, k, here, there)
            elif self.form.test_gradient:
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
            derivatives: list[list[list[Pack]] | None] = [None] * n
            given: list[list[Pack]] = []
            line = self.line("B", 0, functions, False)
            if self.trace is None:
                inputs = self.space_dim if self.form.test_gradient else 1
                given = [b.load_fiber(b.at(self.values(i), (across, 1)), plane, q) for i in range(inputs)]
            for c in range(n if self.trace is not None else 0):
                chain = load("v", c, across)
                if self.form.trial_value:
                    values[c] = line.apply(b, chain)
                if self.form.trial_gradient:
                    others = [line.apply(b, load(f"s{a}", c, across)) for a in range(1, self.dim)]
                    derivatives[c] = [self.line("S", 0, functions, False).apply(b, chain), *others]
            tested, fluxes = self.at_points(across, values, derivatives, given)
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
        line, derivative = self.line("B", 0, functions, False), self.derivative(0)
        m = functions.stop - functions.start

        def body(across: Any) -> None:
            chain = b.load_fiber(b.at(self.level(1, "v", c), (across, 1)), plane, m)
            if differentiate and line.has_parity and derivative.mirrors:
                halves = line.halves(b, chain)
                values, derivatives = join(b, halves), join(b, derivative.apply_halves(b, halves))
            else:
                values = line.apply(b, chain)
                derivatives = derivative.apply(b, values) if differentiate else []
            b.store_fiber(values, b.at(self.values(c), (across, 1)), plane)
            if differentiate:
                b.store_fiber(derivatives, b.at(self.first_derivative(c), (across, 1)), plane)

        self.fibers(self.rest[0], self.width, body)

    def differentiate_points(self, c: int) -> None:
        """Fibers along eta_1 of given values: their derivative."""
        b, plane, q = self.b, self.plane, self.counts[0]

        def body(across: Any) -> None:
            values = b.load_fiber(b.at(self.values(c), (across, 1)), plane, q)
            derivative = self.derivative(0).apply(b, values)
            b.store_fiber(derivative, b.at(self.first_derivative(c), (across, 1)), plane)

        self.fibers(self.rest[0], self.width, body)

    def from_points(self, c: int, differentiated: bool) -> None:
        """Fibers along eta_1: test values, and the fluxes of their derivative."""
        b, plane, q, functions = self.b, self.plane, self.counts[0], self.root()
        line, derivative = self.line("B", 0, functions, True), self.derivative(0, True)

        def body(across: Any) -> None:
            values = b.load_fiber(b.at(self.values(c), (across, 1)), plane, q)
            if differentiated:
                fluxes = b.load_fiber(b.at(self.first_derivative(c), (across, 1)), plane, q)
                if line.has_parity and derivative.mirrors:
                    halves = derivative.test_split(b, split(b, fluxes), split(b, values))
                    result = line.test_halves(b, halves)
                else:
                    result = line.test(b, derivative.test(b, fluxes, values))
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
            for c in range(self.n) if self.form.test_gradient else ():
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
        derivatives: list[list[list[Pack]] | None] = [None] * n
        places = [self.row_places(j, i, c) for c in range(n)]
        given: list[list[Pack]] = []
        if self.trace is None:
            given = [b.load_fiber(self.row_places(j, i, x)[0], 1, q) for x in range(self.space_dim)]
        for c in range(n if self.trace is not None else 0):
            value = b.load_fiber(places[c][0], 1, q)
            values[c] = value
            if self.form.trial_gradient:
                others = [b.load_fiber(place, 1, q) for place in places[c][1]]
                derivatives[c] = [*others, self.derivative(last).apply(b, value)]
        tested, fluxes = self.at_points(outer, values, derivatives, given)
        for c in range(n):
            total: list[Pack] | None = tested[c] or None
            if self.form.test_gradient:
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
        derivatives = [*(b.load_fiber(place, 1, q) for place in places), self.derivative(self.dim - 1).apply(b, fiber)]
        results: list[list[Pack]] = [[] for _ in range(self.space_dim)]
        for k in range(q):
            for x, result in enumerate(self.factors.physical(k, [part[k] for part in derivatives])):
                results[x].append(result)
        for x, along in enumerate(results):
            target = self.area("x", x, size=self.n_points)
            where = b.at(target, (i, self.plane), (j, self.counts[-1] if self.dim == 3 else 1))
            b.store_fiber(along, where, 1)
