"""A traced pointwise function on arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .graph import COMPARISONS, OPERATIONS
from .trace import Trace

# Points at which functions are compared.
SAMPLES = 8


def evaluate(trace: Trace, source: Callable[[tuple[Any, ...]], Any], dtype: DTypeLike | None = None) -> dict[int, Any]:
    """Values of the results of a trace on arrays of NumPy or of a library that takes its functions; numbers are of the
    type of arrays where that is given.
    """
    number: Callable[[Any], Any] = np.dtype(dtype).type if dtype is not None else lambda value: value
    values, results = dict[int, Any](), {node.index for node in trace.outputs}
    last = {argument.index: node.index for node in trace.live for argument in node.args}
    with np.errstate(all="ignore"):
        for node in trace.live:
            if node.op in ("const", "input"):
                found = node.payload if node.op == "const" else source(node.payload)
                values[node.index] = number(found) if node.op == "const" or node.payload[0] == "param" else found
                continue
            found = OPERATIONS[node.op][2](*[values[a.index] for a in node.args])
            values[node.index] = number(1.0) * found if node.op in COMPARISONS else found
            for a in {a.index for a in node.args}:  # the memory of what was needed here last is free for others
                if last[a] == node.index and a not in results:
                    del values[a]
    return {node.index: values[node.index] for node in trace.outputs}


def random_data(trace: Trace) -> dict[tuple[Any, ...], NDArray[np.float64]] | None:
    """Random inputs, near 0 for functions and near 1/2 for coefficients: analytic functions that agree there are equal.
    None if a result is not analytic.
    """
    if any(node.op in (*COMPARISONS, "where", "min", "max", "abs", "floor", "ceil", "sign") for node in trace.live):
        return None
    rng = np.random.default_rng(0)
    return {key: rng.uniform(-0.2, 0.2, SAMPLES) + 0.5 * (key[0] != "fn") for key in trace.inputs}
