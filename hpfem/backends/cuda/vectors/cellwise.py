"""Products with one matrix per group of cells on a GPU: as sparse factors in shared memory, or by cuBLAS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array, eye_array

from ...cellwise import CellwiseProduct
from ..codegen.prelude import source_with
from ..runtime.device import current_device, upload
from ..runtime.kernel import functions
from .indexed import THREADS, IndexedRestriction

WARP = 32
# Shared memory of a block that there is without asking, and what is used of it: several blocks are to fit.
_MOST_SHARED, _SHARED = 48 << 10, 24 << 10
# Elements whose numbers a thread multiplies at a time, and numbers that it reads.
_ELEMENTS = (4, 2, 1)
_SIDE = 4
# Of a mode, on an H200 (estimates, in 1e-12 s for each byte of a number): an entry of a sparse factor, filled-up ones
# too; one of a dense matrix; and local numbers written and read again, which the sparse ones save.
_SPARSE, _DENSE, _LOCAL = 0.045, 0.0125, 1.15
# Of the largest entry of a matrix: what is zero but for rounding.
_ROUNDING = 1e-14


def _entries(factor: csr_array) -> int:
    """Entries of rows that are not those of the identity."""
    return int(np.diff(factor.indptr)[changed(factor)].sum())


def changed(factor: csr_array) -> NDArray[np.bool_]:
    """Tell which rows of a matrix are not those of the identity.

    Parameters
    ----------
    factor : csr_array, [n, n]

    Returns
    -------
    ndarray of bool, [n]
    """
    rest = csr_array(factor - eye_array(factor.shape[0]))
    rest.eliminate_zeros()
    return np.diff(rest.indptr) > 0


def merged(factors: Sequence[csr_array]) -> list[csr_array]:
    """Multiply neighbours where that makes less work.

    Parameters
    ----------
    factors : sequence of csr_array, [n, n]

    Returns
    -------
    list of csr_array, [n, n]
        Whose product is the same; each costs its entries and, for the barriers, as much as n of them.
    """
    found, n = [csr_array(factors[-1])], factors[0].shape[0]
    for factor in factors[-2::-1]:
        both = csr_array(factor @ found[0])
        both.data[np.abs(both.data) < _ROUNDING * np.abs(both.data).max(initial=0)] = 0
        both.eliminate_zeros()
        both.sort_indices()
        if _entries(both) <= _entries(factor) + _entries(found[0]) + n:
            found[0] = both
        else:
            found.insert(0, csr_array(factor))
    return found


@dataclass(frozen=True, eq=False)
class SlicedFactors:
    """Factors of a matrix as `cellwise.h` wants them.

    Attributes
    ----------
    n : int
        Rows.
    elements, groups, rounds : int
        As there.
    factor_starts, slice_starts, rows, columns, values : ndarray
    """

    n: int
    elements: int
    groups: int
    rounds: int
    factor_starts: NDArray[np.int32]
    slice_starts: NDArray[np.int32]
    rows: NDArray[np.int32]
    columns: NDArray[np.uint16]
    values: NDArray[np.floating[Any]]

    @classmethod
    def of(cls, factors: Sequence[csr_array], dtype: DTypeLike) -> SlicedFactors | None:
        """Tables of a product of matrices, if it fits and is not better multiplied in one piece.

        Parameters
        ----------
        factors : sequence of csr_array, [n, n]
        dtype : dtype
            Of the numbers.

        Returns
        -------
        SlicedFactors or None
        """
        n, size = factors[0].shape[0], np.dtype(dtype).itemsize
        elements = next((e for e in _ELEMENTS if n * e * size <= _MOST_SHARED), None)
        if elements is None:
            return None
        factors = merged(factors)
        ends, widths = [0], list[int]()
        rows, columns, values = list[Any](), list[Any](), list[Any]()
        for factor in reversed(factors):
            counts = np.diff(factor.indptr)
            own = np.flatnonzero(changed(factor))
            own = own[np.argsort(-counts[own], kind="stable")]
            for first in range(0, len(own), WARP):
                slice_rows = own[first : first + WARP]
                widths.append(int(counts[slice_rows].max()))
                rows.append(np.full(WARP, -1))
                rows[-1][: len(slice_rows)] = slice_rows
                columns.append(np.zeros((widths[-1], WARP)))
                values.append(np.zeros((widths[-1], WARP)))
                for lane, row in enumerate(slice_rows):
                    here = slice(factor.indptr[row], factor.indptr[row + 1])
                    columns[-1][: counts[row], lane] = factor.indices[here]
                    values[-1][: counts[row], lane] = factor.data[here]
            if len(widths) > ends[-1]:
                ends.append(len(widths))
        most = max((b - a for a, b in pairwise(ends)), default=1)
        work = WARP * sum(widths) + n * len(factors)
        if work * _SPARSE > n * (n * _DENSE + _LOCAL):
            return None
        # Each warp is to have something to do, and two blocks or more are to fit.
        warps = THREADS // WARP
        groups = max(1, min(-(-4 * warps // most), _SHARED // (n * elements * size)))
        return cls(
            n, elements, groups, -(-groups * most // warps), np.array(ends, np.int32),
            np.concatenate([[0], np.cumsum(widths)]).astype(np.int32), _joined(rows, np.int32),
            _joined(columns, np.uint16), _joined(values, dtype),
        )  # fmt: skip

    def source(self, index: DTypeLike) -> str:
        """Source of the kernel.

        Parameters
        ----------
        index : dtype
            Of the tables of Q.

        Returns
        -------
        str
        """
        types = {"real": self.values.dtype, "Index": index}
        constants = {
            **{"MODES": self.n, "FACTORS": len(self.factor_starts) - 1, "THREADS": THREADS, "SIDE": _SIDE},
            **{"ELEMENTS": self.elements, "GROUPS": self.groups, "ROUNDS": self.rounds},
        }
        return source_with(types, constants, "codegen/restriction.h", "vectors/cellwise.h")

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        return self.n * self.elements * self.groups * self.values.dtype.itemsize

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Tables in the order of the kernel's arguments."""
        return self.factor_starts, self.slice_starts, self.rows, self.columns, self.values


def _joined(parts: Sequence[NDArray[Any]], dtype: DTypeLike) -> NDArray[Any]:
    return np.concatenate([np.zeros(0), *(part.ravel() for part in parts)]).astype(dtype)


class _Sparse:
    """A product of sparse factors with a block of Q."""

    def __init__(self, tables: SlicedFactors, restriction: IndexedRestriction, number: int) -> None:
        self._Q = restriction.block(number)
        elements = len(self._Q[0]) // tables.n
        self._blocks, self._elements = -(-elements // (tables.elements * tables.groups)), np.int64(elements)
        self._shared, self._tables = tables.shared_bytes, [upload(array) for array in tables.arrays]
        source, device = tables.source(self._Q[0].dtype), current_device().name
        (self._function,) = functions(source, device, "cellwise", shared_bytes=self._shared)

    def __call__(self, x: Any, out: Any) -> None:
        """Write local numbers, those of one vector."""
        if self._blocks:
            arguments = (self._elements, *self._Q, *self._tables, x, out)
            self._function((self._blocks,), (THREADS,), arguments, shared_mem=self._shared)


class CudaCellwise(CellwiseProduct):
    """Products on a GPU; see `CellwiseProduct`. Nothing is allocated but results."""

    def _operand(self, factors: Sequence[csr_array], restriction: Any, number: int) -> Any:
        tables = SlicedFactors.of(factors, self._dtype)
        if tables is None:
            return super()._operand(factors, restriction, number)
        return _Sparse(tables, restriction, number)

    def _new_scratch(self) -> list[tuple[Any, list[Any]]]:
        after = self._new_local()
        direct = all(isinstance(own, _Sparse) for own in [*self._there, *self._back])
        return [after if direct else self._new_local(), after]

    def _sums(self, back: Any, local: Any, scale: Any) -> Any:
        return back.gather(local, scale=scale)[0]

    def _in_cells(self, there: Any, operands: Sequence[Any], x: Any, given: Sequence[Any], out: Sequence[Any]) -> None:
        sparse = [isinstance(own, _Sparse) for own in operands]
        there.scatter(x[None], [None if own else block for own, block in zip(sparse, given, strict=True)])
        for own, operand, source, target in zip(sparse, operands, given, out, strict=True):
            if own:
                operand(x, target)
            else:
                self._vectors.multiply(source[0], operand, target[0])
