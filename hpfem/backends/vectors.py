"""Vectors of a backend: arrays, sums over them, sparse products, and the element restriction.

These classes are for NumPy's arrays. A backend with other arrays offers a subclass of `VectorSpace`
(`Backend.vectors`). Assembly and solvers make vectors and sums over their entries only with it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import partial, reduce
from operator import mul
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import coo_array, csr_array

from hpfem.shapes.arguments import reals
from hpfem.shapes.cached import cached_property

from ..geometry.element_map import CACHED, chunks
from ..memory import HOST, Device, PairArray, as_numpy
from ..support.communicator import ALONE, Communicator
from ..support.pool import Pool
from .passes import Pass, combination

Array = NDArray[np.floating[Any]]
Indices = NDArray[np.integer[Any]]
# Largest difference, in units of rounding, of the products of a symmetric operator with random vectors.
_SYMMETRY_ROUNDING = 1e3
# 2^k and 2^-k are normal numbers of both types up to this k.
_EXPONENT = 126


def row_entries(matrix: csr_array, rows: Indices) -> tuple[Indices, Indices]:
    """Positions of the entries of some rows, one row after the other; rows [n] -> counts [n]."""
    counts = np.diff(matrix.indptr)[rows]
    return np.arange(counts.sum()) + np.repeat(matrix.indptr[rows] - (np.cumsum(counts) - counts), counts), counts


def _copied(codes: Indices, xp: Any) -> Any:
    return xp.asarray(codes)


class Codes:
    """The rows of a block of a `BlockMatrix`, written as codes on demand.

    Parameters
    ----------
    shape : tuple of int
        (E, n_modes).
    make : callable
        Module of arrays -> array of int of this shape: 2 * column, and 1 more where the entry is -1; -1 - r where the
        row is one of the matrix' `rows`.
    signed : bool
        Whether all rows have one entry +-1, so that no code is negative.
    modes : ndarray of int, [n_modes], optional
        The modes of an element entity by entity, as their numbers stand side by side in vectors; by default in order.
    sizes : ndarray of int, [entities], optional
        Numbers of modes of these entities.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        make: Callable[[Any], Any],
        signed: bool,
        modes: Indices | None = None,
        sizes: Indices | None = None,
    ) -> None:
        self.shape, self._make, self.signed = shape, make, signed
        self.modes: Indices = np.arange(shape[1]) if modes is None else modes
        self.sizes: Indices = np.array([shape[1]]) if sizes is None else sizes

    def on(self, xp: Any) -> Any:
        """Codes as an array; -> [E, n_modes]."""
        codes = self._make(xp)
        if xp is np:
            self._make = partial(_copied, codes)
        return codes

    def part(self, rows: Any) -> Codes:
        """Take some elements."""
        if isinstance(rows, slice) and rows == slice(None):
            return self
        shape = len(rows), self.shape[1]
        return Codes(shape, lambda xp: self.on(xp)[xp.asarray(rows)], self.signed, self.modes, self.sizes)

    def by_entity(self) -> Codes:
        """Put the rows of every element in the order of `modes`."""
        make = lambda xp: self.on(xp).take(xp.asarray(self.modes), axis=1)  # noqa: E731
        return Codes(self.shape, make, self.signed, sizes=self.sizes)

    def shifted(self, n: int) -> Codes:
        """Shift the numbers of the rows that are given by matrices."""
        if n == 0 or self.signed:
            return self

        def make(xp: Any) -> Any:
            codes = self.on(xp)
            return xp.where(codes < 0, codes - n, codes)

        return Codes(self.shape, make, False, self.modes, self.sizes)


class BlockMatrix:
    """A sparse matrix Q [local, global] with the rows of blocks one after the other; most have one entry +-1.

    Parameters
    ----------
    blocks : sequence of Codes
        Per block, of its elements and modes.
    rows : csr_array, [r, global]
        The rows with other entries than one +-1, in the type of the vectors.

    Attributes
    ----------
    blocks, rows
    size : int
        Columns.
    starts : list of int, [blocks + 1]
        First row of every block, and the number of rows.
    """

    def __init__(self, blocks: Sequence[Codes], rows: csr_array) -> None:
        self.blocks, self.rows, self.size = blocks, rows, int(rows.shape[1])
        self.starts = [0, *(int(end) for end in np.cumsum([own.shape[0] * own.shape[1] for own in blocks]))]

    @property
    def signed(self) -> bool:
        """Whether all rows have one entry +-1."""
        return all(own.signed for own in self.blocks)

    @property
    def codes(self) -> list[Indices]:
        """Codes of every block on the host, [E, n_modes] each."""
        return [own.on(np) for own in self.blocks]

    @cached_property
    def matrix(self) -> csr_array:
        """The matrix."""
        return self.of_codes(np.concatenate([own.reshape(-1) for own in self.codes]))

    def of_codes(self, codes: Indices) -> csr_array:
        """Make a matrix of rows that are written as codes; codes [n] -> [n, size]."""
        several = np.flatnonzero(codes < 0)
        entries, n = row_entries(self.rows, -1 - codes[several].astype(np.int64))
        counts = np.ones(len(codes), dtype=np.int64)
        counts[several] = n
        ends = np.concatenate([[0], np.cumsum(counts)])
        columns = np.repeat(codes >> 1, counts)
        values = np.repeat((1 - 2 * (codes & 1)).astype(self.rows.dtype), counts)
        here = np.repeat(ends[several] - (np.cumsum(n) - n), n) + np.arange(n.sum())
        columns[here], values[here] = self.rows.indices[entries], self.rows.data[entries]
        kind = np.int32 if max(ends[-1], self.size) < 2**31 else np.int64
        return csr_array((values, columns.astype(kind), ends.astype(kind)), shape=(len(codes), self.size))

    @cached_property
    def transpose(self) -> csr_array:
        """Q^T, [global, local]."""
        return csr_array(self.matrix.T)

    @cached_property
    def signs(self) -> tuple[Indices, Array | None] | None:
        """Column and sign of each row, if all have one entry +-1; signs are None if all are +1."""
        if not self.signed:
            return None
        matrix = self.matrix
        return matrix.indices, None if np.all(matrix.data == 1) else matrix.data

    def gathered(self, local: Sequence[Any]) -> NDArray[np.float64]:
        """Multiply local numbers by the transpose, in float64; local [E, n_modes] -> [global]."""
        numbers = [np.asarray(own, dtype=np.float64).reshape(-1) for own in local]
        found: NDArray[np.float64] = self.transpose @ np.concatenate(numbers)
        return found

    def summed(self, matrix: Any, local: Any, xp: Any = np) -> Any:
        """Multiply local numbers by a matrix such as the transpose; matrix [global, local], local
        [components * rows] -> [components, global].
        """
        local, components = local.reshape(-1), max(1, local.size // max(1, self.starts[-1]))
        if components == 1:
            return (matrix @ local)[None]
        ends = zip(self.starts, self.starts[1:])
        blocks = [local[components * a : components * b].reshape(components, b - a) for a, b in ends]
        rows = blocks[0] if len(blocks) == 1 else xp.concatenate(blocks, axis=1)
        return xp.stack([matrix @ row for row in rows])


class ElementRestriction:
    """Q on a device: element-local numbers from global ones, and sums of local ones.

    Parameters
    ----------
    Q : BlockMatrix
    vectors : VectorSpace
    dtype : dtype
        Of the vectors, float64 or float32.
    keep : ndarray of bool, [size], optional
        The columns of Q that are kept. The others are zero, and `gather` takes their entries from a given vector.

    Attributes
    ----------
    size : int
        Columns of Q.
    """

    def __init__(self, Q: BlockMatrix, vectors: VectorSpace, dtype: DTypeLike, keep: Any = None) -> None:
        self.size = Q.size
        self._Q, self._xp = Q, vectors.xp
        self._vectors = vectors
        self._keep: Any = None
        if keep is not None:
            self._keep = vectors.from_host(keep, dtype)
            self._drop = 1 - self._keep

    @cached_property
    def _signs(self) -> Any:
        return self._Q.signs and [part if part is None else self._vectors.from_host(part) for part in self._Q.signs]

    @cached_property
    def _matrix(self) -> Any:
        return self._vectors.sparse(self._Q.matrix)

    @cached_property
    def _transpose(self) -> Any:
        return self._vectors.sparse(self._Q.transpose)

    def scatter(self, vector: Any, targets: Sequence[Any]) -> None:
        """Write local numbers, Q times global ones; vector [components, size], targets
        [components, elements, n_modes].
        """
        starts = self._Q.starts
        for c, row in enumerate(vector if self._keep is None else vector * self._keep):
            local = None if self._signs else self._matrix @ row
            for start, stop, target in zip(starts, starts[1:], targets, strict=False):
                if local is not None:
                    target[c] = local[start:stop].reshape(target[c].shape)
                    continue
                columns, signs = self._signs
                flat = target[c].reshape(-1)
                self._xp.take(row, columns[start:stop], out=flat, mode="clip")
                if signs is not None:
                    flat *= signs[start:stop]

    def gather(self, local: Any, vector: Any = None) -> Any:
        """Sum local numbers, Q^T; local [components * rows], vector [components, size] -> [components, size]."""
        if not self.size and vector is not None:
            return self._xp.zeros_like(vector)
        return self._kept(self._Q.summed(self._transpose, local, self._xp), vector)

    def _kept(self, out: Any, vector: Any) -> Any:
        """Sums, with the entries of a vector in columns that are not kept."""
        if vector is not None and self._keep is not None:
            out *= self._keep
            out += vector * self._drop
        return out

    def gather_some(self, columns: Any) -> Callable[[Any], Any]:
        """Make a function that sums local numbers for some columns only, with the same bits as `gather`; columns
        [n].
        """
        rows = self._vectors.sparse(csr_array(self._Q.transpose[columns]))
        keep = 1 if self._keep is None else self._keep[columns]
        return lambda local: self._Q.summed(rows, local, self._xp) * keep

    def gather_squares(self, local: Sequence[Any]) -> Any:
        """Sum local numbers by the squares of the entries of Q, over the rows that have one; local
        [components, elements, n_modes] -> [components, size].
        """
        out = np.zeros((len(local[0]), self.size))
        for codes, own in zip(self._Q.codes, local, strict=True):
            numbers, every = np.asarray(own).reshape(len(out), -1), codes.reshape(-1)
            for part in chunks(codes.size, 1, most=CACHED):
                flat = every[part]
                known = flat >= 0
                places = (flat >> 1)[known].astype(np.intp)
                for total, row in zip(out, numbers[:, part], strict=True):
                    np.add.at(total, places, row[known].astype(np.float64, copy=False))
        return out


class Messages:
    """Numbers of shared entries as messages to neighbours, and what is made of those of neighbours, on a device.

    Parameters
    ----------
    sharing : Sharing
    vectors : VectorSpace
    """

    def __init__(self, sharing: Any, vectors: VectorSpace) -> None:
        self._sharing = sharing

    def packed(self, own: Any) -> Any:
        """Write the numbers for all neighbours, one message after the other; own [components, shared] ->
        [m, components].
        """
        return np.ascontiguousarray(own[:, self._sharing.sent].T)

    def combine(self, rows: Any, own: Any, received: Any, owners: bool) -> None:
        """Write sums over processes, or the owners' numbers, to shared entries; rows [components, size], own
        [components, shared], received [m, components].
        """
        matrix = self._sharing.of_owners if owners else self._sharing.sums
        rows[:, self._sharing.shared] = (matrix @ np.concatenate([received, own.T])).T


class Stop(IntEnum):
    """Why conjugate gradients stopped on a device."""

    RUNNING, CONVERGED, PRECONDITIONER, NOT_FINITE, OPERATOR, EXHAUSTED = range(6)


class ConjugateVectors(Protocol):
    """Vectors and scalars of conjugate gradients that stay on a device; its methods do not wait for it.

    Attributes
    ----------
    r, p, q : array, [n]
        Residual, direction and its product.
    partials : array of float64
        For the sums of p.q.
    stop : int
        Address of a number on the device that is zero while it iterates.
    """

    r: Any
    p: Any
    q: Any
    partials: Any
    stop: Any

    def measure_product(self, q: Any) -> None:
        """Make the sums of a product that came without them; q [n]."""

    def update_residual(self) -> None:
        """After a product: r -= alpha q."""

    def update_direction(self, z: Any = None) -> None:
        """After `update_residual`, and at the start: x += alpha p, p = z + beta p; z [n]."""

    def stop_if_done(self) -> None:
        """After `update_residual`, and at the start: if the iterations end here, x += alpha p, else nothing."""

    def finish(self) -> None:
        """Wait for all launched work."""

    def read(self) -> Any:
        """Request the scalars, without waiting."""


class DeviceIteration(ABC):
    """The tools of a device that iterates without its host: scalars on the device, and graphs of launches.

    The restriction of such a device also takes an array for sums, the address of a number that stops it, and what
    results are added to.
    """

    @abstractmethod
    def conjugate_vectors(
        self, x: Any, r: Any, scale: float, tolerance: float, most: int, inverse: Any, blocks: int | None
    ) -> ConjugateVectors:
        """Make the vectors of a solve; x, r, inverse [n]."""

    @abstractmethod
    def shared(self, sharing: Any) -> DeviceIteration | None:
        """Make the tools for vectors that processes share; collective."""

    @abstractmethod
    def capture(self, step: Callable[[], None], count: int, what: str) -> Any:
        """Capture the launches of some steps; nothing runs."""


class VectorSpace:
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
        """Copy a vector to the host; one counted transfer unless it is there already.

        Parameters
        ----------
        vector : array

        Returns
        -------
        ndarray
        """
        return np.array(PairArray.of(vector, self.device).read(HOST))

    def sparse(self, matrix: csr_array) -> Any:
        """Copy a sparse matrix to the device.

        Parameters
        ----------
        matrix : csr_array

        Returns
        -------
        sparse matrix
            A sparse matrix for the device's arrays.
        """
        return matrix

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
        """Make an element restriction.

        Parameters
        ----------
        Q, dtype, keep
            As for `ElementRestriction`.

        Returns
        -------
        ElementRestriction
        """
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

    @property
    def comm(self) -> Communicator:
        """The processes that share vectors."""
        return ALONE

    def summed(self, rows: Any) -> Any:
        """Add up, in place, the contributions of processes to shared entries; collective.

        Parameters
        ----------
        rows : array, [components, n] or [components * n]

        Returns
        -------
        array
            The same one.
        """
        return rows

    @property
    def shared(self) -> NDArray[np.int64]:
        """Entries of a component that other processes have too, on the host."""
        return np.empty(0, dtype=np.int64)

    @property
    def ghosts(self) -> NDArray[np.int64]:
        """The shared entries that another process owns, which counts them in sums."""
        return np.empty(0, dtype=np.int64)

    def summing(self, own: Any) -> Callable[[Any], Any]:
        """Begin `summed`; work before its end overlaps with the exchange.

        Parameters
        ----------
        own : array, [components, shared]
            Contributions of this process to the entries `shared`.

        Returns
        -------
        callable
            rows [components, n] -> the same, with the sums in these entries.
        """
        return lambda rows: rows

    def agreed(self, rows: Any) -> Any:
        """Take, in place, the owner's values for shared entries; collective; see `summed`."""
        return rows

    def messages(self, sharing: Any) -> Messages:
        """Make the messages of shared entries.

        Parameters
        ----------
        sharing : Sharing

        Returns
        -------
        Messages
        """
        return Messages(sharing, self)

    def started(self, comm: Communicator, sent: Any, parts: Mapping[int, slice]) -> Callable[[], Any]:
        """Begin to exchange parts of an array with other processes; work before its end overlaps with the exchange.

        Parameters
        ----------
        comm : Communicator
        sent : array, [n] or [n, m]
            In C order.
        parts : {rank: slice}
            What each process gets, and where what it sends is wanted.

        Returns
        -------
        callable
            A function that returns the received array, of the same shape and type.
        """
        given = self.to_host(sent)
        received = np.empty_like(given)
        end = comm.started(*({rank: own[part] for rank, part in parts.items()} for own in (given, received)))

        def finish() -> Any:
            end()
            return self.from_host(received)

        return finish

    def sum_over(self, comm: Communicator, numbers: Any) -> Any:
        """Sum over processes; see `total`.

        Parameters
        ----------
        comm : Communicator
        numbers : array

        Returns
        -------
        array
        """
        return self.xp.asarray(comm.sum(as_numpy(numbers)), numbers.dtype)

    def count(self, vector: Any) -> int:
        """Tell how many entries a vector has on all processes; collective.

        Parameters
        ----------
        vector : array, [n]

        Returns
        -------
        int
        """
        return int(vector.size)

    def total(self, numbers: Any) -> Any:
        """Sum over processes; collective.

        Parameters
        ----------
        numbers : array
            Few numbers, on the device of the vectors.

        Returns
        -------
        array
            Of the same shape and type.
        """
        return numbers

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
        """Sums of products, on the host, which waits once for all; collective.

        Parameters
        ----------
        *pairs : tuple of array, [n]

        Returns
        -------
        list of float
        """
        return self.numbers(*(self.inner(a, b) for a, b in pairs))

    def dot(self, a: Any, b: Any) -> float:
        """Sum of products, on the host.

        Parameters
        ----------
        a, b : array, [n]

        Returns
        -------
        float
        """
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
        """Least k with all entries of a finite vector below 2^k; 0 for zeros.

        Parameters
        ----------
        vector : array, [n]

        Returns
        -------
        int
        """
        return math.frexp(self.max_norm(vector))[1]

    def norm(self, vector: Any) -> float:
        """Euclidean norm, of vectors of any size; infinite or NaN if an entry is.

        Parameters
        ----------
        vector : array, [n]

        Returns
        -------
        float
        """
        largest = self.max_norm(vector)
        if largest == 0 or not math.isfinite(largest):
            return largest
        k = math.frexp(largest)[1]
        if vector.dtype.kind == "f" and abs(k) < np.finfo(vector.dtype).maxexp // 4:
            k = 0  # squares are in range
        unit = scaled(vector, -k) if k else vector
        return float(scaled(math.sqrt(self.dot(unit, unit)), k))

    def random_pair(self, n: int, dtype: DTypeLike) -> tuple[Any, Any]:
        """Make two random vectors, the same every time.

        Parameters
        ----------
        n : int
        dtype : dtype

        Returns
        -------
        tuple of array, [n]
        """
        rng = np.random.default_rng(0)
        u, v = (self.xp.asarray(rng.standard_normal(n), dtype) for _ in range(2))
        return u, v

    def seems_symmetric(self, apply: Callable[[Any], Any], n: int, dtype: DTypeLike) -> bool:
        """Tell whether an operator is symmetric on random vectors, up to rounding.

        An asymmetry in a single cell of very many is found, because rounding is smaller.

        Parameters
        ----------
        apply : callable
            x -> A x.
        n : int
            Entries of x.
        dtype : dtype

        Returns
        -------
        bool
        """
        return self.asymmetry(apply, *self.random_pair(n, dtype)) <= _SYMMETRY_ROUNDING * float(np.finfo(dtype).eps)

    def asymmetry(self, apply: Callable[[Any], Any], u: Any, v: Any) -> float:
        """Measure how far an operator is from a symmetric one: |(u, A v) - (v, A u)| over |A u| + |A v|.

        Parameters
        ----------
        apply : callable
            x -> A x.
        u, v : array, [n]
            Random vectors.

        Returns
        -------
        float
            About rounding if the operator is symmetric.
        """
        Au, Av = apply(u), apply(v)
        size = self.dot(Au, Au) ** 0.5 + self.dot(Av, Av) ** 0.5
        return abs(self.dot(u, Av) - self.dot(v, Au)) / size if size else 0.0


HOST_VECTORS = VectorSpace(HOST)


def scaled(vector: Any, k: int) -> Any:
    """Multiply by 2^k, which is exact, in two steps where 2^k itself may be out of range."""
    if abs(k) <= _EXPONENT:
        return vector * 2.0**k
    return vector * 2.0 ** (k // 2) * 2.0 ** (k - k // 2)
