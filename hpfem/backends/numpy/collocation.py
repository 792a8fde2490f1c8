"""Differentiation at the quadrature points with the 1-D Lagrange matrices ([X] section 2.2.1)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hpfem.shapes import Tabulation

from .plan import Plans, Step

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
        self.lines = [(int(np.prod(counts[:k], dtype=int)), q, -1) for k, q in enumerate(counts)]
        self.matrices = [np.ascontiguousarray(d, dtype) for d in tabulation.differentiation]
        self.transposes = [np.ascontiguousarray(d.T, dtype) for d in tabulation.differentiation]

    def allocate(self) -> None:
        """Begin the plans, which are made for the buffers of a kernel."""
        self._plan = Plans()

    def _differentiation(self, values: Array, out: Array) -> list[Step]:
        parts = enumerate(zip(self.matrices, self.lines, strict=True))
        return [(matrix, values.reshape(lines), out[k].reshape(lines)) for k, (matrix, lines) in parts]

    def _transposition(self, fluxes: Array, work: Array, out: Array) -> list[Step]:
        parts = enumerate(zip(self.transposes, self.lines, strict=True))
        steps = [(matrix, fluxes[k].reshape(lines), work.reshape(lines)) for k, (matrix, lines) in parts]
        return [(*steps[0][:2], out.reshape(self.lines[0])), *steps]

    def differentiate(self, values: Array, out: Array) -> None:
        """Derivatives by collapsed coordinates.

        Parameters
        ----------
        values : ndarray, [Q, lanes]
        out : ndarray, [dim, Q, lanes]
        """
        for matrix, source, target in self._plan(self._differentiation, values, out):
            np.matmul(matrix, source, out=target)

    def add_transpose(self, fluxes: Array, work: Array, out: Array, overwrite: bool) -> None:
        """Sum of the transposed derivatives of the fluxes: out (+)= sum_k D_k^T fluxes[k].

        Parameters
        ----------
        fluxes : ndarray, [dim, Q, lanes]
        work, out : ndarray, [Q, lanes]
        overwrite : bool
            Whether what is in `out` is dropped.
        """
        straight, *steps = self._plan(self._transposition, fluxes, work, out)
        if overwrite:
            np.matmul(straight[0], straight[1], out=straight[2])
            steps = steps[1:]
        for matrix, source, target in steps:
            np.matmul(matrix, source, out=target)
            out += work
