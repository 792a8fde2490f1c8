"""The vertices of a mesh that processes share: solved on every GPU that iterates alone, or on the first process."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array

from hpfem.shapes.arrays import Indices

from ...assembly import C0Space
from ...backends import BACKENDS, vectors_on
from ...backends.vectors import HOST_VECTORS, VectorSpace
from ...memory import as_numpy
from ...mesh.sorting import unique
from .algebraic import AlgebraicMultigrid, Hierarchy, Level, made_on
from .coarsening import Coarsening


class SharedVertices:
    """r -> M^-1 r for the sum of the processes' sparse matrices.

    Where devices of one kind iterate without their hosts, each smooths and interpolates at its own vertices, and all
    have the coarser levels: that takes a sum over the processes of residuals there and one on the vertices, and no host
    waits, so that cycles can be graphs. Elsewhere the first process solves. Vertices [n] are those of the rows of this
    process in c0, which is of order 1; component [n] and points [n, D] are as for `Hierarchy.of`.
    """

    def __init__(
        self,
        vertices: Indices,
        component: Indices,
        points: NDArray[np.float64] | None,
        c0: C0Space,
        vectors: VectorSpace,
        dtype: DTypeLike,
    ) -> None:
        self._vectors, self._dtype, self.everywhere = vectors, np.dtype(dtype), solved_everywhere(vectors)
        self.made: Hierarchy | None = None
        # Unknowns of all are numbered by the ids of their vertices in the whole mesh, the order on one process.
        comm, part = vectors.comm, c0.space.mesh.part
        assert part is not None
        vertex = np.empty(c0.size, dtype=np.int64)
        vertex[c0.numbering.offsets[0]] = part.vertices
        count = int(comm.max(float(component.max(initial=0)))) + 1
        given = comm.gather((vertex[vertices] * count + component, points))
        self._all = list[Indices]()  # on the first process, which rows each process has
        if given is not None:
            known = unique(np.concatenate([numbers for numbers, _ in given]))
            self._all = [np.searchsorted(known, numbers) for numbers, _ in given]
            self._component, self._points = known % count, None
            if points is not None:
                self._points = np.empty((len(known), points.shape[1]))
                for own, (_, some) in zip(self._all, given, strict=True):
                    self._points[own] = some
        self._own: Indices = comm.scatter(self._all or None)

    def take(self, A: csr_array) -> None:
        """Take the matrix of the cells of this process, [n, n]; interpolation stays that of the first one."""
        vectors, on = self._vectors, vectors_on(self._vectors.device)
        given = vectors.comm.gather(A)
        if given is not None:
            n, parts = len(self._component), list[tuple[Any, Any, Any]]()
            where = made_on(n, on if self.everywhere else HOST_VECTORS)
            for own, matrix in zip(self._all, given, strict=True):
                entries, here = where.sparse_library.csr_matrix(matrix).tocoo(), where.from_host(own, np.int64)
                parts.append((entries.data, here[entries.row], here[entries.col]))
            values, rows, columns = map(where.xp.concatenate, zip(*parts, strict=True))
            whole = where.summed_there(values, rows, columns, (n, n))
            if self.made is None:
                self.made = Hierarchy.of(whole, self._component, self._points, where)
            else:
                self.made = self.made.again(whole, where)
        made = self.made
        self.least = vectors.comm.bcast(1.0 if made is None else made.least)
        self._solver: AlgebraicMultigrid  # of the processes that solve
        if self.everywhere:
            of_all = self._on_all(on)
            self._n, self._places = of_all.sizes[0], vectors.from_host(self._own)
            self._finest = Level(of_all.levels[0], on, self._dtype, self._own) if of_all.levels else None
            self._solver = AlgebraicMultigrid(of_all._replace(levels=of_all.levels[1:]), on, self._dtype)
        elif made is not None:
            self._solver = AlgebraicMultigrid(made, on, self._dtype)

    def _on_all(self, on: VectorSpace) -> Hierarchy:
        """What a cycle takes, in its type, on the devices of all: sums of what the first one has and of zeros."""
        vectors, arrays = self._vectors, list[Any]()
        told: Any = None
        if self.made is not None:
            matrices = [M.tocsr().astype(self._dtype) for own in self.made.levels for M in (own.A, own.smoothed)]
            arrays = [on.xp.asarray(part) for M in matrices for part in (M.data, M.indices, M.indptr)]
            bounds = [own.bounds._replace(residual=None) for own in self.made.levels]
            root = as_numpy(self.made.root).astype(self._dtype)
            told = [(own.shape, own.dtype) for own in arrays], [M.shape for M in matrices], bounds, root
        kinds, shapes, bounds, root = vectors.comm.bcast(told)
        own = iter(arrays or [on.xp.zeros(*kind) for kind in kinds])
        parts = iter([vectors.total(array) for array in own])
        found = [on.sparse_library.csr_matrix(tuple(islice(parts, 3)), shape=shape) for shape in shapes]
        levels = [Coarsening(A, None, None, *more) for A, *more in zip(found[::2], bounds, found[1::2], strict=True)]
        return Hierarchy(levels, root, self.least)

    def __call__(self, r: Any) -> Any:
        """Apply to the sum of the processes' vectors, [n]; a new one; collective."""
        vectors = self._vectors
        if self.everywhere:
            finest, whole = self._finest, vectors.xp.zeros(self._n, self._dtype)
            whole[self._places] = r
            if finest is None:
                return self._solver(vectors.total(whole))[self._places]
            # Coarser levels take longest, so their residual is summed first, and that of the finest beside them.
            restricted = vectors.xp.zeros(self._solver.sizes[0], self._dtype)
            vectors.plus_product(None, 1.0, finest.R, r, restricted, finest.reached)
            return finest.beside(whole, vectors.total(restricted), self._solver, vectors.total)
        given, sizes = np.ascontiguousarray(vectors.to_host(r)), [len(places) for places in self._all]
        return vectors.from_host(vectors.comm.on_first(given, sizes, self._solved))

    def _solved(self, given: list[NDArray[Any]]) -> list[NDArray[Any]]:
        """On the first process: from the right-hand sides of all processes, the solution for each."""
        whole = np.zeros(len(self._component), self._dtype)
        for places, own in zip(self._all, given, strict=True):
            whole[places] += own
        x = self._vectors.to_host(self._solver(self._vectors.from_host(whole)))
        return [x[places] for places in self._all]


def solved_everywhere(vectors: VectorSpace) -> bool:
    """Tell whether all processes solve for all vertices; collective."""
    kinds = vectors.comm.allgather(BACKENDS[vectors.device.backend].processor())
    return vectors.iteration is not None and len(set(kinds)) == 1
