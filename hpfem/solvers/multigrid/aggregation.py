"""Smoothed aggregation [Vanek] with the arrays of any device: all rows of a level at a time, nothing by chance.

Aggregates grow around vertices no two of which are within two strong connections [Bell].
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...backends.vectors import VectorSpace
from ...memory import every
from .chebyshev import Largest
from .coarsening import Coarsening, bounds_of, galerkin, in_order, inverted, multiplied, taken
from .irregular import spread

# Rows of the smallest matrix at most, which is inverted: products with so many take no longer than a level.
SMALLEST = 2500
# Shares of the largest connection of both vertices from which on one is strong; the first with few aggregates counts.
# On cells that are stretched beyond limits connections across layers are 1, oblique ones 1/4 (hexes) or 1/3 (prisms).
_STRONG = 0.4, 0.2, 0.1
# Of the vertices, aggregates at most; else weak connections count too.
_MOST = 0.36
# Jacobi's step on the interpolation, times the largest eigenvalue (with its margin).
_SMOOTHING = 1.4
# What is left of a vector's norm on an aggregate, below which it depends on those before.
_LOST = 1e-10
# Keys of vertices in the set are larger than those of others.
_IN = 1 << 62


def coarsenings(
    A: Any, near: NDArray[np.float64], component: NDArray[np.integer[Any]], block: int, vectors: VectorSpace
) -> tuple[list[Coarsening], Any]:
    """Coarsen a matrix until it is small; with the last one. A [n, n], of any library, has `block` rows a vertex."""
    if A.shape[0] <= SMALLEST:
        return [], A
    xp, A = vectors.xp, taken(A, vectors)
    # Without blocks an aggregate has one component, and there a constant.
    B = xp.asarray(near if block > 1 else near.sum(axis=1, keepdims=True))
    kind = xp.asarray(component if block == 1 else 0 * component[::block])
    found = []
    while A.shape[0] > SMALLEST:
        P, B, kind, bounds = _coarser(A, B, kind, block, vectors)
        own, A = Coarsening.of(A, P, B, bounds, vectors)
        found.append(own)
    return found, A


def _coarser(A: Any, B: Any, kind: Any, constants: int, vectors: VectorSpace) -> tuple[Any, Any, Any, Largest]:
    """The interpolation, the near-null space and kinds there, and bounds; the first of B [n, k] are constants."""
    xp, sparse, n, k = vectors.xp, vectors.sparse_library, A.shape[0], B.shape[1]
    block = n // len(kind)
    rows, same = A.tocoo().row, A.indices.dtype
    on_diagonal = rows == A.indices
    inverse, bounds = inverted(xp.asarray(A.diagonal()), xp), bounds_of(A, vectors)

    energy = -A.data * sum(B[rows, c] * B[A.indices, c] for c in range(constants))
    C = sparse.csr_matrix((energy, A.indices, A.indptr), shape=A.shape)
    if block > 1:
        parts = xp.ones(n), xp.arange(n, dtype=same) // block, xp.arange(n + 1, dtype=same)
        own = sparse.csr_matrix(parts, shape=(n, n // block))
        C = galerkin(own, multiplied(C, own, vectors), vectors)
    aggregate, count = _aggregates(C, kind, vectors)
    kinds, inside = xp.zeros(count, kind.dtype), aggregate >= 0
    kinds[aggregate[inside]] = kind[inside]

    # Orthonormal vectors on each aggregate, by Gram and Schmidt, and their coefficients.
    at = xp.repeat(aggregate, block)
    order, inside = xp.argsort(at), at >= 0
    starts = xp.searchsorted(at[order], xp.arange(count + 1))
    order, starts = order[int(starts[0]) :], starts - starts[0]
    sums = vectors.sparse(
        sparse.csr_matrix((xp.ones(len(order)), order.astype(same), starts.astype(same)), shape=(count, n))
    )
    Q, R = xp.where(inside[:, None], B, 0.0), xp.zeros((count, k, k))
    for j in range(k):
        size = sums @ Q[:, j] ** 2
        for i in range(j):
            R[:, i, j] = sums @ (Q[:, i] * Q[:, j])
            Q[:, j] -= R[at, i, j] * Q[:, i]
        rest = sums @ Q[:, j] ** 2
        kept = rest > _LOST**2 * size
        R[:, j, j] = xp.where(kept, xp.sqrt(rest), 0.0)
        Q[:, j] *= xp.where(kept, 1 / xp.sqrt(xp.where(kept, rest, 1.0)), 0.0)[at]
    columns = (at[inside, None] * k + xp.arange(k)).ravel().astype(same)
    ends = xp.concatenate([xp.zeros(1, same), xp.cumsum(inside * k).astype(same)])
    T = sparse.csr_matrix((Q[inside].ravel(), columns, ends), shape=(n, count * k))
    step = on_diagonal - _SMOOTHING / bounds.value * inverse[rows] * A.data
    P = in_order(vectors.matrix_product(sparse.csr_matrix((step, A.indices, A.indptr), shape=A.shape), T))
    return P, R.reshape(count * k, k), kinds, bounds


def _aggregates(C: Any, kind: Any, vectors: VectorSpace) -> tuple[Any, int]:
    """Number aggregates of vertices of one kind, by strong connections if these suffice, -1 for none; C [n, n]."""
    xp, n, rows = vectors.xp, C.shape[0], C.tocoo().row
    weight = xp.where((rows != C.indices) & (kind[rows] == kind[C.indices]), C.data, 0.0)
    largest = vectors.row_max(C.indptr, weight)
    share = weight / xp.maximum(xp.maximum(largest[rows], largest[C.indices]), 1e-300)
    tied = vectors.row_max(C.indptr, abs(weight)) > 0
    for some in (*((weight > 0) & (share >= least) for least in _STRONG), weight != 0):
        aggregate, count = _grown(rows[some], C.indices[some], tied, vectors)
        if count <= _MOST * n:
            break
    return (aggregate, count) if count else (xp.zeros(n, np.int64), 1)


def _grown(rows: Any, columns: Any, tied: Any, vectors: VectorSpace) -> tuple[Any, int]:
    """Aggregates of the `tied` vertices of a graph, given by its edges, rows in order: a vertex of a set and its
    neighbours; the same among those that are left and have two neighbours there; at last others join one beside them.
    """
    xp, here, count = vectors.xp, vectors.xp.arange(len(tied) + 1), 0
    number = xp.zeros(len(tied), np.int64)  # from 1
    for least in (0, 2):
        left = tied & (number == 0)
        some = left[rows] & left[columns]
        starts, beside = xp.searchsorted(rows[some], here), columns[some]
        chosen = _independent(starts, beside, left & (xp.diff(starts) >= least), vectors)
        own = xp.where(chosen, count + xp.cumsum(chosen), 0)
        number = xp.maximum(number, _nearby(own, starts, beside, vectors))
        count = max(count, int(own.max()))
    starts = xp.searchsorted(rows, here)
    for _ in range(2):
        number = xp.where(number > 0, number, _nearby(number, starts, columns, vectors))
    return number - 1, count


def _nearby(x: Any, starts: Any, columns: Any, vectors: VectorSpace) -> Any:
    """The largest number of a vertex and its neighbours; x [n] -> [n]."""
    return vectors.xp.maximum(x, vectors.row_max(starts, x[columns]))


def _independent(starts: Any, columns: Any, open_: Any, vectors: VectorSpace) -> Any:
    """A maximal set of some vertices of a graph, no two of which are within two edges; open_ [n] -> [n]."""
    xp, n = vectors.xp, len(open_)
    # Zero for vertices that are out. What is irregular comes first, so that no chain of decisions is long.
    irregular = spread(xp.arange(1, n + 1, dtype=np.uint32)).astype(np.int64) >> 2 << 32
    key = xp.where(open_, irregular + xp.arange(1, n + 1), 0)
    while not every(~open_):
        most = _nearby(_nearby(key, starts, columns, vectors), starts, columns, vectors)
        key = xp.where(open_ & (most == key), key | _IN, xp.where(open_ & (most >= _IN), 0, key))
        open_ = (key > 0) & (key < _IN)
    return key >= _IN
