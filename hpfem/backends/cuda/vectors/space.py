"""Vectors on a GPU: CuPy's, with kernels of ours for passes, for the element restriction and for messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from itertools import pairwise, product
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ...passes import Pass
from ...restriction import BlockMatrix
from ...sharing import Sharing
from ...vectors import Blocks, VectorSpace
from ..runtime.cublas import multiply
from ..runtime.kernel import begin
from ..runtime.scratch import StreamPool, in_branches
from . import classes, conjugate, groups, indexed, joined
from .conjugate import launch_dots, owned_bits
from .groups import MOST, GroupProducts
from .indexed import IndexedRestriction, SparseMatrix, sum_blocks
from .iteration import CudaIteration
from .messages import CudaMessages

# Products of entries that cuSPARSE makes at a time.
_AT_ONCE = 1 << 27
# Products of full matrices that take no longer than one of sparse ones; an H200 makes 9 of those a nanosecond in rows
# of hundreds of entries.
_FULL = 512
# Threads that look for a largest number; the host compares what they found.
_THREADS = 1 << 14
# Vectors of solvers, and of preconditioners.
_REALS: tuple[Any, ...] = np.dtype(np.float64), np.dtype(np.float32)


@cache
def begin_common(device: str) -> None:
    """Begin to compile what most problems need on a device, whatever their mesh: they would wait for each in turn."""
    for real, other in (_REALS, _REALS[:1] * 2, _REALS[1:] * 2):
        begin(conjugate.source(real, real, False, other))
    for source in (
        groups.source(np.float32),
        joined.joined_source(),
        joined.inverse_source(),
        classes.source(np.int32),
        indexed.tables_source(np.int32),
    ):
        begin(source)
    for real, lanes in product(_REALS, (1, 2, 4, 8)):
        begin(indexed.source(real, np.int32, lanes))


@cache
def _kernel(what: Pass) -> tuple[Any, list[int]]:
    """The updates of a pass as a kernel, and the places of its arrays: those that are read only come first."""
    written = dict.fromkeys(target for target, _ in what.updates)
    places = [*(i for i in range(what.arrays) if i not in written), *written]
    names, body = [*(f"x{i}" for i in range(what.arrays)), *(f"a{i}" for i in range(what.numbers))], ""
    for target, terms in what.updates:
        products = [("- " if less else "+ ") + " * ".join(names[i] for i in factors) for less, factors in terms]
        body += f"{names[target]} = {' '.join(products).removeprefix('+ ') or '0'};"
    given = [*names[what.arrays :], *(names[i] for i in places if i not in written)]
    arguments = [", ".join(f"T {name}" for name in some) for some in (given, [names[i] for i in written])]
    return import_module("cupy").ElementwiseKernel(*arguments, body, "hpfem_pass"), places


@cache
def _add_at() -> Any:
    arguments = "I place, T value", "raw T out", "out[place] += value", "hpfem_add_at"
    return import_module("cupy").ElementwiseKernel(*arguments)


@cache
def _sum_of_each() -> Any:
    body = "T sum = 0; for (long long k = starts[i]; k < starts[i + 1]; k++) sum += values[order[k]]; y = sum"
    arguments = "raw T values, raw I order, raw int64 starts", "T y", body, "hpfem_sum_of_each"
    return import_module("cupy").ElementwiseKernel(*arguments)


@cache
def _largest_of_each() -> Any:
    body = "T most = 0; for (I k = starts[i]; k < starts[i + 1]; k++) most = max(most, values[k]); y = most"
    return import_module("cupy").ElementwiseKernel("raw T values, raw I starts", "T y", body, "hpfem_largest_of_each")


@cache
def _largest() -> Any:
    body = (
        "T most = 0; for (size_t k = i; k < x.size(); k += _ind.size()) {"
        "T own = abs(x[k]); if (!(own <= most) && most == most) most = own; } y = most"  # NaN stays
    )
    return import_module("cupy").ElementwiseKernel("raw T x", "T y", body, "hpfem_largest")


class CudaVectors(VectorSpace):
    """Vectors on a GPU; see `VectorSpace`."""

    iteration = CudaIteration()
    whole_group = 96  # every layer is a launch that waits for the one before
    # Branches are those of a graph that is captured; matrices are multiplied by cuBLAS, in graphs too.
    beside, multiply, sparse = staticmethod(in_branches), staticmethod(multiply), staticmethod(SparseMatrix)
    pool: Any = StreamPool

    @property
    def xp(self) -> Any:
        """CuPy."""
        return import_module("cupy")

    def messages(self, sharing: Sharing) -> CudaMessages:
        """Make messages by one kernel, and write what comes of them by another; see `VectorSpace.messages`."""
        return CudaMessages(sharing, self)

    def has(self, array: Any) -> bool:
        """Tell whether something is an array of CuPy; see `VectorSpace.has`."""
        return type(array).__module__.partition(".")[0] == "cupy"

    def _update(self, what: Pass, arrays: Sequence[Any], numbers: Sequence[float]) -> None:
        kernel, places = _kernel(what)
        kernel(*map(arrays[-1].dtype.type, numbers), *(arrays[place] for place in places))

    def _sums(self, pairs: Sequence[tuple[Any, Any]]) -> Any:
        """Sum up by a kernel for each pair, without arrays of products; see `VectorSpace.dots`."""
        n, kind = pairs[0][0].size, pairs[0][0].dtype
        if kind.kind != "f" or any(own.dtype != kind or own.shape != (n,) for pair in pairs for own in pair):
            return super()._sums(pairs)
        found = self.xp.empty((len(pairs), blocks := sum_blocks(n)))
        owned = [] if self.sharing is None or not len(self.ghosts) else [owned_bits(self.sharing, n)]
        for (a, b), row in zip(pairs, found, strict=True):
            launch_dots(self.xp.ascontiguousarray(a), self.xp.ascontiguousarray(b), row, *owned)
        # Backwards: for sums of what lies in order CuPy includes CUB, which takes seconds to compile.
        return found[:, ::-1].sum(axis=1) if blocks > 1 else found[:, 0]

    def max_norm(self, vector: Any) -> float:
        """One kernel, and the rest on the host: CuPy's own takes seconds to compile; see `VectorSpace.max_norm`."""
        some = self.xp.empty(min(vector.size, _THREADS), vector.dtype)
        return float(_largest()(vector, some).get().max()) if vector.size else 0.0

    def equals(self, numbers: Any) -> Any:
        """Look for them in order: CuPy takes seconds to compile its `bincount`; see `VectorSpace.equals`."""
        ordered = self.xp.sort(numbers)
        return self.xp.searchsorted(ordered, numbers, "right") - self.xp.searchsorted(ordered, numbers)

    def add_at(self, places: Any, values: Any, rows: Any) -> None:
        """Add numbers to some entries in one kernel; see `VectorSpace.add_at`."""
        if isinstance(places, slice):
            super().add_at(places, values, rows)
            return
        for value, row in zip(values, rows, strict=True):
            _add_at()(places, value, row)

    @property
    def sparse_library(self) -> Any:
        """CuPy's module; see `VectorSpace.sparse_library`."""
        return import_module("cupyx.scipy.sparse")

    def plus_product(self, onto: Any, factor: float, matrix: Any, x: Any, out: Any = None, places: Any = None) -> Any:
        """Multiply and add in one kernel; see `VectorSpace.plus_product`."""
        out = self.xp.empty_like(onto) if out is None else out
        matrix.write(x, out, places, onto, factor)
        return out

    def in_groups(self, blocks: Blocks, members: Any, size: int, dtype: DTypeLike) -> Callable[[Any], None]:
        """Multiply in one kernel, unless a group is large; see `VectorSpace.in_groups`."""
        if not 0 < blocks.counts.max(initial=0) <= MOST:
            return super().in_groups(blocks, members, size, dtype)
        return GroupProducts(blocks, members, dtype)

    def dense(self, matrix: Any) -> Any:
        """Write entries to their places: `toarray` asks whether one is there twice, by kernels slow to compile."""
        entries = self.sparse_library.csr_matrix(matrix).tocoo()
        out = self.xp.zeros(matrix.shape, matrix.dtype)
        out.reshape(-1)[entries.row.astype(np.int64) * matrix.shape[1] + entries.col] = entries.data
        return out

    def matrix_product(self, A: Any, B: Any) -> Any:
        """See `VectorSpace.matrix_product`: some rows at a time, or as full matrices if nearly full."""
        xp, make, (n, k), m = self.xp, self.sparse_library.csr_matrix, A.shape, B.shape[1]

        def known(data: Any, columns: Any, starts: Any, shape: tuple[int, int]) -> Any:
            """A matrix, no entry of which is there twice; CuPy would ask that, by kernels slow to compile."""
            found = make((data, columns, starts), shape=shape)
            found.has_canonical_format = True
            return found

        B = known(B.data, B.indices, B.indptr, B.shape)
        before = xp.cumsum(xp.append(xp.zeros(1, np.int64), xp.diff(B.indptr)[A.indices]))[A.indptr]
        count = int(before[-1])
        if _FULL * count > n * k * m and max(n * k, k * m, n * m) < _AT_ONCE:
            return make(self.dense(A) @ self.dense(B))
        firsts = xp.searchsorted(before, xp.arange(0, count, _AT_ONCE)).tolist()
        if len(firsts) < 2:
            return known(A.data, A.indices, A.indptr, A.shape) @ B
        parts = []
        for first, last in pairwise(sorted({*firsts, n})):
            a, b = A.indptr[first], A.indptr[last]
            some = slice(int(a), int(b))
            parts.append(known(A.data[some], A.indices[some], A.indptr[first : last + 1] - a, (last - first, k)) @ B)
        values, columns = (xp.concatenate([getattr(own, name) for own in parts]) for name in ("data", "indices"))
        counts = xp.concatenate([xp.zeros(1, A.indptr.dtype), *(xp.diff(own.indptr) for own in parts)])
        return make((values, columns, xp.cumsum(counts).astype(A.indptr.dtype)), shape=(n, m))

    def inverse_of_factor(self, A: Any) -> Any:
        """Solve for the columns of the unit matrix; see `VectorSpace.inverse_of_factor`."""
        L, unit = self.xp.linalg.cholesky(A), self.xp.eye(len(A))
        return import_module("cupyx.scipy.linalg").solve_triangular(L, unit, lower=True)

    def row_max(self, starts: Any, values: Any) -> Any:
        """Find the largest values by a thread for each row; see `VectorSpace.row_max`."""
        return _largest_of_each()(values, starts, self.xp.empty(len(starts) - 1, values.dtype))

    def products(self, rows: Sequence[Any], tables: Sequence[Any]) -> list[Any]:
        """Multiply in one kernel for all classes; see `VectorSpace.products`."""
        return classes.products(rows, tables)

    def picked(self, rows: Sequence[Any], places: Sequence[Any]) -> list[Any]:
        """Take in one kernel for all classes; see `VectorSpace.picked`."""
        return classes.picked(rows, places)

    def pattern(self, rows: Any, columns: Any, size: int) -> tuple[Callable[[Any], Any], Any, Any]:
        """Sort entries by their places; see `VectorSpace.pattern`."""
        xp = self.xp
        places = rows.astype(xp.int64) * size + columns
        order = places.argsort()  # CuPy's is stable
        places = places[order]
        starts = xp.flatnonzero(xp.diff(places, prepend=-1))
        places = places[starts]
        starts = xp.append(starts, len(order))

        def sums(values: Any) -> Any:
            return _sum_of_each()(values, order, starts, xp.empty(len(places), values.dtype))

        return sums, places // size, places % size

    def parts(self, i: Any, j: Any, n: int) -> Any:
        """Join pairs by one kernel; see `VectorSpace.parts`."""
        lowest = joined.parts(i, j, n)
        return (self.xp.cumsum(lowest == self.xp.arange(n, dtype=np.int32), dtype=np.int32) - 1)[lowest]

    def clusters(self, i: Any, j: Any, most: Any) -> Any:
        """Merge by two kernels a round; see `VectorSpace.clusters`."""
        return joined.clusters(i, j, most)

    def inverses(self, blocks: Blocks, scale: Any, rounding: float, most: float) -> tuple[Blocks, NDArray[np.int64]]:
        """Invert by one kernel; see `VectorSpace.inverses`."""
        return joined.inverses(blocks, scale, rounding, most)

    def summed_there(self, values: Any, rows: Any, columns: Any, shape: tuple[int, int]) -> Any:
        """Sum values up at the places of a `pattern`; see `VectorSpace.summed_there`."""
        xp = self.xp
        sums, rows, columns = self.pattern(rows, columns, max(shape))
        kind = xp.int32 if max(*shape, len(rows)) < 2**31 else xp.int64
        parts = sums(values), columns.astype(kind), xp.searchsorted(rows, xp.arange(shape[0] + 1)).astype(kind)
        found = self.sparse_library.csr_matrix(parts, shape=shape)
        found.has_canonical_format = True
        return found

    def congruent(self, Q: BlockMatrix, values: Any, i: Any, j: Any) -> tuple[Any, Any, Any]:
        """Continue rows to their unknowns, then columns: cuSPARSE fails; see `VectorSpace.congruent`."""
        xp = self.xp
        starts, columns, weights = map(xp.asarray, (Q.rows.indptr, Q.rows.indices, Q.rows.data))

        def continued(values: Any, codes: Any, others: Any) -> tuple[Any, Any, Any]:
            row, several = xp.maximum(-1 - codes, 0), codes < 0
            n = xp.where(several, starts[row + 1] - starts[row], 1)
            ends, every = xp.cumsum(n), xp.arange(int(n.sum()))
            of = xp.searchsorted(ends, every, "right")
            codes, several = codes[of], several[of]
            at = xp.where(several, (starts[row] + n - ends)[of] + every, 0)
            factors = xp.where(several, weights[at], 1 - 2 * (codes & 1))
            return values[of] * factors, xp.where(several, columns[at], codes >> 1), others[of]

        values, i, j = continued(values, i, j)
        values, j, i = continued(values, j, i)
        return values, i, j

    def restriction(self, Q: BlockMatrix, dtype: DTypeLike, keep: Any = None) -> IndexedRestriction:
        """Make an element restriction by index tables; see `VectorSpace.restriction`."""
        made = IndexedRestriction(Q, self, dtype, keep)
        for real in _REALS:  # solvers have both of a mesh
            begin(made.source(real))
        return made

    def linear_operator(self, shape: tuple[int, int], matvec: Callable[[Any], Any], dtype: DTypeLike) -> Any:
        """Make a LinearOperator of CuPy; see `VectorSpace.linear_operator`."""
        return import_module("cupyx.scipy.sparse.linalg").LinearOperator(shape, matvec=matvec, dtype=dtype)
