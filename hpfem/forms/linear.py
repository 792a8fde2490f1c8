"""Forms that have a constant element matrix: linear, of constant coefficients, on affine elements."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..errors import NotSuitable
from . import Expression, Trace
from .evaluate import evaluate
from .form import BlockProblem
from .graph import COMPARISONS

# What functions are made of that differ from place to place, and points at which others are compared.
_NOT_ANALYTIC, _SAMPLES = {*COMPARISONS, "where", "min", "max", "abs"}, 8


def is_linear(node: Expression, *variables: str) -> bool | None:
    """Whether an expression is linear in the trial function: None if it does not depend on it.

    Parameters
    ----------
    node : Expression
    *variables : str
        Kinds of the inputs that count: "u", the value, and "du", its derivatives.

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
    """Whether a form is seen to be symmetric: by what it is made of, or by its matrix at points with random data.

    Parameters
    ----------
    trace : Trace or None
        Of a weak form.

    Returns
    -------
    bool
        False where that has to be found out otherwise.
    """
    if trace is None:
        return False
    value, scaled = trace.value or (), [scale for terms in trace.scaled or () for scale in terms.values()]
    if any(is_linear(node, "u", "du") is not None for node in scaled):
        return False
    if trace.components == 1 and not trace.general:
        return not value or is_linear(value[0], "u") is True
    given = [*value, *(part for flux in trace.flux or () for part in flux)]
    zero = [node.op == "const" and node.payload == 0 for node in given]
    if not all(none or is_linear(node, "u", "du") for node, none in zip(given, zero, strict=True)):
        return False
    return not any(node.op in _NOT_ANALYTIC for node in trace.live) and _symmetric_at_random(trace)


def _symmetric_at_random(trace: Trace) -> bool:
    """Whether what takes the components' values and derivatives to what tests them is symmetric for random data.

    Analytic functions that agree there agree everywhere.
    """
    rng, n, d = np.random.default_rng(0), trace.components, trace.dim
    data = {key: rng.uniform(0.5, 1.5, _SAMPLES) for key in trace.inputs if key[0] not in ("u", "du")}
    matrix = np.zeros((_SAMPLES, n, 1 + d, n, 1 + d))
    for c in range(n):
        for j in range(1 + d):
            unit: tuple[Any, ...] = ("u", c) if j == 0 else ("du", c, j - 1)
            found = evaluate(trace, partial(_datum, data, unit))
            for t, node in enumerate(trace.value or ()):
                matrix[:, t, 0, c, j] = found[node.index]
            for t, flux in enumerate(trace.flux or ()):
                for i, node in enumerate(flux):
                    matrix[:, t, 1 + i, c, j] = found[node.index]
            for t, terms in enumerate(trace.scaled or ()):
                if j and c in terms:
                    matrix[:, t, j, c, j] = found[terms[c].index]
    apart = np.abs(matrix - matrix.transpose(0, 3, 4, 1, 2)).reshape(_SAMPLES, -1).max(axis=1)
    return bool(np.all(apart <= 1e-13 * np.abs(matrix).reshape(_SAMPLES, -1).max(axis=1)))


def _datum(data: dict[tuple[Any, ...], Any], unit: tuple[Any, ...], key: tuple[Any, ...]) -> Any:
    """An input where one of the trial function's values and derivatives is 1, the others 0."""
    return data[key] if key in data else float(key == unit)


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
