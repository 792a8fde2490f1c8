"""Properties of a form, from its graph: whether it is linear and symmetric, its coefficients, its elliptic part."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

import numpy as np

from ..errors import NotSuitable
from .derivative import Row, Weak, reverse
from .evaluate import SAMPLES, evaluate, random_data
from .form import BlockProblem
from .graph import Expression, Graph, depending, is_zero
from .trace import Trace

Entries = dict[tuple[int, int], Expression]


def is_linear(node: Expression, *variables: str) -> bool | None:
    """Whether an expression is linear in the trial function: None if it does not depend on it."""
    # Nodes come after their arguments; each is visited once, however often it is shared.
    linear: list[bool | None] = []
    for one in node.graph.nodes[: node.index + 1]:
        parts = [linear[a.index] for a in one.args]
        if one.op == "input" and one.payload[0] in variables:
            linear.append(True)
        elif all(part is None for part in parts):
            linear.append(None)
        elif False in parts:
            linear.append(False)
        elif one.op in ("add", "sub"):
            linear.append(None not in parts)
        elif one.op == "mul":
            linear.append(None in parts)
        elif one.op == "where":  # a fixed condition
            branches = zip(parts[1:], one.args[1:], strict=True)
            linear.append(parts[0] is None and all(part is True or is_zero(node) for part, node in branches))
        else:
            linear.append(one.op == "neg" or (one.op == "div" and parts[1] is None))
    return linear[node.index]


def is_symmetric(trace: Trace | None) -> bool:
    """Whether a form is known to be symmetric: by its structure, or by its matrix at points with random data."""
    return trace is not None and _known_equal(trace, lambda row, column: (column, row))


def ignores_rotations(trace: Trace | None, some: bool = False) -> bool:
    """Whether a form of as many components as dimensions is known to see the symmetric part of gradients alone; or
    takes gradients of several components together, if its coefficients are those of `some` state.
    """
    if trace is None or not trace.uses_gradient or trace.components != trace.dim:
        return False
    if some and trace.dim > 1 and trace.flux is not None:
        return True
    n = 1 + trace.dim

    def swapped(row: int, column: int) -> tuple[int, int]:
        component, i = divmod(column, n)
        return row, (i - 1) * n + component + 1 if i else column

    return _known_equal(trace, swapped)


def _known_equal(trace: Trace, other_place: Callable[[int, int], tuple[int, int]]) -> bool:
    """Whether entries of the matrix K of a linear form are equal to those at other places."""
    try:
        graph, K = coefficients(trace)
    except NotSuitable:
        return False
    pairs = [(node, K.get(other_place(*place), graph.constant(0.0))) for place, node in K.items()]
    pairs = [(node, other) for node, other in pairs if node is not other]
    entries = Trace(graph, trace.dim, len(K), tuple(K.values()))
    data = random_data(entries)
    if not pairs or data is None:
        return not pairs
    found = evaluate(entries, data.__getitem__)
    largest = np.max([np.abs(value) * np.ones(SAMPLES) for value in found.values()], axis=0)
    apart = [np.abs(found[node.index] - found.get(other.index, 0.0)) for node, other in pairs]
    return all(bool(np.all(own <= 1e-13 * largest)) for own in apart)


def check_linear(problem: BlockProblem) -> None:
    """Check that a problem has constant element matrices."""
    form, trace = problem.form, problem.form.trace
    if trace is None or not form.test:
        raise NotSuitable("only weak forms have an element matrix")
    if not problem.geometry.affine:
        raise NotSuitable("elements are not affine")
    if form.components > 1:
        raise NotSuitable("components are coupled")
    if any(key[0] in ("field", "x", "du") for key in trace.inputs) or trace.flux is not None:
        raise NotSuitable("coefficients are not constant, or the flux is not a multiple of the gradient")
    if trace.value is not None and not is_linear(trace.value[0], "u"):
        raise NotSuitable("the form is not linear")
    if trace.scaled is not None and is_linear(trace.scaled[0][0], "u") is not None:
        raise NotSuitable("the form is not linear")


def check_noncollocated(problem: BlockProblem) -> None:
    """Check that derivatives, if any, are those of the basis, as in element matrices."""
    if problem.form.gradients and problem.algorithm == "collocated":
        raise NotSuitable("element matrices are noncollocated; use algorithm='noncollocated'")


# A form's graph and matrix K, whether K is of no function, and whether the form is linear; and what `component_matrix`
# made: for as long as a trace lives.
_KNOWN: WeakKeyDictionary[Trace, tuple[Graph, Entries, bool, bool]] = WeakKeyDictionary()
_SYMMETRIC: WeakKeyDictionary[Trace, list[tuple[Trace, Entries]]] = WeakKeyDictionary()


def coefficients(trace: Trace, affine: bool = False) -> tuple[Graph, Entries]:
    """The matrix K of a linear form, or of one that may be `affine`: the derivatives of its results by values and
    gradients, those that are not 0.
    """
    if trace not in _KNOWN:
        weak, n, K = Weak.of(trace), 1 + trace.dim, Entries()
        for (c, i), e in weak.rows.items():
            entries = reverse(weak.graph, [(e, 1.0)], ("fn", "u"))
            K |= {(c * n + i, key[2] * n + key[3]): entry for key, entry in entries.items()}
        moving = depending(weak.graph.nodes, lambda key: key[0] == "fn")
        fixed = all(e.index not in moving for e in K.values())
        _KNOWN[trace] = weak.graph, K, fixed, fixed and all(is_linear(e, "fn") for e in weak.rows.values())
    graph, K, fixed, linear = _KNOWN[trace]
    if not (fixed if affine else linear):
        raise NotSuitable("the form is not linear")
    return graph, K


def component_matrix(trace: Trace, component: int) -> tuple[Trace, Entries]:
    """The symmetric part of K of a component by itself, as the results of a trace: those at i <= j that are not 0."""
    if trace not in _SYMMETRIC:
        (graph, K), n, found = coefficients(trace, affine=True), 1 + trace.dim, list[tuple[Trace, Entries]]()
        for first in range(0, n * trace.components, n):
            places = [(i, j) for i in range(n) for j in range(i, n)]
            S = {(i, j): symmetric_entry(K, graph, first + i, first + j) for i, j in places}
            S = {place: node for place, node in S.items() if not is_zero(node)}
            found.append((Trace(graph, trace.dim, max(1, len(S)), tuple(S.values())), S))
        _SYMMETRIC[trace] = found
    return _SYMMETRIC[trace][component]


def symmetric_entry(K: Entries, graph: Graph, row: int, column: int) -> Expression:
    """An entry of the symmetric part of a matrix of expressions."""
    zero = graph.constant(0.0)
    one, other = K.get((row, column), zero), K.get((column, row), zero)
    return one if one is other else graph.apply("mul", graph.apply("add", one, other), 0.5)


def elliptic_part(trace: Trace) -> Weak:
    """Diffusion and reaction of a linear form: |K_00| u, and the symmetric part of K on the gradient.

    For each component by itself. Diffusion that is a number times the gradient takes its absolute value, too. Terms of
    first order are left out: for a divergence-free flow they are skew-symmetric, except at the boundary. The rest is
    symmetric, and positive if the diffusion is.
    """
    graph, K = coefficients(trace)
    n, rows = 1 + trace.dim, dict[Row, Expression]()
    for c in range(trace.components):
        S = {(i, j): symmetric_entry(K, graph, c * n + i, c * n + j) for i in range(n) for j in range(n) if i and j}
        if all(entry is S[1, 1] if i == j else is_zero(entry) for (i, j), entry in S.items()):
            S |= {(i, i): graph.apply("abs", S[1, 1]) for i in range(1, n)}
        S[0, 0] = graph.apply("abs", symmetric_entry(K, graph, c * n, c * n))
        for (i, j), entry in S.items():
            term = graph.apply("mul", entry, graph.node("input", (), ("fn", "u", c, j)))
            rows[c, i] = graph.apply("add", rows[c, i], term) if (c, i) in rows else term
    found = Weak(graph, trace.dim, rows, trace.components)
    if not found.rows:
        raise NotSuitable("the form has neither diffusion nor reaction")
    return found
