"""Vectors of a backend: arrays, passes over them, sums, sparse and dense products.

The class is for NumPy's arrays. A backend with other arrays offers a subclass (`Backend.vectors`). Assembly and solvers
make vectors and sums over their entries only with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from operator import mul
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse
from scipy.sparse import coo_array, csr_array

from hpfem.shapes.arguments import reals

from ..geometry.element_map import CACHED, chunks
from ..memory import HOST, Device, PairArray
from ..support.pool import Pool
from .iteration import DeviceIteration
from .passes import Pass, combination
from .restriction import BlockMatrix, ElementRestriction
from .sharing import Messages, Sharing, Unshared

# 2^k and 2^-k are normal numbers of both types up to this k.
_EXPONENT = 126


class VectorSpace(Unshared):
    """Vectors on a device whose arrays are NumPy's.

    Parameters
    ----------
    device : Device

    Attributes
    ----------
    iteration : DeviceIteration or None
        Tools for iterating without the host; None if the host iterates.
    """

    iteration: DeviceIteration | None = None

    def __init__(self, device: Device) -> None:
        self.device = device

    @property
    def xp(self) -> Any:
        """Module whose functions work on its arrays."""
        return np

    def has(self, array: Any) -> bool:
        """Tell whether something is one of its arrays.

        Parameters
        ----------
        array : object

        Returns
        -------
        bool
        """
        return type(array) is np.ndarray

    def checked(self, given: Any, what: str) -> Any:
        """Return an array of floats unchanged, anything else as a NumPy array.

        Parameters
        ----------
        given : array_like
        what : str
            Its name in messages.

        Returns
        -------
        array

        Raises
        ------
        ArgumentError
            If it is not an array of real numbers.
        """
        return given if self.has(given) and given.dtype.kind == "f" else reals(given, what)

    def from_host(self, vector: NDArray[Any], dtype: DTypeLike | None = None) -> Any:
        """Copy a host vector to the device; one counted transfer unless the device is the host.

        Parameters
        ----------
        vector : ndarray
        dtype : dtype, optional
            Of the result; that of the vector when left out.

        Returns
        -------
        array
        """
        return PairArray.of(np.ascontiguousarray(vector, dtype)).read(self.device)

    def to_host(self, vector: Any) -> NDArray[Any]:
        """Copy a vector to the host; one counted transfer unless it is there already; see `from_host`."""
        return np.array(PairArray.of(vector, self.device).read(HOST))

    @property
    def sparse_library(self) -> Any:
        """Module with `csr_matrix`, for products of sparse matrices of its arrays."""
        return sparse

    def sparse(self, matrix: Any) -> Any:
        """Copy a sparse matrix to the device, for products with vectors.

        Parameters
        ----------
        matrix : csr_array, or csr_matrix of `sparse_library`

        Returns
        -------
        sparse matrix
            A sparse matrix for the device's arrays.
        """
        return matrix

    def plus_product(self, onto: Any, factor: float, matrix: Any, x: Any, out: Any = None, places: Any = None) -> Any:
        """Add a product with a sparse matrix, times a number, to some entries of a vector.

        Parameters
        ----------
        onto : array
        factor : float
        matrix : sparse matrix, [n, m]
            As `sparse` makes it.
        x : array, [m]
            With places it may be `out`, if no entry is written that another row reads.
        out : array, optional
            What is written; it may be `onto`. Without places a new one when left out.
        places : array of int, [n], optional
            The entry of every row, different ones; others are not written. By default all in order.

        Returns
        -------
        array
            `out`.
        """
        product = matrix @ x
        if places is None:
            out = product if out is None else out
            self.combine((factor, 1.0), (product, onto), out)
        else:
            self.combine((factor, 1.0), (product, onto[places]), product)
            out[places] = product
        return out

    def beside(self, calls: Sequence[Callable[[], Any]]) -> None:
        """Make calls that do not depend on each other: on a device they may run at the same time.

        Parameters
        ----------
        calls : sequence of callable
            Launches alone, without scratch of their own and without allocations.
        """
        for call in calls:
            call()

    def matrix_product(self, A: Any, B: Any) -> Any:
        """Multiply matrices of `sparse_library`.

        Parameters
        ----------
        A, B : csr_matrix

        Returns
        -------
        csr_matrix
        """
        return A @ B

    def row_max(self, starts: Any, values: Any) -> Any:
        """Largest value of each row of a CSR matrix, at least 0.

        Parameters
        ----------
        starts : array of int, [n + 1]
        values : array, [entries]

        Returns
        -------
        array, [n]
        """
        out, some = np.zeros(len(starts) - 1, values.dtype), np.flatnonzero(np.diff(starts))
        if len(some):
            out[some] = np.maximum(np.maximum.reduceat(values, starts[some]), 0)
        return out

    def summed_matrix(self, values: Any, rows: Any, columns: Any, shape: tuple[int, int]) -> csr_array:
        """Make a sparse matrix on the host of entries on the device; those of one place are summed up in their order.

        Parameters
        ----------
        values : array, [n]
        rows, columns : array of int, [n]
        shape : tuple of int

        Returns
        -------
        csr_array
            Columns of a row in ascending order.
        """
        return csr_array(coo_array((values, (rows, columns)), shape=shape))

    def multiply(self, left: Any, matrix: Any, out: Any) -> None:
        """Write a product of matrices, all in C order.

        Parameters
        ----------
        left : array, [m, n]
        matrix : array, [n, k]
        out : array, [m, k]
            Overwritten.
        """
        np.matmul(left, matrix, out=out)

    def restriction(self, Q: BlockMatrix, dtype: DTypeLike, keep: Any = None) -> ElementRestriction:
        """Make an element restriction; for the arguments see `ElementRestriction`."""
        return ElementRestriction(Q, self, dtype, keep)

    def pool(self) -> Any:
        """Make a pool of scratch for kernels.

        Returns
        -------
        Pool
        """
        return Pool()

    def linear_operator(self, shape: tuple[int, int], matvec: Callable[[Any], Any], dtype: DTypeLike) -> Any:
        """Make an operator for the iterations of a library of its arrays.

        Parameters
        ----------
        shape : tuple of int
        matvec : callable
            x -> A x.
        dtype : dtype

        Returns
        -------
        scipy.sparse.linalg.LinearOperator, or the similar class of a library
        """
        from scipy.sparse.linalg import LinearOperator

        return LinearOperator(shape, matvec=matvec, dtype=dtype)

    def messages(self, sharing: Sharing) -> Messages:
        """Make what exchanges shared entries; see `Messages`."""
        return Messages(sharing, self)

    def inner(self, a: Any, b: Any) -> Any:
        """Sums of products, on the vectors' device; collective.

        Parameters
        ----------
        a : array, [n] or [k, n]
        b : array, [n]

        Returns
        -------
        array, [] or [k]
        """
        return a @ b

    def dots(self, *pairs: tuple[Any, Any]) -> list[float]:
        """Sums of products of pairs, on the host, which waits once for all; collective; see `inner`."""
        return self.numbers(*(self.inner(a, b) for a, b in pairs))

    def dot(self, a: Any, b: Any) -> float:
        """Sum of products of two vectors, on the host; collective; see `inner`."""
        return float(self.inner(a, b))

    def numbers(self, *arrays: Any) -> list[float]:
        """Read some numbers; the host waits once.

        Parameters
        ----------
        *arrays : array, [n] or []
            Few numbers, such as products of vectors.

        Returns
        -------
        list of float
            One after the other.
        """
        found: list[float] = self.xp.concatenate([self.xp.atleast_1d(array) for array in arrays]).tolist()
        return found

    def run(self, what: Pass, arrays: Sequence[Any], numbers: Sequence[float] = ()) -> list[float]:
        """Update vectors in place, then sum up; collective if there are sums.

        Parameters
        ----------
        what : Pass
        arrays : sequence of array, [n]
            In the order of its names; some of them may be the same.
        numbers : sequence of float

        Returns
        -------
        list of float
            The sums.
        """
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
        """Write a sum of vectors times numbers, in one pass.

        Parameters
        ----------
        numbers : sequence of float
            One for each vector.
        vectors : sequence of array, [n]
            One at least.
        out : array, [n]
            Overwritten; it may be one of the vectors.
        """
        self.run(combination(len(vectors)), (*vectors, out), numbers)

    def add_at(self, places: Any, values: Any, rows: Any) -> None:
        """Add numbers to some entries of vectors, in place.

        Parameters
        ----------
        places : array of int, [n], or slice
            Different ones.
        values : array, [k, n]
        rows : array, [k, m]
        """
        rows[:, places] += values

    def max_norm(self, vector: Any) -> float:
        """Largest absolute value, on the host; 0 without entries.

        Parameters
        ----------
        vector : array, [n]

        Returns
        -------
        float
        """
        return max(float(vector.max()), -float(vector.min())) if vector.size else 0.0  # no array of all of them

    def exponent(self, vector: Any) -> int:
        """Least k with all entries of a finite vector below 2^k; 0 for zeros; see `max_norm`."""
        return math.frexp(self.max_norm(vector))[1]

    def norm(self, vector: Any) -> float:
        """Euclidean norm, of vectors of any size; infinite or NaN if an entry is; see `max_norm`."""
        largest = self.max_norm(vector)
        if largest == 0 or not math.isfinite(largest):
            return largest
        k = math.frexp(largest)[1]
        if vector.dtype.kind == "f" and abs(k) < np.finfo(vector.dtype).maxexp // 4:
            k = 0  # squares are in range
        unit = scaled(vector, -k) if k else vector
        return float(scaled(math.sqrt(self.dot(unit, unit)), k))


HOST_VECTORS = VectorSpace(HOST)


def scaled(vector: Any, k: int) -> Any:
    """Multiply by 2^k, which is exact, in two steps where 2^k itself may be out of range."""
    if abs(k) <= _EXPONENT:
        return vector * 2.0**k
    return vector * 2.0 ** (k // 2) * 2.0 ** (k - k // 2)
