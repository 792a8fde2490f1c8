"""The matrix between the vertices of a mesh, again and again for other coefficients."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...assembly.entries import element_matrices
from ...backends.restriction import BlockMatrix
from ...backends.vectors import VectorSpace
from ...operators import Operator


class VertexMatrix:
    """Makes matrices of operators of order 1, where vectors are; the places of their entries are found once.

    Rows are numbers of unknowns, [n, vertices], vertex by vertex, of so many; -1 for those that are left out.
    """

    def __init__(self, Q: BlockMatrix, number: NDArray[np.int32], rows: int, vectors: VectorSpace) -> None:
        self._vectors, (n, size), xp = vectors, number.shape, vectors.xp
        cells = [own.on(xp) >> 1 for own in Q.blocks]
        row = xp.concatenate([xp.tile(own.ravel(), own.shape[1]) for own in cells])
        column = xp.concatenate([xp.repeat(own.T.ravel(), own.shape[1]) for own in cells])
        self._sums, row, column = vectors.pattern(row, column, size)
        # Of entry e of a vertex, for components i and j: these are side by side, all of one i before others.
        ends = xp.searchsorted(row, xp.arange(size + 1))
        first, count, every = ends[row], xp.diff(ends)[row], xp.arange(len(row))
        c, (first, count, every) = xp.arange(n), (own[:, None, None] for own in (first, count, every))
        place = (n * n * first + n * (every - first) + n * count * c[:, None] + c).ravel()
        there = xp.asarray(number).T
        rows_of, columns_of = (
            xp.broadcast_to(own, (len(row), n, n)).ravel() for own in (there[row][:, :, None], there[column][:, None])
        )
        order = xp.empty_like(place)
        order[place] = xp.arange(len(place))
        order = order[(rows_of[order] >= 0) & (columns_of[order] >= 0)]
        self._order, self._columns = order, columns_of[order]
        self._ends = xp.searchsorted(rows_of[order], xp.arange(rows + 1)).astype(np.int32)

    def __call__(self, operator: Operator) -> Any:
        """The matrix in CSR."""
        n, xp = operator.form.components, self._vectors.xp
        found = [element_matrices(operator, number, self._vectors) for number in range(len(operator.space.blocks))]
        each = [xp.concatenate([own[j, :, i].ravel() for own in found]) for i in range(n) for j in range(n)]
        data = xp.stack([self._sums(values) for values in each], axis=1).ravel()[self._order]
        rows = len(self._ends) - 1
        made = self._vectors.sparse_library.csr_matrix((data, self._columns, self._ends), shape=(rows, rows))
        made.has_canonical_format = True
        return made
