"""Sums of traced pointwise functions: one function, with a factor for each summand as a parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .graph import Expression, Graph, Replaced, copied
from .trace import Trace


def added(parts: Sequence[tuple[str, Trace]], names: Sequence[Mapping[str, str]], components: int) -> Trace:
    """The sum of functions, each times a parameter, given by its name; with new names for fields and parameters.

    A function of one component is applied to each of several. Fluxes that are numbers times gradients stay so if all
    are, so that the symmetric metric suffices.
    """
    graph, dim, symmetric = Graph(), parts[0][1].dim, not any(trace.general for _, trace in parts)
    value: dict[int, Expression] = {}
    scaled: dict[tuple[int, int], Expression] = {}
    flux: dict[tuple[int, int], Expression] = {}

    def add(total: dict[Any, Expression], place: Any, factor: Expression, term: Expression) -> None:
        term = _times(graph, factor, term)
        total[place] = graph.apply("add", total[place], term) if place in total else term

    for (factor_name, trace), renamed in zip(parts, names, strict=True):
        factor = graph.node("input", (), ("param", factor_name))
        for first in range(0, components, trace.components):
            new = copied(trace.live, graph, _renamed(graph, renamed, first))
            for c, node in enumerate(trace.value or (), first):
                add(value, c, factor, new[node.index])
            for c, terms in enumerate(trace.scaled or (), first):
                for other, scale in terms.items():
                    if symmetric:
                        add(scaled, (c, first + other), factor, new[scale.index])
                    for i in range(0 if symmetric else dim):
                        du = graph.node("input", (), ("du", first + other, i))
                        add(flux, (c, i), factor, graph.apply("mul", new[scale.index], du))
            for c, vector in enumerate(trace.flux or (), first):
                for i, node in enumerate(vector):
                    add(flux, (c, i), factor, new[node.index])
    zero, places = graph.constant(0.0), range(components)
    return Trace(
        graph,
        dim,
        components,
        tuple(value.get(c, zero) for c in places) if value else None,
        tuple({j: scale for (i, j), scale in scaled.items() if i == c} for c in places) if scaled else None,
        tuple(tuple(flux.get((c, i), zero) for i in range(dim)) for c in places) if flux else None,
    )


def _renamed(graph: Graph, names: Mapping[str, str], first: int) -> Replaced:
    """What takes the place of inputs: other names, and the components from `first` on."""

    def replaced(node: Expression, args: tuple[Expression, ...]) -> Expression | None:
        if node.op != "input" or node.payload[0] == "x":
            return None
        kind, name, *rest = node.payload
        return graph.node("input", (), (kind, name + first if kind in ("u", "du") else names[name], *rest))

    return replaced


def _times(graph: Graph, factor: Expression, term: Expression) -> Expression:
    """A factor times a term, numbers first: their product is the same at all points."""
    if term.op == "mul":
        for number, rest in (term.args, term.args[::-1]):
            if number.op == "const" or (number.op == "input" and number.payload[0] == "param"):
                return graph.apply("mul", _times(graph, factor, number), rest)
    return graph.apply("mul", factor, term)
