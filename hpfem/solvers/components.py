"""Functions of one component, applied to each component of a vector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..backends.vectors import VectorSpace
from .preconditioners import Jacobi


class ByComponent:
    """Functions of vectors of one component, as a function of vectors of several.

    Parameters
    ----------
    functions : sequence of callable
        Of each component, [size] -> [size] on the vectors' device.
    vectors : VectorSpace
    """

    def __init__(self, functions: Sequence[Callable[[Any], Any]], vectors: VectorSpace) -> None:
        self.functions, self.vectors = functions, vectors

    def __call__(self, vector: Any) -> Any:
        """Apply to each component of a vector, [components * size]."""
        rows = vector.reshape(len(self.functions), -1)
        return self.vectors.xp.concatenate([own(row) for own, row in zip(self.functions, rows, strict=True)])


def each_component(functions: Sequence[Callable[[Any], Any]], vectors: VectorSpace) -> Callable[[Any], Any]:
    """Apply to each component its function."""
    return functions[0] if len(functions) == 1 else ByComponent(functions, vectors)


def by_component(function: Callable[[Any], Any], components: int, vectors: VectorSpace) -> Callable[[Any], Any]:
    """Apply a function to each component."""
    if components == 1:
        return function
    if isinstance(function, Jacobi):
        return Jacobi(vectors.xp.tile(function.inverse, components), vectors)
    return each_component([function] * components, vectors)
