"""Sums of traced pointwise functions: one weak form, with a factor for each summand as a parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .derivative import Commuting, Row, Weak
from .graph import Expression, Graph, Replaced, copied
from .trace import Trace


def added(parts: Sequence[tuple[str, Trace]], names: Sequence[Mapping[str, str]], components: int) -> Weak:
    """The sum of functions, each times a parameter, given by its name; with new names for fields and parameters. A
    function of one component is applied to each of several.
    """
    graph, rows = Commuting(), dict[Row, Expression]()
    for (factor_name, trace), renamed in zip(parts, names, strict=True):
        weak, factor = Weak.of(trace), graph.node("input", (), ("param", factor_name))
        for first in range(0, components, trace.components):
            new = copied(weak.nodes, graph, _renamed(graph, renamed, first))
            for (c, i), e in weak.rows.items():
                term, place = _times(graph, factor, new[e.index]), (first + c, i)
                rows[place] = graph.apply("add", rows[place], term) if place in rows else term
    return Weak(graph, parts[0][1].dim, rows, components)


def _renamed(graph: Graph, names: Mapping[str, str], first: int) -> Replaced:
    """What takes the place of inputs: other names, and the components from `first` on."""

    def replaced(node: Expression, args: tuple[Expression, ...]) -> Expression | None:
        if node.op != "input" or node.payload[0] == "x":
            return None
        kind, name, *rest = node.payload
        if kind == "fn":
            return graph.node("input", (), (kind, name, first + rest[0], rest[1]))
        return graph.node("input", (), (kind, names[name], *rest))

    return replaced


def _times(graph: Graph, factor: Expression, term: Expression) -> Expression:
    """A factor times a term, numbers first: their product is the same at all points."""
    if term.op == "mul":
        for number, rest in (term.args, term.args[::-1]):
            if number.op == "const" or (number.op == "input" and number.payload[0] == "param"):
                return graph.apply("mul", _times(graph, factor, number), rest)
    return graph.apply("mul", factor, term)
