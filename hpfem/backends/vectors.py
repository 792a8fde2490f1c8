"""Vectors of a backend: arrays, passes over them, sums, sparse and dense products.

The class is for NumPy's arrays. A backend with other arrays offers a subclass (`Backend.vectors`). Assembly and solvers
make vectors and sums over their entries only with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from operator import mul
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse
from scipy.linalg.lapack import dpotrf, dtrtri
from scipy.sparse import coo_array, csr_array

from hpfem.shapes.arguments import reals

from ..geometry.element_map import CACHED, chunks
from ..memory import HOST, Device, PairArray, as_numpy
from ..mesh.sorting import counting_sort
from ..support.pool import Pool
from . import grouping
from .iteration import DeviceIteration
from .passes import Pass, combination
from .restriction import BlockMatrix, ElementRestriction
from .sharing import Messages, Sharing, Unshared

# 2^k and 2^-k are normal numbers of both types up to this k.
_EXPONENT = 126


class Blocks(NamedTuple):
    """Matrices of groups that stand side by side, the largest first."""

    counts: NDArray[np.int64]  # members of each group, on the host
    values: Any  # by rows, [sum of squares]

    def alike(self) -> Iterator[tuple[int, slice, slice]]:
        """Members of groups of one size, which groups these are, and where their matrices stand."""
        sizes, first = np.unique(-self.counts, return_index=True)
        ends = np.append(0, np.cumsum(self.counts**2))
        for size, own in zip((-sizes).tolist(), map(slice, first, [*first[1:], len(self.counts)])):
            yield size, own, slice(ends[own.start], ends[own.stop])

    def matrix(self, members: Any, n: int) -> csr_array:
        """A matrix for vectors [n], on the host, without zeros; members [k] -> [k, n]."""
        values, members, first = as_numpy(self.values), as_numpy(members), np.cumsum(self.counts) - self.counts
        widths, first = np.repeat(self.counts, self.counts), np.repeat(first, self.counts)
        ends, kept = np.append(0, np.cumsum(widths)), np.flatnonzero(values)
        columns = (np.arange(len(values)) - np.repeat(ends[:-1] - first, widths))[kept]
        return csr_array((values[kept], members[columns], np.searchsorted(kept, ends)), shape=(len(members), n))


class VectorSpace(Unshared):
    """Vectors on a device whose arrays are NumPy's."""

    iteration: DeviceIteration | None = None  # tools for iterating without the host
    # Entries of a group up to which its matrix is inverted as it is, rather than eliminated layer by layer.
    whole_group = 24

    def __init__(self, device: Device) -> None:
        self.device = device

    @property
    def xp(self) -> Any:
        """Module whose functions work on its arrays."""
        return np

    def has(self, array: Any) -> bool:
        """Tell whether something is one of its arrays."""
        return type(array) is np.ndarray

    def checked(self, given: Any, what: str) -> Any:
        """Return an array of floats unchanged, anything else as a NumPy array; an ArgumentError calls it `what`."""
        return given if self.has(given) and given.dtype.kind == "f" else reals(given, what)

    def from_host(self, vector: NDArray[Any], dtype: DTypeLike | None = None) -> Any:
        """Copy a host vector, as this type, to the device: a counted transfer unless that is the host."""
        return PairArray.of(np.ascontiguousarray(vector, dtype)).read(self.device)

    def to_host(self, vector: Any) -> NDArray[Any]:
        """Copy a vector to the host; one counted transfer unless it is there already."""
        return np.array(PairArray.of(vector, self.device).read(HOST))

    @property
    def sparse_library(self) -> Any:
        """Module with `csr_matrix`, for products of sparse matrices of its arrays."""
        return sparse

    def sparse(self, matrix: Any) -> Any:
        """Copy a csr_array, or a csr_matrix of `sparse_library`, to the device, for products with vectors."""
        return matrix

    def plus_product(self, onto: Any, factor: float, matrix: Any, x: Any, out: Any = None, places: Any = None) -> Any:
        """Write onto + factor * matrix x, without `onto` the product, to `out` at the rows' places, all different;
        or all of a new array.
        """
        # `out` may be onto; with places it may be x, if no entry is written that another row reads.
        product = matrix @ x
        if onto is None:
            out[places] = product
        elif places is None:
            out = product if out is None else out
            self.combine((factor, 1.0), (product, onto), out)
        else:
            self.combine((factor, 1.0), (product, onto[places]), product)
            out[places] = product
        return out

    def in_groups(self, blocks: Blocks, members: Any, size: int, dtype: DTypeLike) -> Callable[[Any], None]:
        """Make what multiplies groups of entries of a vector [size], `members` [n], by the matrices of these groups."""
        own, places = self.sparse(blocks.matrix(members, size).astype(dtype)), self.xp.asarray(members)

        def multiply(z: Any) -> None:
            z[places] = own @ z

        return multiply

    def beside(self, calls: Sequence[Callable[[], Any]]) -> None:
        """Make calls that do not depend on each other, maybe at the same time; all but the first are launches."""
        for call in calls:
            call()

    def matrix_product(self, A: Any, B: Any) -> Any:
        """Multiply matrices of `sparse_library`."""
        return A @ B

    def dense(self, matrix: Any) -> Any:
        """A sparse matrix in CSR, of any library, in full where vectors are."""
        return sparse_on_host(matrix).toarray()

    def inverse_of_factor(self, A: Any) -> Any:
        """L^-1 of a matrix A = L L^T, [n, n] -> [n, n]; of one that is not positive an error, or NaN on a device."""
        L, failed = dpotrf(A, lower=1)  # half the time of NumPy's
        if failed:
            raise np.linalg.LinAlgError("the matrix is not positive definite")
        return dtrtri(L, lower=1, overwrite_c=1)[0]

    def row_max(self, starts: Any, values: Any) -> Any:
        """Largest value of each row of a CSR matrix, at least 0; starts [n + 1], values [entries] -> [n]."""
        out, some = np.zeros(len(starts) - 1, values.dtype), np.flatnonzero(np.diff(starts))
        if len(some):
            out[some] = np.maximum(np.maximum.reduceat(values, starts[some]), 0)
        return out

    def products(self, rows: Sequence[Any], tables: Sequence[Any]) -> list[Any]:
        """Multiply numbers of cells by the table of their class; rows [E, k], tables [k, m] -> [E, m] of each."""
        return [own @ table for own, table in zip(rows, tables, strict=True)]

    def picked(self, rows: Sequence[Any], places: Sequence[Any]) -> list[Any]:
        """Take some numbers of cells, by their class; rows [E, k], places [m] -> [E, m] of each."""
        return [own.take(those, axis=1) for own, those in zip(rows, places, strict=True)]

    def pattern(self, rows: Any, columns: Any, size: int) -> tuple[Callable[[Any], Any], Any, Any]:
        """Find the places of entries of a square matrix: what sums values up there, rows and columns, in order."""
        order, n = np.arange(len(rows)), len(rows)
        for keys in (columns, rows):
            order = order[counting_sort(keys[order], size)]
        rows, columns = rows[order], columns[order]
        starts = np.flatnonzero(np.append(n > 0, (np.diff(rows) > 0) | (np.diff(columns) > 0))[:n])
        sums = csr_array((np.ones(n, np.int8), order, np.append(starts, n)), shape=(len(starts), n))
        return sums.dot, rows[starts], columns[starts]

    def parts(self, i: Any, j: Any, n: int) -> Any:
        """Number the parts of a graph by their first vertices; pairs in ascending i, j -> [n]."""
        return grouping.parts(i, j, n)

    def clusters(self, i: Any, j: Any, most: Any) -> Any:
        """Merge the ends of pairs, one pair after the other, unless they are too many; most [n] -> the lowest, [n]."""
        return grouping.clusters(i, j, most)

    def inverses(self, blocks: Blocks, scale: Any, rounding: float, most: float) -> tuple[Blocks, NDArray[np.int64]]:
        """Invert symmetric matrices, maybe in place, rows times `scale` [rows] and columns over it if that is given,
        without what is below rounding; and tell which stay as they are, as the product of norms is above `most`.
        """
        return blocks, grouping.inverted(blocks, scale, rounding, most)

    def summed_there(self, values: Any, rows: Any, columns: Any, shape: tuple[int, int]) -> Any:
        """Make a matrix in CSR where its entries are; those of one place are summed up in their order; each [n]."""
        return csr_array(coo_array((values, (rows, columns)), shape=shape))

    def congruent(self, Q: BlockMatrix, values: Any, i: Any, j: Any) -> tuple[Any, Any, Any]:
        """Values, rows and columns of T^t C T, with numbers C between rows of Q by their codes; each [n]."""
        m = Q.rows.shape[0]
        there = np.zeros(m + 2 * Q.size, bool)
        there[i + m] = there[j + m] = True
        (used,), place = there.nonzero(), np.cumsum(there) - 1
        T = Q.of_codes(used - m)
        found = coo_array(T.T @ csr_array((values, (place[i + m], place[j + m])), shape=(len(used),) * 2) @ T)
        return found.data, found.row, found.col

    def multiply(self, left: Any, matrix: Any, out: Any) -> None:
        """Write a product of matrices, all in C order; left [m, n], matrix [n, k], out [m, k]."""
        np.matmul(left, matrix, out=out)

    def restriction(self, Q: BlockMatrix, dtype: DTypeLike, keep: Any = None) -> ElementRestriction:
        """Make an element restriction; for the arguments see `ElementRestriction`."""
        return ElementRestriction(Q, self, dtype, keep)

    def pool(self) -> Any:
        """Make a pool of scratch for kernels."""
        return Pool()

    def linear_operator(self, shape: tuple[int, int], matvec: Callable[[Any], Any], dtype: DTypeLike) -> Any:
        """Make an operator x -> A x for the iterations of a library of its arrays, as SciPy's."""
        from scipy.sparse.linalg import LinearOperator

        return LinearOperator(shape, matvec=matvec, dtype=dtype)

    def messages(self, sharing: Sharing) -> Messages:
        """Make what exchanges shared entries; see `Messages`."""
        return Messages(sharing, self)

    def inner(self, a: Any, b: Any) -> Any:
        """Sums of products, on the vectors' device; collective; a [n] or [k, n], b [n] -> [] or [k]."""
        return a @ b

    def dots(self, *pairs: tuple[Any, Any]) -> list[float]:
        """Sums of products of pairs of vectors, on the host, which waits once for all; collective."""
        found: list[float] = self.total(self._sums(pairs)).tolist()
        return found

    def _sums(self, pairs: Sequence[tuple[Any, Any]]) -> Any:
        """Those of this process alone, in float64, on the vectors' device."""
        return self.xp.stack([self._owned(a, b) for a, b in pairs]).astype(np.float64)

    def _owned(self, a: Any, b: Any) -> Any:
        """As `inner`, of this process alone."""
        return self.inner(a, b)

    def dot(self, a: Any, b: Any) -> float:
        """Sum of products of two vectors, on the host; collective."""
        return self.dots((a, b))[0]

    def numbers(self, *arrays: Any) -> list[float]:
        """Read few numbers, such as sums of products, one array after the other; the host waits once."""
        found: list[float] = self.xp.concatenate([self.xp.atleast_1d(array) for array in arrays]).tolist()
        return found

    def run(self, what: Pass, arrays: Sequence[Any], numbers: Sequence[float] = ()) -> list[float]:
        """Update vectors [n], some of which may be the same, in place, then sum up; collective if there are sums."""
        self._update(what, arrays, numbers)
        if not what.sums:
            return []
        return self.dots(*((arrays[i], reduce(mul, [arrays[k] for k in more])) for i, *more in what.sums))

    def _update(self, what: Pass, arrays: Sequence[Any], numbers: Sequence[float]) -> None:
        """The updates of a pass."""
        n = len(arrays[-1])
        if any(len(array) != n for array in arrays):
            raise ValueError(f"a pass over vectors of {', '.join(str(len(array)) for array in arrays)} entries")
        for part in chunks(n, 1, most=CACHED):  # products stay in the cache
            known = [*(array[part] for array in arrays), *numbers]
            for target, terms in what.updates:
                total: Any = 0
                for k, (subtracted, (first, *more)) in enumerate(terms):
                    product = known[first]
                    for i in more:
                        product = product * known[i]
                    if k == 0:
                        total = -product if subtracted else product
                    else:
                        total = total - product if subtracted else total + product
                known[target][...] = total

    def combine(self, numbers: Sequence[float], vectors: Sequence[Any], out: Any) -> None:
        """Write a sum of vectors [n] times numbers, in one pass; out [n] may be one of the vectors."""
        self.run(combination(len(vectors)), (*vectors, out), numbers)

    def equals(self, numbers: Any) -> Any:
        """Count the entries that are equal to each; numbers [n] of int, from 0 -> [n]."""
        return np.bincount(numbers)[numbers]

    def add_at(self, places: Any, values: Any, rows: Any) -> None:
        """Add numbers to some entries, at different places [n], of vectors in place; values [k, n], rows [k, m]."""
        rows[:, places] += values

    def max_norm(self, vector: Any) -> float:
        """Largest absolute value, on the host; 0 without entries."""
        return max(float(vector.max()), -float(vector.min())) if vector.size else 0.0  # no array of all of them

    def exponent(self, vector: Any) -> int:
        """Least k with all entries of a finite vector below 2^k; 0 for zeros."""
        return math.frexp(self.max_norm(vector))[1]

    def norm(self, vector: Any) -> float:
        """Euclidean norm, of vectors of any size; infinite or NaN if an entry is."""
        return self.norms(vector)[0]

    def norms(self, *vectors: Any) -> list[float]:
        """Those of some vectors, for which the host waits once if they are of a moderate size."""
        with np.errstate(over="ignore", invalid="ignore"):
            squares = self.dots(*((own, own) for own in vectors))
        return list(map(self._norm, vectors, squares))

    def _norm(self, vector: Any, square: float) -> float:
        """The norm of a vector with this sum of squares, if that is in range."""
        if vector.dtype.kind == "f" and 2.0 ** -(np.finfo(vector.dtype).maxexp // 2) < square < math.inf:
            return math.sqrt(square)
        largest = self.max_norm(vector)
        if largest == 0 or not math.isfinite(largest):
            return largest
        k = math.frexp(largest)[1]
        unit = scaled(vector, -k)
        return float(scaled(math.sqrt(self.dot(unit, unit)), k))


HOST_VECTORS = VectorSpace(HOST)


def sparse_on_host(matrix: Any) -> csr_array:
    """The same matrix in CSR on the host."""
    if isinstance(matrix, csr_array):
        return matrix
    return csr_array(tuple(map(as_numpy, (matrix.data, matrix.indices, matrix.indptr))), shape=matrix.shape)


def scaled(vector: Any, k: int) -> Any:
    """Multiply by 2^k, which is exact, in two steps where 2^k itself may be out of range."""
    if abs(k) <= _EXPONENT:
        return vector * 2.0**k
    return vector * 2.0 ** (k // 2) * 2.0 ** (k - k // 2)
