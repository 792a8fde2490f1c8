"""Plans: the matrix products of a stage with their views, made once for the buffers that a kernel keeps."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]
Step = tuple[NDArray[Any], Array, Array]


class HasScratch(Protocol):
    """What has arrays that an application writes to, beside what it only reads."""

    def allocate(self) -> None:
        """Make new ones."""


S = TypeVar("S", bound=HasScratch)


def twin(original: S) -> S:
    """The same with scratch of its own; what is only read is shared.

    Parameters
    ----------
    original : object
        With a method `allocate`.

    Returns
    -------
    object
    """
    made = copy.copy(original)
    made.allocate()
    return made


class Plans:
    """Lists of steps by stage and buffers: slicing and reshaping small arrays costs more than multiplying them."""

    def __init__(self) -> None:
        self._made: dict[tuple[Any, ...], tuple[tuple[Array, ...], list[Step]]] = {}

    def __call__(self, make: Callable[..., list[Step]], *buffers: Array) -> list[Step]:
        """Steps of a stage on these buffers.

        Parameters
        ----------
        make : callable
            Makes the list of (matrix, source, target) from the buffers.
        *buffers : ndarray
            Arrays that live as long as the kernel.

        Returns
        -------
        list of (ndarray, ndarray, ndarray)
        """
        key = (make.__name__, *map(id, buffers))
        if key not in self._made:
            self._made[key] = (buffers, make(*buffers))  # holding the buffers keeps their ids theirs
        return self._made[key][1]
