"""Merged factors: the coefficients of a form are multiplied into what is stored of the geometry.

A linear form (m u, v) + (A grad u, grad v) reads A and m at every point, beside the factors that it multiplies by them.
Where both are known when its kernel is made, the kernel stores their products instead: m w |J|, and w |J| J^-1 A J^-T.
Known are numbers of the function, coordinates, and fields that are constant (`PairArray`): parameters and fields of the
user may change between two applications, so they stay in the kernel, each as a factor. So no product is ever stale.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ..errors import NotSuitable
from ..geometry import FactorSource
from ..geometry.element_map import Elements
from ..geometry.factors import PointMap
from .cost import operator_bytes
from .evaluate import evaluate
from .form import BlockProblem, Form
from .graph import Expression, Graph, copied, depending
from .linear import coefficients
from .trace import Trace


class KnownCoefficients:
    """Coefficients of a form that are known when its kernel is made; see `hpfem.geometry.Coefficients`. The diffusion
    is one expression, or the rows of a symmetric matrix; none if it stays in the kernel, or there is none, as for the
    reaction. `reacts` says whether a value is tested.
    """

    def __init__(
        self,
        problem: BlockProblem,
        graph: Graph,
        diffusion: list[Expression],
        reaction: Expression | None,
        reacts: bool,
    ) -> None:
        self.tensor, self.reacts = len(diffusion) > 1, reacts
        self._diffusion, self._reaction = diffusion, reaction
        dim = problem.geometry.space_dim
        self._trace = Trace(graph, dim, 1, (*diffusion, *([] if reaction is None else [reaction])))
        self._fields, self._dtype = problem.fields, problem.dtype

    def values(self, geometry: PointMap, elements: Elements, xp: Any) -> tuple[Any, Any]:
        """Evaluate them, in the arithmetic of kernels; see `hpfem.geometry.products.Coefficients`."""
        points: list[Any] = []

        def source(key: tuple[Any, ...]) -> Any:
            if key[0] == "x":
                if not points:
                    points.extend(geometry.positions(geometry.values, elements, xp).astype(self._dtype))
                return points[key[1]]
            field = self._fields[key[1]]
            return (field.pair.read() if xp is np else field.values)[key[2], elements]

        found = evaluate(self._trace, source)
        reaction = 1.0 if self._reaction is None else found[self._reaction.index]
        diffusion = [found[node.index] for node in self._diffusion] or [1.0]
        return (diffusion if self.tensor else diffusion[0]), reaction


# What `merged` made, for as long as a problem lives: its kernels share factors.
_MADE: WeakKeyDictionary[BlockProblem, BlockProblem] = WeakKeyDictionary()


def merged(problem: BlockProblem) -> BlockProblem:
    """Take a problem with the coefficients of its form in the stored geometric factors."""
    if problem not in _MADE:
        _MADE[problem] = _merged(problem)
    return _MADE[problem]


def _merged(problem: BlockProblem) -> BlockProblem:
    trace, refused = problem.form.trace, f"coefficients of {problem.form.name} are not merged"
    if trace is None or not problem.form.test or problem.geometry.affine or problem.form.components > 1:
        raise NotSuitable(f"{refused}: only weak forms on elements that are not affine, of uncoupled components, are")
    if not trace.general and not any(key[0] in ("field", "x") for key in trace.inputs):
        raise NotSuitable(f"{refused}: it has none at the points")
    graph, K = coefficients(trace)
    d, zero = trace.dim, graph.constant(0.0)
    if any((row == 0) != (column == 0) for row, column in K):
        raise NotSuitable(f"{refused}: it has derivatives of the first order")
    A = [[K.get((1 + i, 1 + j), zero) for j in range(d)] for i in range(d)]
    if any(A[i][j] is not A[j][i] for i in range(d) for j in range(i)):
        raise NotSuitable(f"{refused}: its diffusion is not symmetric")
    m = K.get((0, 0), zero)
    # What may differ from one application to the next.
    fields = problem.fields
    changing = depending(graph.nodes, lambda k: k[0] == "param" or (k[0] == "field" and not fields[k[1]].pair.constant))
    tensor = any((A[i][j] is not (A[0][0] if i == j else zero)) for i in range(d) for j in range(d))
    diffusion = [entry for row in A for entry in row] if tensor else [A[0][0]]
    kept = any(entry.index in changing for entry in diffusion)
    if tensor and kept:
        raise NotSuitable(f"{refused}: its diffusion is a tensor that may change")
    own = Graph()
    copies = copied(graph.nodes, own)
    u = own.node("input", (), ("u", 0))
    left = copies[m.index] if m.index in changing else own.constant(1.0)
    value = None if trace.value is None else (own.apply("mul", left, u),)
    scaled = None
    if "grad" in trace.test:
        scaled = ({0: copies[A[0][0].index] if kept else own.constant(1.0)},)
    form = Form.weak(problem.form.name, Trace(own, d, 1, value, scaled))
    assert form.trace is not None
    used = {key[1] for key in form.trace.inputs if key[0] == "field"}
    reaction = None if value is None or m.index in changing else m
    known = KnownCoefficients(problem, graph, [] if kept or scaled is None else diffusion, reaction, value is not None)
    found = replace(
        problem,
        form=form,
        fields={key: field for key, field in problem.fields.items() if key in used},
        geometry=problem.geometry.with_coefficients(known),
        source=FactorSource.MERGED,
    )
    if operator_bytes(found) >= operator_bytes(problem):
        raise NotSuitable(f"{refused}: the kernel would read as many numbers")
    return found


def merged_if_possible(problem: BlockProblem) -> BlockProblem:
    """Take `merged` of a problem, or the problem itself where that is not possible."""
    try:
        return merged(problem)
    except NotSuitable:
        return problem
