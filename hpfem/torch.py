"""Solutions as functions of PyTorch, with both modes of differentiation; it is imported when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from .solvers.solution_map import as_map, copied
from .support.optional import needed

__all__ = ["wrap"]


def wrap(problem: Any, inputs: Mapping[str, Any] | None = None, **options: Any) -> Callable[[Any], Any]:
    """Make a function of PyTorch: from a dictionary of tensors to the global coefficients of the solution.

    Derivatives, by `backward` and by `torch.autograd.forward_ad`, have none. Tensors are used where they are, the
    result is where the first one is. For arguments, results and errors see `hpfem.jax.wrap`.

    Examples
    --------
    >>> solve = hp.torch.wrap(hp.Problem(space, diffusivity=k), {"diffusivity": "cells"})  # doctest: +SKIP
    >>> ((solve({"diffusivity": numbers}) - data) ** 2).sum().backward()  # doctest: +SKIP
    """
    needed("torch", "hp.torch", "hpfem[torch]")
    solution, function = as_map(problem, inputs, options), _function()
    return lambda data: function.apply(solution, *solution.ordered(data))


@cache
def _function() -> Any:
    """The function of PyTorch of a `SolutionMap` and its arrays."""
    import torch

    def tensor(array: Any, like: Any) -> Any:
        out = torch.empty(array.shape, dtype=like.dtype, device=like.device)
        copied(array, out)
        return out

    class Solved(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(solution: Any, *arrays: Any) -> Any:
            return tensor(solution.vector([own.detach() for own in arrays]), arrays[0])

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.solution, *arrays = inputs
            ctx.save_for_backward(*arrays, output)
            ctx.save_for_forward(*arrays, output)

        @staticmethod
        @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
        def backward(ctx: Any, w: Any) -> Any:
            *arrays, u = [own.detach() for own in ctx.saved_tensors]
            found = ctx.solution.pullback(ctx.solution.named(arrays), w.detach(), u).values()
            return None, *[tensor(own, like) for own, like in zip(found, arrays, strict=True)]

        @staticmethod
        def jvp(ctx: Any, _: Any, *changes: Any) -> Any:
            *arrays, u = [own.detach() for own in ctx.saved_tensors]
            pairs, named = zip(changes, arrays, strict=True), ctx.solution.named
            moved = [torch.zeros_like(old) if new is None else new.detach() for new, old in pairs]
            return tensor(ctx.solution.forward(named(arrays), named(moved), u), u)

    return Solved
