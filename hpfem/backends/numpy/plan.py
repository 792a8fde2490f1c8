"""Plans: the matrix products of a stage with their views, made once for the buffers that a kernel keeps."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hpfem.shapes.arrays import Floats

# A matrix, its argument and its result; integers in place of a matrix are rows to take, `ADD` adds.
Step = tuple[NDArray[Any], Floats, Floats]
ADD: NDArray[Any] = np.empty(0)


S = TypeVar("S")


def twin(original: S) -> S:
    """A copy with scratch of its own; read-only data are shared."""
    made: Any = copy.copy(original)
    made.allocate()
    return made


class Plans:
    """Lists of steps by stage and buffers: slicing and reshaping small arrays costs more than multiplying them."""

    def __init__(self) -> None:
        self._made: dict[tuple[Any, ...], tuple[tuple[Any, ...], list[Step]]] = {}

    def run(self, make: Callable[..., Iterable[Step]], *arguments: Floats | bool | None) -> None:
        """Run a stage on buffers."""
        key = (make.__name__, *map(id, arguments))
        if key not in self._made:
            self._made[key] = (arguments, list(make(*arguments)))  # holding the buffers keeps their ids theirs
        for matrix, source, target in self._made[key][1]:
            if matrix is ADD:
                target += source
            elif matrix.dtype == np.int64:
                np.take(source, matrix, axis=0, out=target, mode="clip")
            else:
                np.matmul(matrix, source, out=target)
