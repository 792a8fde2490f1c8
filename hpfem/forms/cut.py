"""What of a linear weak form is stored at the points: a vertex cut of its graph between other functions and the kernel.

What does not depend on the function in which a form is linear may be stored, at any node of the graph. A least cut is
the fewest numbers; below all powers and transcendental functions ("cheap") it is the fewest such that the kernel
computes none of these, which cost as much as reading 10 to 100 numbers. "matrix" stores the entries of the pointwise
matrix, equal ones once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from .derivative import Commuting, Row, Weak, reverse
from .evaluate import SAMPLES, evaluate, random_data
from .graph import TRANSCENDENTAL, Expression, Graph, copied, depending, live
from .trace import Trace

STORES = ("cheap", "fewest", "matrix")
# Name of the stored values among the fields, which no argument of a function has.
STORED = ".stored"
# The capacity of what is not cut.
_MANY = 10**6


def cut(weak: Weak, active: str, store: str) -> tuple[Weak, list[Expression]]:
    """Split a form that is linear in one function: the form of the fields ("stored", k), and what these are."""
    if store == "matrix":
        return _matrix(weak, active)
    found = _least(weak, active, TRANSCENDENTAL if store == "cheap" else ())
    stored = [node for node in found if node.op != "input" or node.payload[0] == "fn"]
    place = {node.index: ("field", STORED, k) for k, node in enumerate(stored)}
    return weak.changed(lambda own, n, _: own.node("input", (), place[n.index]) if n.index in place else None), stored


def _varies(key: tuple[Any, ...], active: str) -> bool:
    """Whether an input differs from point to point, and is not of the active function."""
    return key[0] in ("field", "x") or (key[0] == "fn" and key[1] != active)


def _least(weak: Weak, active: str, costly: Sequence[str]) -> list[Expression]:
    """The fewest nodes that cut what moves off from inputs and costly operations; of these cuts the nearest to what
    moves, which leaves the fewest operations. Nodes have capacity 1.
    """
    nodes = weak.nodes
    moving = depending(nodes, lambda key: key[:2] == ("fn", active))
    varying = depending(nodes, lambda key: _varies(key, active))
    passive = {n.index: n for n in nodes if n.index not in moving and n.index in varying}
    read = {a.index for n in nodes if n.index in moving for a in n.args} | {e.index for e in weak.rows.values()}
    # Vertices 2 i and 2 i + 1 are the ways into and out of node i; the last two are source and sink.
    n = 2 * len(weak.graph.nodes)
    edges = {(2 * i, 2 * i + 1): 1 for i in passive}
    edges |= {(n, 2 * i): _MANY for i, node in passive.items() if node.op == "input" or node.op in costly}
    edges |= {(2 * a.index + 1, 2 * i): _MANY for i, node in passive.items() for a in node.args if a.index in passive}
    edges |= {(2 * i + 1, n + 1): _MANY for i in passive if i in read}
    if not edges:
        return []
    ends = tuple(np.array(list(edges)).T)
    capacity = csr_array((np.array(list(edges.values()), dtype=np.int32), ends), shape=(n + 2, n + 2))
    left = csr_array(capacity - maximum_flow(capacity, n, n + 1).flow)
    left.eliminate_zeros()
    below = set(breadth_first_order(csr_array(left.T), n + 1, return_predecessors=False).tolist())
    return [node for i, node in passive.items() if 2 * i not in below and 2 * i + 1 in below]


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
            factor = copied(live(weak.graph, [entry]), graph)[entry.index]
        term = graph.apply("mul", factor, graph.node("input", (), ("fn", active, *column)))
        rows[row] = graph.apply("add", rows[row], term) if row in rows else term
    return Weak(graph, weak.dim, rows, weak.test), [weak.graph.nodes[i] for i in place]


def _equal(graph: Graph, results: Iterable[Expression]) -> dict[int, Expression]:
    """Of each expression one with the same values: analytic functions that agree for random data are equal. The order
    of factors hides this from the graph; of the 81 entries of a symmetric matrix 36 come twice.
    """
    trace, first, same = Trace(graph, 0, 0, tuple(results)), list[Expression](), dict[int, Expression]()
    data = random_data(trace)
    if data is None:
        return {e.index: e for e in trace.outputs}
    values = evaluate(trace, data.__getitem__)
    for e in trace.outputs:
        size = 1e-13 * np.max(np.abs(values[e.index]))
        equal = [other for other in first if np.all(np.abs(values[other.index] - values[e.index]) <= size)]
        same[e.index] = equal[0] if equal else e
        first += [] if equal else [e]
    return same


def isotropic(weak: Weak) -> bool:
    """Whether a form is the same in rotated coordinates, its coefficients as they are; found as by `_equal`."""
    trace, rng, n = Trace(weak.graph, 0, 0, tuple(weak.rows.values())), np.random.default_rng(1), 1 + weak.dim
    one = random_data(trace)
    if one is None:
        return False
    rotation, other = np.eye(n), dict(one)
    rotation[1:, 1:] = np.linalg.qr(rng.standard_normal((weak.dim,) * 2))[0]
    for key in {key[:3] for key in weak.inputs if key[0] == "fn" and key[3] > 0}:
        given = rng.uniform(-0.2, 0.2, (n, SAMPLES))
        one |= {(*key, i): given[i] for i in range(1, n)}
        other |= {(*key, i): (rotation @ given)[i] for i in range(1, n)}
    values, none = [evaluate(trace, own.__getitem__) for own in (one, other)], np.zeros(SAMPLES)
    for c in {c for c, _ in weak.rows}:
        own = [weak.rows.get((c, i)) for i in range(n)]
        before, after = (np.array([none if e is None else none + found[e.index] for e in own]) for found in values)
        if not np.all(np.abs(rotation @ before - after) <= 1e-13 * np.abs(before).max()):
            return False
    return True
