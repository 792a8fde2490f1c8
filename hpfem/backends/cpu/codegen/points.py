"""What happens at the points of a fiber: the pointwise function in its registers, with geometry and weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....forms.graph import Expression
from .context import Context
from .ir import Builder, Where
from .line import Fiber
from .pointwise import CalledExpressions, Expressions

# Operations up to which a pointwise function is written out at every point: more would take long to compile.
_INLINED = 40


def at_points(
    ctx: Context, outer: Where, values: Sequence[Fiber], derivatives: Sequence[Sequence[Fiber]]
) -> tuple[list[Fiber], list[list[Fiber]]]:
    """Apply the pointwise function along a fiber; values, derivatives -> tested, fluxes, each [component]."""
    tested: list[Fiber] = [[] for _ in range(ctx.problem.given)]
    fluxes: list[list[Fiber]] = [[[] for _ in range(ctx.dim)] for _ in tested]
    ctx.factors.start_fiber(outer)
    for k in range(ctx.factors.fiber_points):
        here = [fiber[k] for fiber in values]
        there = [[fiber[k] for fiber in directions] for directions in derivatives]
        for c, (value, flux) in enumerate(at_point(ctx, outer, k, here, there)):
            tested[c] += value
            for fiber, part in zip(fluxes[c], flux):
                fiber.append(part)
    return tested, fluxes


def at_point(
    ctx: Context, outer: Where, k: int, values: Fiber, derivatives: list[Fiber]
) -> list[tuple[list[str], list[str]]]:
    """What tests value and derivatives at point k of a fiber; values, derivatives [component]."""
    b, factors, trace = ctx.b, ctx.factors, ctx.trace
    if trace is None:
        if ctx.form.test_gradient:
            return [([], factors.pull_back(k, values))]
        return [([b.mul(values[0], factors.factor(k, -1))], [])]
    results = _function(ctx, outer, k, values, derivatives)
    found = []
    for c in range(ctx.problem.given):
        value, flux = [], []
        if trace.value is not None and ctx.form.test:
            value = [b.mul(results[trace.value[c]], factors.factor(k, -1))]
        elif trace.value is not None:
            value = [b.operand(results[trace.value[c]])]
        if trace.scaled is not None:
            flux = factors.metric(k, _combined(b, results, trace.scaled[c], derivatives))
        elif trace.flux is not None:
            flux = factors.pull_back(k, [results[node] for node in trace.flux[c]])
        found.append((value, flux))
    return found


def _function(
    ctx: Context, outer: Where, k: int, values: Fiber, derivatives: list[Fiber]
) -> Expressions | CalledExpressions:
    """Results of the traced function at point k of a fiber."""
    b, n_fiber, trace = ctx.b, ctx.factors.fiber_points, ctx.trace
    assert trace is not None
    gradients: dict[int, list[str]] = {}

    def source(key: tuple[Any, ...]) -> str:
        kind = key[0]
        if kind == "u":
            return values[key[1]]
        if kind == "du":
            if key[1] not in gradients:
                gradients[key[1]] = ctx.factors.physical(k, derivatives[key[1]])
            return gradients[key[1]][key[2]]
        if kind == "param":
            return ctx.parameters[key[1]]
        if kind == "x":
            return b.load(b.at(ctx.coordinates, (outer, n_fiber * ctx.space_dim)), k * ctx.space_dim + key[1])
        field = ctx.area("field", key[1], key[2], size=ctx.problem.n_points)
        if ctx.by_rows:
            return b.load(b.at(field, (outer, n_fiber)), k)
        return b.load(b.at(field, (outer, 1)), k * ctx.rest[0])

    if trace.flops <= _INLINED:
        return Expressions(b, trace, source)
    ctx.called.call(source)
    return ctx.called


def _combined(
    b: Builder, results: Expressions | CalledExpressions, terms: dict[int, Expression], derivatives: list[Fiber]
) -> list[str]:
    """Linear combination of the components' derivatives."""
    total: list[str] = []
    for c, scale in terms.items():
        factor = results[scale]
        if total:
            total = [b.fma(factor, x, t) for x, t in zip(derivatives[c], total)]
        else:
            total = derivatives[c] if factor == 1.0 else [b.mul(factor, x) for x in derivatives[c]]
    return total
