"""Products with a sparse matrix of +-1, and few other entries, by index tables on the device; see `indexed.h`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array

from ...vectors import BlockMatrix, ElementRestriction, VectorSpace
from ..codegen.prelude import header, program
from ..runtime.device import architecture, current_device, limits
from ..runtime.kernel import load
from ..runtime.nvrtc import start

THREADS = 256
# Blocks on a multiprocessor of kernels that sum: as many as run at once, and of `gather`.
SUM_BLOCKS, GATHER_BLOCKS = 6, 4
_TYPES = {"f8": "double", "f4": "float", "i8": "long long", "i4": "int"}
Indices = NDArray[np.integer[Any]]


def c_type(dtype: DTypeLike) -> str:
    """Name of a type in C.

    Parameters
    ----------
    dtype : dtype

    Returns
    -------
    str
    """
    return _TYPES[np.dtype(dtype).str[1:]]


def sum_bytes(sums: int) -> int:
    """Shared memory that sums over a block take.

    Parameters
    ----------
    sums : int
        How many at once.

    Returns
    -------
    int
        Bytes.
    """
    return 8 * sums * (THREADS + 32)


@dataclass(frozen=True, eq=False)
class IndexTables:
    """A sparse matrix Q [local, global] as `indexed.h` wants it.

    Attributes
    ----------
    size : int
        Columns of Q.
    single : int
        From this column on each has one entry.
    starts : ndarray of int, [blocks + 1]
        First row of every block, and the number of rows.
    codes, row_starts, columns, values : ndarray
        For scatter: the code of every row; those that are not one entry +-1 as a CSR matrix.
    column_starts, entry_codes, entry_rows, entry_values : ndarray
        For gather: where the entries of a column start, their codes; rows and values of those that are not +-1.
    """

    size: int
    single: int
    starts: Indices
    codes: Indices
    row_starts: Indices
    columns: Indices
    values: NDArray[Any]
    column_starts: Indices
    entry_codes: Indices
    entry_rows: Indices
    entry_values: NDArray[Any]

    @classmethod
    def of(cls, matrix: csr_array, starts: Sequence[int], keep: NDArray[np.bool_] | None = None) -> IndexTables:
        """Tables of a matrix.

        Parameters
        ----------
        matrix : csr_array, [local, global]
        starts : sequence of int, [blocks + 1]
            First row of every block, and the number of rows.
        keep : ndarray of bool, [global], optional
            The columns whose entries count; all when left out.

        Returns
        -------
        IndexTables
            With 32-bit indices where they are enough.
        """
        if keep is not None:
            kept = keep[matrix.indices]
            ends = np.concatenate([[0], np.cumsum(kept)])[matrix.indptr]
            matrix = csr_array((matrix.data[kept], matrix.indices[kept], ends), shape=matrix.shape)
        kind = np.int32 if 2 * max(*matrix.shape, matrix.nnz) + 2 < 2**31 else np.int64
        n_rows = matrix.shape[0]
        unit = np.diff(matrix.indptr) == 1
        unit[unit] = np.abs(matrix.data[matrix.indptr[:-1][unit]]) == 1
        first = matrix.indptr[:-1][unit]
        codes = np.empty(n_rows, kind)
        codes[unit] = 2 * matrix.indices[first].astype(kind) + (matrix.data[first] < 0)
        codes[~unit] = -1 - np.arange(n_rows - len(first), dtype=kind)
        rest = csr_array(matrix[~unit])
        transposed = csr_array(matrix.T)
        transposed.sort_indices()
        plain = np.abs(transposed.data) == 1
        entry_codes = 2 * transposed.indices.astype(kind) + (transposed.data < 0)
        entry_codes[~plain] = -1 - np.arange(np.count_nonzero(~plain), dtype=kind)
        several = np.flatnonzero(np.diff(transposed.indptr) != 1)
        return cls(
            matrix.shape[1],
            int(several[-1]) + 1 if len(several) else 0,
            np.asarray(starts, dtype=kind),
            codes,
            rest.indptr.astype(kind),
            rest.indices.astype(kind),
            rest.data,
            transposed.indptr.astype(kind),
            entry_codes.astype(kind, copy=False),
            transposed.indices[~plain].astype(kind),
            transposed.data[~plain],
        )

    NAMES = (
        "values", "entry_values",
        "starts", "codes", "row_starts", "columns", "column_starts", "entry_codes", "entry_rows",
    )  # fmt: skip

    def packed(self) -> NDArray[np.uint8]:
        """Put all arrays into one, each at a multiple of 16 bytes, in the order of `NAMES`.

        Returns
        -------
        ndarray of uint8
        """
        parts = []
        for name in self.NAMES:
            array = getattr(self, name)
            parts += [array.view(np.uint8), np.zeros(-array.nbytes % 16, np.uint8)]
        return np.concatenate(parts)

    def unpacked(self, packed: Any) -> dict[str, Any]:
        """Take the arrays out of a packed one.

        Parameters
        ----------
        packed : array of uint8
            Of any library.

        Returns
        -------
        {name: array}
        """
        found, start_ = {}, 0
        for name in self.NAMES:
            array = getattr(self, name)
            found[name] = packed[start_ : start_ + array.nbytes].view(array.dtype)
            start_ += array.nbytes + -array.nbytes % 16
        return found

    def source(self, real: DTypeLike, components: int) -> str:
        """Source of the kernels.

        Parameters
        ----------
        real : dtype
            Of the vectors.
        components : int

        Returns
        -------
        str
        """
        return "\n".join([
            f"using real = {c_type(real)};",
            f"using Index = {c_type(self.codes.dtype)};",
            f"constexpr int COMPONENTS = {components}, BLOCKS = {len(self.starts) - 1}, THREADS = {THREADS};",
            f"constexpr int GATHER_BLOCKS = {GATHER_BLOCKS};",
            header("codegen/reduction.h"),
            header("vectors/indexed.h"),
        ])  # fmt: skip


@cache
def _functions(source: str, device: str) -> tuple[Any, Any]:
    cubin = start(program(source), architecture()).result()
    return load(cubin, "scatter", 0), load(cubin, "gather", 0)


def sum_blocks(n: int, per_multiprocessor: int = SUM_BLOCKS) -> int:
    """Blocks of a kernel that sums on the current device; each leaves a sum.

    Parameters
    ----------
    n : int
        Numbers to sum.
    per_multiprocessor : int
        Blocks that a multiprocessor takes.

    Returns
    -------
    int
    """
    return max(1, min(-(-n // THREADS), per_multiprocessor * limits().multiprocessors))


class IndexedRestriction(ElementRestriction):
    """Q on a GPU. Kernels run on the current stream; nothing is allocated but results that nobody gives.

    Parameters
    ----------
    Q, vectors, dtype, keep
        As for `ElementRestriction`. The tables are one transfer.
    """

    def __init__(self, Q: BlockMatrix, vectors: VectorSpace, dtype: DTypeLike, keep: Any = None) -> None:
        self._tables = IndexTables.of(Q.matrix, Q.starts, keep)
        self.size, self._dtype, self._device = self._tables.size, np.dtype(dtype), vectors.device
        self._arrays = self._tables.unpacked(vectors.from_host(self._tables.packed()))
        codes = self._arrays["codes"]
        self._codes = [codes[a:b] for a, b in zip(Q.starts, Q.starts[1:])]
        self._kernels: dict[int, tuple[Any, Any]] = {}
        self._vectors = vectors

    def gather_squares(self, local: Sequence[Any]) -> NDArray[np.float64]:
        """Sum by the squares of entries, in a fixed order; see `ElementRestriction.gather_squares`."""
        import cupy

        signed = []
        for codes, own in zip(self._codes, local, strict=True):
            sign = cupy.where(codes < 0, 0, 1 - 2 * (codes % 2)).astype(self._dtype)
            signed.append((own.reshape(len(own), -1) * sign).astype(self._dtype).reshape(-1))
        return self._vectors.to_host(self.gather(cupy.concatenate(signed))).astype(np.float64)

    @property
    def blocks(self) -> int:
        """Blocks of `gather`, each of which leaves a sum."""
        return sum_blocks(self.size, GATHER_BLOCKS)

    def _kernel(self, components: int) -> tuple[Any, Any]:
        if components not in self._kernels:
            source = self._tables.source(self._dtype, components)
            self._kernels[components] = _functions(source, current_device().name)
        return self._kernels[components]

    def scatter(self, vector: Any, targets: Sequence[Any], stop: Any = None) -> None:
        """Write local numbers, Q times global ones; see `ElementRestriction.scatter`.

        Parameters
        ----------
        vector, targets
            As there.
        stop : int, optional
            Address of an int on the device; nothing is done if it is not zero.
        """
        function, a = self._kernel(len(vector))[0], self._arrays
        for codes, target in zip(self._codes, targets, strict=True):
            n = len(codes)
            function(
                (-(-n // THREADS),),
                (THREADS,),
                (
                    np.int64(n), np.int64(self.size), codes, a["row_starts"], a["columns"], a["values"], vector, target,
                    np.uint64(stop or 0),
                ),
            )  # fmt: skip

    def gather(self, local: Any, vector: Any = None, out: Any = None, partials: Any = None, stop: Any = None) -> Any:
        """Sum local numbers, Q^T; see `ElementRestriction.gather`.

        Parameters
        ----------
        local, vector
            As there.
        out : cupy.ndarray, [components, size], optional
            Overwritten; made anew when left out.
        partials : cupy.ndarray of float64, [blocks], optional
            For sums of vector * out.
        stop : int, optional
            As for `scatter`.

        Returns
        -------
        cupy.ndarray, [components, size]
        """
        none, a = np.uint64(0), self._arrays
        if out is None:
            out = self._device.empty((local.size // len(a["codes"]), self.size), self._dtype)
        self._kernel(len(out))[1](
            (self.blocks,),
            (THREADS,),
            (
                np.int64(self.size), np.int64(self._tables.single), a["starts"], a["column_starts"], a["entry_codes"],
                a["entry_rows"], a["entry_values"], local, none if vector is None else vector, out,
                none if partials is None else partials, np.uint64(stop or 0),
            ),
            shared_mem=sum_bytes(1),
        )  # fmt: skip
        return out
