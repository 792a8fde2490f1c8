"""Kernels of forms with constant element matrices, one element per lane.

An affine element's few numbers multiply what is known when the kernel is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ....forms.form import BlockProblem
from ....forms.trace import Trace
from ....geometry.jacobians import symmetric_pairs
from .factors import Factors
from .indexed import Indexed, codes_at, write_both
from .ir import ARGUMENTS, Builder, Operand, Program
from .pointwise import Expressions, load_parameters
from .prefetch import Prefetch, input_streams


@dataclass(frozen=True)
class Group:
    """Elements side by side, of which a kernel's product is written."""

    b: Builder
    prefetch: Prefetch  # `fetch` is to be called where arithmetic leaves time
    scales: dict[int, str]  # by number, each geometric factor that occurs, times the form's coefficient
    modes: str  # pointers to the coefficients, the results, and further vectors
    results: str
    scratch: str


def factors_of_terms(
    scales: Mapping[int, str], dim: int, gradients: bool
) -> tuple[str | None, dict[tuple[int, int], str]]:
    """What multiplies each term of the element matrix sum_ij G_ij D_i^T D_j + w M."""
    pairs = symmetric_pairs(dim) if gradients else []
    return scales.get(len(pairs)), {order: scales[q] for q, (i, j) in enumerate(pairs) for order in ((i, j), (j, i))}


def write_affine(
    problem: BlockProblem, lanes: int, prefetch: int, indexed: Indexed, scratch: int, body: Callable[[Group], None]
) -> Program:
    """Write the kernel of a form with constant element matrices, one element per lane."""
    trace = problem.form.trace
    assert trace is not None
    b, n = Builder(lanes, problem.dtype), problem.n_modes
    factors = Factors(b, problem, 0)
    streams = [factors.group_bytes, *input_streams(b, n, 1, indexed)], [] if indexed else [n * b.nbytes]
    prefetched = Prefetch(b, prefetch, *streams)
    write_both(b, "read_modes", "write_modes", n, indexed, prefetch != 0)
    with b.function("run", ARGUMENTS, internal=False):
        b.emit("%last = sub nsw i64 %elements, 1")
        target, further = b.at("%scratch", (n, 1)), b.at("%scratch", (2 * n, 1))
        coefficients = _coefficients(b, trace, factors.n)
        with b.loop("%g1", "%g0") as group:
            factors.start_group(group)
            scales = {}
            for q, coefficient in coefficients.items():
                factor = factors.factor(0, q)
                scales[q] = factor if coefficient == 1.0 else b.mul(coefficient, factor)
            prefetched.start(group, ["%geometry", *(["%codes"] if indexed else ["%in", "%out"])])
            with b.loop("%components") as c:
                there, back = [f"i64 {group.value}, i64 %last"] * 2
                if indexed:
                    there, back = (codes_at(b, indexed, group, results) for results in (False, True))
                step = b.row(c.value, None if indexed else n)
                source = b.new(f"getelementptr {b.real}, ptr %in, i64 {step}")
                result = b.new(f"getelementptr {b.real}, ptr %out, i64 {step}")
                b.emit(f"call void @read_modes(ptr {source}, ptr %scratch, {there})")
                body(Group(b, prefetched, scales, "%scratch", target, further))
                b.emit(f"call void @write_modes(ptr {result}, ptr {target}, {back})")
        b.lines[:0] = prefetched.finish()
    return Program(b.module(), b.flops, 2 * n + scratch, 0, one_by_one=True)


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
