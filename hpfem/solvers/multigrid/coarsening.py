"""Coarsening of a sparse matrix A by an interpolation P, with the arrays of any device: P^T A P, and P~ = P - M A P.

With the smoother M a V-cycle is S + P~ B P~^T, where B is that of the next matrix and S = 2 M - M A M: two products
with P~ remain to be done one after the other, as S r waits for nothing. That is for devices, whose launches are slow.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...backends.vectors import HOST_VECTORS, VectorSpace
from .chebyshev import Largest, chebyshev, first_step, largest_eigenvalue
from .irregular import noise_of

# Steps of the smoother.
_DEGREE = 2
# Entries of A P that are left out of M A P, and of P~, relative to the largest of their row.
_DROPPED_BEFORE, _DROPPED = 0.01, 0.005
# By how much couplings may change where P~ is kept. Vertices of tets, whose coefficient was 1, take 7 iterations with a
# new P~; with this one 8 where it varies as 1 : 7 (0.04), 9 with a jump of that size (0.09), 18 with one of 400 (0.2).
_ALIKE = 0.04
# What is added to a diagonal of least squares, relative to its sum, as it may be singular.
_SHIFT = 1e-10


class Coarsening(NamedTuple):
    """A matrix and the interpolation P to it, which takes `near` [m, k] to the near-null space; with P~ or None."""

    A: Any
    P: Any
    near: Any
    bounds: Largest  # of A with a unit diagonal
    smoothed: Any
    couplings: Any = None  # entries with a unit diagonal of the A that P~ was made of

    @classmethod
    def of(
        cls, A: Any, P: Any, near: Any, bounds: Largest, vectors: VectorSpace, before: Coarsening | None = None
    ) -> tuple[Coarsening, Any]:
        """With the next matrix, P^T A P; P~ is that of before, if there is one, while couplings do not change much."""
        found, couplings = (None, None) if before is None else (before.smoothed, before.couplings)
        if before is not None and found is None and P.format != "bsr":  # of few rows, a product with A takes half
            left = multiplied(P.T.tocsr(), A, vectors)
            return cls(A, P, near, bounds, None), multiplied(left, P, vectors)
        AP = multiplied(A, P, vectors)
        if before is None or found is not None:
            now = scaled(A, vectors.xp.sqrt(inverted(A.diagonal(), vectors.xp)))
            kept = couplings is not None and couplings.shape == now.shape
            if not (kept and vectors.max_norm(now - couplings) <= _ALIKE):
                few, couplings = _thinned(AP.tocsr(), near, vectors, _DROPPED_BEFORE), now
                found = P.tocsr() - in_order(multiplied(smoother(A.tocsr(), bounds, vectors), few, vectors))
                found = _thinned(found, near, vectors, _DROPPED)
        return cls(A, P, near, bounds, found, couplings), galerkin(P, AP, vectors)


def inverted(diagonal: Any, xp: Any) -> Any:
    """Inverses of positive numbers, 0 for others; [n]."""
    return xp.where(diagonal > 0, 1 / xp.where(diagonal > 0, diagonal, 1), 0)


def scaled(A: Any, scale: Any) -> Any:
    """Entries of a matrix whose rows and columns are scaled; scale [n]."""
    entries = A.tocoo()
    return entries.data * scale.take(entries.row) * scale.take(entries.col)


def galerkin(P: Any, AP: Any, vectors: VectorSpace) -> Any:
    """P^T A P, from the product A P."""
    return in_order(multiplied(P.T if P.format == "bsr" else P.T.tocsr(), AP, vectors))


def bounds_of(A: Any, vectors: VectorSpace, before: Largest | None = None) -> Largest:
    """The largest eigenvalue of a matrix with its diagonal's inverse; `before` is of a similar one."""
    xp, product = vectors.xp, vectors.sparse(A)
    inverse, start = inverted(xp.asarray(A.diagonal()), xp), noise_of(A.shape[0], xp)
    return largest_eigenvalue(lambda x: product @ x, lambda r: r * inverse, vectors, start.astype(np.float64), before)


def smoother(A: Any, bounds: Largest, vectors: VectorSpace, chosen: Any = slice(None)) -> Any:
    """Rows of Chebyshev's smoother, a polynomial of D A times D with D diagonal: of degree 1, a matrix like A."""
    xp = vectors.xp
    D = inverted(xp.asarray(A.diagonal()), xp) * first_step(bounds.value, _DEGREE)
    of_numbers = (lambda r, x, scale: r - scale * np.arange(2.0) * x), np.copy  # for D A = 0 and 1
    at_0, at_1 = chebyshev(*of_numbers, _DEGREE, np.ones(2), HOST_VECTORS)
    A = A if isinstance(chosen, slice) else A[chosen]
    row, columns = A.tocoo().row, A.indices
    row = row if isinstance(chosen, slice) else chosen[row]
    data = D.take(row) * ((at_1 - at_0) * A.data * D.take(columns) + at_0 * (row == columns))
    return type(A)((data, columns, A.indptr), shape=A.shape)


def in_order(A: Any) -> Any:
    """A new product in CSR, with its columns in ascending order."""
    A = A.tocsr()
    A = type(A)((A.data, A.indices, A.indptr), shape=A.shape)
    if not isinstance(A.data, np.ndarray):
        A.has_sorted_indices = False  # CuPy would ask, by kernels slow to compile
    A.sort_indices()
    A.has_canonical_format = True  # no entry is there twice
    return A


def taken(A: Any, vectors: VectorSpace) -> Any:
    """A matrix of any library, no entry of which is there twice, where vectors are, in order."""
    A = vectors.sparse_library.csr_matrix(A if A.has_canonical_format else in_order(A))
    A.has_canonical_format = True
    return A


def multiplied(A: Any, B: Any, vectors: VectorSpace) -> Any:
    """A B; B may be of blocks on a host, where that takes a fifth of the time."""
    if B.format == "bsr":
        return (A if A.format == "bsr" else A.tobsr((B.blocksize[0],) * 2)) @ B
    return vectors.matrix_product(A, B)


def _thinned(P: Any, near: Any, vectors: VectorSpace, share: float) -> Any:
    """Leave out small entries; others of their rows change by least squares, so that P near stays; near [m, k]."""
    xp, size, row = vectors.xp, abs(P.data), P.tocoo().row
    kept = size > share * vectors.row_max(P.indptr, size)[row]
    ends = xp.concatenate([xp.zeros(1, np.int64), xp.cumsum(kept)])[P.indptr].astype(P.indptr.dtype)

    def like(data: Any, some: Any = slice(None), ends: Any = P.indptr) -> Any:
        return type(P)((data, P.indices[some], ends), shape=P.shape)

    found = like(P.data[kept], kept, ends)
    lost, pattern = vectors.sparse(like(xp.where(kept, 0.0, P.data))), vectors.sparse(like(xp.where(kept, 1.0, 0.0)))
    N = xp.ascontiguousarray((near / xp.maximum(xp.sqrt((near.T @ near).diagonal()), 1e-300)).T)
    missing = xp.stack([lost @ own for own in N], axis=1)
    squares = xp.stack([xp.stack([pattern @ (a * b) for a in N], axis=1) for b in N], axis=2)
    shift = _SHIFT * xp.trace(squares, axis1=1, axis2=2)
    squares += xp.where(shift > 0, shift, 1.0)[:, None, None] * xp.eye(len(N))
    if len(N) == 1:
        factors = missing / squares[:, 0]
    else:
        factors = xp.linalg.solve(squares, missing[:, :, None])[:, :, 0]
    row, column = row[kept], found.indices
    for c, own in enumerate(N):
        found.data += factors[row, c] * own[column]
    return found
