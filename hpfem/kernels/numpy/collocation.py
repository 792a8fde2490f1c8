"""Differentiation at the quadrature points with the 1-D Lagrange matrices ([X] section 2.2.1)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hpfem.shapes import Tabulation

Array = NDArray[np.floating[Any]]


class Collocation:
    """Collocated derivatives of a chunk of elements, elements fastest.

    Parameters
    ----------
    tabulation : Tabulation
    lanes : int
        Elements of a chunk.
    dtype : dtype
    """

    def __init__(self, tabulation: Tabulation, lanes: int, dtype: DTypeLike) -> None:
        self.counts = tabulation.rule.counts
        self.lanes = lanes
        self.matrices = [np.ascontiguousarray(d, dtype) for d in tabulation.differentiation]
        self.transposes = [np.ascontiguousarray(d.T, dtype) for d in tabulation.differentiation]

    def _lines(self, array: Array, direction: int) -> Array:
        """View [batch, Q_k, rest] whose middle axis runs along a direction."""
        before = int(np.prod(self.counts[:direction], dtype=int))
        return array.reshape(before, self.counts[direction], -1)

    def differentiate(self, values: Array, out: Array) -> None:
        """Derivatives by collapsed coordinates.

        Parameters
        ----------
        values : ndarray, [Q, lanes]
        out : ndarray, [dim, Q, lanes]
        """
        for k, matrix in enumerate(self.matrices):
            np.matmul(matrix, self._lines(values, k), out=self._lines(out[k], k))

    def add_transpose(self, fluxes: Array, work: Array, out: Array, overwrite: bool) -> None:
        """Sum of the transposed derivatives of the fluxes: out (+)= sum_k D_k^T fluxes[k].

        Parameters
        ----------
        fluxes : ndarray, [dim, Q, lanes]
        work, out : ndarray, [Q, lanes]
        overwrite : bool
            Whether what is in `out` is dropped.
        """
        for k, matrix in enumerate(self.transposes):
            target = out if overwrite and k == 0 else work
            np.matmul(matrix, self._lines(fluxes[k], k), out=self._lines(target, k))
            if target is work:
                out += work
