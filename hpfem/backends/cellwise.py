"""Products with one small matrix per group of cells, between global vectors: changes of basis in the cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .vectors import BlockMatrix, VectorSpace


class CellwiseProduct:
    """x -> Q_a^t M Q x and its transpose, by the vector space's restrictions and products of dense matrices.

    Parameters
    ----------
    matrices : sequence of ndarray, [n_modes, n_modes]
        M: one per block of Q.
    Q, back : BlockMatrix
        Q and Q_a.
    vectors : VectorSpace
    dtype : dtype
        Of the vectors.

    Attributes
    ----------
    restriction : ElementRestriction
        Q.
    """

    def __init__(
        self,
        matrices: Sequence[NDArray[np.float64]],
        Q: BlockMatrix,
        back: BlockMatrix,
        vectors: VectorSpace,
        dtype: DTypeLike,
    ) -> None:
        xp, pairs = vectors.xp, [(M, M.T) for M in matrices]
        self._vectors = vectors
        self.restriction = vectors.restriction(Q, dtype)
        self._outer = self.restriction if back is Q else vectors.restriction(back, dtype)
        self._M, self._Mt = ([xp.asarray(np.ascontiguousarray(m), dtype) for m in own] for own in zip(*pairs))
        self._Q, self._dtype, self._pool = Q, dtype, vectors.pool()

    def _new_scratch(self) -> list[tuple[Any, list[Any]]]:
        """Two arrays of local numbers, and the blocks of each."""
        starts, blocks = self._Q.starts, self._Q.blocks
        both = [self._vectors.xp.empty((starts[-1],), self._dtype) for _ in range(2)]
        return [
            (flat, [flat[a:b].reshape(1, *own.shape) for a, b, own in zip(starts, starts[1:], blocks, strict=False)])
            for flat in both
        ]

    def apply(self, x: Any) -> Any:
        """Q_a^t M Q x.

        Parameters
        ----------
        x : array, [size]

        Returns
        -------
        array, [size]
            A new one.
        """
        return self._through(self.restriction, self._Mt, self._outer, x)

    def transposed(self, r: Any) -> Any:
        """Q^t M^t Q_a r; see `apply`."""
        return self._through(self._outer, self._M, self.restriction, r)

    def _through(self, there: Any, matrices: Sequence[Any], back: Any, x: Any) -> Any:
        scratch = self._pool.take(self._new_scratch)
        (_, first), (flat, second) = scratch
        there.scatter(x[None], first)
        for source, out, M in zip(first, second, matrices, strict=True):
            self._vectors.multiply(source[0], M, out[0])
        result = back.gather(flat)[0]
        self._pool.give(scratch)
        return result
