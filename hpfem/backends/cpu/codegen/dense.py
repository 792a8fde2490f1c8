"""Affine elements as dense reference matrices: y = sum_q G_q K_q x, one element per lane.

The few geometric numbers G_q of an affine element multiply reference matrices K_q that are known when the kernel is
written. At low order that is less work than sum factorisation, and all of it is multiply-adds.
"""

from __future__ import annotations

import numpy as np

from hpfem.shapes.arrays import Floats

from ....forms.form import BlockProblem
from ....forms.linear import check_linear
from ....geometry.factors import expansion
from .affine import Group, write_affine
from .indexed import Indexed
from .ir import Program, Where
from .line import matrix_product, table_product

# Sums that are formed together: what the registers of AVX-512 hold beside an input.
_SUMS = 28
# Entries up to which matrices become code.
_UNROLLED = 1000
# Entries below this share of the largest one are zero up to rounding, which differs between processors.
_ROUNDING = 1e-14
# Time per operation relative to collocated sum factorisation, as for all strategies here (measured on AVX-512,
# P = 1..7): of each geometric factor, and besides.
_COST, _OVERHEAD = 1.2, 0.6


def dense_cost(problem: BlockProblem) -> float:
    """Operations: a matrix per geometric factor."""
    kind = problem.form.factor_kind
    matrices = problem.geometry.n_factors(kind) if kind else 1
    return (_COST * matrices + _OVERHEAD) * 2.0 * problem.n_modes**2


def _reference_matrices(problem: BlockProblem) -> Floats:
    """Matrices [n_factors, n_modes, n_modes] that the factors of an affine element multiply; the last is the mass."""
    tabulation, kind = problem.tabulation, problem.form.factor_kind
    assert kind is not None
    at_points = expansion(problem.geometry, kind)  # [factor at a point, Q, factor]
    mass = (tabulation.dense * at_points[-1, :, -1]) @ tabulation.dense.T
    if kind == "wJ":
        return mass[None]
    derivatives, d = tabulation.dense_gradient, problem.shape.dim
    matrices = np.zeros((at_points.shape[2], *mass.shape))
    row = 0
    for a in range(d):
        for b in range(a, d):
            for q in range(len(matrices) - 1):
                part = (derivatives[a] * at_points[row, :, q]) @ derivatives[b].T
                matrices[q] += part if a == b else part + part.T
            row += 1
    matrices[-1] = mass
    matrices[np.abs(matrices) < _ROUNDING * np.abs(matrices).max()] = 0
    return matrices


def write_dense(problem: BlockProblem, lanes: int, prefetch: int = 0, indexed: Indexed = None) -> Program:
    """Write the kernel of a problem; see `write_affine`."""
    check_linear(problem)
    matrices = _reference_matrices(problem)

    def product_of(group: Group) -> None:
        b, own, scales = group.b, matrices[list(group.scales)], list(group.scales.values())
        n, rows = problem.n_modes, max(1, min(problem.n_modes, _SUMS // len(own)))
        if own.size <= _UNROLLED:
            group.prefetch.fetch()
            xs = b.load_fiber(group.modes, 1, n)
            for k in range(n):  # entries are constants of the code
                each = zip(scales, own[:, k : k + 1])
                b.store(b.dot((scale, matrix_product(b, row, xs)[0]) for scale, row in each), group.results, k)
            return
        full, rest = divmod(n, rows)
        with b.loop(full) as i:
            _block(group, own[:, : full * rows], rows, i, scales, group.results)
        if rest:
            behind = b.at(group.results, (full * rows, 1))
            _block(group, own[:, full * rows :], rest, 0, scales, behind)

    return write_affine(problem, lanes, prefetch, indexed, 0, product_of)


def _block(group: Group, matrices: Floats, rows: int, i: Where, scales: list[str], target: str) -> None:
    """`rows` results: block i of the matrices' rows."""
    b, (m, _, n) = group.b, matrices.shape
    # [block][column][row][matrix], read in this order
    ordered = matrices.reshape(m, -1, rows, n).transpose(1, 3, 2, 0)
    start = b.at(b.real_table(ordered), (i, n * rows * m), unit=b.real)
    group.prefetch.fetch()
    sums = table_product(b, start, group.modes, n, rows * m)
    for r in range(rows):
        b.store(b.dot(zip(scales, sums[r * m : (r + 1) * m])), b.at(target, (i, rows), (r, 1)))
