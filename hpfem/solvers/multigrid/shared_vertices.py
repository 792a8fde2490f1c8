"""The vertices of a mesh that processes share: solved on every GPU that iterates alone, or on the first process."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import coo_array, csr_array

from ...assembly import C0Space
from ...backends import BACKENDS, vectors_on
from ...backends.vectors import HOST_VECTORS, VectorSpace
from ...mesh.sorting import unique
from .algebraic import AlgebraicMultigrid, Hierarchy, Level

Indices = NDArray[np.int64]


class SharedVertices:
    """r -> M^-1 r for the sum of the processes' sparse matrices.

    Where devices of one kind iterate without their hosts, each smooths and interpolates at its own vertices, and all
    have the coarser levels: that takes one sum over the processes of residuals there and on the vertices, and no host
    waits, so that cycles can be graphs. Elsewhere the first process solves. A [n, n] is from the cells of this process,
    component [n] and points [n, D] are as for `Hierarchy.of`, and vertices [n] the rows' vertices in c0, which is of
    order 1; with `before`, of a similar matrix, interpolation stays.
    """

    def __init__(
        self,
        A: csr_array,
        vertices: Indices,
        component: Indices,
        points: NDArray[np.float64] | None,
        c0: C0Space,
        vectors: VectorSpace,
        dtype: DTypeLike,
        before: SharedVertices | None = None,
    ) -> None:
        self._vectors, self._dtype, part = vectors, np.dtype(dtype), c0.space.mesh.part
        assert part is not None
        # Unknowns by the ids of their vertices in the whole mesh: the order on one process.
        vertex = np.empty(c0.size, dtype=np.int64)
        vertex[c0.numbering.offsets[0]] = part.vertices
        count = int(vectors.comm.max(float(component.max(initial=0)))) + 1
        keys, entries = vertex[vertices] * count + component, A.tocoo()
        given = vectors.comm.gather((keys, keys[entries.row], keys[entries.col], entries.data, points))
        self._all: list[Indices] = []  # on the first process, which rows each process has
        self.made: Hierarchy | None = None
        self.everywhere, on = solved_everywhere(vectors), vectors_on(vectors.device)
        if given is not None:
            known = unique(np.concatenate([own for own, *_ in given]))
            self._all = [np.searchsorted(known, own) for own, *_ in given]
            rows, columns = (np.searchsorted(known, np.concatenate([part[i] for part in given])) for i in (1, 2))
            matrix = coo_array((np.concatenate([own[3] for own in given]), (rows, columns)), (len(known),) * 2)
            whole = None if points is None else np.empty((len(known), points.shape[1]))
            for places, (*_, some) in zip(self._all, given, strict=True):
                if whole is not None:
                    whole[places] = some
            A, where = csr_array(matrix), on if self.everywhere else HOST_VECTORS
            kept = None if before is None else before.made
            if kept is None:
                self.made = Hierarchy.of(A, known % count, whole, where, self.everywhere)
            else:
                self.made = kept.again(A, where)
        made = self.made
        self.least = vectors.comm.bcast(1.0 if made is None else made.least)
        self._solver: AlgebraicMultigrid | None = None
        if self.everywhere:
            of_all: Any = vectors.comm.bcast(None if made is None else made.on_host(dtype))
            own: Indices = vectors.comm.scatter(self._all if made is not None else None)
            self._n, self._places = of_all.sizes[0], vectors.from_host(own)
            self._finest = Level(of_all.levels[0], on, dtype, own) if of_all.levels else None
            self._solver = AlgebraicMultigrid(of_all._replace(levels=of_all.levels[1:]), on, dtype)
        elif made is not None:
            self._solver = AlgebraicMultigrid(made, on, dtype)

    def __call__(self, r: Any) -> Any:
        """Apply to the sum of the processes' vectors, [n]; a new one; collective."""
        vectors = self._vectors
        if self.everywhere:
            assert self._solver is not None
            finest, n = self._finest, self._n
            whole = vectors.xp.zeros(n + (self._solver.sizes[0] if finest else 0), self._dtype)
            whole[self._places] = r
            if finest is None:
                return self._solver(vectors.total(whole))[self._places]
            whole[n:] = finest.R @ r
            whole = vectors.total(whole)
            return finest.beside(whole[:n], whole[n:], self._solver)
        given, sizes = np.ascontiguousarray(vectors.to_host(r)), [len(places) for places in self._all]
        return vectors.from_host(vectors.comm.on_first(given, sizes, self._solved))

    def _solved(self, given: list[NDArray[Any]]) -> list[NDArray[Any]]:
        """On the first process: from the right-hand sides of all processes, the solution for each."""
        assert self._solver is not None
        whole = np.zeros(1 + max(int(own.max(initial=-1)) for own in self._all), self._dtype)
        for places, own in zip(self._all, given, strict=True):
            whole[places] += own
        x = self._vectors.to_host(self._solver(self._vectors.from_host(whole)))
        return [x[places] for places in self._all]


def solved_everywhere(vectors: VectorSpace) -> bool:
    """Tell whether all processes solve for all vertices; collective."""
    kinds = vectors.comm.allgather(BACKENDS[vectors.device.backend].processor())
    return vectors.iteration is not None and len(set(kinds)) == 1
