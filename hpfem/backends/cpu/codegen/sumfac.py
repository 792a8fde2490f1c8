"""The sum-factorised kernel of a form, for all shapes, written from the mode tree.

One element per lane, fibers in registers, everything of a group of elements in one scratch buffer:

    leaves  --B_d..B_2-->  rows of eta_1 functions  --points-->  rows  --B_2^T..B_d^T-->  leaves

Users' arrays are read and written in `transfer`; the middle is in `column_pass`, or in `rows` where derivatives are
collocated.
"""

from __future__ import annotations

from functools import partial

from ....forms.form import BlockProblem
from .context import Context
from .indexed import Indexed
from .ir import Index, Program
from .line import Fiber
from .points import at_points
from .rows import evaluate_columns, row_pass, test_columns
from .transfer import program_of, read_input, write_result, write_transposes


def _chains(ctx: Context, k: int, value: bool, gradient: bool) -> list[str]:
    """Chains of level k: the value, and derivatives of directions k and above."""
    derivatives = [f"d{j}" for j in range(k, ctx.dim)] if gradient else []
    # The derivative of a direction below k will start from the value.
    return (["v"] if value or (gradient and k) else []) + derivatives


def evaluate_tree(ctx: Context, c: int, gradient: bool) -> None:
    """Write the way from the leaves of a component to level 1."""
    b = ctx.b
    for k in range(ctx.dim - 1, 0, -1):
        outer, inner = ctx.block[k : k + 2]
        for functions, node, child, across in ctx.walk(k):
            n = functions.stop - functions.start
            sources: dict[str, list[str]] = {}
            for chain in _chains(ctx, k, True, gradient):
                kind, below = ("D", "v") if chain == f"d{k}" else ("B", chain)
                if below not in sources:
                    start = b.at(ctx.level(k + 1, below, c), (child, inner), (across, 1))
                    sources[below] = b.load_fiber(start, inner, n)
                result = ctx.line(kind, k, functions).apply(b, sources[below])
                b.store_fiber(result, b.at(ctx.level(k, chain, c), (node, outer), (across, 1)), inner)


def test_tree(ctx: Context, c: int, value: bool, gradient: bool) -> None:
    """Write the way from level 1 of a component to its leaves: the transpose of `evaluate_tree`."""
    b = ctx.b
    for k in range(1, ctx.dim):
        outer, inner = ctx.block[k : k + 2]
        for functions, node, child, across in ctx.walk(k):
            results: dict[str, list[str]] = {}
            for chain in _chains(ctx, k, value, gradient):
                kind, below = ("D", "v") if chain == f"d{k}" else ("B", chain)
                start = b.at(ctx.level(k, chain, c), (node, outer), (across, 1))
                fiber = b.load_fiber(start, inner, ctx.counts[k])
                results[below] = ctx.line(kind, k, functions, True).test(b, fiber, results.get(below))
            for below, result in results.items():
                b.store_fiber(result, b.at(ctx.level(k + 1, below, c), (child, inner), (across, 1)), inner)


def column_pass(ctx: Context) -> None:
    """Evaluate fibers along eta_1, apply the pointwise function, test: all in registers."""
    b, form, plane, functions = ctx.b, ctx.form, ctx.plane, ctx.root
    m = functions.stop - functions.start
    with ctx.fibers(ctx.rest[0]) as across:
        values: list[Fiber] = []
        derivatives: list[list[Fiber]] = []
        for c in range(ctx.problem.coupled):
            if not ctx.from_modes:
                values.append(b.load_fiber(b.at(ctx.values(c), (across, 1)), plane, ctx.counts[0]))
                continue
            chain = b.load_fiber(b.at(ctx.level(1, "v", c), (across, 1)), plane, m)
            line = ctx.line("B", 0, functions)
            if form.trial_value:
                values.append(line.apply(b, chain))
            if form.trial_gradient:
                above = (b.at(ctx.level(1, f"d{a}", c), (across, 1)) for a in range(1, ctx.dim))
                others = [line.apply(b, b.load_fiber(start, plane, m)) for start in above]
                derivatives.append([ctx.line("D", 0, functions).apply(b, chain), *others])
        tested, fluxes = at_points(ctx, across, values, derivatives)
        for c, (value, flux) in enumerate(zip(tested, fluxes)):
            if not ctx.to_modes:
                given = ctx.weighted(value, across) if form.test else value
                b.store_fiber(given, b.at(ctx.values(c), (across, 1)), plane)
                continue
            line = ctx.line("B", 0, functions, True)
            result = line.test(b, value) if form.test_value else None
            if form.test_gradient:
                result = ctx.line("D", 0, functions, True).test(b, flux[0], result)
                for a in range(1, ctx.dim):
                    target = b.at(ctx.level(1, f"d{a}", c), (across, 1))
                    b.store_fiber(line.test(b, flux[a]), target, plane)
            b.store_fiber(result or [], b.at(ctx.level(1, "v", c), (across, 1)), plane)


def write_sumfac(problem: BlockProblem, lanes: int, prefetch: int = 0, indexed: Indexed = None) -> Program:
    """Write the kernel of a problem."""
    ctx = Context(problem, lanes, prefetch, indexed)
    write_transposes(ctx)
    return program_of(ctx, partial(_apply, ctx))


def _apply(ctx: Context, application: Index) -> None:
    """Components that go together: read, evaluate, apply the pointwise function, test, write."""
    form, problem = ctx.form, ctx.problem
    by_columns = (form.to_modes or ctx.trace is not None) and not ctx.by_rows
    for c in range(problem.coupled):
        read_input(ctx, application, c)
        if ctx.from_modes:
            evaluate_tree(ctx, c, by_columns and form.trial_gradient)
    if by_columns:
        column_pass(ctx)
    else:
        for c in range(problem.coupled):
            evaluate_columns(ctx, c)
        if form.gradients:
            row_pass(ctx)
        for c in range(problem.given if form.to_modes else 0):
            test_columns(ctx, c)
    for c in range(problem.given):
        if ctx.to_modes:
            test_tree(ctx, c, not by_columns or form.test_value, by_columns and form.test_gradient)
        write_result(ctx, application, c)
