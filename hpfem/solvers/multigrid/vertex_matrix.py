"""The matrix between the vertices of a mesh, again and again for other coefficients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...backends.restriction import BlockMatrix
from ...backends.vectors import VectorSpace


class VertexMatrix:
    """Makes Q^T A Q of operators of order 1 where vectors are; the places of its entries are found once.

    `number` [components, Q.size] is that of each row, of so many `rows`, or -1 for what is left out.
    """

    def __init__(self, Q: BlockMatrix, number: NDArray[np.int32], rows: int, vectors: VectorSpace) -> None:
        self._vectors, self._rows, xp, n = vectors, rows, vectors.xp, len(number)
        vertices = [own.on(xp) >> 1 for own in Q.blocks]  # which have no signs
        row = xp.concatenate([xp.tile(own.ravel(), own.shape[1]) for own in vertices])
        column = xp.concatenate([xp.repeat(own.T.ravel(), own.shape[1]) for own in vertices])
        self._sums, row, column = vectors.pattern(row, column, Q.size)
        # Of each pair of components at each of these places.
        there = xp.asarray(number)
        row, column = xp.repeat(there[:, row], n, axis=0).ravel(), xp.tile(there[:, column], (n, 1)).ravel()
        self._kept = xp.flatnonzero((row >= 0) & (column >= 0))
        self._ordered, row, column = vectors.pattern(row[self._kept], column[self._kept], rows)
        self._parts = column.astype(np.int32), xp.searchsorted(row, xp.arange(rows + 1)).astype(np.int32)

    def __call__(self, matrices: Sequence[Any]) -> Any:
        """The matrix in CSR, [rows, rows], by the `element_matrices` of each block."""
        vectors = self._vectors
        of_pairs = [own.transpose(2, 0, 1, 3, 4).reshape(len(own) ** 2, -1) for own in matrices]
        data = vectors.xp.concatenate([self._sums(own) for own in vectors.xp.concatenate(of_pairs, axis=1)])
        parts = self._ordered(data[self._kept]), *self._parts
        made = vectors.sparse_library.csr_matrix(parts, shape=(self._rows,) * 2)
        made.has_canonical_format = True
        return made
