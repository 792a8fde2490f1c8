"""The vertices alone: their matrix, and smoothed aggregation [Vanek]: by pyamg on hosts, by `aggregation` on devices.

A V-cycle with Chebyshev's smoother on every level and the inverse of the smallest matrix (`coarsening`): nothing but
products with matrices, on the vectors' own device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import bsr_array, bsr_matrix, csr_array, csr_matrix

from ...backends.restriction import BlockMatrix
from ...backends.vectors import HOST_VECTORS, VectorSpace
from ...memory import as_numpy
from . import aggregation
from .coarsening import Coarsening, bounds_of, inverted, smoother, taken

# Vertices or aggregates of the smallest matrix at most, in solves on hosts; and unknowns that they solve for devices.
# And its rows, where aggregates have several each: to invert 900 takes half as long as to make the rest of multigrid.
_ON_HOSTS, _ROWS = 300, 800
# A positive coupling, relative to the diagonal, as in stretched cells but tris and tets, and in large reactions. There
# pyamg takes couplings across the strong direction for strong ones, but by a smaller ratio to the best one than its 4.
_OPPOSED, _RATIO = 0.2, 2.0
# An eigenvalue that counts as zero, as for constants, of a matrix with a unit diagonal.
_ZERO = 1e-14
# The smallest one with which Cholesky's factors are as good as these, and steps of the power method that finds it.
_SAFE, _POWER = 1e-6, 10


class Level:
    """A matrix, its smoother M and the interpolation P, or P~ if there is one (`coarsening`); with `places` [m], all
    at these rows alone and at those that they need, for vectors of all rows. The interpolation is shared with a level
    of `before` that has the same.
    """

    _P: Any
    R: Any

    def __init__(
        self,
        own: Coarsening,
        vectors: VectorSpace,
        dtype: DTypeLike,
        places: NDArray[np.int64] | None = None,
        before: Level | None = None,
    ) -> None:
        def on(matrix: Any) -> Any:
            return vectors.sparse(matrix.astype(dtype).tocsr())

        self._vectors, self._rows, self._smoothed = vectors, list[Any](), own.smoothed is not None
        where = HOST_VECTORS if isinstance(own.A.data, np.ndarray) else vectors
        self._given = own.smoothed if self._smoothed else own.P
        A = taken(own.A, where)
        if places is None:
            self._first = self._last = on(smoother(A, own.bounds, where))
            if before is not None and before._given is self._given:
                self._A, self._P, self.R = on(A), before._P, before.R
                return
        P = where.sparse_library.csr_matrix(self._given)
        if places is not None:

            def read(rows: Any) -> Any:
                found = where.xp.zeros(A.shape[1], bool)
                found[A[rows].indices] = True
                return where.xp.flatnonzero(found)

            here = where.from_host(places, np.int64)
            near = read(here)
            wide = read(near)
            self._first, self._last = (on(smoother(A, own.bounds, where, rows)) for rows in (wide, here))
            A, P, self._rows = A[near], P[here], [vectors.xp.asarray(rows) for rows in (wide, near, here)]
        R = P.T.tocsr()
        if places is not None:  # the others of all rows of the next level are empty
            self.reached = where.xp.flatnonzero(where.xp.diff(R.indptr))
            R, self.reached = R[self.reached], vectors.xp.asarray(self.reached)
        self._A, self._P, self.R = on(A), on(P), on(R)

    def __call__(self, r: Any, solve: Callable[[Any], Any]) -> Any:
        """A V-cycle, with `solve` for the next matrix; a new vector."""
        if self._smoothed:
            return self.beside(r, self.R @ r, solve)
        add, x = self._vectors.plus_product, self._first @ r
        add(x, 1.0, self._P, solve(self.R @ add(r, -1.0, self._A, x)), x)
        return add(x, 1.0, self._last, add(r, -1.0, self._A, x), x)

    def beside(
        self, r: Any, restricted: Any, solve: Callable[[Any], Any], total: Callable[[Any], Any] | None = None
    ) -> Any:
        """S r + P~ B restricted, with B by `solve`, where `restricted` is P~^T r; `total` makes r of what is given."""
        found = dict[str, Any]()
        # The small kernels of coarser levels, of which each waits for the one before, are to go first: in the branch.
        self._vectors.beside(
            [
                lambda: found.update(s=self._on_both_sides(r if total is None else total(r))),
                lambda: found.update(x=solve(restricted)),
            ]
        )
        return self._vectors.plus_product(found["s"], 1.0, self._P, found["x"], found["s"])

    def _on_both_sides(self, r: Any) -> Any:
        """S r = M r + M (r - A M r); r [n] -> [m]."""
        add, x = self._vectors.plus_product, self._first @ r
        if not self._rows:
            return add(x, 1.0, self._last, add(r, -1.0, self._A, x), x)
        (wide, near, places), of_wide = self._rows, x
        x, y = self._vectors.xp.empty_like(r), self._vectors.xp.empty_like(r)
        x[wide] = of_wide
        add(r, -1.0, self._A, x, y, near)
        return add(x, 1.0, self._last, y, x, places)[places]


class Hierarchy(NamedTuple):
    """Smoothed aggregation: matrices and interpolations, finest first, and the inverse of the smallest matrix."""

    levels: list[Coarsening]
    root: Any  # R; R R^T is the inverse of the last matrix, where its eigenvalues are not zero
    least: float  # its smallest eigenvalue that is not zero, with a unit diagonal

    @classmethod
    def of(
        cls,
        A: Any,
        component: NDArray[np.integer[Any]],
        points: NDArray[np.float64] | None,
        vectors: VectorSpace = HOST_VECTORS,
    ) -> Hierarchy:
        """Aggregate where vectors are; A [n, n] with unknowns vertex by vertex, component [n]. With points [n, D]
        rotations are in the near-null space beside constants, and each vertex has all components. Interpolations are
        smoothed (`Coarsening`) on devices.
        """
        count, block = int(component.max(initial=-1)) + 1, 1
        near = (component[:, None] == np.arange(count)).astype(np.float64)
        if points is not None:
            near, block = np.hstack([near, _rotations(component, points)]), count
            near[as_numpy(A.diagonal()) == 0] = 0  # where values are given
        where = made_on(A.shape[0], vectors)
        if where is HOST_VECTORS:
            levels, last = _by_pyamg(A, near, component, block)
        else:
            levels, last = aggregation.coarsenings(A, near, component, block, where)
        return cls(levels, *_root_of_inverse(last, made_on(last.shape[0], vectors)))

    def again(self, A: Any, vectors: VectorSpace) -> Hierarchy:
        """Interpolate in the same way for another matrix."""
        where, levels = made_on(A.shape[0], vectors), list[Coarsening]()
        last = taken(A, where) if self.levels else A
        for old in self.levels:
            own, last = Coarsening.of(last, old.P, old.near, bounds_of(last, where, old.bounds), where, old)
            levels.append(own)
        return Hierarchy(levels, *_root_of_inverse(last, made_on(last.shape[0], vectors)))

    @property
    def sizes(self) -> list[int]:
        """Rows of each matrix."""
        return [*(int(own.A.shape[0]) for own in self.levels), len(self.root)]


def made_on(n: int, vectors: VectorSpace) -> VectorSpace:
    """Where a matrix of n rows is aggregated, or inverted, in a solve on some vectors."""
    return vectors if vectors.iteration is not None and n > _ON_HOSTS else HOST_VECTORS


def _by_pyamg(
    A: csr_array, near: NDArray[np.float64], component: NDArray[np.integer[Any]], block: int
) -> tuple[list[Coarsening], csr_array]:
    """Aggregate on a host; see `coarsenings`."""
    from pyamg import smoothed_aggregation_solver

    given = csr_matrix(A) if block == 1 else bsr_matrix(csr_matrix(A), blocksize=(block, block))
    # pyamg uses NumPy's global random generator: seed it for equal results, and restore its state afterwards.
    state = np.random.get_state()  # noqa: NPY002
    np.random.seed(0)  # noqa: NPY002
    try:
        options: dict[str, Any] = {"strength": "symmetric" if component.any() else "evolution"}
        if not component.any() and _opposed(given):
            options = {"strength": ("evolution", {"epsilon": _RATIO}), "smooth": "energy"}
        each = 1 if A.shape[0] <= _ROWS else near.shape[1]
        made = smoothed_aggregation_solver(given, near, max_coarse=min(_ON_HOSTS, _ROWS // each), **options).levels
    finally:
        np.random.set_state(state)  # noqa: NPY002
    found = []
    for own, coarser in pairwise(made):
        matrix, P = csr_array(own.A), bsr_array(own.P) if block > 1 else csr_array(own.P)
        found.append(Coarsening(matrix, P, coarser.B, bounds_of(matrix, HOST_VECTORS), None))
    return found, made[-1].A


def _opposed(A: csr_matrix) -> bool:
    """Whether unknowns are coupled with a large positive sign; A [n, n]."""
    entries, diagonal = A.tocoo(), A.diagonal()
    i, j = entries.row, entries.col
    sizes = np.sqrt(np.maximum(diagonal[i] * diagonal[j], 0))
    return bool(((entries.data > _OPPOSED * sizes) & (i != j)).any())


def _root_of_inverse(A: Any, vectors: VectorSpace) -> tuple[Any, float]:
    """`root` and `least` of a `Hierarchy`; A [n, n] is sparse -> [n, n]."""
    xp, n = vectors.xp, A.shape[0]
    if not n:
        return xp.zeros((0, 0)), 1.0
    scaled, vector = vectors.dense(A.tocsr()), xp.asarray(np.cos(np.arange(n)))
    scale = xp.sqrt(inverted(scaled.diagonal(), xp))
    scaled *= scale[:, None]
    scaled *= scale
    scaled.reshape(-1)[:: n + 1] = 1.0
    with suppress(np.linalg.LinAlgError):  # a tenth of the time of the eigenvalues
        root = vectors.inverse_of_factor(scaled).T
        for _ in range(_POWER):
            vector = root @ (root.T @ (vector / xp.sqrt(vector @ vector)))
        least = 1 / float(vector @ vector) ** 0.5
        if _SAFE < least:  # NaN without factors on a device
            return scale[:, None] * root, min(least, 1.0)
    values, V = xp.linalg.eigh(scaled)
    # Of an indefinite matrix it is positive definite, too: it is the operator that an iteration finds to be indefinite.
    sizes = xp.where((values > _ZERO) | (values < -_SAFE), abs(values), xp.inf)
    return scale[:, None] * V / xp.sqrt(sizes), min(float(sizes.min()), 1.0)


def _rotations(component: NDArray[np.integer[Any]], points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rotations of every D components about the middle; component [n], points [n, D] -> [n, k]."""
    x, d = points - points.mean(axis=0), points.shape[1]
    found = []
    for first in range(0, int(component.max(initial=-1)) + 1, d):
        for i, j in combinations(range(d), 2):
            found.append(np.where(component == first + i, -x[:, j], np.where(component == first + j, x[:, i], 0.0)))
    return np.array(found).reshape(-1, len(x)).T


class AlgebraicMultigrid:
    """r -> M^-1 r for a sparse matrix."""

    _levels: list[Level]

    def __init__(
        self, made: Hierarchy, vectors: VectorSpace, dtype: DTypeLike, before: AlgebraicMultigrid | None = None
    ) -> None:
        self._vectors, self.made, self.sizes, self.least = vectors, made, made.sizes, made.least
        known = [None] * len(made.levels) if before is None else before._levels
        self._levels = [Level(own, vectors, dtype, None, old) for own, old in zip(made.levels, known, strict=True)]
        # By its root the inverse is positive definite in any type: it is rounded in the same way on both sides.
        xp, root = vectors.xp, made.root.astype(dtype)
        where, pair = HOST_VECTORS if isinstance(root, np.ndarray) else vectors, (root, root.T)
        if vectors.iteration is None:
            self._roots = [xp.ascontiguousarray(xp.asarray(R)) for R in pair]
        else:  # triangular by Cholesky's factors, and cuBLAS takes longer for one vector
            self._roots = [vectors.sparse(where.sparse_library.csr_matrix(R)) for R in pair[::-1]]

    def __call__(self, r: Any, number: int = 0) -> Any:
        """Apply to a vector of a level, [n]; a new one."""
        if number < len(self._levels):
            return self._levels[number](r, partial(self, number=number + 1))
        for R in self._roots:
            if self._vectors.iteration is not None:
                r = R @ r
                continue
            x = self._vectors.xp.empty_like(r)
            self._vectors.multiply(r[None], R, x[None])
            r = x
        return r


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
