"""What is done to one component of a vector, done to each of several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..backends.vectors import VectorSpace
from .preconditioners import Jacobi


class ByComponent:
    """A function of vectors of one component, for those of several.

    Parameters
    ----------
    function : callable
        [size] -> [size], on the vectors' device.
    components : int
    vectors : VectorSpace
    """

    def __init__(self, function: Callable[[Any], Any], components: int, vectors: VectorSpace) -> None:
        self.function, self.components, self.vectors = function, components, vectors

    def __call__(self, vector: Any) -> Any:
        """Apply to each component of a vector, [components * size]."""
        rows = vector.reshape(self.components, -1)
        return self.vectors.xp.concatenate([self.function(row) for row in rows])


def by_component(function: Callable[[Any], Any], components: int, vectors: VectorSpace) -> Callable[[Any], Any]:
    """Apply a function to each component.

    Parameters
    ----------
    function : callable
        [size] -> [size]; a diagonal preconditioner stays one.
    components : int
    vectors : VectorSpace
        Where the vectors are.

    Returns
    -------
    callable
        [components * size] -> the same; the function itself where there is one component.
    """
    if components == 1:
        return function
    if isinstance(function, Jacobi):
        return Jacobi(vectors.xp.tile(function.inverse, components))
    return ByComponent(function, components, vectors)
