"""A form on a block, chunk by chunk: evaluate, pointwise, test. Everything of a chunk stays in cache.

Inside, arrays are [point or mode, lane]: the elements of a chunk are fastest, so that every stage is a matrix product
with long rows, and users' [component, element, mode] arrays are transposed at the border.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...forms import Expression, Trace
from ...forms.cost import operator_flops
from ...forms.form import BlockKernel, BlockProblem
from ...geometry.block_geometry import symmetric_pairs
from ...support.pool import Pool
from .collocation import Collocation
from .dense import Dense
from .plan import twin
from .pointwise import Evaluator
from .sumfac import SumFac

Array = NDArray[np.floating[Any]]

# Numbers of one array of a chunk: enough to pay for the calls, few enough for the caches.
CHUNK_NUMBERS = 24_000


def chunk_lanes(problem: BlockProblem) -> int:
    """Elements of a chunk, such that calls cost little, arrays stay in cache and chunks are of equal size."""
    most = int(np.clip(CHUNK_NUMBERS // problem.n_points, 128, 512))
    elements = max(problem.n_elements, 1)
    return -(-elements // -(-elements // most))


class NumpyKernel(BlockKernel):
    """A form on a block in NumPy.

    Parameters
    ----------
    problem : BlockProblem
    strategy : str
        "stdmat" or "sumfac".
    """

    def __init__(self, problem: BlockProblem, strategy: str) -> None:
        self.problem, self.strategy = problem, strategy
        form, dtype = problem.form, problem.dtype
        self.lanes = chunk_lanes(problem)
        self.collocated = problem.collocated
        engine: type[Dense | SumFac] = Dense if strategy == "stdmat" else SumFac
        self.engine: Dense | SumFac | None = None
        if form.from_modes or form.to_modes:
            self.engine = engine(problem.tabulation, self.lanes, dtype, form.gradients and not self.collocated)
        self.collocation: Collocation | None = None
        if form.gradients and self.collocated:
            self.collocation = Collocation(problem.tabulation, dtype)
        kind = form.factor_kind
        self.factors = None if kind is None else problem.geometry.factors(kind, self.lanes, dtype)
        self.expansion: Array | None = None
        if kind is not None and problem.geometry.affine:
            matrix = problem.geometry.expansion(kind)
            self.expansion = np.ascontiguousarray(matrix.reshape(-1, matrix.shape[-1]), dtype)
        self.points: Array | None = None
        if form.trace is not None and any(key[0] == "x" for key in form.trace.inputs):
            self.points = problem.geometry.factors("points", self.lanes, dtype)
        self.flops = operator_flops(problem, strategy)
        self._twins: Pool[NumpyKernel] = Pool()

    def allocate(self) -> None:
        """Make the scratch of one application at a time."""
        if self.engine is not None:
            self.engine = twin(self.engine)
        if self.collocation is not None:
            self.collocation = twin(self.collocation)
        p, form = self.problem, self.problem.form
        q, d, lanes, dtype = p.n_points, p.shape.dim, self.lanes, p.dtype
        # One array object per component: the engines' plans are kept by buffer.
        n_modes = max(p.coupled * form.from_modes, p.given * form.to_modes)
        self.modes = [np.zeros((p.n_modes, lanes), dtype) for _ in range(n_modes)]
        self.values = [np.zeros((q, lanes), dtype) for _ in range(p.coupled)]
        self.derivatives = [np.zeros((d, q, lanes), dtype) for _ in range(p.coupled * form.trial_gradient)]
        self.fluxes = np.zeros((d, q, lanes), dtype) if form.test_gradient else None
        self.work = np.empty((q, lanes), dtype)
        self.expanded = None
        if self.expansion is not None:
            self.expanded = np.empty((len(self.expansion) // q, q, lanes), dtype)
        self.pointwise = None if p.form.trace is None else Evaluator(p.form.trace, (q, lanes), dtype)

    def apply(self, source: Array, out: Array) -> None:
        """Apply to one block of a field; see `BlockKernel.apply`."""
        worker = self._twins.take(self._twin)
        worker._apply(source, out)
        self._twins.give(worker)

    def _twin(self) -> NumpyKernel:
        """The kernel that does the work of one application."""
        made = twin(self)
        del made._twins  # without a cycle of references memory goes as soon as it can
        return made

    def _apply(self, source: Array, out: Array) -> None:
        p = self.problem
        elements, coupled, given = p.n_elements, p.coupled, p.given
        with np.errstate(all="ignore"):  # what is not finite goes through silently, as on other backends
            for group, first in enumerate(range(0, elements, self.lanes)):
                chunk = slice(first, min(first + self.lanes, elements))
                factors = self._chunk_factors(group)
                for i in range(len(source) // coupled):
                    self._evaluate(source[i * coupled : (i + 1) * coupled], chunk)
                    for c, values in enumerate(self._results(chunk, factors, group)):
                        self._store(self._tested(values, c), out[i * given + c], chunk)

    def _chunk_factors(self, group: int) -> Array | None:
        """Factors of a chunk at the points, [factor, point, lane]."""
        if self.factors is None:
            return None
        if self.expansion is None or self.expanded is None:
            return self.factors[group]
        np.matmul(self.expansion, self.factors[group, :, 0], out=self.expanded.reshape(len(self.expansion), -1))
        return self.expanded

    @staticmethod
    def _load(source: Array, chunk: slice, into: Array) -> None:
        """User array [E, n] of one component -> [n, lane]; the lanes of a short last chunk keep what they had."""
        into[:, : chunk.stop - chunk.start] = source[chunk].T

    @staticmethod
    def _store(values: Array, out: Array, chunk: slice) -> None:
        out[chunk] = values[:, : chunk.stop - chunk.start].T

    def _evaluate(self, source: Array, chunk: slice) -> None:
        """Values and derivatives at the points, of components that go together."""
        form = self.problem.form
        for i, given in enumerate(source):
            self._load(given, chunk, self.modes[i] if form.from_modes else self.values[i])
            if form.from_modes and form.trial_gradient and not self.collocated:
                value = self.values[i] if form.trial_value else None
                self._engine.evaluate_gradient(self.modes[i], value, self.derivatives[i])
                continue
            if form.from_modes:
                self._engine.evaluate(self.modes[i], self.values[i])
            if form.trial_gradient:
                self._collocation.differentiate(self.values[i], self.derivatives[i])

    def _results(self, chunk: slice, factors: Any, group: int) -> Iterator[Any]:
        """What the values multiply at the points, component by component; fluxes are in `self.fluxes` meanwhile."""
        form, everything = self.problem.form, slice(None)
        if form.trace is not None:
            yield from self._function_results(form.trace, chunk, factors, group)
            return
        parts: Iterable[Array] = self.values
        if form.trial_gradient:
            space_dim = self.problem.geometry.space_dim
            parts = (self._physical(factors, self.derivatives[0], i, everything) for i in range(space_dim))
        if form.test_gradient:
            self._pull_back(factors, list(parts), everything)
            yield None
            return
        for values in parts:
            yield np.multiply(values, factors[-1], out=values) if form.test_value else values

    def _function_results(self, trace: Trace, chunk: slice, factors: Any, group: int) -> Iterator[Any]:
        """Results of the pointwise function with geometry and weights."""
        assert self.pointwise is not None
        n, lanes = self.problem.form.components, chunk.stop - chunk.start
        live = slice(0, lanes)
        found = self.pointwise(self._source(factors, chunk, group, live), lanes)
        if n > 1:  # a result may be another component's values, which are about to be overwritten
            for node in trace.outputs:
                if node.op == "input" and node.payload[0] == "u":
                    found[node.index] = found[node.index].copy()
        for i in range(n):
            if trace.scaled is not None:
                self._metric(factors, trace.scaled[i], found, live)
            elif trace.flux is not None:
                self._pull_back(factors, [found[node.index] for node in trace.flux[i]], live)
            if trace.value is None:
                yield None
                continue
            np.multiply(found[trace.value[i].index], factors[-1, :, live], out=self.values[i][:, live])
            yield self.values[i]

    def _tested(self, values: Any, c: int) -> Array:
        """Component of the result: what is at the points, tested with the values and derivatives of the basis."""
        form = self.problem.form
        if not form.to_modes:
            return values
        if not form.test_gradient:
            self._engine.test_value(values, self.modes[c])
        elif not self.collocated:
            self._engine.test_gradients(values, self._fluxes, self.modes[c])
        else:
            total = self.values[c] if values is None else values
            self._collocation.add_transpose(self._fluxes, self.work, total, overwrite=values is None)
            self._engine.test_value(total, self.modes[c])
        return self.modes[c]

    @property
    def _engine(self) -> Dense | SumFac:
        assert self.engine is not None
        return self.engine

    @property
    def _collocation(self) -> Collocation:
        assert self.collocation is not None
        return self.collocation

    @property
    def _fluxes(self) -> Array:
        assert self.fluxes is not None
        return self.fluxes

    def _physical(self, factors: Array, derivatives: Array, i: int, live: slice) -> Array:
        """Derivative by x_i from those by collapsed coordinates."""
        big = self.problem.geometry.space_dim
        total = factors[i, :, live] * derivatives[0, :, live]
        for a in range(1, self.problem.shape.dim):
            total += factors[a * big + i, :, live] * derivatives[a, :, live]
        return total

    def _pull_back(self, factors: Array, flux: Sequence[Any], live: slice) -> None:
        """Fluxes that multiply the derivatives by collapsed coordinates, from one in x, weights included."""
        big = self.problem.geometry.space_dim
        weighted = [component * factors[-1, :, live] for component in flux]
        for a in range(self.problem.shape.dim):
            np.multiply(factors[a * big, :, live], weighted[0], out=self._fluxes[a, :, live])
            for i in range(1, big):
                self._fluxes[a, :, live] += factors[a * big + i, :, live] * weighted[i]

    def _metric(self, factors: Array, terms: dict[int, Expression], found: dict[int, Any], live: slice) -> None:
        """Fluxes of a scaled gradient, through the symmetric metric."""
        d = self.problem.shape.dim
        row = {}
        for number, (a, b) in enumerate(symmetric_pairs(d)):
            row[a, b] = row[b, a] = number
        derivatives, work = self.derivatives, self.work
        (first, scale), *others = terms.items()
        if not others and scale.op == "const" and scale.payload == 1.0:
            combined = derivatives[first]
        else:
            combined = np.zeros_like(derivatives[0])
            for c, scale in terms.items():
                combined[:, :, live] += found[scale.index] * derivatives[c][:, :, live]
        for a in range(d):
            out = self._fluxes[a]
            np.multiply(factors[row[a, 0]], combined[0], out=out)
            for b in range(1, d):
                np.multiply(factors[row[a, b]], combined[b], out=work)
                out += work

    def _source(self, factors: Array, chunk: slice, group: int, live: slice) -> Callable[[tuple[Any, ...]], Any]:
        """What gives the pointwise function its inputs."""
        p = self.problem

        def source(key: tuple[Any, ...]) -> Any:
            kind = key[0]
            if kind == "u":
                return self.values[key[1]][:, live]
            if kind == "du":
                return self._physical(factors, self.derivatives[key[1]], key[2], live)
            if kind == "param":
                return p.parameters[key[1]]
            if kind == "x":
                assert self.points is not None
                return self.points[group, key[1]][:, live]
            return np.ascontiguousarray(p.fields[key[1]].values[key[2]][chunk].T)

        return source
