"""Affine elements as dense reference matrices: y = sum_q G_q K_q x, one element per lane.

The few geometric numbers G_q of an affine element multiply reference matrices K_q that are known when the kernel is
written. At low order that is less work than sum factorisation, and all of it is multiply-adds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....forms import Trace
from ....forms.form import BlockProblem
from ....forms.linear import check_linear
from .factors import Factors
from .indexed import write_indexed_reader, write_indexed_writer
from .ir import ARGUMENTS, Builder, Operand, Program, Where
from .line import product, table_product
from .pointwise import Expressions, load_parameters
from .prefetch import Prefetch, input_streams
from .transpose import Layout, write_reader, write_writer

Array = NDArray[np.floating[Any]]

# Sums that are formed together: what the registers of AVX-512 hold beside an input.
_SUMS = 28
# Entries up to which matrices become code.
_UNROLLED = 1000


def _reference_matrices(problem: BlockProblem) -> Array:
    """Matrices [n_factors, n_modes, n_modes] that the factors of an affine element multiply; the last is the mass."""
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


def write_dense(problem: BlockProblem, lanes: int, prefetch: bool = False, indexed: bool = False) -> Program:
    """Write the kernel of a problem; see `write_sumfac`.

    Raises
    ------
    NotSuitable
        If the form has no constant element matrix.
    """
    check_linear(problem)
    trace = problem.form.trace
    assert trace is not None
    b, n = Builder(lanes, problem.dtype), problem.n_modes
    factors = Factors(b, problem, 0)
    streams = [factors.group_bytes, *input_streams(b, n, 1, indexed)], [] if indexed else [n * b.nbytes]
    prefetched = Prefetch(b, *(streams if prefetch else ()))
    matrices = _reference_matrices(problem)
    if indexed:
        write_indexed_reader(b, "read_modes", n, None)
        write_indexed_writer(b, "write_modes", n, None)
    else:
        write_reader(b, "read_modes", Layout(n))
        write_writer(b, "write_modes", Layout(n))
    with b.function("run", ARGUMENTS, internal=False):
        b.emit("%last = sub nsw i64 %elements, 1")
        target = b.at("%scratch", (n, 1))
        coefficients = _coefficients(b, trace, factors.n)
        matrices = matrices[list(coefficients)]
        rows = min(n, max(1, _SUMS // len(matrices)))
        with b.loop("%g1", "%g0") as group:
            factors.start_group(group)
            scales = []
            for q, coefficient in coefficients.items():
                factor = factors.factor(0, q)
                scales.append(factor if coefficient == 1.0 else b.mul(coefficient, factor))
            prefetched.start(group, ["%geometry", *(["%codes"] if indexed else ["%in", "%out"])])
            with b.loop("%components") as c:
                where = f"i64 {group.value}, i64 %last"
                if indexed:
                    where = f"ptr {b.at('%codes', (group, n), unit=f'<{b.lanes} x i32>')}"
                    step = b.new(f"mul nsw i64 {c.value}, %stride")
                else:
                    step = b.new(f"mul nsw i64 {c.value}, %elements")
                    step = b.new(f"mul nsw i64 {step}, {n}")
                source = b.new(f"getelementptr {b.real}, ptr %in, i64 {step}")
                result = b.new(f"getelementptr {b.real}, ptr %out, i64 {step}")
                b.emit(f"call void @read_modes(ptr {source}, ptr %scratch, {where})")
                if matrices.size <= _UNROLLED:
                    prefetched.fetch()
                    _unrolled(b, matrices, scales, target)
                else:
                    full, rest = divmod(n, rows)
                    with b.loop(full) as i:
                        _block(b, prefetched, matrices[:, : full * rows], rows, i, scales, target)
                    if rest:
                        behind = b.at(target, (full * rows, 1))
                        _block(b, prefetched, matrices[:, full * rows :], rest, 0, scales, behind)
                b.emit(f"call void @write_modes(ptr {result}, ptr {target}, {where})")
        b.lines[:0] = prefetched.finish()
    return Program(b.module(), b.flops, 2 * n, 0)


def _coefficients(b: Builder, trace: Trace, n_factors: int) -> dict[int, Operand]:
    """What multiplies each reference matrix that occurs, beside its geometric factor."""
    parameters = load_parameters(b, trace)
    results = Expressions(b, trace, lambda key: b.operand(1.0) if key[0] == "u" else parameters[key[1]])
    found: dict[int, Operand] = {}
    if trace.scaled is not None:
        found = dict.fromkeys(range(n_factors - 1), results[trace.scaled[0][0]])
    if trace.value is not None:
        found[n_factors - 1] = results[trace.value[0]]
    return found


def _unrolled(b: Builder, matrices: Array, scales: list[str], target: str) -> None:
    """All results at once, entries as constants of the code."""
    n = matrices.shape[1]
    xs = b.load_fiber("%scratch", 1, n)
    for i in range(n):
        rows = zip(scales, matrices[:, i : i + 1])
        b.store(b.dot((scale, product(b, row, xs)[0]) for scale, row in rows), target, i)


def _block(
    b: Builder, prefetched: Prefetch, matrices: Array, rows: int, i: Where, scales: list[str], target: str
) -> None:
    """`rows` results: block i of the matrices' rows."""
    m, _, n = matrices.shape
    # [block][column][row][matrix], read in this order
    ordered = matrices.reshape(m, -1, rows, n).transpose(1, 3, 2, 0)
    start = b.at(b.real_table(ordered), (i, n * rows * m), unit=b.real)
    prefetched.fetch()
    sums = table_product(b, start, "%scratch", n, rows * m)
    for r in range(rows):
        b.store(b.dot(zip(scales, sums[r * m : (r + 1) * m])), b.at(target, (i, rows), (r, 1)))
