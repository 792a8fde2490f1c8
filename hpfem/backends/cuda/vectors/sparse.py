"""Sparse matrices on the device, whose products graphs can contain: libraries' cannot be captured."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike
from scipy.sparse import csr_array

from ..codegen.prelude import header
from ..runtime.device import current_device, upload
from ..runtime.kernel import functions
from .indexed import THREADS, c_type

# Threads of a row, by the mean number of its entries: the first that is no less than half of it, or the last.
_LANES = (1, 2, 4, 8, 16)


def source(real: DTypeLike, index: DTypeLike, lanes: int) -> str:
    """Source of the kernel.

    Parameters
    ----------
    real, index : dtype
        Of the entries, and of their places.
    lanes : int
        Threads of a row.

    Returns
    -------
    str
    """
    return "\n".join([
        f"using real = {c_type(real)};",
        f"using Index = {c_type(index)};",
        f"constexpr int THREADS = {THREADS}, LANES = {lanes};",
        header("vectors/sparse.h"),
    ])  # fmt: skip


class SparseMatrix:
    """A CSR matrix; `@` multiplies vectors, on the current stream.

    Parameters
    ----------
    matrix : csr_array, [rows, columns]
        float64 or float32.
    """

    def __init__(self, matrix: csr_array) -> None:
        self.shape = matrix.shape
        kind = np.int32 if matrix.nnz < 2**31 else np.int64
        self._starts, self._columns = (upload(part.astype(kind)) for part in (matrix.indptr, matrix.indices))
        self._values, self._dtype = upload(matrix.data), matrix.dtype
        mean = matrix.nnz / max(1, matrix.shape[0])
        self._lanes = next((lanes for lanes in _LANES if 2 * lanes >= mean), _LANES[-1])
        self._multiply, *_ = functions(source(self._dtype, kind, self._lanes), current_device().name, "multiply")

    def __matmul__(self, x: Any) -> Any:
        """Multiply a vector.

        Parameters
        ----------
        x : cupy.ndarray, [columns]

        Returns
        -------
        cupy.ndarray, [rows]
        """
        rows, out = self.shape[0], current_device().empty((self.shape[0],), self._dtype)
        if rows:
            shared = THREADS * self._dtype.itemsize
            sizes = ((-(-rows * self._lanes // THREADS),), (THREADS,))
            arrays = self._starts, self._columns, self._values, x.astype(self._dtype, copy=False), out
            self._multiply(*sizes, (np.int64(rows), *arrays), shared_mem=shared)
        return out
