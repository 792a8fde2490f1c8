"""The vertices alone: smoothed aggregation [Vanek], set up by pyamg on hosts, by `aggregation` on devices.

A V-cycle with Chebyshev's smoother on every level and the inverse of the smallest matrix: nothing but products with
matrices, on the vectors' own device.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.linalg.lapack import dtrtri
from scipy.sparse import bsr_array, bsr_matrix, csr_array, csr_matrix

from ...backends.vectors import HOST_VECTORS, VectorSpace
from ...memory import as_numpy
from ...support.communicator import ALONE, Communicator
from .aggregation import SMALLEST, coarsenings, galerkin, inverted
from .chebyshev import Bounds, chebyshev, first_step, largest_eigenvalue
from .irregular import noise

# Unknowns up to which a host aggregates as fast as a device.
_SMALL = 10_000
# Steps of the smoother.
_DEGREE = 2
# A positive coupling, relative to the diagonal, as in stretched cells but tris and tets, and in large reactions. There
# pyamg takes couplings across the strong direction for strong ones, but by a smaller ratio to the best one than its 4.
_OPPOSED, _RATIO = 0.2, 2.0
# An eigenvalue that counts as zero, as for constants, of a matrix with a unit diagonal.
_ZERO = 1e-14
# The smallest one with which Cholesky's factors are as good as these, and steps of the power method that finds it.
_SAFE, _POWER = 1e-6, 10


class _Level:
    """A matrix, its smoother, and the interpolation from the next coarser level."""

    def __init__(
        self, A: Any, P: Any, vectors: VectorSpace, dtype: DTypeLike, comm: Communicator, before: Bounds | None
    ) -> None:
        self.A, self.P, self.R = (vectors.sparse(M.astype(dtype).tocsr()) for M in (A, P, P.T))
        xp = vectors.xp
        inverse = inverted(xp.asarray(A.diagonal()), xp)
        own, start = inverse.astype(dtype), noise(xp.arange(A.shape[0], dtype=np.uint32)).astype(dtype)
        self.bounds = comm.bcast(largest_eigenvalue(lambda x: self.A @ x, lambda r: r * own, vectors, start, before))
        # The smoother's steps are a polynomial of B A times B, here of degree 1 with B diagonal: a matrix like A.
        at_0, at_1 = chebyshev(_residual_of_number, np.copy, _DEGREE, np.ones(2), HOST_VECTORS)
        scale, A = inverse * first_step(self.bounds.all, _DEGREE), A.tocsr()
        scale = as_numpy(scale) if isinstance(A.data, np.ndarray) else scale
        rows, columns = A.tocoo().row, A.indices
        data = scale[rows] * ((at_1 - at_0) * A.data * scale[columns] + at_0 * (rows == columns))
        self.smoother = vectors.sparse(type(A)((data.astype(dtype), columns, A.indptr), shape=A.shape))


def _residual_of_number(r: Any, x: Any, scale: float = 1.0) -> Any:
    """R - scale A x of numbers, for A = 0 and 1."""
    return r - scale * np.arange(2.0) * x


class Hierarchy(NamedTuple):
    """Matrices of smoothed aggregation, finest first, and the interpolation to each but the last one."""

    matrices: list[Any]  # all but the last one
    interpolations: list[Any]  # from the next matrix' unknowns
    bounds: list[Bounds | None]  # on their eigenvalues, where they are known
    root: NDArray[np.float64]  # R; R R^T is the inverse of the last matrix, where its eigenvalues are not zero
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
        rotations are in the near-null space beside constants, and each vertex has all components.
        """
        count, block = int(component.max(initial=-1)) + 1, 1
        near = (component[:, None] == np.arange(count)).astype(np.float64)
        if points is not None:
            near, block = np.hstack([near, _rotations(component, points)]), count
            near[A.diagonal() == 0] = 0  # where values are given
        where = _made_on(A, vectors)
        make: Callable[..., Any] = _by_pyamg if where is HOST_VECTORS else coarsenings
        matrices, interpolations, bounds, last = make(A, near, component, block, where)
        return cls(matrices, interpolations, bounds, *_root_of_inverse(where.to_host(last.toarray())))

    def again(self, A: Any, vectors: VectorSpace) -> Hierarchy:
        """Interpolate in the same way for another matrix."""
        where = _made_on(A, vectors)
        matrices = [where.sparse_library.csr_matrix(A)]
        for P in self.interpolations:
            matrices.append(galerkin(matrices[-1], P, where))
        *some, last = matrices
        return Hierarchy(some, self.interpolations, self.bounds, *_root_of_inverse(where.to_host(last.toarray())))

    @property
    def on_host(self) -> Hierarchy:
        """The same with SciPy's matrices."""
        matrices, interpolations = (
            [csr_array(tuple(map(as_numpy, (M.data, M.indices, M.indptr))), shape=M.shape) for M in some]
            for some in (self.matrices, [P.tocsr() for P in self.interpolations])
        )
        return self._replace(matrices=matrices, interpolations=interpolations)

    @property
    def sizes(self) -> list[int]:
        """Rows of each matrix."""
        return [*(int(A.shape[0]) for A in self.matrices), len(self.root)]


def _made_on(A: Any, vectors: VectorSpace) -> VectorSpace:
    """Where a matrix is aggregated, in a solve on some vectors."""
    return vectors if vectors.iteration is not None and A.shape[0] > _SMALL else HOST_VECTORS


def _by_pyamg(
    A: csr_array, near: NDArray[np.float64], component: NDArray[np.integer[Any]], block: int, vectors: VectorSpace
) -> tuple[list[csr_array], list[Any], list[Bounds | None], csr_array]:
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
        *made, last = smoothed_aggregation_solver(given, near, max_coarse=SMALLEST, **options).levels
    finally:
        np.random.set_state(state)  # noqa: NPY002
    interpolations: list[Any] = [bsr_array(own.P) if block > 1 else csr_array(own.P) for own in made]
    return [csr_array(own.A) for own in made], interpolations, [None] * len(made), last.A


def _opposed(A: csr_matrix) -> bool:
    """Whether unknowns are coupled with a large positive sign; A [n, n]."""
    entries, diagonal = A.tocoo(), A.diagonal()
    i, j = entries.row, entries.col
    sizes = np.sqrt(np.maximum(diagonal[i] * diagonal[j], 0))
    return bool(((entries.data > _OPPOSED * sizes) & (i != j)).any())


def _root_of_inverse(A: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """`root` and `least` of a `Hierarchy`; A [n, n] -> [n, n]."""
    if not len(A):
        return A, 1.0
    diagonal = A.diagonal()
    scale = np.where(diagonal > 0, 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1)), 0)
    scaled = scale[:, None] * A * scale + np.diag(np.float64(scale == 0))
    with suppress(np.linalg.LinAlgError):  # a tenth of the time of the eigenvalues
        root, vector = dtrtri(np.linalg.cholesky(scaled), lower=1)[0].T, np.cos(np.arange(len(A)))
        for _ in range(_POWER):
            vector = root @ (root.T @ (vector / np.linalg.norm(vector)))
        least = 1 / max(float(np.linalg.norm(vector)), 1.0)
        if least > _SAFE:
            return scale[:, None] * root, least
    values, V = np.linalg.eigh(scaled)
    kept = values > _ZERO
    root = scale[:, None] * V * np.where(kept, 1 / np.sqrt(np.where(kept, values, 1)), 0)
    return root, float(values[kept].min(initial=1.0))


def _rotations(component: NDArray[np.integer[Any]], points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rotations of every D components about the middle; component [n], points [n, D] -> [n, k]."""
    x, d = points - points.mean(axis=0), points.shape[1]
    found = []
    for first in range(0, int(component.max(initial=-1)) + 1, d):
        for i, j in combinations(range(d), 2):
            found.append(np.where(component == first + i, -x[:, j], np.where(component == first + j, x[:, i], 0.0)))
    return np.array(found).reshape(-1, len(x)).T


class AlgebraicMultigrid:
    """r -> M^-1 r for a sparse matrix; the processes of `comm` solve the same problem; `before` is of a similar one."""

    def __init__(
        self,
        made: Hierarchy,
        vectors: VectorSpace,
        dtype: DTypeLike,
        comm: Communicator = ALONE,
        before: AlgebraicMultigrid | None = None,
    ) -> None:
        self._vectors, self.made, self.sizes, self.least = vectors, made, made.sizes, made.least
        bounds = made.bounds if before is None else [own.bounds for own in before._levels]
        given = zip(made.matrices, made.interpolations, bounds, strict=True)
        self._levels: list[_Level] = [_Level(A, P, vectors, dtype, comm, own) for A, P, own in given]
        # By its root the inverse is positive definite in any type: it is rounded in the same way on both sides.
        pair = made.root, np.ascontiguousarray(made.root.T)
        self._root, self._transposed = (vectors.from_host(R, dtype) for R in pair)

    def __call__(self, r: Any, number: int = 0) -> Any:
        """Apply to a vector of a level, [n]; a new one."""
        if number == len(self._levels):
            y, x = self._vectors.xp.empty_like(r), self._vectors.xp.empty_like(r)
            self._vectors.multiply(r[None], self._root, y[None])
            self._vectors.multiply(y[None], self._transposed, x[None])
            return x
        level, add = self._levels[number], self._vectors.plus_product
        x = level.smoother @ r
        add(x, 1.0, level.P, self(level.R @ add(r, -1.0, level.A, x), number + 1), x)
        return add(x, 1.0, level.smoother, add(r, -1.0, level.A, x), x)
