"""A traced pointwise function on arrays, in scratch made once; memory of values is reused after their last use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .graph import COMPARISONS, OPERATIONS, Expression
from .trace import Trace

# Points at which functions are compared.
SAMPLES = 8
# A function of NumPy, the numbers of its arguments and that of its result.
_Step = tuple[Callable[..., Any], tuple[int, ...], int]


def _select(condition: NDArray[Any], yes: Any, no: Any, out: NDArray[Any]) -> None:
    """Write yes where the condition is not 0, else no; `out` may be `no`."""
    if out is not no:
        np.copyto(out, no)
    np.copyto(out, yes, where=condition if condition.dtype == np.bool_ else condition != 0)


def evaluate(trace: Trace, source: Callable[[tuple[Any, ...]], Any]) -> dict[int, Any]:
    """Values of the results of a trace on arrays of NumPy or of a library that takes its functions."""
    values: dict[int, Any] = {}
    with np.errstate(all="ignore"):
        for node in trace.live:
            if node.op in ("const", "input"):
                values[node.index] = node.payload if node.op == "const" else source(node.payload)
            else:
                found = OPERATIONS[node.op][2](*[values[a.index] for a in node.args])
                values[node.index] = 1.0 * found if node.op in COMPARISONS else found
    return {node.index: values[node.index] for node in trace.outputs}


def random_data(trace: Trace) -> dict[tuple[Any, ...], NDArray[np.float64]] | None:
    """Random inputs, near 0 for functions and near 1 for coefficients: analytic functions that agree there are equal.
    None if a result is not analytic.
    """
    if any(node.op in (*COMPARISONS, "where", "min", "max", "abs") for node in trace.live):
        return None
    rng = np.random.default_rng(0)
    return {key: rng.uniform(-0.2, 0.2, SAMPLES) + (key[0] != "fn") for key in trace.inputs}


class Evaluator:
    """Evaluates the graph of a trace on arrays of a shape, with all arithmetic in one type: a comparison is 1 or 0."""

    def __init__(self, trace: Trace, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        self._shape, self._dtype = shape, np.dtype(dtype)
        # Values have numbers: -1, -2, .. for places in the scratch, all others those of their nodes.
        self._number: dict[int, int] = {}
        self._constants: dict[int, Any] = {}
        self._inputs: list[tuple[int, tuple[Any, ...]]] = []
        self._uniform: list[_Step] = []
        self._steps: list[_Step] = []
        self._scratch: list[NDArray[Any]] = []
        self._free: dict[Any, list[int]] = {self._dtype: [], np.dtype(bool): []}
        uses = [(argument.index, node, i) for node in trace.live for i, argument in enumerate(node.args)]
        results = {node.index for node in trace.outputs}
        last = {argument: node.index for argument, node, _ in uses if argument not in results}
        # Comparisons that are only used to select stay truth values.
        arithmetic = results | {argument for argument, node, i in uses if node.op != "where" or i > 0}
        uniform: set[int] = set()
        for node in trace.live:
            self._number[node.index] = node.index
            if node.op == "const":
                self._constants[node.index] = self._rounded(node.payload)
                uniform.add(node.index)
            elif node.op == "input":
                self._inputs.append((node.index, node.payload))
                if node.payload[0] == "param":
                    uniform.add(node.index)
            elif all(a.index in uniform for a in node.args):
                uniform.add(node.index)
                self._uniform.append((OPERATIONS[node.op][2], tuple(a.index for a in node.args), node.index))
            else:
                truth = node.op in COMPARISONS and node.index not in arithmetic
                ending = [a.index for a in node.args if last.get(a.index) == node.index]
                self._plan(node, np.dtype(bool) if truth else self._dtype, ending)
        self._results = [(index, self._number[index]) for index in results]

    def _rounded(self, value: Any) -> Any:
        with np.errstate(over="ignore"):
            return self._dtype.type(value)

    def _plan(self, node: Expression, dtype: Any, ending: list[int]) -> None:
        """Add the step of a node; nothing needs the arguments `ending` after it."""
        arguments = tuple(self._number[a.index] for a in node.args)
        free = {self._number[index] for index in ending if self._number[index] < 0}
        # A selection begins to write before it has read all other arguments.
        at_once = free & set(arguments[2:]) if node.op == "where" else free
        for number in (*at_once, None, *(free - at_once)):
            if number is not None:
                self._free[self._scratch[-1 - number].dtype].append(number)
                continue
            if not self._free[dtype]:
                self._scratch.append(np.empty(self._shape, dtype))
                self._free[dtype].append(-len(self._scratch))
            self._number[node.index] = self._free[dtype].pop()
        function = _select if node.op == "where" else OPERATIONS[node.op][2]
        self._steps.append((function, arguments, self._number[node.index]))

    def __call__(self, source: Callable[[tuple[Any, ...]], Any], lanes: int) -> dict[int, Any]:
        """Values of the results."""
        values = dict(self._constants)
        whole = lanes == self._shape[-1]
        for i, array in enumerate(self._scratch):
            values[-1 - i] = array if whole else array[..., :lanes]
        for index, key in self._inputs:
            values[index] = self._rounded(source(key)) if key[0] == "param" else source(key)
        for function, arguments, number in self._uniform:
            values[number] = self._rounded(function(*[values[i] for i in arguments]))
        for function, arguments, number in self._steps:
            function(*[values[i] for i in arguments], out=values[number])
        return {index: values[number] for index, number in self._results}
