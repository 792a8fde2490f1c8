"""The vertices of a mesh that processes share: solved on every GPU that iterates alone, or on the first process."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array

from ...assembly import C0Space
from ...backends import BACKENDS, vectors_on
from ...backends.vectors import HOST_VECTORS, VectorSpace
from ...memory import as_numpy
from ...mesh.sorting import unique
from .algebraic import AlgebraicMultigrid, Hierarchy, Level, made_on
from .coarsening import Coarsening

Indices = NDArray[np.int64]


class SharedVertices:
    """r -> M^-1 r for the sum of the processes' sparse matrices.

    Where devices of one kind iterate without their hosts, each smooths and interpolates at its own vertices, and all
    have the coarser levels: that takes one sum over the processes of residuals there and on the vertices, and no host
    waits, so that cycles can be graphs. Elsewhere the first process solves. A [n, n] is from the cells of this process,
    component [n] and points [n, D] are as for `Hierarchy.of`, and vertices [n] the rows' vertices in c0, which is of
    order 1; with `before`, of a similar matrix, interpolation stays.
    """

    _component: Indices
    _all: list[Indices]  # on the first process, which rows each process has
    _own: Indices

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
        self._vectors, self._dtype = vectors, np.dtype(dtype)
        self.made: Hierarchy | None = None
        self.everywhere, on = solved_everywhere(vectors), vectors_on(vectors.device)
        if before is None:
            self._number(vertices, component, c0)
        else:
            self._component, self._all, self._own = before._component, before._all, before._own
        given = vectors.comm.gather((A, points))
        if given is not None:
            n = len(self._component)
            where = made_on(n, on if self.everywhere else HOST_VECTORS)
            parts = list[tuple[Any, Any, Any]]()
            for own, (matrix, _) in zip(self._all, given, strict=True):
                entries, here = where.sparse_library.csr_matrix(matrix).tocoo(), where.from_host(own, np.int64)
                parts.append((entries.data, here[entries.row], here[entries.col]))
            values, rows, columns = map(where.xp.concatenate, zip(*parts, strict=True))
            whole, place = where.summed_there(values, rows, columns, (n, n)), None
            if before is not None:
                assert before.made is not None
                self.made = before.made.again(whole, where)
            else:
                if points is not None:
                    place = np.empty((n, points.shape[1]))
                    for own, (_, some) in zip(self._all, given, strict=True):
                        place[own] = some
                self.made = Hierarchy.of(whole, self._component, place, where)
        made = self.made
        self.least = vectors.comm.bcast(1.0 if made is None else made.least)
        self._solver: AlgebraicMultigrid | None = None
        if self.everywhere:
            of_all = self._on_all(on)
            self._n, self._places = of_all.sizes[0], vectors.from_host(self._own)
            self._finest = Level(of_all.levels[0], on, dtype, self._own) if of_all.levels else None
            self._solver = AlgebraicMultigrid(of_all._replace(levels=of_all.levels[1:]), on, dtype)
        elif made is not None:
            self._solver = AlgebraicMultigrid(made, on, dtype)

    def _number(self, vertices: Indices, component: Indices, c0: C0Space) -> None:
        """Number the unknowns of all by the ids of their vertices in the whole mesh, the order on one process."""
        comm, part = self._vectors.comm, c0.space.mesh.part
        assert part is not None
        vertex = np.empty(c0.size, dtype=np.int64)
        vertex[c0.numbering.offsets[0]] = part.vertices
        count = int(comm.max(float(component.max(initial=0)))) + 1
        given, known = comm.gather(vertex[vertices] * count + component), np.empty(0, np.int64)
        self._all = list[Indices]()
        if given is not None:
            known = unique(np.concatenate(given))
            self._all = [np.searchsorted(known, own) for own in given]
        self._component, self._own = known % count, comm.scatter(self._all or None)

    def _on_all(self, on: VectorSpace) -> Hierarchy:
        """What a cycle takes, in its type, on the devices of all: sums of what the first one has and of zeros."""
        vectors, arrays = self._vectors, list[Any]()
        told: Any = None
        if self.made is not None:
            matrices = [M.tocsr().astype(self._dtype) for own in self.made.levels for M in (own.A, own.smoothed)]
            arrays = [on.xp.asarray(part) for M in matrices for part in (M.data, M.indices, M.indptr)]
            bounds, root = [own.bounds for own in self.made.levels], as_numpy(self.made.root).astype(self._dtype)
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
            assert self._solver is not None
            finest, n = self._finest, self._n
            whole = vectors.xp.zeros(n + (self._solver.sizes[0] if finest else 0), self._dtype)
            whole[self._places] = r
            if finest is None:
                return self._solver(vectors.total(whole))[self._places]
            vectors.plus_product(None, 1.0, finest.R, r, whole[n:])
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
