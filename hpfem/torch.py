"""Solutions as functions of PyTorch, with both modes of differentiation; it is imported when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from .solvers.solved import Solved, as_map, copied
from .support.optional import needed

__all__ = ["wrap"]


def wrap(problem: Any, inputs: Mapping[str, Any] | None = None, **options: Any) -> Callable[[Any], Any]:
    """Make a function of PyTorch: from a dictionary of tensors to the global coefficients of the solution.

    There are first and second derivatives, by `backward` and by `torch.autograd.forward_ad`. Tensors are used where
    they are, the result is where the first one is. Processes that share the mesh call it alike; the loss is the sum of
    theirs. For arguments, results and errors see `hpfem.jax.wrap`.

    Examples
    --------
    >>> solve = hp.torch.wrap(hp.Problem(space, diffusivity=k), {"diffusivity": "cells"})  # doctest: +SKIP
    >>> ((solve({"diffusivity": numbers}) - data) ** 2).sum().backward()  # doctest: +SKIP
    """
    needed("torch", "hp.torch", "hpfem[torch]")
    solution, function = as_map(problem, inputs, options), _function()
    return lambda data: function.apply(solution, 0, 0, *solution.ordered(data))[0]


@cache
def _function() -> Any:
    """The function of PyTorch of a solution and its derivatives, which takes what `Solved.of` takes."""
    import torch

    def tensor(array: Any, like: Any) -> Any:
        out = torch.empty(array.shape, dtype=like.dtype, device=like.device)
        copied(array, out)
        return out

    def applied(own: Solved) -> Any:
        return Function.apply(own.solution, *own.place, *own.arrays)

    def saved(ctx: Any) -> tuple[Solved, Any]:
        arrays = ctx.saved_tensors
        return Solved.of(ctx.solution, arrays[: ctx.count], *ctx.place), arrays[ctx.count :]

    class Function(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(solution: Any, order: int, out: int, *arrays: Any) -> Any:
            own = Solved.of(solution, [one.detach() for one in arrays], order, out)
            return tuple(tensor(array, arrays[0]) for array in own())

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            (ctx.solution, *ctx.place), arrays = inputs[:3], inputs[3:]
            ctx.count = len(arrays)
            ctx.save_for_backward(*arrays, *output)
            ctx.save_for_forward(*arrays, *output)

        @staticmethod
        def backward(ctx: Any, *w: Any) -> Any:
            own, results = saved(ctx)
            return None, None, None, *own.slopes(ctx.needs_input_grad[3:], list(w), results, applied)

        @staticmethod
        def jvp(ctx: Any, *changes: Any) -> Any:
            own, results = saved(ctx)
            return tuple(own.changed(changes[3:], results, torch.zeros_like, applied))

    return Function
