"""Affine elements as dense reference matrices: y = sum_q G_q K_q x, one element per lane.

The few geometric numbers G_q of an affine element multiply reference matrices K_q that are known when the kernel is
written. At low order that is less work than sum factorisation, and all of it is multiply-adds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....forms.form import BlockProblem
from ....forms.linear import check_linear
from .border import Layout, write_reader, write_writer
from .factors import Factors
from .ir import ARGUMENTS, Builder, Index, Pack, groups_ahead
from .line import product
from .pointwise import Expressions

Array = NDArray[np.floating[Any]]

# Sums that are formed together: what the registers of AVX-512 hold beside an input.
SUMS = 28
# Entries up to which matrices become code.
UNROLLED = 1000


def reference_matrices(problem: BlockProblem) -> Array:
    """Matrices that the factors of an affine element multiply.

    Returns
    -------
    ndarray, [n_factors, n_modes, n_modes]
        The last one is the mass matrix.
    """
    tabulation, kind = problem.tabulation, problem.form.factor_kind
    assert kind is not None
    expansion = problem.geometry.expansion(kind)  # [factor at a point, Q, factor]
    mass = (tabulation.dense * expansion[-1, :, -1]) @ tabulation.dense.T
    if kind == "wJ":
        return mass[None]
    derivatives, d = tabulation.dense_gradient, problem.shape.dim
    matrices = np.zeros((expansion.shape[2], *mass.shape))
    row = 0
    for a in range(d):
        for b in range(a, d):
            for q in range(len(matrices) - 1):
                part = (derivatives[a] * expansion[row, :, q]) @ derivatives[b].T
                matrices[q] += part if a == b else part + part.T
            row += 1
    matrices[-1] = mass
    return matrices


class DenseGenerator:
    """Writer of one kernel; see `Generator` for what it offers.

    Parameters
    ----------
    problem : BlockProblem
    lanes : int
    width : int
        Means nothing here.
    prefetch : bool

    Raises
    ------
    NotSuitable
        If the form has no constant element matrix.
    """

    direction = 0

    def __init__(self, problem: BlockProblem, lanes: int, width: int = 1, prefetch: bool = False) -> None:
        check_linear(problem)
        self.p, self.prefetch = problem, prefetch
        self.b = Builder(lanes, problem.dtype)
        self.factors = Factors(self.b, problem, 0)
        self.scratch_size = 2 * problem.n_modes

    def field_inputs(self) -> list[tuple[str, int]]:
        """No fields."""
        return []

    def parameter_inputs(self) -> list[str]:
        """Parameters that the coefficients use."""
        trace = self.p.form.trace
        assert trace is not None
        return sorted(key[1] for key in trace.inputs if key[0] == "param")

    def uses_points(self) -> bool:
        """No x."""
        return False

    def coefficients(self) -> list[Pack | float | None]:
        """What multiplies each reference matrix beside its geometric factor: None for matrices that do not occur."""
        trace, b = self.p.form.trace, self.b
        assert trace is not None
        parameters = {}
        for i, name in enumerate(self.parameter_inputs()):
            (pointer,) = b.at("%parameters", (i, 1), unit=b.real)
            parameters[name] = (b.broadcast(b.new(f"load {b.real}, ptr {pointer}")),)
        node = Expressions(b, trace, lambda key: (b.splat(1.0),) if key[0] == "u" else parameters[key[1]])
        value = None if trace.value is None else node[trace.value[0]]
        gradient = None if trace.scaled is None else node[trace.scaled[0][0]]
        return [gradient] * (self.factors.n - 1) + [value]

    def write(self) -> str:
        """The module, with the function `run`."""
        b, n = self.b, self.p.n_modes
        matrices = reference_matrices(self.p)
        write_reader(b, "read_modes", Layout(n))
        write_writer(b, "write_modes", Layout(n))
        with b.function("run", ARGUMENTS, internal=False):
            head = len(b.lines)
            b.emit("%last = sub nsw i64 %elements, 1")
            (target,) = b.at("%scratch", (n, 1))
            coefficients = self.coefficients()
            used = [q for q, coefficient in enumerate(coefficients) if coefficient is not None]
            rows = min(n, max(1, SUMS // len(used)))
            with b.loop("%g1", "%g0", trips=1) as group:
                self.factors.start_group("%geometry", group)
                scales = [self.scaled(q, coefficients[q]) for q in used]
                if self.prefetch:
                    following = Index(group.value, groups_ahead((self.factors.per_group + n) * b.nbytes))
                    geometry = b.at("%geometry", (following, self.factors.per_group))
                    b.start_prefetch(geometry + b.at("%in", (following, n)))
                with b.loop("%components", trips=1) as c:
                    step = b.new(f"mul nsw i64 {c.value}, %elements")
                    step = b.new(f"mul nsw i64 {step}, {n}")
                    source = b.new(f"getelementptr {b.real}, ptr %in, i64 {step}")
                    result = b.new(f"getelementptr {b.real}, ptr %out, i64 {step}")
                    b.emit(f"call void @read_modes(ptr {source}, ptr %scratch, i64 {group.value}, i64 %last)")
                    full, rest = divmod(n, rows)
                    if matrices[used].size <= UNROLLED:
                        self.unrolled(matrices[used], scales, target)
                        rest = 0
                    else:
                        with b.loop(full) as i:
                            self.block(matrices[used, : full * rows], rows, i, scales, target)
                    if rest:
                        self.block(matrices[used, full * rows :], rest, 0, scales, b.at(target, (full * rows, 1))[0])
                    b.emit(f"call void @write_modes(ptr {result}, ptr {target}, i64 {group.value}, i64 %last)")
            if self.prefetch:
                b.lines[head:head] = b.finish_prefetch([k * b.nbytes for k in (self.factors.per_group, n)])
        return b.module()

    def scaled(self, q: int, coefficient: Pack | float | None) -> Pack:
        """Geometric factor times coefficient."""
        factor = self.factors.element(q)
        return factor if coefficient is None or coefficient == 1.0 else self.b.mul(coefficient, factor)

    def unrolled(self, matrices: Array, scales: list[Pack], target: str) -> None:
        """All results at once, entries as constants of the code."""
        b = self.b
        if self.prefetch:
            b.prefetch()
        xs = b.load_fiber(("%scratch",), 1, self.p.n_modes)
        for i in range(self.p.n_modes):
            total: Pack | None = None
            for q, scale in enumerate(scales):
                (part,) = product(b, matrices[q, i : i + 1], xs)
                total = b.fma(scale, part, total)
            b.store(total or (), (target,), i)

    def block(self, matrices: Array, rows: int, i: int | Index, scales: list[Pack], target: str) -> None:
        """`rows` results: block i of the matrices' rows."""
        b, n, m = self.b, self.p.n_modes, len(matrices)
        # [block][column][row][matrix], read in this order
        ordered = matrices.reshape(m, -1, rows, n).transpose(1, 3, 2, 0)
        (start,) = b.at(b.real_table(ordered), (i, n * rows * m), unit=b.real)

        def column(j: Index, sums: list[Pack]) -> list[Pack]:
            x = b.load(b.at("%scratch", (j, 1)))
            return [b.fma(b.load_scalar(start, (j, rows * m), (k, 1)), x, s) for k, s in enumerate(sums)]

        if self.prefetch:
            b.prefetch()
        sums = b.reduce(n, [(b.splat(0.0),)] * (rows * m), column)
        for r in range(rows):
            total: Pack | None = None
            for q, scale in enumerate(scales):
                total = b.fma(scale, sums[r * m + q], total)
            b.store(total or (), b.at(target, (i, rows), (r, 1)))
