"""Differentiation at the quadrature points with the 1-D Lagrange matrices ([Xing] section 2.2.1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hpfem.shapes import Tabulation

from .plan import ADD, Plans, Step

Array = NDArray[np.floating[Any]]


class Collocation:
    """Collocated derivatives of a chunk of elements, elements fastest.

    Parameters
    ----------
    tabulation : Tabulation
    dtype : dtype
    """

    def __init__(self, tabulation: Tabulation, dtype: DTypeLike) -> None:
        counts = tabulation.rule.counts
        # Views [points before, Q_k, the rest] whose middle axis runs along direction k.
        self._lines = [(int(np.prod(counts[:k], dtype=int)), q, -1) for k, q in enumerate(counts)]
        self._matrices = [np.ascontiguousarray(d, dtype) for d in tabulation.differentiation]
        self._transposes = [np.ascontiguousarray(d.T, dtype) for d in tabulation.differentiation]

    def allocate(self) -> None:
        """Begin the plans, which are made for the buffers of a kernel."""
        self._plans = Plans()

    def _differentiation(self, values: Array, out: Array) -> Iterator[Step]:
        for matrix, lines, derivative in zip(self._matrices, self._lines, out, strict=True):
            yield matrix, values.reshape(lines), derivative.reshape(lines)

    def _transposition(self, fluxes: Array, work: Array, out: Array, overwrite: bool) -> Iterator[Step]:
        for k, (matrix, lines) in enumerate(zip(self._transposes, self._lines, strict=True)):
            target = out if overwrite and k == 0 else work
            yield matrix, fluxes[k].reshape(lines), target.reshape(lines)
            if target is work:
                yield ADD, work, out

    def differentiate(self, values: Array, out: Array) -> None:
        """Derivatives by collapsed coordinates.

        Parameters
        ----------
        values : ndarray, [Q, lanes]
        out : ndarray, [dim, Q, lanes]
        """
        self._plans.run(self._differentiation, values, out)

    def add_transpose(self, fluxes: Array, work: Array, out: Array, overwrite: bool) -> None:
        """Sum of the transposed derivatives of the fluxes: out (+)= sum_k D_k^T fluxes[k].

        Parameters
        ----------
        fluxes : ndarray, [dim, Q, lanes]
        work, out : ndarray, [Q, lanes]
        overwrite : bool
            Whether what is in `out` is dropped.
        """
        self._plans.run(self._transposition, fluxes, work, out, overwrite)
