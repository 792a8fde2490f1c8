"""Solutions as functions of JAX, with both modes of differentiation; JAX is imported when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .backends.exchange import wrap as wrapped
from .errors import ArgumentError
from .solvers.solution_map import as_map, copied
from .support.optional import needed

__all__ = ["wrap"]


def wrap(problem: Any, inputs: Mapping[str, Any] | None = None, **options: Any) -> Callable[[Any], Any]:
    """Make a function of JAX: from a dictionary of arrays to the global coefficients of the solution.

    It works in `jit`, `grad`, `jvp`, `vjp` and `vmap`, which goes one by one; its derivatives have none. Arrays are
    used where they are. Errors while JAX runs are wrapped in its own.

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
    named, dtype, n = solution.named, solution.c0.space.dtype, len(solution.shapes)
    arrays = [jax.ShapeDtypeStruct(shape, dtype) for shape in solution.shapes.values()]
    vector = [jax.ShapeDtypeStruct(solution.shape, dtype)]

    def forward(*given: Any) -> Any:  # the data, u and the changes
        return [solution.forward(named(given[:n]), named(given[n + 1 :]), given[n])]

    def pullback(w: Any, *given: Any) -> Any:
        return solution.pullback(named(given[:n]), w, given[n]).values()

    derivative = _linear(
        lambda *given: _called(forward, vector, given)[0], lambda *given: _called(pullback, arrays, given), n + 1
    )

    @jax.custom_jvp  # type: ignore[untyped-decorator]
    def solved(*data: Any) -> Any:
        return _called(lambda *data: [solution.vector(data)], vector, data)[0]

    @solved.defjvp  # type: ignore[untyped-decorator]
    def rule(data: Any, changes: Any) -> Any:
        u = solved(*data)
        return u, derivative(*data, u, *changes)

    def solve(data: Any) -> Any:
        given = [jax.numpy.asarray(array) for array in solution.ordered(data)]
        for name, array, wanted in zip(solution.shapes, given, arrays, strict=True):
            if (array.shape, array.dtype) != (wanted.shape, dtype):
                raise ArgumentError(
                    f"{name!r} is an array of {dtype} {wanted.shape}, JAX has one of {array.dtype} {array.shape}; for"
                    " float64 set jax.config.update('jax_enable_x64', True)"
                )
        return solved(*given)

    return solve


def _called(function: Callable[..., Any], results: Sequence[Any], given: Sequence[Any]) -> Any:
    """A function of arrays, to be called where JAX computes; `results` tell the shapes of what it returns."""
    from jax.experimental.buffer_callback import buffer_callback

    def run(context: Any, out: Any, *arrays: Any) -> None:
        home = wrapped(out[0]).home
        home.wait(context)
        for buffer, array in zip(out, function(*arrays), strict=True):
            copied(array, buffer)
        home.wait(None)

    return buffer_callback(run, list(results), vmap_method="sequential")(*given)


def _linear(forward: Callable[..., Any], transposed: Callable[..., Any], known: int) -> Callable[..., Any]:
    """A function that is linear in its arguments after the known ones, with its transpose: (w, *known) -> a list.

    JAX's own `linear_call` has no transpose inside of `vmap`.
    """
    import jax
    from jax.extend.core import Primitive
    from jax.interpreters import ad, batching, mlir

    primitive = Primitive("hpfem_derivative")
    primitive.def_impl(forward)
    primitive.def_abstract_eval(lambda *given: jax.core.ShapedArray(given[known - 1].shape, given[known - 1].dtype))
    mlir.register_lowering(primitive, mlir.lower_fun(forward, multiple_results=False))

    def transpose(w: Any, *given: Any) -> list[Any]:
        pairs = zip(transposed(ad.instantiate_zeros(w), *given[:known]), given[known:], strict=True)
        return [None] * known + [own if ad.is_undefined_primal(change) else None for own, change in pairs]

    def batched(given: Sequence[Any], axes: Sequence[Any]) -> tuple[Any, int]:
        moving = [k for k, axis in enumerate(axes) if axis is not None]

        def one(rows: Sequence[Any]) -> Any:
            own = dict(zip(moving, rows, strict=True))
            return primitive.bind(*[own.get(k, array) for k, array in enumerate(given)])

        return jax.lax.map(one, [jax.numpy.moveaxis(given[k], axes[k], 0) for k in moving]), 0

    ad.primitive_transposes[primitive] = transpose
    batching.primitive_batchers[primitive] = batched
    return primitive.bind
