"""Passes over the mode tree: leaves to rows of eta_1 functions, and back."""

from __future__ import annotations

from .context import Context


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
