"""A form on a block, chunk by chunk: evaluate, pointwise, test. Everything of a chunk stays in cache.

Inside, arrays are [point or mode, lane]: the elements of a chunk are fastest, so that every stage is a matrix product
with long rows, and users' [component, element, mode] arrays are transposed at the border.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hpfem.shapes.arrays import Floats

from ...forms.cost import operator_flops
from ...forms.evaluate import evaluate
from ...forms.form import BlockKernel, BlockProblem
from ...forms.graph import Expression
from ...forms.trace import Trace
from ...geometry.factors import expansion
from ...geometry.jacobians import symmetric_pairs
from ...support.pool import Pool
from .dense import Dense
from .plan import twin
from .sumfac import Collocation, SumFac

# Numbers of one array of a chunk: enough to pay for the calls, few enough for the caches.
_CHUNK_NUMBERS = 24_000


def chunk_lanes(problem: BlockProblem) -> int:
    """Elements of a chunk, such that calls cost little, arrays stay in cache and chunks are of equal size."""
    most = int(np.clip(_CHUNK_NUMBERS // problem.n_points, 128, 512))
    elements = max(problem.n_elements, 1)
    return -(-elements // -(-elements // most))


class NumpyKernel(BlockKernel):
    """A form on a block in NumPy, by the strategy "stdmat", or by sum factorisation under another name."""

    def __init__(self, problem: BlockProblem, strategy: str) -> None:
        self.problem, self.strategy = problem, strategy
        form, dtype = problem.form, problem.dtype
        self.lanes = chunk_lanes(problem)
        self._has_modes = form.from_modes or form.to_modes
        self._collocated = form.gradients and problem.collocated
        if self._has_modes:
            engine: type[Dense | SumFac] = Dense if strategy == "stdmat" else SumFac
            of_basis = form.gradients and not problem.collocated
            self._engine: Dense | SumFac = engine(problem.tabulation, self.lanes, dtype, of_basis)
        if self._collocated:
            self._collocation = Collocation(problem.tabulation, dtype)
        kind = form.factor_kind
        stored = problem.factors_dtype
        self.factors = None if kind is None else problem.geometry.factors(kind, self.lanes, stored)
        self._expansion: Floats | None = None
        if kind is not None and problem.geometry.affine:
            matrix = expansion(problem.geometry, kind)
            self._expansion = np.ascontiguousarray(matrix.reshape(-1, matrix.shape[-1]), dtype)
        if form.trace is not None and form.trace.uses_point:
            self._points = problem.geometry.factors("points", self.lanes, dtype)
        self.flops = operator_flops(problem, strategy)
        self._twins: Pool[NumpyKernel] = Pool()

    def allocate(self) -> None:
        """Make the scratch of one application at a time."""
        if self._has_modes:
            self._engine = twin(self._engine)
        if self._collocated:
            self._collocation = twin(self._collocation)
        p, form = self.problem, self.problem.form
        q, d, lanes, dtype = p.n_points, p.shape.dim, self.lanes, p.dtype
        # One array object per component: the engines' plans are kept by buffer.
        n_modes = max(p.coupled * form.from_modes, p.given * form.to_modes)
        self._modes = [np.zeros((p.n_modes, lanes), dtype) for _ in range(n_modes)]
        n_values = max(p.coupled, p.given if form.trace is not None else 0)
        self._values = [np.zeros((q, lanes), dtype) for _ in range(n_values)]
        self._derivatives = [np.zeros((d, q, lanes), dtype) for _ in range(p.coupled * form.trial_gradient)]
        self._fluxes = np.zeros((d * form.test_gradient, q, lanes), dtype)
        self._work = np.empty((q, lanes), dtype)
        if self._expansion is not None:
            self._expanded = np.empty((len(self._expansion) // q, q, lanes), dtype)

    def apply(self, source: Floats, out: Floats) -> None:
        """Apply to one block of a field; see `BlockKernel.apply`."""
        worker = self._twins.take(self._twin)
        worker._apply(source, out)
        self._twins.give(worker)

    def _twin(self) -> NumpyKernel:
        """The kernel that does the work of one application."""
        made = twin(self)
        del made._twins  # no cycle of references, so that memory is freed at once
        return made

    def _apply(self, source: Floats, out: Floats) -> None:
        elements, coupled, given = self.problem.n_elements, self.problem.coupled, self.problem.given
        with np.errstate(all="ignore"):  # no messages about infinity and NaN, as on other backends
            for group, first in enumerate(range(0, elements, self.lanes)):
                self._start(group, slice(first, min(first + self.lanes, elements)))
                for i in range(len(source) // coupled):
                    self._evaluate(source[i * coupled : (i + 1) * coupled])
                    for c, values in enumerate(self._results()):
                        out[i * given + c, self._chunk] = self._tested(values, c)[:, self._live].T

    def _start(self, group: int, chunk: slice) -> None:
        """Go to a chunk; a short last one has fewer live lanes, and the others keep what they had."""
        self._group, self._chunk, self._live = group, chunk, slice(0, chunk.stop - chunk.start)
        if self.factors is None:
            return
        factors = self.factors[group]  # [factor, point, lane]
        if self._expansion is not None:
            np.matmul(self._expansion, factors[:, 0], out=self._expanded.reshape(len(self._expansion), -1))
            factors = self._expanded
        self._geometry = factors[..., self._live].astype(self.problem.dtype, copy=False)

    def _evaluate(self, source: Floats) -> None:
        """Values and derivatives at the points, of components that go together."""
        form = self.problem.form
        for i, given in enumerate(source):
            into = self._modes[i] if form.from_modes else self._values[i]
            into[:, self._live] = given[self._chunk].T
            if form.from_modes and form.trial_gradient and not self._collocated:
                value = self._values[i] if form.trial_value else None
                self._engine.evaluate_gradient(into, value, self._derivatives[i])
                continue
            if form.from_modes:
                self._engine.evaluate(into, self._values[i])
            if form.trial_gradient:
                self._collocation.differentiate(self._values[i], self._derivatives[i])

    def _results(self) -> Iterator[Any]:
        """Factors of the test values at the points, component by component; fluxes are kept in `_fluxes`."""
        form = self.problem.form
        if form.trace is not None:
            yield from self._function_results(form.trace)
        elif form.test_gradient:
            self._pull_back([values[:, self._live] for values in self._values])
            yield None
        elif form.trial_gradient:
            for i in range(self.problem.given):
                yield self._physical(self._derivatives[0], i)
        else:
            for values in self._values:
                yield self._weighted(values[:, self._live], values) if form.test_value else values

    def _function_results(self, trace: Trace) -> Iterator[Any]:
        """Results of the pointwise function with geometry and weights."""
        n = self.problem.given
        found = evaluate(trace, self._input, self.problem.dtype)
        if n > 1:  # a result may be another component's values, which are about to be overwritten
            for node in trace.outputs:
                if node.op == "input" and node.payload[0] == "u":
                    found[node.index] = found[node.index].copy()
        for i in range(n):
            if trace.scaled is not None:
                self._metric(trace.scaled[i], found)
            elif trace.flux is not None:
                self._pull_back([found[node.index] for node in trace.flux[i]])
            value = None if trace.value is None else found[trace.value[i].index]
            if value is None or self.problem.form.test:
                yield value if value is None else self._weighted(value, self._values[i])
            else:
                self._values[i][:, self._live] = value
                yield self._values[i]

    def _tested(self, values: Any, c: int) -> Floats:
        """Component of the result: the values at the points, tested with the values and derivatives of the basis."""
        form = self.problem.form
        if not form.to_modes:
            return values
        if not form.test_gradient:
            self._engine.test_value(values, self._modes[c])
        elif not self._collocated:
            self._engine.test_gradients(values, self._fluxes, self._modes[c])
        else:
            total = self._values[c] if values is None else values
            self._collocation.add_transpose(self._fluxes, self._work, total, overwrite=values is None)
            self._engine.test_value(total, self._modes[c])
        return self._modes[c]

    def _weighted(self, values: Any, out: Floats) -> Floats:
        """Values [point, live lane] times weights and Jacobian determinants, in a chunk's array."""
        np.multiply(values, self._geometry[-1], out=out[:, self._live])
        return out

    def _physical(self, derivatives: Floats, i: int) -> Floats:
        """Derivative by x_i from those by collapsed coordinates."""
        factors, derivatives = self._geometry[i :: self.problem.geometry.space_dim], derivatives[..., self._live]
        total = factors[0] * derivatives[0]
        for a in range(1, len(derivatives)):
            total += factors[a] * derivatives[a]
        return total

    def _pull_back(self, flux: Sequence[Any]) -> None:
        """Fluxes that multiply the derivatives by collapsed coordinates, from one in x, weights included."""
        weighted = [component * self._geometry[-1] for component in flux]
        for a, out in enumerate(self._fluxes[..., self._live]):
            factors = self._geometry[a * len(flux) :]
            np.multiply(factors[0], weighted[0], out=out)
            for i in range(1, len(flux)):
                out += factors[i] * weighted[i]

    def _metric(self, terms: dict[int, Expression], found: dict[int, Any]) -> None:
        """Fluxes of a scaled gradient, through the symmetric metric."""
        live, d = self._live, self.problem.shape.dim
        (first, scale), *others = terms.items()
        combined = self._derivatives[first][..., live]
        if others or scale.op != "const" or scale.payload != 1.0:
            combined = np.zeros_like(combined)
            for c, scale in terms.items():
                combined += found[scale.index] * self._derivatives[c][..., live]
        rows, work = symmetric_pairs(d), self._work[:, live]
        for a, out in enumerate(self._fluxes[..., live]):
            np.multiply(self._geometry[rows.index((0, a))], combined[0], out=out)
            for b in range(1, d):
                np.multiply(self._geometry[rows.index((min(a, b), max(a, b)))], combined[b], out=work)
                out += work

    def _input(self, key: tuple[Any, ...]) -> Any:
        """An input of the pointwise function."""
        p, kind = self.problem, key[0]
        if kind == "u":
            return self._values[key[1]][:, self._live]
        if kind == "du":
            return self._physical(self._derivatives[key[1]], key[2])
        if kind == "param":
            return p.parameters[key[1]]
        if kind == "x":
            return self._points[self._group, key[1]][:, self._live]
        return np.ascontiguousarray(p.fields[key[1]].values[key[2]][self._chunk].T)
