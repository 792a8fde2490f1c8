"""Derivatives of weak forms, on their graphs.

A weak form is a sum over rows of an expression times a value or a derivative of the test function; its expressions read
several named functions. Two operations lead from weak forms to weak forms: `Weak.forward`, the derivative in the
direction of a new function, and `Weak.pullback`, the transposed derivative. Tangents, adjoints, the residual of an
energy, gradients by coefficients and second derivatives are made of these two.

The derivative of a branch is that of the branch taken: conditions are selections, in which a branch that is not taken
may be infinite. So products are formed inside of selections, not with a factor of 0 or 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from .graph import FLOAT, OPERATIONS, Expression, Graph, copied, depending, is_zero, live
from .trace import Trace

# A test component; 0 for its value, 1 + i for its derivative by x_i.
Row = tuple[int, int]
# Conditions under which a term counts: indices of nodes, and whether they hold.
_Guards = tuple[tuple[int, bool], ...]


class Commuting(Graph):
    """A graph in which a b and b a, a + b and b + a, which are equal in floating point, are one node."""

    def node(self, op: str, args: tuple[Expression, ...] = (), payload: Any = None, dtype: Any = FLOAT) -> Expression:
        """The node; see `Graph.node`."""
        if op in ("add", "mul"):
            args = tuple(sorted(args, key=lambda a: (a.op == "const", a.index)))
        return super().node(op, args, payload, dtype)


class Weak:
    """Expressions of named functions, each the factor of a value or derivative of one test function of `test`
    components. Inputs: ("fn", name, c, i), of a function the value (i = 0) or the derivative by x_(i-1); ("field",
    name, c), ("param", name), ("x", i). Rows that are 0 are left out; a density is the row (0, 0).
    """

    def __init__(self, graph: Graph, dim: int, rows: Mapping[Row, Expression], test: int) -> None:
        self.graph, self.dim, self.test = graph, dim, test
        self.rows = {key: e for key, e in rows.items() if not is_zero(e)}
        self.nodes = live(graph, self.rows.values())
        self.inputs = [node.payload for node in self.nodes if node.op == "input"]

    @classmethod
    def of(cls, trace: Trace) -> Weak:
        """The weak form of a traced function of "u"."""
        graph = Commuting()

        def function(node: Expression, args: tuple[Expression, ...]) -> Expression | None:
            if node.op != "input" or node.payload[0] not in ("u", "du"):
                return None
            _, c, *axis = node.payload
            return graph.node("input", (), ("fn", "u", c, axis[0] + 1 if axis else 0))

        new = copied(trace.live, graph, function)
        rows: dict[Row, Expression] = {(c, 0): new[e.index] for c, e in enumerate(trace.value or ())}
        for c, vector in enumerate(trace.flux or ()):
            rows |= {(c, 1 + i): new[e.index] for i, e in enumerate(vector)}
        for c, terms in enumerate(trace.scaled or ()):
            for i in range(1, trace.dim + 1):
                parts = [new[s.index] * graph.node("input", (), ("fn", "u", o, i)) for o, s in terms.items()]
                rows[c, i] = sum(parts[1:], parts[0])
        return cls(graph, trace.dim, rows, trace.given)

    def function(self, name: str, c: int, i: int) -> Expression:
        """The value (i = 0) or derivative of a component of a function."""
        return self.graph.node("input", (), ("fn", name, c, i))

    def forward(self, changes: Mapping[tuple[str, str], str]) -> Weak:
        """The derivative by inputs, each by its kind and name, in the direction of new ones: linear in these."""
        function = next((new for (kind, _), new in changes.items() if kind == "fn"), None)
        terms, tangents = _Terms(self.graph, function), dict[int, Expression]()
        for node in self.nodes:
            if node.op == "input" and node.payload[:2] in changes:
                key = node.payload[0], changes[node.payload[:2]], *node.payload[2:]
                tangents[node.index] = self.graph.node("input", (), key)
            for a, partial in _partials(node, tangents):
                term, known = terms.times(tangents[a.index], partial), tangents.get(node.index)
                tangents[node.index] = term if known is None else terms.plus(known, term)
        rows = {key: tangents[e.index] for key, e in self.rows.items() if e.index in tangents}
        return Weak(self.graph, self.dim, rows, self.test)

    def pullback(self, name: str, new: str | None, test: int) -> Weak:
        """The transposed derivative by a function of `test` components, which is its test function; a new function
        takes the place of the present test function. Without a name for it, that of a density.
        """
        bars = self.adjoints(("fn", name), new)
        return Weak(self.graph, self.dim, {(key[2], key[3]): e for key, e in bars.items()}, test)

    def of_fewer_powers(self) -> Weak:
        """The form with a^b as a a^(b - 1) where that power, of the derivative, is there; where it is infinite, so is
        the derivative.
        """
        powers = {(node.args[0].index, node.args[1].index) for node in self.nodes if node.op == "pow"}

        def lowered(graph: Graph, node: Expression, args: tuple[Expression, ...]) -> Expression | None:
            if node.op != "pow" or (node.args[0].index, self.graph.apply("sub", node.args[1], 1.0).index) not in powers:
                return None
            return graph.apply("mul", graph.apply("pow", args[0], graph.apply("sub", args[1], 1.0)), args[0])

        return self.changed(lowered)

    def changed(self, replaced: Callable[[Graph, Expression, tuple[Expression, ...]], Expression | None]) -> Weak:
        """The form in a new graph, which `replaced` gets before the arguments that it has in `copied`."""
        graph = Commuting()
        new = copied(self.nodes, graph, lambda node, args: replaced(graph, node, args))
        return Weak(graph, self.dim, {row: new[e.index] for row, e in self.rows.items()}, self.test)

    def on_reference(self, geometry: str, rotated: bool) -> Weak:
        """The form by derivatives on the reference element; the field `geometry` has the inverse Jacobian, row by row,
        and the determinant, or where x is `rotated`, the triangle alone.
        """
        graph, axes = Commuting(), range(1, 1 + self.dim)
        places = [(a, i) for a in axes for i in axes if i <= a or not rotated]
        inverse = {place: graph.node("input", (), ("field", geometry, k)) for k, place in enumerate(places)}
        volume = graph.node("input", (), ("field", geometry, len(places)))
        if rotated:
            diagonal: Any = prod(inverse[a, a] for a in axes)
            volume = 1.0 / diagonal

        def derivative(node: Expression, args: tuple[Expression, ...]) -> Expression | None:
            key = node.payload
            if node.op != "input" or key[0] != "fn" or key[3] == 0:
                return None
            parts = [own * graph.node("input", (), (*key[:3], a)) for (a, i), own in inverse.items() if i == key[3]]
            return sum(parts[1:], parts[0])

        new = copied(self.nodes, graph, derivative)
        rows = {row: new[e.index] * volume for row, e in self.rows.items() if row[1] == 0}
        for c, a in {(row[0], a) for row in self.rows if row[1] > 0 for a in axes}:
            parts = [inverse[a, i] * new[self.rows[c, i].index] for b, i in places if a == b and (c, i) in self.rows]
            if parts:
                rows[c, a] = sum(parts[1:], parts[0]) * volume
        return Weak(graph, self.dim, rows, self.test)

    def adjoints(self, to: tuple[Any, ...], new: str | None) -> dict[tuple[Any, ...], Expression]:
        """The derivatives by the inputs whose keys begin with `to` of the rows, tested with the function `new`."""
        seeds = [(e, 1.0 if new is None else self.function(new, *key)) for key, e in self.rows.items()]
        return reverse(self.graph, seeds, to, new)


def reverse(
    graph: Graph, seeds: Sequence[tuple[Expression, Any]], to: tuple[Any, ...], new: str | None = None
) -> dict[tuple[Any, ...], Expression]:
    """The derivatives of a sum of expressions times seeds (numbers, or values of the function `new`) by inputs."""
    terms, nodes = _Terms(graph, new), live(graph, [e for e, _ in seeds])
    active = depending(nodes, lambda key: key[: len(to)] == to)
    bars: dict[int, dict[_Guards, Expression]] = {}

    def add(node: Expression, guards: _Guards, term: Any) -> None:
        own = bars.setdefault(node.index, {})
        own[guards] = terms.plus(own[guards], graph.lift(term)) if guards in own else graph.lift(term)

    for node, seed in seeds:
        add(node, (), seed)
    for node in reversed(nodes):
        for a, partial in _partials(node, active) if node.index in bars else ():
            for guards, bar in bars[node.index].items():
                if not (isinstance(partial, Expression) and partial.op == "where"):
                    add(a, guards, terms.times(bar, partial))
                    continue
                condition, *branches = partial.args
                for holds, factor in zip((True, False), branches, strict=True):
                    if not is_zero(factor) and (condition.index, not holds) not in guards:
                        inside = guards if (condition.index, holds) in guards else (*guards, (condition.index, holds))
                        add(a, tuple(sorted(inside)), terms.times(bar, factor))
    found: dict[tuple[Any, ...], Expression] = {}
    for node in nodes:
        if node.op == "input" and node.index in active and node.index in bars:
            total = graph.constant(0.0)
            for guards, term in bars[node.index].items():
                for number, holds in guards:
                    yes, no = (term, 0.0) if holds else (0.0, term)
                    term = graph.apply("where", graph.nodes[number], yes, no)
                total = terms.plus(total, term)
            found[node.payload] = total
    return {key: e for key, e in found.items() if not is_zero(e)}


def _partials(node: Expression, active: Any) -> list[tuple[Expression, Any]]:
    """The active arguments of an operation, with its derivatives by them."""
    if not node.args or not any(a.index in active for a in node.args):
        return []
    rules = zip(node.args, OPERATIONS[node.op][3], strict=True)
    return [(a, rule(node, *node.args)) for a, rule in rules if rule is not None and a.index in active]


class _Terms:
    """Arithmetic of terms that are linear in one function of a growing graph: fixed factors are multiplied first, so
    that their product can be stored, and selections are outside.
    """

    def __init__(self, graph: Graph, name: str | None) -> None:
        self.graph, self.name, self._moves = graph, name, list[bool]()

    def moves(self, node: Expression) -> bool:
        """Whether a node depends on the function."""
        for one in self.graph.nodes[len(self._moves) :]:
            own = one.op == "input" and one.payload[:2] == ("fn", self.name)
            self._moves.append(own or any(self._moves[a.index] for a in one.args))
        return self._moves[node.index]

    def times(self, term: Expression, factor: Any) -> Expression:
        """A term times a fixed factor."""
        graph, factor = self.graph, self.graph.lift(factor)
        for chosen in (factor, term):
            # A selection with 0 stays outside: what it leaves out may be infinite.
            if chosen.op == "where" and any(map(is_zero, chosen.args[1:])):
                condition, *branches = chosen.args
                pairs = [(b, factor) if chosen is term else (term, b) for b in branches]
                inside = [b if is_zero(b) else self.times(*pair) for b, pair in zip(branches, pairs, strict=True)]
                return graph.apply("where", condition, *inside)
        if factor.op == "where" and all(b.op == "const" for b in factor.args[1:]):
            return graph.apply("where", factor.args[0], *[self.times(term, b) for b in factor.args[1:]])
        own, fixed = self._split(term)
        return graph.apply("mul", own, graph.apply("mul", fixed, factor))

    def _split(self, term: Expression) -> tuple[Expression, Expression]:
        """A term as what depends on the function times what is fixed."""
        if term.op == "neg":
            own, fixed = self._split(term.args[0])
            return own, self.graph.apply("neg", fixed)
        if term.op == "mul" and self.moves(term.args[0]) != self.moves(term.args[1]):
            own, fixed = term.args if self.moves(term.args[0]) else term.args[::-1]
            inner, more = self._split(own)
            return inner, self.graph.apply("mul", more, fixed)
        return term, self.graph.constant(1.0)

    def plus(self, one: Expression, other: Expression) -> Expression:
        """The sum of two terms."""
        (own, fixed), (same, more) = self._split(one), self._split(other)
        if own is same and self.moves(own):
            return self.times(own, self.graph.apply("add", fixed, more))
        if one.op == other.op == "where" and one.args[0] is other.args[0]:
            parts = zip(one.args[1:], other.args[1:], strict=True)
            return self.graph.apply("where", one.args[0], *[self.plus(a, b) for a, b in parts])
        return self.graph.apply("add", one, other)
