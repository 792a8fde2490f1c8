"""Vectors of the host in compiled passes, on the threads that kernels use.

Sums are made block by block, so that they do not depend on the number of threads.

These are the vectors of the host for all backends. Arrays with gaps or of several types are left to NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array

from hpfem.shapes.cached import cached_property

from ....support.threads import thread_count
from ...passes import Pass
from ...restriction import BlockMatrix, ElementRestriction
from ...vectors import VectorSpace
from ..codegen.vectors import write_add, write_gather, write_scatter
from .passes import code_of, run_code, run_pass
from .recording import Recorded

Indices = NDArray[np.int32]

_PRODUCTS = Pass("a b", "", sums=["a b"])
# Entries of vectors below which NumPy's statements take less time than a call of one pass (measured on Zen 4 and 5) and
# BLAS has one thread.
_FEW = 8192


def _alike(*arrays: Any) -> bool:
    """Whether arrays are without gaps and of one type; NumPy makes what is to be made of others."""
    kind = arrays[0].dtype
    return kind in (np.float64, np.float32) and all(
        type(own) is np.ndarray and own.dtype == kind and own.flags.c_contiguous for own in arrays
    )


def _fit(*arrays: Any) -> bool:
    """Whether arrays are alike and of one size."""
    return all(own.shape == arrays[0].shape for own in arrays) and _alike(*arrays)


def _long(*arrays: Any) -> bool:
    """Whether arrays fit each other, and are worth a pass that stands for a statement or two."""
    return bool(arrays[-1].size >= _FEW) and _fit(*arrays)


class CpuRestriction(ElementRestriction):
    """Q by compiled code, if each of its rows has one entry; see `ElementRestriction`."""

    @cached_property
    def _codes(self) -> list[tuple[Indices, int]] | None:
        """Of each block, with their address; None if some row has several entries."""
        Q = self._Q
        if not Q.signed or 2 * max(Q.starts[-1], Q.size) >= 2**31:
            return None
        codes = [np.ascontiguousarray(own.reshape(-1), np.int32) for own in Q.codes]
        return [(own, own.ctypes.data) for own in codes]

    @cached_property
    def _columns(self) -> list[tuple[int, tuple[int, ...], Any]]:
        """Of each block: how many columns of Q have entries, and the addresses of tables: these columns, the first of
        the codes of each, and codes of local numbers.
        """
        found = list[tuple[int, tuple[int, ...], Any]]()
        for codes, _ in self._codes or ():
            n = len(codes)
            numbers = 2 * np.arange(n, dtype=np.int32) + (codes & 1)
            rows = np.arange(n + 1, dtype=np.int32)
            by_column = csr_array(csr_array((numbers, codes >> 1, rows), shape=(n, self.size)).T)
            some = np.flatnonzero(np.diff(by_column.indptr))
            starts = np.append(by_column.indptr[some], np.int32(n))
            tables = some.astype(np.int32), starts, by_column.data
            found.append((len(some), tuple(own.ctypes.data for own in tables), tables))
        return found

    def scatter(self, vector: Any, targets: Sequence[Any]) -> None:
        """Write local numbers; see `ElementRestriction.scatter`."""
        if self._codes is None or not _alike(vector, *targets):
            super().scatter(vector, targets)
            return
        given = vector if self._keep is None else vector * self._keep
        code, at = code_of(write_scatter, given.dtype.name), given.ctypes.data
        for (codes, place), target in zip(self._codes, targets, strict=True):
            arguments = len(codes), len(given), at, target.ctypes.data, 0, 0, 0, 0, 0, place, self.size
            run_code(code, len(codes), arguments, target.size, (self, given, target))

    def gather(self, local: Any, vector: Any = None) -> Any:
        """Sum local numbers; see `ElementRestriction.gather`."""
        if self._codes is None or not _alike(local):
            return super().gather(local, vector)
        components = max(1, local.size // max(1, self._Q.starts[-1]))
        out = np.zeros((components, self.size), local.dtype)
        at, there = local.ctypes.data, out.ctypes.data
        if thread_count() == 1:  # which needs no tables by column
            write, tables = write_add, [(len(codes), (0, 0, place)) for codes, place in self._codes]
        else:
            write, tables = write_gather, [own[:2] for own in self._columns]
        code = code_of(write, local.dtype.name)
        for (codes, _), (count, (places, starts, numbers)) in zip(self._codes, tables, strict=True):
            arguments = len(codes), components, at, there, places, starts, 0, 0, 0, numbers, self.size
            run_code(code, count, arguments, components * len(codes), (self, local, out))
            at += components * len(codes) * local.itemsize
        return self._kept(out, vector)


class CpuVectors(VectorSpace):
    """Vectors of the host; see `VectorSpace`."""

    def restriction(self, Q: BlockMatrix, dtype: DTypeLike, keep: Any = None) -> CpuRestriction:
        """Make an element restriction; see `VectorSpace.restriction`."""
        return CpuRestriction(Q, self, dtype, keep)

    def inner(self, a: Any, b: Any) -> Any:
        """Sums of products; see `VectorSpace.inner`."""
        if a.ndim == 1 and _long(a, b):
            return a.dtype.type(run_pass(_PRODUCTS, (a, b))[0][0])
        if a.ndim == 2 and len(a) and a.flags.c_contiguous and _long(a[0], b):
            return np.array(run_pass(_PRODUCTS, (a, b), rows=len(a)), a.dtype)[:, 0]
        return super().inner(a, b)

    def _sums(self, pairs: Sequence[tuple[Any, Any]]) -> Any:
        return np.array([self._owned(a, b) for a, b in pairs], np.float64)  # a third of the time of a stack

    def run(self, what: Pass, arrays: Sequence[Any], numbers: Sequence[float] = ()) -> list[float]:
        """Update and sum up in one compiled pass; see `VectorSpace.run`."""
        if what.sums and self.comm.size == 1 and _fit(*arrays):
            return run_pass(what, arrays, numbers)[0]
        return super().run(what, arrays, numbers)

    def _update(self, what: Pass, arrays: Sequence[Any], numbers: Sequence[float]) -> None:
        if isinstance(arrays[-1], Recorded):
            arrays[-1].recording.update(what, [own.array for own in arrays], numbers)
        elif (_fit if len(what.updates) > 1 else _long)(*arrays):
            run_pass(what.without_sums, arrays, numbers)
        else:
            super()._update(what, arrays, numbers)
