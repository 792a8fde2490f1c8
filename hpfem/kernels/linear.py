"""Forms that have a constant element matrix: linear, of constant coefficients, on affine elements."""

from __future__ import annotations

from ..errors import NotSuitable
from .expression import Expression
from .form import BlockProblem


def is_linear(node: Expression, variable: str) -> bool | None:
    """Whether an expression is linear in the trial's value: None if it does not depend on it.

    Parameters
    ----------
    node : Expression
    variable : str
        Kind of the input: "u".
    """
    if node.op in ("const", "input"):
        return True if node.op == "input" and node.payload[0] == variable else None
    parts = [is_linear(a, variable) for a in node.args]
    if all(part is None for part in parts):
        return None
    if False in parts:
        return False
    if node.op in ("add", "sub"):
        return None not in parts
    if node.op == "neg":
        return True
    if node.op == "mul":
        return None in parts
    return node.op == "div" and parts[1] is None


def check_linear(problem: BlockProblem) -> None:
    """Say why a problem has no constant element matrices.

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
