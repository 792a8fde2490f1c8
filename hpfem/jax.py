"""Solutions as functions of JAX, with both modes of differentiation; JAX is imported when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from .backends.exchange import wrap as wrapped
from .errors import ArgumentError
from .solvers.solved import Solved, as_map, copied
from .support.optional import needed

__all__ = ["wrap"]


def wrap(problem: Any, inputs: Mapping[str, Any] | None = None, **options: Any) -> Callable[[Any], Any]:
    """Make a function of JAX: from a dictionary of arrays to the global coefficients of the solution.

    It works in `jit`, `grad`, `jvp`, `vjp`, `hessian` and `vmap`, which goes one by one; there are first and second
    derivatives. Arrays are used where they are. Errors while JAX runs are wrapped in its own.

    Parameters
    ----------
    problem : SolutionMap, or what it takes
    inputs : mapping, optional
        As for `SolutionMap`, unless the problem is one.
    **options
        Other arguments of `SolutionMap`.

    Returns
    -------
    callable
        {str: array} -> array, [size] or [components, size].

    Raises
    ------
    ArgumentError
        If JAX is not installed, or processes share the mesh; of the function, for arrays of another shape or type: for
        float64 there is ``jax.config.update("jax_enable_x64", True)``.

    Examples
    --------
    >>> solve = hp.jax.wrap(hp.Problem(space, dirichlet=0.0, diffusivity=k), {"diffusivity": "cells"})  # doctest: +SKIP
    >>> slopes = jax.grad(lambda k: ((solve({"diffusivity": k}) - data) ** 2).sum())(numbers)  # doctest: +SKIP
    """
    solution = as_map(problem, inputs, options)
    if solution.c0.space.comm.size > 1:  # JAX may call them in another order on each
        raise ArgumentError("hp.jax.wrap is for one process; use hp.SolutionMap, whose methods several call alike")
    jax = needed("jax", "hp.jax", "hpfem[jax]")
    dtype, bind = solution.c0.space.dtype, _primitive().bind

    def solve(data: Any) -> Any:
        given = [jax.numpy.asarray(array) for array in solution.ordered(data)]
        for (name, shape), array in zip(solution.shapes.items(), given, strict=True):
            if (array.shape, array.dtype) != (shape, dtype):
                raise ArgumentError(
                    f"{name!r} is an array of {dtype} {shape}, JAX has one of {array.dtype} {array.shape}; for float64"
                    " set jax.config.update('jax_enable_x64', True)"
                )
        return bind(*given, solution=solution, order=0, out=0)[0]

    return solve


@cache
def _primitive() -> Any:
    """The primitive of JAX of a solution and its derivatives, which takes what `Solved.of` takes.

    JAX's own `linear_call` has no transpose inside of `vmap`.
    """
    import jax
    from jax.experimental.buffer_callback import buffer_callback
    from jax.extend.core import Primitive
    from jax.interpreters import ad, batching, mlir

    primitive = Primitive("hpfem_solved")
    primitive.multiple_results = True

    def bound(own: Solved) -> Any:
        order, out = own.place
        return primitive.bind(*own.arrays, solution=own.solution, order=order, out=out)

    def abstract(*given: Any, solution: Any, order: int, out: int) -> Any:
        shapes = solution.shapes.values() if out else [solution.shape]
        return [jax.core.ShapedArray(shape, given[0].dtype) for shape in shapes]

    def called(*given: Any, **how: Any) -> Any:
        """The results, made where JAX computes."""

        def run(context: Any, out: Any, *arrays: Any) -> None:
            home = wrapped(out[0]).home
            home.wait(context)
            for buffer, array in zip(out, Solved.of(arrays=arrays, **how)(), strict=True):
                copied(array, buffer)
            home.wait(None)

        return buffer_callback(run, abstract(*given, **how), vmap_method="sequential")(*given)

    def jvp(given: Any, changes: Any, **how: Any) -> Any:
        own, moves = Solved.of(arrays=given, **how), [None if isinstance(new, ad.Zero) else new for new in changes]
        results = bound(own)
        return results, own.changed(moves, results, jax.numpy.zeros_like, bound)

    def transpose(w: Any, *given: Any, **how: Any) -> list[Any]:
        wanted, w = [*map(ad.is_undefined_primal, given)], [*map(ad.instantiate_zeros, w)]
        return Solved.of(arrays=given, **how).slopes(wanted, w, (), bound)

    def batched(given: Sequence[Any], axes: Sequence[Any], **how: Any) -> tuple[Any, list[int]]:
        def row(k: Any) -> Any:
            pairs = zip(given, axes, strict=True)
            return primitive.bind(*[a if axis is None else jax.numpy.take(a, k, axis) for a, axis in pairs], **how)

        [size, *_] = [a.shape[axis] for a, axis in zip(given, axes, strict=True) if axis is not None]
        found = jax.lax.map(row, jax.numpy.arange(size))
        return found, [0] * len(found)

    primitive.def_impl(called)
    primitive.def_abstract_eval(abstract)
    mlir.register_lowering(primitive, mlir.lower_fun(called, multiple_results=True))
    ad.primitive_jvps[primitive] = jvp
    ad.primitive_transposes[primitive] = transpose
    batching.primitive_batchers[primitive] = batched
    return primitive
