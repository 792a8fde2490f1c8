"""Maps between continuous functions that are a dense matrix in every cell: changes of basis.

`Backend.cellwise` computes the products: on a CPU by sparse factors, on a GPU by one matrix in bfloat16 on tensor
cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array, diags_array

from ...assembly import C0Space
from ...backends.base import Backend
from ...backends.cellwise import CellMatrices, FactorisedMatrix, added
from ...backends.restriction import BlockMatrix
from ...memory import as_numpy

# An entry that is zero up to rounding, relative to the largest one of a matrix.
_ROUNDING = 1e-14


class CellMap:
    """x -> (I - C) W Q_a^t M Q x: M in every cell, then the mean over the cells.

    W divides by the number of cells, and C corrects edge modes inside rotated faces (`C0Space.face_correction`). Each
    block of Q is a group of cells that have a matrix M, given as factors; Q_a is `back`. `modes` are the orders of
    modes in the cells of each block: entity by entity (`Codes`). What processes share depends on what they share alone:
    every process has these rows, and a map needs no exchange.
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
            blocks = None if same else [own.by_entity() for own in back.blocks]
            self._back = self._Q.with_rows(back.rows) if blocks is None else BlockMatrix(blocks, back.rows)
        given = CellMatrices(self._matrices, self._Q, self._back, vectors, dtype, rough)
        self._c0, self._product = c0, backend.cellwise(given)
        self._weights = (1 / c0.multiplicity_on(vectors.xp)).astype(dtype)
        C, sharing = c0.face_correction_rows, c0.numbering.sharing
        # Rows of what processes share, their transpose at what they send, and where the rows are.
        self._shared: tuple[Any, Any, Any] | None = None
        if sharing is not None:
            own = diags_array(1 / c0.multiplicity[sharing.shared]) @ self._sums_of_rows(sharing.shared)
            rows = sharing.summed_rows(csr_array(own)).astype(dtype)
            sent = csr_array(rows.T)[sharing.sent]
            sent = csr_array((sent.data, sharing.shared[sent.indices], sent.indptr), shape=(len(sharing.sent), c0.size))
            self._shared = vectors.sparse(rows), vectors.sparse(sent), vectors.from_host(sharing.shared)
            self._weights[self._shared[2]] = 0  # of rows
            if c0.face_correction is not None:
                summed = sharing.with_summed_rows(c0.face_correction)
                inside = np.flatnonzero(np.diff(summed.indptr))
                C = inside, csr_array(summed[inside])
        self._C: tuple[Any, ...] | None = None
        if C is not None:
            # Rows inside faces, columns on edges: of a new vector these rows alone are written.
            inside, M = C[0], C[1].astype(dtype)
            M_t = csr_array(M.T)
            M_t = csr_array((M_t.data, inside[M_t.indices].astype(M_t.indices.dtype), M_t.indptr), (c0.size,) * 2)
            self._C = vectors.sparse(M), vectors.sparse(M_t), vectors.from_host(inside)

    # Whether all processes are to have the owners' numbers of what is added to something, where it may be (`final`).
    agrees = False

    @property
    def final(self) -> bool:
        """Whether such numbers change no more: without C."""
        return self._C is None

    def __call__(self, x: Any, onto: Any = None) -> Any:
        """Map a vector; x, onto [size] -> [size]; on several processes equal up to rounding, unless it `agrees`."""

        def more(y: Any, there: bool) -> None:
            assert self._shared is not None
            rows, _, places = self._shared
            self._vectors.plus_product(y if there else None, 1.0, rows, x, y, places)
            if there and self.agrees:
                self._vectors.agreed(y)

        given = onto if self._C is None else None
        y = self._product.apply(x, self._weights, given, None if self._shared is None else more)
        return y if self._C is None else added(self._corrected(y, 0), onto)

    def transposed(self, r: Any, scale: Any = None) -> Any:
        """Map the sum of the processes' vectors by the transpose, times `scale`; r, scale [size] -> [size]."""
        r, more = r if self._C is None else self._corrected(r, 1), None
        if self._shared is not None:
            more = partial(self._vectors.plus_product, factor=1.0, matrix=self._shared[1], x=r)
        return self._product.transposed(r, scale, self._weights, more)

    def _corrected(self, x: Any, number: int) -> Any:
        """X less its product with C, in place, or C^T."""
        assert self._C is not None
        where = (x, self._C[2]) if number == 0 else ()
        return self._vectors.plus_product(x, -1.0, self._C[number], x, *where)

    def squares(self, local: Sequence[Any]) -> Any:
        """Sum numbers [E, n_modes], weighted by squares of Q's entries, over the cells of this process; -> [size]."""
        total, rows = self._product.restriction.gather_squares([own[None] for own in local])[0], self._Q.rows
        if rows.nnz:
            codes, values = self._Q.on(self._vectors.xp), np.zeros(rows.shape[0])
            (places,), flat = (codes < 0).nonzero(), self._vectors.xp.concatenate([own.ravel() for own in local])
            values[-1 - as_numpy(codes[places])] = as_numpy(flat[places])
            total += self._vectors.from_host(rows.power(2).T @ values)
        return total

    def congruent(self, R: csr_array) -> tuple[csr_array, NDArray[np.int64]]:
        """Transform a matrix with entries on the boundary only, on the host, with means over the cells of this
        process; R [size, size] -> rows [n, size], chosen [n].
        """
        chosen = np.flatnonzero(np.diff(R.indptr))
        if not len(chosen):
            return csr_array((0, R.shape[0])), chosen
        here = self._c0.multiplicity_here[chosen]
        rows = diags_array(1 / here) @ self._sums_of_rows(chosen)
        if self._c0.face_correction is not None:
            more = diags_array(self._c0.multiplicity[chosen] / here)  # the correction is for means over all cells
            rows = rows - more @ self._c0.face_correction[chosen][:, chosen] @ rows
        return csr_array(rows), chosen

    def _sums_of_rows(self, chosen: NDArray[np.int64]) -> csr_array:
        """Rows of Q_a^t M Q, of the cells of this process, on the host; chosen [n] -> [n, size]."""
        Q, back, found = self._Q, self._back, csr_array((len(chosen), self._Q.size))
        inside = np.zeros(Q.size, dtype=bool)
        inside[chosen] = True
        # By the codes of rows, of which those of several entries are negative: indices from the end.
        wanted = np.append(np.repeat(inside, 2), (back.rows[:, chosen].count_nonzero(axis=1) > 0)[::-1])
        for matrix, given, own in zip(self._matrices, Q.codes, back.codes, strict=True):
            M = matrix.dense
            M[np.abs(M) < _ROUNDING * np.abs(M).max()] = 0
            element, mode = np.nonzero(wanted[own])
            elements, which = np.unique(element, return_inverse=True)
            rows = csr_array(M)[mode]
            columns = rows.indices + len(M) * np.repeat(which, np.diff(rows.indptr))
            in_cells = csr_array((rows.data, columns, rows.indptr), shape=(len(mode), len(M) * len(elements)))
            from_cells = back.of_codes(own[element, mode])[:, chosen]
            found = found + from_cells.T @ (in_cells @ Q.of_codes(given[elements].reshape(-1)))
        return csr_array(found)
