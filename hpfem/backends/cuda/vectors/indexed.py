"""Products with a sparse matrix of +-1, and few other entries, by index tables on the device; see `indexed.h`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array

from ...vectors import HOST_VECTORS, BlockMatrix, ElementRestriction, VectorSpace, row_entries
from ..codegen.prelude import header
from ..runtime.device import current_device, limits
from ..runtime.kernel import functions

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
    def of(
        cls, Q: BlockMatrix, keep: NDArray[np.bool_] | None = None, vectors: VectorSpace = HOST_VECTORS
    ) -> IndexTables:
        """Tables of a matrix, made where they are wanted.

        Parameters
        ----------
        Q : BlockMatrix
        keep : ndarray of bool, [global], optional
            The columns whose entries count; all when left out. Row 0 of `Q.rows` is empty then.
        vectors : VectorSpace
            Where the tables are wanted.

        Returns
        -------
        IndexTables
            With 32-bit indices where they are enough.
        """
        n_rows, rows = Q.starts[-1], Q.rows
        kind = np.int32 if 2 * max(n_rows, Q.size, n_rows + rows.nnz) + 2 < 2**31 else np.int64
        xp, on = vectors.xp, vectors.from_host
        codes = xp.concatenate([own.on(xp).reshape(-1) for own in Q.blocks]).astype(kind)
        several, given = np.empty(0, dtype=kind), np.empty(0, dtype=np.int64)
        if not Q.signed:
            there = (codes < 0).nonzero()[0].astype(kind)
            several, given = vectors.to_host(there), vectors.to_host(codes[there]).astype(np.int64)
        if keep is not None:
            kept = keep[rows.indices]
            ends = np.concatenate([[0], np.cumsum(kept)])[rows.indptr]
            rows = csr_array((rows.data[kept], rows.indices[kept], ends), shape=rows.shape)
            codes[(codes >= 0) & ~on(keep)[codes >> 1]] = -1
        entries, counts = row_entries(rows, -1 - given)
        columns = rows.indices[entries]
        # Entries of columns, in a fixed order: first those that are +-1, by rows.
        place = (codes >= 0).nonzero()[0]
        single = codes[place]
        keys = xp.concatenate([single >> 1, on(columns.astype(kind))])
        values = xp.concatenate([(2 * place + (single & 1)).astype(kind), on(-1 - np.arange(len(columns), dtype=kind))])
        order = keys.argsort(kind="stable") if isinstance(keys, np.ndarray) else keys.argsort()  # CuPy's is stable
        keys = keys[order]
        starts = xp.searchsorted(keys, xp.arange(Q.size + 1, dtype=kind)).astype(kind)
        not_one = (xp.diff(starts) != 1).nonzero()[0]
        return cls(
            Q.size,
            int(not_one[-1]) + 1 if len(not_one) else 0,
            on(np.asarray(Q.starts, dtype=kind)),
            codes,
            on(rows.indptr.astype(kind)),
            on(rows.indices.astype(kind)),
            on(rows.data),
            starts,
            values[order],
            on(np.repeat(several, counts).astype(kind)),
            on(rows.data[entries]),
        )

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
        As for `ElementRestriction`.
    """

    def __init__(self, Q: BlockMatrix, vectors: VectorSpace, dtype: DTypeLike, keep: Any = None) -> None:
        self._tables = IndexTables.of(Q, keep, vectors)
        self.size, self._dtype, self._device = self._tables.size, np.dtype(dtype), vectors.device
        codes = self._tables.codes
        self._codes = [codes[a:b] for a, b in zip(Q.starts, Q.starts[1:])]
        self._kernels: dict[int, tuple[Any, ...]] = {}
        self._vectors = vectors

    def gather_squares(self, local: Sequence[Any]) -> Any:
        """Sum by the squares of entries, in a fixed order; see `ElementRestriction.gather_squares`."""
        import cupy

        signed = []
        for codes, own in zip(self._codes, local, strict=True):
            sign = cupy.where(codes < 0, 0, 1 - 2 * (codes % 2)).astype(self._dtype)
            signed.append((own.reshape(len(own), -1) * sign).astype(self._dtype).reshape(-1))
        return self.gather(cupy.concatenate(signed)).astype(np.float64)

    @property
    def blocks(self) -> int:
        """Blocks of `gather`, each of which leaves a sum."""
        return sum_blocks(self.size, GATHER_BLOCKS)

    def _kernel(self, components: int) -> tuple[Any, ...]:
        if components not in self._kernels:
            source = self._tables.source(self._dtype, components)
            self._kernels[components] = functions(source, current_device().name, "scatter", "gather")
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
        function, a = self._kernel(len(vector))[0], self._tables
        for codes, target in zip(self._codes, targets, strict=True):
            n = len(codes)
            function(
                (-(-n // THREADS),),
                (THREADS,),
                (
                    np.int64(n), np.int64(self.size), codes, a.row_starts, a.columns, a.values, vector, target,
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
        none, a = np.uint64(0), self._tables
        if out is None:
            out = self._device.empty((local.size // len(a.codes), self.size), self._dtype)
        self._kernel(len(out))[1](
            (self.blocks,),
            (THREADS,),
            (
                np.int64(self.size), np.int64(self._tables.single), a.starts, a.column_starts, a.entry_codes,
                a.entry_rows, a.entry_values, local, none if vector is None else vector, out,
                none if partials is None else partials, np.uint64(stop or 0),
            ),
            shared_mem=sum_bytes(1),
        )  # fmt: skip
        return out
