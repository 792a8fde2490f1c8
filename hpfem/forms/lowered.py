"""Weak forms as what kernels take: some of their functions side by side as the components of one trial field."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ArgumentError
from .derivative import Row, Weak
from .form import Form
from .graph import Expression, Graph, live
from .trace import MAX_OPERATIONS, Trace

# Coefficients of derivatives of components of functions.
_Terms = dict[tuple[str, int], Expression]


def lowered(
    weak: Weak, trial: Sequence[tuple[str, int]], name: str, results: Sequence[Expression] = (), derived: bool = True
) -> Form:
    """The form on a field with the components of some functions; or with results, these at the points. The fields that
    it reads are those of the user, and the components of `STORED`. Operations that are `derived` have a limit.
    """
    first, total = dict[str, int](), 0
    for function, n in trial:
        first[function], total = total, total + n
    fluxes = {row: e for row, e in weak.rows.items() if row[1] > 0 and not results}
    values = [] if results else [e for row, e in weak.rows.items() if row[1] == 0]
    scales = _scales(weak, fluxes) if fluxes else None
    factors = [s for terms in (scales or {}).values() for s in terms.values()]
    read = [node.payload for node in live(weak.graph, [*values, *factors]) if node.op == "input"]
    if any(key[0] == "fn" and key[3] > 0 for key in read):  # a derivative
        scales = None
    needed = [*results, *values, *(factors if scales is not None else fluxes.values())]
    graph, new = Graph(), dict[int, Expression]()
    for node in live(weak.graph, needed):
        key = node.payload
        if node.op == "input" and key[0] == "fn":
            c = first[key[1]] + key[2]
            key = ("u", c) if key[3] == 0 else ("du", c, key[3] - 1)
        new[node.index] = graph.node(node.op, tuple(new[a.index] for a in node.args), key)
    zero, tested = graph.constant(0.0), range(weak.test)

    def row(c: int, i: int) -> Expression:
        return new[weak.rows[c, i].index] if (c, i) in weak.rows else zero

    if results:
        made = Trace(graph, weak.dim, total, tuple(new[e.index] for e in results))
    else:
        value = tuple(row(c, 0) for c in tested) if values or not fluxes else None
        scaled = flux = None
        if scales is not None:
            of_tested = [scales.get(c, {}).items() for c in tested]
            scaled = tuple({first[name] + k: new[s.index] for (name, k), s in own} or {0: zero} for own in of_tested)
        elif fluxes:
            flux = tuple(tuple(row(c, 1 + i) for i in range(weak.dim)) for c in tested)
        made = Trace(graph, weak.dim, total, value, scaled, flux)
    if derived and made.flops > MAX_OPERATIONS:
        raise ArgumentError(
            f"{name}: {made.flops} operations at each point, the limit is {MAX_OPERATIONS}; the function itself should"
            " have a third of these at most: give parts that do not depend on u as a field"
        )
    return Form.weak(name, made, total, not results)


def _scales(weak: Weak, fluxes: dict[Row, Expression]) -> dict[int, _Terms] | None:
    """Of each test component the coefficients of gradients, if its flux is a sum of these."""
    found = dict[int, _Terms]()
    for c in {c for c, _ in fluxes}:
        zero = weak.graph.constant(0.0)
        of_axes = [_combination(weak.graph, fluxes.get((c, i), zero), i) for i in range(1, weak.dim + 1)]
        first = of_axes[0] or {}
        same = [own for own in of_axes if own is not None and own.keys() == first.keys()]
        if not first or len(same) < weak.dim or any(own[key] is not s for own in same for key, s in first.items()):
            return None
        found[c] = first
    return found


def _combination(graph: Graph, e: Expression, i: int) -> _Terms | None:
    """The coefficients of an expression that is a sum of coefficients times derivatives by x_i."""
    if e.op == "input":
        own = e.payload[0] == "fn" and e.payload[3] == i
        return {e.payload[1:3]: graph.constant(1.0)} if own else None
    if e.op == "neg":
        inner = _combination(graph, e.args[0], i)
        return inner and {key: graph.apply("neg", s) for key, s in inner.items()}
    if e.op == "mul":
        for a, b in (e.args, e.args[::-1]):
            if (inner := _combination(graph, a, i)) is not None:
                return {key: graph.apply("mul", s, b) for key, s in inner.items()}
    if e.op in ("add", "sub"):
        one, two = (_combination(graph, a, i) for a in e.args)
        if one is not None and two is not None:
            zero = graph.constant(0.0)
            return {key: graph.apply(e.op, one.get(key, zero), two.get(key, zero)) for key in {**one, **two}}
    return None
