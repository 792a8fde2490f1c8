"""What of a linear weak form is stored at the points: a vertex cut of its graph between other functions and the kernel.

What does not depend on the function in which a form is linear may be stored, at any node of the graph. A least cut is
the fewest numbers; below all powers and transcendental functions ("cheap") it is the fewest such that the kernel
computes none of these, which cost as much as reading 10 to 100 numbers. "matrix" stores the entries of the pointwise
matrix, equal ones once. "fused" cuts at the values and derivatives of functions, which kernels make of coefficients.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from .derivative import Commuting, Row, Weak, depending, live, reverse
from .graph import COMPARISONS, OPERATIONS, Expression, Graph

STORES = ("cheap", "fewest", "matrix", "fused")
# Operations of which one costs as much as reading many numbers.
_COSTLY = ("pow", "exp", "log", "sin", "cos", "tanh")
# Name of the stored values among the fields, which no argument of a function has.
STORED, _SAMPLES = ".stored", 8


def cut(weak: Weak, active: str, store: str) -> tuple[Weak, list[Expression]]:
    """Split a form that is linear in one function: the form of the fields ("stored", k), and what these are."""
    if store == "matrix":
        return _matrix(weak, active)
    if store == "fused":
        found = [node for node in weak.nodes if node.op == "input" and node.payload[0] == "fn"]
        found = [node for node in found if node.payload[1] != active]
    else:
        found = _least(weak, active, _COSTLY if store == "cheap" else ())
    stored = [node for node in found if node.op != "input" or node.payload[0] == "fn"]
    return _replaced(weak, {node.index: k for k, node in enumerate(stored)}), stored


def _varies(key: tuple[Any, ...], active: str) -> bool:
    """Whether an input differs from point to point, and is not of the active function."""
    return key[0] in ("field", "x") or (key[0] == "fn" and key[1] != active)


def _least(weak: Weak, active: str, costly: Sequence[str]) -> list[Expression]:
    """The fewest nodes that cut what moves off from inputs and costly operations; of these cuts the nearest to what
    moves, which leaves the fewest operations. Nodes have capacity 1; augmenting paths.
    """
    nodes = weak.nodes
    moving = depending(nodes, lambda key: key[:2] == ("fn", active))
    varying = depending(nodes, lambda key: _varies(key, active))
    passive = {n.index: n for n in nodes if n.index not in moving and n.index in varying}
    read = {a.index for n in nodes if n.index in moving for a in n.args} | {e.index for e in weak.rows.values()}
    # Vertex 2 i is the way into node i, 2 i + 1 out of it.
    source, sink = -1, -2
    capacity: dict[int, dict[int, float]] = {source: {}, sink: {}}

    def edge(a: int, b: int, c: float) -> None:
        capacity.setdefault(a, {})[b] = c
        capacity.setdefault(b, {}).setdefault(a, 0.0)

    for index, node in passive.items():
        edge(2 * index, 2 * index + 1, 1.0)
        if node.op == "input" or node.op in costly:
            edge(source, 2 * index, math.inf)
        for a in node.args:
            if a.index in passive:
                edge(2 * a.index + 1, 2 * index, math.inf)
        if index in read:
            edge(2 * index + 1, sink, math.inf)
    while True:
        came, queue = {source: source}, [source]
        for vertex in queue:
            for other, c in capacity[vertex].items():
                if c > 0 and other not in came:
                    came[other] = vertex
                    queue.append(other)
        if sink not in came:
            break
        vertex = sink
        while vertex != source:
            capacity[came[vertex]][vertex] -= 1.0
            capacity[vertex][came[vertex]] += 1.0
            vertex = came[vertex]
    below, queue = {sink}, [sink]
    for vertex in queue:
        for other in capacity[vertex]:
            if other not in below and capacity[other][vertex] > 0:
                below.add(other)
                queue.append(other)
    return [n for i, n in passive.items() if 2 * i not in below and 2 * i + 1 in below]


def _replaced(weak: Weak, stored: Mapping[int, int]) -> Weak:
    """A form in a new graph, in which some nodes are stored."""
    graph, new = Commuting(), dict[int, Expression]()
    for node in weak.nodes:
        if node.index in stored:
            new[node.index] = graph.node("input", (), ("field", STORED, stored[node.index]))
        elif not node.args:
            new[node.index] = graph.node(node.op, (), node.payload)
        elif all(a.index in new for a in node.args):
            new[node.index] = graph.apply(node.op, *[new[a.index] for a in node.args])
    rows = {key: new[e.index] for key, e in weak.rows.items()}
    return Weak(graph, weak.dim, weak.functions, rows, weak.test)


def _matrix(weak: Weak, active: str) -> tuple[Weak, list[Expression]]:
    """The pointwise matrix times the active function: entries that differ from point to point are stored."""
    entries: dict[tuple[Row, Row], Expression] = {}
    for row, e in weak.rows.items():
        columns = reverse(weak.graph, [(e, 1.0)], ("fn", active))
        entries |= {(row, (key[2], key[3])): entry for key, entry in columns.items()}
    same = _equal(weak.graph, reversed(entries.values()))  # the last ones are fewer operations by triangular Jacobians
    varying = depending(weak.graph.nodes, lambda key: _varies(key, active))
    graph, place, rows = Commuting(), dict[int, int](), dict[Row, Expression]()
    for (row, column), entry in entries.items():
        entry = same[entry.index]
        if entry.index in varying:
            number = place.setdefault(entry.index, len(place))
            factor = graph.node("input", (), ("field", STORED, number))
        else:
            new = dict[int, Expression]()
            for node in live(weak.graph, [entry]):
                args = [new[a.index] for a in node.args]
                new[node.index] = graph.apply(node.op, *args) if args else graph.node(node.op, (), node.payload)
            factor = new[entry.index]
        term = graph.apply("mul", factor, graph.node("input", (), ("fn", active, *column)))
        rows[row] = graph.apply("add", rows[row], term) if row in rows else term
    return Weak(graph, weak.dim, weak.functions, rows, weak.test), [weak.graph.nodes[i] for i in place]


def _equal(graph: Graph, results: Iterable[Expression]) -> dict[int, Expression]:
    """Of each expression one with the same values: analytic functions that agree for random data are equal. The order
    of factors hides this from the graph; of the 81 entries of a symmetric matrix 36 come twice.
    """
    listed = list(results)
    nodes, first, same = live(graph, listed), list[Expression](), dict[int, Expression]()
    if not _analytic(nodes):
        return {e.index: e for e in listed}
    values = _sampled(nodes, _random(nodes))
    for e in listed:
        own = values[e.index]
        size = 1e-13 * np.abs(own).max()
        equal = [other for other in first if np.all(np.abs(values[other.index] - own) <= size)]
        same[e.index] = equal[0] if equal else e
        first += [] if equal else [e]
    return same


def isotropic(weak: Weak) -> bool:
    """Whether a form is the same in rotated coordinates, its coefficients as they are; found as by `_equal`."""
    rotation, axes = np.linalg.qr(np.random.default_rng(1).standard_normal((weak.dim,) * 2))[0], range(1, 1 + weak.dim)
    graph, rows = weak.graph, weak.rows
    derivatives = {key[:3] for key in weak.inputs if key[0] == "fn" and key[3] > 0}
    more = [graph.node("input", (), (*key, i)) for key in derivatives for i in axes]
    given, turned = _random([*weak.nodes, *more]), dict[Any, Any]()
    for key in derivatives:
        turned |= {(*key, i): sum(rotation[j - 1, i - 1] * given[*key, j] for j in axes) for i in axes}
    one, other = (_sampled(weak.nodes, own) for own in (given, {**given, **turned}))
    old = {row: one[e.index] for row, e in rows.items()}
    for (c, i), e in rows.items():
        wanted = sum(rotation[j - 1, i - 1] * old.get((c, j), 0.0) for j in axes) if i else old[c, 0]
        if not np.all(np.abs(other[e.index] - wanted) <= 1e-13 * max(np.abs(own).max() for own in old.values())):
            return False
    return _analytic(weak.nodes)


def _analytic(nodes: Iterable[Expression]) -> bool:
    return not any(node.op in (*COMPARISONS, "where", "min", "max", "abs") for node in nodes)


def _random(nodes: Iterable[Expression]) -> dict[Any, Any]:
    """Random numbers for inputs: near 0 for functions, near 1 for coefficients."""
    rng, keys = np.random.default_rng(0), [node.payload for node in nodes if node.op == "input"]
    return {key: rng.uniform(-0.2, 0.2, _SAMPLES) + (key[0] != "fn") for key in keys}


def _sampled(nodes: Iterable[Expression], given: Mapping[Any, Any]) -> dict[int, Any]:
    """Values of nodes for given inputs."""
    values = dict[int, Any]()
    with np.errstate(all="ignore"):
        for node in nodes:
            args = [values[a.index] for a in node.args]
            if node.op == "input":
                values[node.index] = given[node.payload]
            else:
                values[node.index] = OPERATIONS[node.op][2](*args) if args else node.payload + np.zeros(_SAMPLES)
    return values
