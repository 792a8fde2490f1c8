"""Products with one small matrix per group of cells, between global vectors: changes of basis in the cells."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array

from hpfem.shapes.cached import cached_property

from .restriction import BlockMatrix, row_entries
from .vectors import VectorSpace


def _reordered(M: csr_array, rows: NDArray[np.integer[Any]], places: NDArray[np.integer[Any]]) -> csr_array:
    """M with its rows in another order, and columns at other places: SciPy does it for any indices, which is slow."""
    some, counts = row_entries(M, rows)
    starts = np.cumsum(np.append(0, counts), dtype=M.indptr.dtype)
    return csr_array((M.data[some], places[M.indices[some]], starts), shape=M.shape)


def transposed(factors: Sequence[csr_array]) -> list[csr_array]:
    """Transpose a product of matrices; factors [n, n] -> [n, n]."""
    return [csr_array(factor.T) for factor in reversed(factors)]


class FactorisedMatrix:
    """A matrix [n, n] as a product of sparse ones, in order, or what makes them; what is made of it is kept with it."""

    def __init__(self, factors: Any, dense: Callable[[], NDArray[np.float64]] | None = None) -> None:
        self._factors, self._dense, self._kept = factors, dense, dict[Hashable, Any]()

    def kept(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What `make` gives, the first time."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    @property
    def factors(self) -> Sequence[csr_array]:
        """The factors, [n, n] each."""
        if callable(self._factors):
            self._factors = self._factors()
        found: Sequence[csr_array] = self._factors
        return found

    @property
    def dense(self) -> NDArray[np.float64]:
        """The product, [n, n]; it is not kept."""
        if self._dense is not None:
            return self._dense()
        result = self.factors[-1].toarray()
        for factor in self.factors[-2::-1]:
            result = factor @ result
        return np.asarray(result, dtype=np.float64)

    @cached_property
    def transposed(self) -> FactorisedMatrix:
        """The transpose."""
        return FactorisedMatrix(lambda: transposed(self.factors), lambda: self.dense.T)

    def between(self, given: NDArray[np.integer[Any]], wanted: NDArray[np.integer[Any]]) -> FactorisedMatrix:
        """The matrix with its rows and columns in other orders, [n]."""

        def factors() -> list[csr_array]:
            places = np.argsort(given).astype(self.factors[0].indices.dtype)
            rows = [wanted, *(given for _ in self.factors[1:])]
            return [_reordered(M, own, places) for M, own in zip(self.factors, rows, strict=True)]

        make = partial(FactorisedMatrix, factors, lambda: self.dense[np.ix_(wanted, given)])
        return self.kept((given.tobytes(), wanted.tobytes()), make)


def added(result: Any, onto: Any) -> Any:
    """Add a result to what is given, in place; result, onto [n] -> [n]."""
    if onto is None:
        return result
    onto += result
    return onto


def more_of(more: Callable[[Any], Any] | None, numbers: Any) -> Any:
    """What a function makes of numbers; these where there is none."""
    return numbers if more is None else more(numbers)


class CellMatrices(NamedTuple):
    """A matrix M [n_modes, n_modes] for each block of Q; `back` is Q_a, and sums are of `dtype`.

    Where it may be `rough`, matrices and the numbers that they multiply may be rounded to bfloat16, to 2^-9 of each.
    """

    matrices: Sequence[FactorisedMatrix]
    Q: BlockMatrix
    back: BlockMatrix
    vectors: VectorSpace
    dtype: DTypeLike
    rough: bool = False


class CellwiseProduct:
    """x -> Q_a^t M Q x and its transpose, by the vector space's restrictions and products of dense matrices.

    Here nothing is rounded.
    """

    def __init__(self, given: CellMatrices) -> None:
        matrices, self._Q, back, self._vectors, self._dtype, self._rough = given
        Q, vectors, dtype, self._pool = self._Q, self._vectors, self._dtype, self._vectors.pool()
        self.restriction = vectors.restriction(Q, dtype)
        self._outer = self.restriction if back is Q else vectors.restriction(back, dtype)
        self._there = self._operands(matrices, self.restriction)
        self._back = self._operands([M.transposed for M in matrices], self._outer)
        self._some = self._gathering(False).gather_some(vectors.sent) if vectors.comm.size > 1 else None

    def _operands(self, matrices: Sequence[FactorisedMatrix], restriction: Any) -> list[Any]:
        """The dense matrices for the local numbers of blocks."""
        return [self._dense(M.dense) for M in matrices]

    def _dense(self, matrix: Any) -> Any:
        return self._vectors.xp.asarray(np.ascontiguousarray(matrix.T), self._dtype)

    def _in_cells(
        self, there: Any, operands: Sequence[Any], x: Any, weights: Any, given: Sequence[Any], out: Sequence[Any]
    ) -> None:
        """Write M Q W x, through the arrays `given`."""
        there.scatter((x if weights is None else weights * x)[None], given)
        for source, target, M in zip(given, out, operands, strict=True):
            self._vectors.multiply(source[0], M, target[0])

    def _new_scratch(self) -> list[tuple[Any, list[Any]]]:
        """Arrays of local numbers before and after M, and the blocks of each."""
        return [self._new_local(), self._new_local()]

    def _new_local(self) -> tuple[Any, list[Any]]:
        starts, blocks = self._Q.starts, self._Q.blocks
        flat = self._vectors.xp.empty((starts[-1],), self._dtype)
        return flat, [flat[a:b].reshape(1, *own.shape) for a, b, own in zip(starts, starts[1:], blocks, strict=False)]

    def apply(self, x: Any, scale: Any = None, onto: Any = None, more: Callable[[Any, bool], Any] | None = None) -> Any:
        """Q_a^t M Q x, of the cells of this process, but `more` writes what processes share to the result, or adds it
        there; x, scale, onto [size] -> [size].
        """
        with self._in_all_cells(self.restriction, self._there, x) as local:
            found = self._sums(True, local, scale, onto)
        if more is not None:
            more(found, onto is not None)
        return found

    def transposed(
        self, r: Any, scale: Any = None, weights: Any = None, more: Callable[[Any], Any] | None = None
    ) -> Any:
        """Q^t M^t Q_a W r, summed over processes: what they share first, which is exchanged meanwhile, after `more` has
        added to it; r, scale, weights [size] -> [size].
        """
        with self._in_all_cells(self._outer, self._back, r, weights) as local:
            some = self._some
            if some is None:
                return self._sums(False, local, scale)
            end = self._vectors.summing(lambda: more_of(more, some(local)[0])[None])
            rows = self._sums(False, local, scale, spared=self._spared)[None]
            return end(rows, apart=self._spared is not None, scale=scale)[0]

    _spared: Any = None  # the entries that are written at the end of an exchange, if that saves something

    def _gathering(self, outer: bool) -> Any:
        """What sums up local numbers: Q_a or Q."""
        return self._outer if outer else self.restriction

    def _sums(self, outer: bool, local: Any, scale: Any, onto: Any = None, spared: Any = None) -> Any:
        """Sums of local numbers times factors, added to what is given."""
        result = self._gathering(outer).gather(local)[0]
        if scale is not None:
            result *= scale
        return added(result, onto)

    @contextmanager
    def _in_all_cells(self, there: Any, operands: Sequence[Any], x: Any, weights: Any = None) -> Iterator[Any]:
        """Local numbers M Q W x, in scratch memory."""
        scratch = self._pool.take(self._new_scratch)
        try:
            (_, first), (flat, second) = scratch
            self._in_cells(there, operands, x, weights, first, second)
            yield flat
        finally:
            self._pool.give(scratch)
