"""Point sources, receivers and wavelets, for `march`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpfem.shapes.arguments import instance, real, reals, shown

from ..assembly import C0Space
from ..errors import ArgumentError


def point_source(c0: C0Space, point: Any) -> NDArray[np.float64]:
    """The functional v -> v(point): a point source of strength one, or a receiver; collective where processes share c0.

    Parameters
    ----------
    c0 : C0Space
    point : array_like, [D]

    Returns
    -------
    ndarray, [size]

    Raises
    ------
    ArgumentError
        If the point is in no cell.
    """
    space = instance(c0, C0Space, "c0").space
    block, element, xi = space.locator.find(reals(point, "a point")[None])
    inside = space.comm.allgather(bool(block[0] >= 0))
    if not any(inside):
        raise ArgumentError(f"the point {shown(point)} is in no cell of the mesh")
    load = space.zeros("dual")
    if inside.index(True) == space.comm.rank:
        load.arrays[block[0]][0, element[0]] = space.blocks[block[0]].basis.evaluate(xi)[:, 0]
    return np.asarray(c0.gather(load), dtype=np.float64)


def ricker(frequency: float, delay: float | None = None) -> Callable[[float], float]:
    """Ricker's wavelet (1 - 2 a^2) exp(-a^2), a = pi f (t - delay).

    Parameters
    ----------
    frequency : float
        Peak frequency, > 0.
    delay : float, optional
        1.2 / frequency when left out, so that it starts from nothing.

    Returns
    -------
    callable
        t -> amplitude.
    """
    frequency = real(frequency, "the frequency of a wavelet", above=0)
    middle = 1.2 / frequency if delay is None else real(delay, "the delay of a wavelet")

    def wavelet(t: float) -> float:
        a = (np.pi * frequency * (t - middle)) ** 2
        return float((1 - 2 * a) * np.exp(-a))

    return wavelet
