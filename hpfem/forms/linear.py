"""Forms that have a constant element matrix: linear, of constant coefficients, on affine elements."""

from __future__ import annotations

from ..errors import NotSuitable
from . import Expression, Trace
from .form import BlockProblem


def is_linear(node: Expression, variable: str) -> bool | None:
    """Whether an expression is linear in the trial's value: None if it does not depend on it.

    Parameters
    ----------
    node : Expression
    variable : str
        Kind of the input: "u".

    Returns
    -------
    bool or None
    """
    # Nodes stand behind their arguments; each is looked at once, however often it is shared.
    linear: list[bool | None] = []
    for one in node.graph.nodes[: node.index + 1]:
        parts = [linear[a.index] for a in one.args]
        if one.op == "input" and one.payload[0] == variable:
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
