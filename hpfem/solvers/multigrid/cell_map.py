"""Maps between continuous functions that are a dense matrix in every cell: changes of basis.

`Backend.cellwise` computes the products: on a CPU by sparse factors, on a GPU by one matrix in bfloat16 on tensor
cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array, diags_array

from ...assembly import C0Space
from ...backends.base import Backend
from ...backends.cellwise import FactorisedMatrix, added
from ...backends.restriction import BlockMatrix
from ...memory import as_numpy

Array = NDArray[np.float64]

# An entry that is zero up to rounding, relative to the largest one of a matrix.
_ROUNDING = 1e-14


class CellMap:
    """x -> (I - C) W Q_a^t M Q x: M in every cell, then the mean over the cells.

    W divides by the number of cells, and C corrects edge modes inside rotated faces (`C0Space.face_correction`). Each
    block of Q is a group of cells that have a matrix M, given as factors; Q_a is `back`. `modes` are the orders of
    modes in the cells of each block: entity by entity (`Codes`).
    """

    def __init__(
        self,
        Q: BlockMatrix,
        back: BlockMatrix,
        matrices: Sequence[FactorisedMatrix],
        c0: C0Space,
        backend: Backend,
        dtype: DTypeLike,
        rough: bool = False,
    ) -> None:
        self._vectors = vectors = c0.vectors_on(backend.device())
        self.modes, pairs = [own.modes for own in Q.blocks], zip(matrices, Q.blocks, back.blocks, strict=True)
        # Numbers that stand side by side in a vector do so in the cells too: a GPU reads both by sectors of 32 bytes.
        self._matrices = [M.between(own.modes, other.modes) for M, own, other in pairs]
        self._Q = self._back = BlockMatrix([own.by_entity() for own in Q.blocks], Q.rows)
        if back is not Q:
            same = back.blocks is Q.blocks
            self._back = BlockMatrix(self._Q.blocks if same else [own.by_entity() for own in back.blocks], back.rows)
        self._c0, self._product = c0, backend.cellwise(self._matrices, self._Q, self._back, vectors, dtype, rough)
        self._weights = (1 / c0.multiplicity_on(vectors.xp)).astype(dtype)
        C, self._C = c0.face_correction, None
        if C is not None:
            # Rows inside faces, columns on edges: of a new vector these rows alone are written.
            inside = np.flatnonzero(np.diff(C.indptr)) if vectors.comm.size == 1 else None
            parts, places = (
                (C if inside is None else C[inside], C.T),
                inside if inside is None else vectors.from_host(inside),
            )
            self._C = *(vectors.sparse(csr_array(part.astype(dtype))) for part in parts), places

    def __call__(self, x: Any, onto: Any = None) -> Any:
        """Map a vector; x, onto [size] -> [size]."""
        if self._C is None:
            return self._product.apply(x, self._weights, onto)
        y = self._product.apply(x, self._weights)
        return added(self._corrected(y, 0), onto)

    def transposed(self, r: Any, scale: Any = None) -> Any:
        """Map a vector by the transpose; see `__call__`; r, scale [size] -> [size]."""
        return self._product.transposed(r if self._C is None else self._corrected(r, 1), scale, self._weights)

    def _corrected(self, x: Any, number: int) -> Any:
        """X less its product with C, maybe in place, or C^T, over all processes."""
        assert self._C is not None
        if self._vectors.comm.size == 1:
            where = (x, self._C[2]) if number == 0 else ()
            return self._vectors.plus_product(x, -1.0, self._C[number], x, *where)
        return x - self._vectors.summed(self._C[number] @ x)

    def squares(self, local: Sequence[Any]) -> Any:
        """Sum local numbers, weighted by the squares of the entries of Q, over the cells of this process; local
        [E, n_modes] -> [size].
        """
        total, rows = self._product.restriction.gather_squares([own[None] for own in local])[0], self._Q.rows
        if rows.nnz:
            codes, values = self._Q.on(np), np.zeros(rows.shape[0])
            places, flat = np.flatnonzero(codes < 0), self._vectors.xp.concatenate([own.ravel() for own in local])
            values[-1 - codes[places]] = as_numpy(flat[self._vectors.from_host(places)])
            total += self._vectors.from_host(rows.power(2).T @ values)
        return total

    def congruent(self, R: csr_array) -> tuple[csr_array, NDArray[np.int64]]:
        """Transform a matrix with entries on the boundary only, on the host, with means over the cells of this
        process; R [size, size] -> rows [n, size], chosen [n].
        """
        chosen = np.flatnonzero(np.diff(R.indptr))
        if not len(chosen):
            return csr_array((0, R.shape[0])), chosen
        back = csr_array(csr_array(self._back.matrix)[:, chosen])
        local = np.flatnonzero(np.diff(back.indptr))
        Q, entries = self._Q, []
        for matrix, start, end, codes in zip(self._matrices, Q.starts, Q.starts[1:], Q.codes, strict=False):
            M = matrix.dense
            M[np.abs(M) < _ROUNDING * np.abs(M).max()] = 0
            own = np.flatnonzero((local >= start) & (local < end))
            element, mode = np.divmod(local[own] - start, codes.shape[1])
            for m in np.unique(mode):
                columns = np.flatnonzero(M[m])
                first = start + element[mode == m] * codes.shape[1]
                i, j = np.broadcast_arrays(own[mode == m][:, None], first[:, None] + columns)
                entries.append((i.ravel(), j.ravel(), np.broadcast_to(M[m, columns], i.shape).ravel()))
        i, j, values = (np.concatenate(parts) for parts in zip(*entries, strict=True))
        in_cells = csr_array((values, (i, j)), shape=(len(local), Q.starts[-1])) @ Q.matrix
        here = self._c0.multiplicity_here[chosen]
        rows = diags_array(1 / here) @ (back[local].T @ in_cells)
        if self._c0.face_correction is not None:
            more = diags_array(self._c0.multiplicity[chosen] / here)  # the correction is for means over all cells
            rows = rows - more @ self._c0.face_correction[chosen][:, chosen] @ rows
        return csr_array(rows), chosen
