"""Models of work: nominal operations and compulsory bytes of a form on one element, from trees and array sizes.

Operations count a multiplication and an addition each. They are those of the textbook algorithm (dense products, or sum
factorisation over the mode tree), whatever a kernel saves by parity; bytes are each input read and each output written
once. Both are per element and component, and fractions of a roofline are stated in them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from hpfem.shapes import Basis, ShapeRule, Tabulation

from .form import BlockProblem
from .trace import Trace


@dataclass(frozen=True)
class StageFlops:
    """Operations of the stages on one element; each is also that of its transpose."""

    value: int  # modes to values at the points
    gradient: int  # modes to derivatives at the points without collocation; without the values
    along: int  # collocated differentiation in all directions
    shared: int  # what `gradient` saves if `value` is computed too


def stage_flops(tabulation: Tabulation, strategy: str) -> StageFlops:
    """Operations of the stages of a basis on a rule."""
    return _stages(tabulation.basis, tabulation.rule, strategy)


@lru_cache(maxsize=256)
def _stages(basis: Basis, rule: ShapeRule, strategy: str) -> StageFlops:
    lines = rule.counts if rule.tensor else [len(rule)] * basis.shape.dim
    along = sum(2 * len(rule) * q for q in lines)
    if strategy == "stdmat" or not rule.tensor:
        value = 2 * basis.n_modes * len(rule)
        return StageFlops(value, basis.shape.dim * value, along, 0)
    # Of each direction of a sum factorisation, in one chain.
    steps = [2 * basis.tree.n_nodes(k + 1) * prod(rule.counts[k:]) for k in range(basis.tree.dim)]
    dense = 0 if basis.transform is None else 2 * basis.transform.size
    chains = [step * (basis.tree.dim - k) for k, step in enumerate(steps)]
    beside = sum(steps[1:])  # the value's chain of all directions but the first is part of the gradient's
    return StageFlops(sum(steps) + dense, sum(chains) + beside + dense, along, beside + dense)


def pointwise_flops(problem: BlockProblem) -> int:
    """Count the operations at the points of one element: geometry, weights and the pointwise function."""
    form, d, space_dim, q = problem.form, problem.shape.dim, problem.geometry.space_dim, problem.n_points
    pull = space_dim + d * (2 * space_dim - 1)
    push = space_dim * (2 * d - 1)
    trace, flops = form.trace, int(form.test_value)
    if trace is not None:
        flops += trace.flops // form.components
    if trace is None or trace.general:
        flops += push * form.trial_gradient + pull * form.test_gradient
    elif form.trial_gradient:
        flops += d * (2 * d - 1) + _scaling_flops(trace, d)
    return q * flops + (_recomputing_flops(problem) if problem.source.recomputes else 0)


def _recomputing_flops(problem: BlockProblem) -> int:
    """Operations to compute the factors of an element from its map, for all components."""
    form, d, lines = problem.form, problem.shape.dim, problem.geometry.map_lines(range(problem.shape.dim))
    on_line, at_point = lines.flops(d)
    cofactors = 3 * d * d * (d > 2) // (d if form.factor_kind == "wJ" else 1)
    if problem.source.scales:
        square = 2 * d + 1 if form.test_value and not problem.source.merges else 0  # scale |J|^2 is w |J|
        return lines.across.shape[1] * on_line + problem.n_points * (at_point + cofactors + square + 2 * d * d)
    each = at_point + cofactors + 2 * d - 1  # the determinant
    each += form.test_value + (form.test_value or form.test_gradient)  # w |J|, w
    if form.trial_gradient:  # the adjugate in place of the inverse
        each += 1 + d
    if form.factor_kind == "metric":  # applied twice; the metric is applied once
        each += d * (2 * d - 1)
    return lines.across.shape[1] * on_line + problem.n_points * each


def _scaling_flops(trace: Trace, dim: int) -> int:
    """Operations at a point, per component, that make the fluxes of a symmetric form of its gradients."""
    terms = [scale for flux in trace.scaled or () for scale in flux.values()]
    scaled = sum(not (scale.op == "const" and scale.payload == 1.0) for scale in terms)
    added = len(terms) - len(trace.scaled or ())
    return dim * (scaled + added) // trace.components


def operator_flops(problem: BlockProblem, strategy: str) -> int:
    """Nominal operations of a form on one element and component."""
    form, stage = problem.form, stage_flops(problem.tabulation, strategy)
    values = 0 if problem.nodal else stage.value
    flops = pointwise_flops(problem)
    sides = (
        (form.from_modes, form.trial_value, form.trial_gradient),
        (form.to_modes, form.test_value, form.test_gradient),
    )
    for modes, value, gradient in sides:
        if problem.collocated or not form.gradients:
            flops += values * modes + stage.along * gradient
        elif modes:
            flops += stage.gradient * gradient + stage.value * value - stage.shared * (gradient and value)
    return flops


def operator_bytes(problem: BlockProblem, applications: int = 1) -> int:
    """Compulsory bytes of a form on one element and component: input, output, geometric factors and fields."""
    numbers = problem.n_input + problem.n_output * problem.components_out(problem.coupled) / problem.coupled
    kind, number, shared = problem.read_factors, problem.dtype.itemsize, 0
    if kind is not None:
        stored = problem.geometry.n_factors(kind) * problem.geometry.n_points(kind)
        shared += stored * problem.stored_dtype(kind).itemsize
    if problem.source.scales:
        shared += problem.geometry.n_factors("map") * number
    if problem.form.trace is not None:
        if problem.form.trace.uses_point:
            shared += problem.geometry.n_factors("points") * problem.n_points * number
        shared += sum(len(field.values) for field in problem.fields.values()) * problem.n_points * number
    return int(numbers * number + shared / applications)
