"""A form on a block, chunk by chunk: evaluate, pointwise, test. Everything of a chunk stays in cache.

Inside, arrays are [point or mode, lane]: the elements of a chunk are fastest, so that every stage is a matrix product
with long rows, and users' [component, element, mode] arrays are transposed at the border.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...forms import Expression
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
        self.collocated = problem.algorithm == "collocated"
        testing = form.stage == "iproduct_wrt_deriv_base"
        self.gradients = form.uses_gradient or testing
        engine: type[Dense | SumFac] = Dense if strategy == "stdmat" else SumFac
        self.engine: Dense | SumFac | None = None
        if form.stage != "phys_deriv":
            self.engine = engine(problem.tabulation, self.lanes, dtype, self.gradients and not self.collocated)
        self.collocation: Collocation | None = None
        if form.stage == "phys_deriv" or (self.gradients and self.collocated):
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
        p, n = self.problem, self.problem.form.components
        q, d, lanes, dtype = p.n_points, p.shape.dim, self.lanes, p.dtype
        # One array object per component: the engines' plans are kept by buffer.
        self.modes = [np.zeros((p.n_modes, lanes), dtype) for _ in range(n)]
        self.values = [np.zeros((q, lanes), dtype) for _ in range(n)]
        slopes = n if self.collocation is not None or self.gradients else 0
        self.slopes = [np.zeros((d, q, lanes), dtype) for _ in range(slopes)]
        self.fluxes = np.zeros((d, q, lanes), dtype) if self.gradients else None
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
        stage = getattr(self, "_" + self.problem.form.stage)
        elements = self.problem.n_elements
        coupled = self.problem.coupled
        with np.errstate(all="ignore"):  # what is not finite goes through silently, as on other backends
            for group, first in enumerate(range(0, elements, self.lanes)):
                chunk = slice(first, min(first + self.lanes, elements))
                factors = self._chunk_factors(group)
                for c in range(0, len(source), coupled):
                    stage(source[c : c + coupled], out, c, chunk, factors, group)

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

    def _bwd_trans(self, source: Array, out: Array, c: int, chunk: slice, factors: Any, group: int) -> None:
        self._load(source[0], chunk, self.modes[0])
        self._engine.evaluate(self.modes[0], self.values[0])
        self._store(self.values[0], out[c], chunk)

    def _iproduct_wrt_base(self, source: Array, out: Array, c: int, chunk: slice, factors: Array, group: int) -> None:
        self._load(source[0], chunk, self.values[0])
        np.multiply(self.values[0], factors[-1], out=self.values[0])
        self._engine.test_value(self.values[0], self.modes[0])
        self._store(self.modes[0], out[c], chunk)

    def _phys_deriv(self, source: Array, out: Array, c: int, chunk: slice, factors: Array, group: int) -> None:
        big = self.problem.geometry.space_dim
        self._load(source[0], chunk, self.values[0])
        self._collocation.differentiate(self.values[0], self.slopes[0])
        for i in range(big):
            self._store(self._physical(factors, self.slopes[0], i, slice(None)), out[c * big + i], chunk)

    def _iproduct_wrt_deriv_base(
        self, source: Array, out: Array, c: int, chunk: slice, factors: Array, group: int
    ) -> None:
        big = self.problem.geometry.space_dim
        vector = np.empty((big, *self.values[0].shape), self.problem.dtype)
        for i in range(big):
            vector[i] = 0
            self._load(source[i], chunk, vector[i])
        self._pull_back(factors, list(vector), slice(None))
        self._test(None, 0)
        self._store(self.modes[0], out[c // big], chunk)

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

    def _physical(self, factors: Array, slopes: Array, i: int, live: slice) -> Array:
        """Derivative by x_i from those by collapsed coordinates."""
        big = self.problem.geometry.space_dim
        total = factors[i, :, live] * slopes[0, :, live]
        for a in range(1, self.problem.shape.dim):
            total += factors[a * big + i, :, live] * slopes[a, :, live]
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
        slopes, work = self.slopes, self.work
        (first, scale), *others = terms.items()
        if not others and scale.op == "const" and scale.payload == 1.0:
            combined = slopes[first]
        else:
            combined = np.zeros_like(slopes[0])
            for c, scale in terms.items():
                combined[:, :, live] += found[scale.index] * slopes[c][:, :, live]
        for a in range(d):
            out = self._fluxes[a]
            np.multiply(factors[row[a, 0]], combined[0], out=out)
            for b in range(1, d):
                np.multiply(factors[row[a, b]], combined[b], out=work)
                out += work

    def _test(self, value: Array | None, c: int) -> None:
        """Test value and `self.fluxes` by the algorithm; the result goes to `self.modes[c]`."""
        if not self.collocated:
            self._engine.test_gradients(value, self._fluxes, self.modes[c])
            return
        total = self.values[c] if value is None else value
        self._collocation.add_transpose(self._fluxes, self.work, total, overwrite=value is None)
        self._engine.test_value(total, self.modes[c])

    def _source(self, factors: Array, chunk: slice, group: int, live: slice) -> Callable[[tuple[Any, ...]], Any]:
        """What gives the pointwise function its inputs."""
        p = self.problem

        def source(key: tuple[Any, ...]) -> Any:
            kind = key[0]
            if kind == "u":
                return self.values[key[1]][:, live]
            if kind == "du":
                return self._physical(factors, self.slopes[key[1]], key[2], live)
            if kind == "param":
                return p.parameters[key[1]]
            if kind == "x":
                assert self.points is not None
                return self.points[group, key[1]][:, live]
            return np.ascontiguousarray(p.fields[key[1]].values[key[2]][chunk].T)

        return source

    def _weak(self, source: Array, out: Array, c: int, chunk: slice, factors: Array, group: int) -> None:
        trace = self.problem.form.trace
        assert trace is not None and self.pointwise is not None
        n, lanes = self.problem.form.components, chunk.stop - chunk.start
        live = slice(0, lanes)
        for i in range(n):
            self._load(source[i], chunk, self.modes[i])
            if self.collocated or not trace.uses_gradient:
                self._engine.evaluate(self.modes[i], self.values[i])
                if trace.uses_gradient:
                    self._collocation.differentiate(self.values[i], self.slopes[i])
            else:
                value = self.values[i] if trace.uses_value else None
                self._engine.evaluate_gradient(self.modes[i], value, self.slopes[i])
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
            target = None
            if trace.value is not None:
                target = self.values[i]
                np.multiply(found[trace.value[i].index], factors[-1, :, live], out=target[:, live])
            if trace.scaled is None and trace.flux is None:
                self._engine.test_value(self.values[i], self.modes[i])
            else:
                self._test(target, i)
            self._store(self.modes[i], out[c + i], chunk)
