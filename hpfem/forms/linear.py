"""What the graph of a form tells: whether it is linear and symmetric, its coefficients, its elliptic part."""

from __future__ import annotations

from ..errors import NotSuitable
from . import Expression, Graph, Trace
from .form import BlockProblem


def is_linear(node: Expression, *variables: str) -> bool | None:
    """Whether an expression is linear in the trial's value, or gradient: None if it does not depend on it.

    Parameters
    ----------
    node : Expression
    *variables : str
        Kinds of the inputs: "u", "du".

    Returns
    -------
    bool or None
    """
    # Nodes stand behind their arguments; each is looked at once, however often it is shared.
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
        else:
            linear.append(one.op == "neg" or (one.op == "div" and parts[1] is None))
    return linear[node.index]


def is_symmetric(trace: Trace | None) -> bool:
    """Whether a form is seen to be symmetric: multiples of one component's value and gradient, tested by the same.

    Parameters
    ----------
    trace : Trace or None
        Of a weak form.

    Returns
    -------
    bool
        False where that has to be found out otherwise.
    """
    if trace is None or trace.components > 1 or trace.general:
        return False
    value = trace.value is None or is_linear(trace.value[0], "u") is True
    return value and (trace.scaled is None or is_linear(trace.scaled[0][0], "u") is None)


def check_linear(problem: BlockProblem) -> None:
    """Check that a problem has constant element matrices.

    Parameters
    ----------
    problem : BlockProblem

    Raises
    ------
    NotSuitable
        With the reason.
    """
    form, trace = problem.form, problem.form.trace
    if trace is None:
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


def coefficients(trace: Trace) -> tuple[Graph, dict[tuple[int, int], Expression]]:
    """The matrix K of a linear form: what its function makes of values and derivatives.

    Each column is the function of a unit vector: with 1 for one of them and 0 for the others.

    Parameters
    ----------
    trace : Trace
        Of a weak form, D its dimension.

    Returns
    -------
    Graph
    {(row, column): Expression}
        Entries that are not zero, made of fields, parameters and the point. Rows are of the test function and its
        derivatives, columns of the trial function: c (1 + D) for the value of component c, and D derivatives after it.

    Raises
    ------
    NotSuitable
        If the form is not seen to be linear.
    """
    graph, n = Graph(), 1 + trace.dim
    rows = {} if trace.value is None else {c * n: node for c, node in enumerate(trace.value)}
    for c, flux in enumerate(trace.flux or ()):
        rows |= {c * n + 1 + i: node for i, node in enumerate(flux)}
    scales = [scale for terms in trace.scaled or () for scale in terms.values()]
    linear = all(is_linear(node, "u", "du") or _is_zero(node) for node in rows.values())
    if not linear or any(is_linear(scale, "u", "du") is not None for scale in scales):
        raise NotSuitable("the form is not linear")
    found: dict[tuple[int, int], Expression] = {}
    for column in range(trace.components * n):
        new = _copied(trace, graph, column)
        found |= {(row, column): new[node.index] for row, node in rows.items()}
    for c, terms in enumerate(trace.scaled or ()):
        for other, scale in terms.items():
            found |= {(c * n + i, other * n + i): new[scale.index] for i in range(1, n)}
    return graph, {place: node for place, node in found.items() if not _is_zero(node)}


def _is_zero(node: Expression) -> bool:
    return node.op == "const" and node.payload == 0


def _copied(trace: Trace, graph: Graph, column: int) -> dict[int, Expression]:
    """The nodes of a linear form in another graph, for a unit vector of values and derivatives."""
    new: dict[int, Expression] = {}
    for node in trace.live:
        args = [new[a.index] for a in node.args]
        if node.op == "input" and node.payload[0] in ("u", "du"):
            place = node.payload[1] * (1 + trace.dim) + (1 + node.payload[2] if node.payload[0] == "du" else 0)
            new[node.index] = graph.constant(float(place == column))
        elif not args:
            new[node.index] = graph.node(node.op, (), node.payload)
        elif node.op == "div" and _is_zero(args[0]):
            new[node.index] = args[0]
        else:
            new[node.index] = graph.apply(node.op, *args)
    return new


def symmetric_entry(K: dict[tuple[int, int], Expression], graph: Graph, row: int, column: int) -> Expression:
    """An entry of the symmetric part of a matrix of expressions.

    Parameters
    ----------
    K : {(row, column): Expression}
        Without what is zero.
    graph : Graph
    row, column : int

    Returns
    -------
    Expression
    """
    zero = graph.constant(0.0)
    one, other = K.get((row, column), zero), K.get((column, row), zero)
    return one if one is other else graph.apply("mul", graph.apply("add", one, other), 0.5)


def elliptic_part(trace: Trace) -> Trace:
    """Diffusion and reaction of a linear form: |K_00| u, and the symmetric part of K on the gradient.

    Of each component by itself. Terms of first order are left out: those of a flow without sources are skew but for
    the boundary. What remains is symmetric, and positive where the diffusion is.

    Parameters
    ----------
    trace : Trace
        Of a weak form.

    Returns
    -------
    Trace

    Raises
    ------
    NotSuitable
        If the form is not linear, or has neither diffusion nor reaction.
    """
    graph, K = coefficients(trace)
    n, components = 1 + trace.dim, range(trace.components)
    S = [[[symmetric_entry(K, graph, c * n + i, c * n + j) for j in range(n)] for i in range(n)] for c in components]
    reaction = [
        graph.apply("mul", graph.apply("abs", own[0][0]), graph.node("input", (), ("u", c))) for c, own in enumerate(S)
    ]
    value = None if all(_is_zero(node) for node in reaction) else tuple(reaction)
    if all(_is_zero(node) for own in S for row in own[1:] for node in row[1:]):
        if value is None:
            raise NotSuitable("the form has neither diffusion nor reaction")
        return Trace(graph, trace.dim, trace.components, value, None, None)
    if all(
        own[i][i] is own[1][1] and all(_is_zero(own[i][j]) for j in range(1, n) if j != i)
        for own in S
        for i in range(1, n)
    ):
        scaled = tuple({c: own[1][1]} for c, own in enumerate(S))
        return Trace(graph, trace.dim, trace.components, value, scaled, None)
    zero = graph.constant(0.0)

    def flux(c: int, i: int) -> Expression:
        total = zero
        for j in range(1, n):
            total = graph.apply("add", total, graph.apply("mul", S[c][i][j], graph.node("input", (), ("du", c, j - 1))))
        return total

    fluxes = tuple(tuple(flux(c, i) for i in range(1, n)) for c in components)
    return Trace(graph, trace.dim, trace.components, value, None, fluxes)
