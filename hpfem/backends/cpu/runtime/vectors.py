"""Vectors of the host in compiled passes, on the threads that kernels use.

Sums are made block by block, so that they do not depend on the number of threads.

These are the vectors of the host for all backends. Arrays with gaps or of several types are left to NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array

from hpfem.shapes.cached import cached_property

from ....support.threads import thread_count
from ...vectors import BlockMatrix, ElementRestriction, VectorSpace
from ..codegen.vectors import VECTORS, write_add, write_gather, write_scatter
from .passes import Pass, code_of, run_code
from .recording import Recorded

Array = NDArray[np.floating[Any]]
Indices = NDArray[np.int32]

_PRODUCTS = Pass((), ("x0 x1",))
# Of conjugate gradients: x0 = x, x1 = p, x2 = r, x3 = q, x4 the inverse diagonal.
_STEP = ("x0", ("x0", "a0 x1")), ("x2", ("x2", "-a0 x3"))
_RESIDUAL, _RESIDUAL_BY = Pass(_STEP, ("x2 x2",)), Pass(_STEP, ("x2 x2", "x2 x4 x2"))
_ADVANCE, _ADVANCE_BY = Pass((*_STEP, ("x1", ("x2", "a1 x1")))), Pass((*_STEP, ("x1", ("x2 x4", "a1 x1"))))
# x0 = p, x1 = z, x2 the inverse diagonal.
_DIRECTION = Pass([("x0", ("x1 x2", "a0 x0"))])
# x0 = before, x1 = now, x2 the force, x3 its weights.
_LEAPFROG = Pass([("x0", ("a0 x1", "-x0", "x2 x3"))])
# Entries of vectors below which NumPy's statements take less time than a call of one pass (measured on Zen 4 and 5) and
# BLAS has one thread.
_FEW = 8192
# Vectors of a sum in one pass.
_MOST = len(VECTORS) - 1


@cache
def _combination(count: int) -> Pass:
    """The sum of some vectors times numbers, in another one."""
    return Pass([(f"x{count}", tuple(f"a{i} x{i}" for i in range(count)))])


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
    def _codes(self) -> list[Indices] | None:
        """Of each block; None if some row has several entries."""
        Q = self._Q
        if not Q.signed or 2 * max(Q.starts[-1], Q.size) >= 2**31:
            return None
        return [np.ascontiguousarray(own.reshape(-1), np.int32) for own in Q.codes]

    @cached_property
    def _columns(self) -> list[tuple[Indices, Indices, Indices]]:
        """Of each block: columns of Q with entries, the first of the codes of each, and codes of local numbers."""
        found = []
        for codes in self._codes or ():
            n = len(codes)
            numbers = 2 * np.arange(n, dtype=np.int32) + (codes & 1)
            rows = np.arange(n + 1, dtype=np.int32)
            by_column = csr_array(csr_array((numbers, codes >> 1, rows), shape=(n, self.size)).T)
            some = np.flatnonzero(np.diff(by_column.indptr))
            starts = np.append(by_column.indptr[some], np.int32(n))
            found.append((some.astype(np.int32), starts, by_column.data))
        return found

    @cached_property
    def _code_addresses(self) -> list[int]:
        return [own.ctypes.data for own in self._codes or ()]

    @cached_property
    def _column_addresses(self) -> list[tuple[int, ...]]:
        return [tuple(own.ctypes.data for own in tables) for tables in self._columns]

    def scatter(self, vector: Any, targets: Sequence[Any]) -> None:
        """Write local numbers; see `ElementRestriction.scatter`."""
        if self._codes is None or not _alike(vector, *targets):
            super().scatter(vector, targets)
            return
        given = vector if self._keep is None else vector * self._keep
        code, at = code_of(write_scatter, given.dtype.name), given.ctypes.data
        for codes, place, target in zip(self._codes, self._code_addresses, targets, strict=True):
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
            tables: list[tuple[int, ...]] = [(0, 0, place) for place in self._code_addresses]
            code = code_of(write_add, local.dtype.name)
            groups = [len(codes) for codes in self._codes]
        else:
            code, tables = code_of(write_gather, local.dtype.name), self._column_addresses
            groups = [len(columns) for columns, *_ in self._columns]
        for codes, count, (places, starts, numbers) in zip(self._codes, groups, tables, strict=True):
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
            return a.dtype.type(_PRODUCTS((a, b))[0][0])
        if a.ndim == 2 and len(a) and a.flags.c_contiguous and _long(a[0], b):
            return np.array(_PRODUCTS((a, b), rows=len(a)), a.dtype)[:, 0]
        return super().inner(a, b)

    def combine(self, numbers: Sequence[float], vectors: Sequence[Any], out: Any) -> None:
        """Write a sum, in one pass over up to four vectors; see `VectorSpace.combine`."""
        if isinstance(out, Recorded):
            terms = [f"a{i} x{i}" for i in range(len(vectors))]
            out.recording.sum(terms, numbers, [own.array for own in vectors], out.array)
        elif not _long(*vectors, out):
            super().combine(numbers, vectors, out)
        elif len(vectors) <= _MOST:
            _combination(len(vectors))((*vectors, out), numbers)
        else:
            # What is overwritten is read before that.
            place = out.ctypes.data
            pairs = sorted(zip(numbers, vectors, strict=True), key=lambda pair: pair[1].ctypes.data != place)
            numbers, vectors = zip(*pairs, strict=True)
            if vectors[_MOST].ctypes.data == place:
                super().combine(numbers, vectors, out)
                return
            self.combine(numbers[:_MOST], vectors[:_MOST], out)
            self.combine((1.0, *numbers[_MOST:]), (out, *vectors[_MOST:]), out)

    def update_residual(self, alpha: float, p: Any, q: Any, x: Any, r: Any, inverse: Any = None) -> list[float]:
        """X += alpha p, r -= alpha q and the sums of r, in one pass of a process; see `VectorSpace.update_residual`."""
        own = (x, p, r, q) if inverse is None else (x, p, r, q, inverse)
        if self.comm.size > 1 or not _fit(*own):
            return super().update_residual(alpha, p, q, x, r, inverse)
        return (_RESIDUAL if inverse is None else _RESIDUAL_BY)(own, (alpha,))[0]

    def update_direction(self, z: Any, inverse: Any, beta: float, p: Any) -> None:
        """P = inverse * z + beta p in one pass; see `VectorSpace.update_direction`."""
        if inverse is None or not _long(p, z, inverse):
            super().update_direction(z, inverse, beta, p)
        else:
            _DIRECTION((p, z, inverse), (beta,))

    def advance(self, alpha: float, beta: float, inverse: Any, q: Any, p: Any, x: Any, r: Any) -> None:
        """Take a step of conjugate gradients in one pass; see `VectorSpace.advance`."""
        own = (x, p, r, q) if inverse is None else (x, p, r, q, inverse)
        if _fit(*own):
            (_ADVANCE if inverse is None else _ADVANCE_BY)(own, (alpha, beta))
        else:
            super().advance(alpha, beta, inverse, q, p, x, r)

    def leapfrog(self, weights: Any, force: Any, now: Any, before: Any) -> None:
        """Take a step of the leapfrog scheme in one pass; see `VectorSpace.leapfrog`."""
        own = before, now, force, weights
        if _long(*own):
            _LEAPFROG(own, (2.0,))
        else:
            super().leapfrog(weights, force, now, before)
