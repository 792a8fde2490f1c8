"""The vector work of conjugate gradients, its CUDA kernels run on the CPU."""

import ctypes
import tempfile
import threading
from copy import copy
from functools import cache
from itertools import pairwise

import numpy as np
from scipy.sparse import csr_array, vstack

from hpfem.backends.cuda.vectors import indexed
from hpfem.backends.cuda.vectors.conjugate import CONTROL
from hpfem.backends.cuda.vectors.conjugate import source as conjugate_source
from hpfem.backends.cuda.vectors.indexed import IndexTables, sum_bytes
from hpfem.backends.restriction import BlockMatrix, Codes
from tests.backends.cuda.host_kernels import HOST, compiled, shared_at


def block_matrix(matrix, starts):
    """A sparse matrix as `BlockMatrix` has it: rows of one entry +-1 as codes."""
    matrix = csr_array(matrix)
    unit = np.diff(matrix.indptr) == 1
    unit[unit] = np.abs(matrix.data[matrix.indptr[:-1][unit]]) == 1
    first = matrix.indptr[:-1][unit]
    codes = np.empty(matrix.shape[0], np.int32)
    codes[unit] = 2 * matrix.indices[first] + (matrix.data[first] < 0)
    codes[~unit] = -2 - np.arange(np.count_nonzero(~unit))
    rows = vstack([csr_array((1, matrix.shape[1]), dtype=matrix.dtype), matrix[~unit]], format="csr")
    return BlockMatrix([fixed(codes[a:b, None]) for a, b in pairwise(starts)], csr_array(rows))


def fixed(codes):
    """Codes that are written already."""
    return Codes(codes.shape, lambda xp: xp.asarray(codes), bool((codes >= 0).all()))


def tables(found):
    """Arrays of index tables."""
    return {name: array for name, array in vars(found).items() if name not in ("size", "single")}


def widened(found):
    """The same index tables with 64-bit indices."""
    wide = copy(found)
    vars(wide).update({name: a.astype(np.int64) for name, a in tables(found).items() if a.dtype == np.int32})
    return wide


HARNESS = """
template <class T, T... I> struct Numbers {};
static void **given;
template <class... P, int... I> static void invoke(void (*f)(P...), Numbers<int, I...>) { f(*(P *)given[I]...); }
template <class... P> static void invoke(void (*f)(P...)) {
  invoke(f, __make_integer_seq<Numbers, int, sizeof...(P)>());
}
"""


@cache
def library(source, names, folder, bounds=False):
    """Kernels of a source, compiled for the CPU; `bounds` as for `compiled`."""
    runs = "".join(
        f"""static void call_{name}() {{ invoke({name}); }}
extern "C" int run_{name}(const unsigned *grid, long long shared, int descending, void **arguments) {{
  given = arguments;
  return hpfem_host::launch(call_{name}, {{grid[0], grid[1], grid[2]}}, THREADS, shared, descending);
}}
"""
        for name in names
    )
    text = HOST + HARNESS + source.replace('extern "C" __global__', "static")
    return compiled(text + runs, folder, bounds)


# The arguments of a launch are the library's.
_ONE = threading.Lock()


def run(own, name, blocks, sums, *arguments, descending=False, guard=None, shared=None):
    """Launch a kernel; arguments are NumPy scalars, arrays, or None. With a guard, shared memory is at the border.

    `blocks` is their number, or a grid.
    """
    grid = (ctypes.c_uint * 3)(*(blocks if isinstance(blocks, tuple) else (blocks, 1, 1)))
    shared = sum_bytes(sums) if shared is None else shared
    values = [
        np.array(a) if isinstance(a, np.generic) else np.array(0 if a is None else a.ctypes.data, np.uint64)
        for a in arguments
    ]
    pointers = (ctypes.c_void_p * len(values))(*[v.ctypes.data for v in values])
    with _ONE, shared_at(guard, own, shared):
        outcome = getattr(own, f"run_{name}")(grid, ctypes.c_longlong(shared), int(descending), pointers)
    assert outcome == 0


MAKERS = (
    "count_entries",
    "end_of_several",
    "sort_keys",
    "rank_columns",
    "slice_lengths",
    "place_entries",
    "order_entries",
)
MAKERS += ("part_lengths", "part_entries", "move_codes", "move_rows")
_launch, _folder = indexed._launch, cache(lambda: tempfile.TemporaryDirectory())


def launch(index, name, n, *arguments):
    """Make index tables of NumPy's arrays on the CPU, others where they are; last threads first."""
    if not isinstance(arguments[-1], np.ndarray):
        _launch(index, name, n, *arguments)
    elif n:
        own = library(indexed.tables_source(np.dtype(index)), MAKERS, _folder().name)
        run(own, name, -(-n // indexed.THREADS), 0, np.int64(n), *arguments, descending=True, shared=0)


indexed._launch = launch


def index_tables(Q, keep=None):
    """Those of a matrix, on the CPU."""
    return IndexTables(Q, keep)


class HostVectors:
    """`ConjugateVectors`, with the kernels on the CPU."""

    def __init__(self, own, b, tol, inverse, blocks=3, most=1000, owned=None, add=None, rough=None, free=None):
        self.own, self.inverse, self.blocks, self.n = own, inverse, blocks, np.int64(len(b))
        # Kernels for z in float32, given where it is free, and r as M takes it.
        self.rough, self.free = own if rough is None else rough, free
        self.copy = None if rough is None else np.where(free, b, 0).astype(np.float32)
        self.owned, self.add = owned, add
        self.x, self.r, self.p, self.q = np.zeros_like(b), b.copy(), np.full_like(b, np.nan), np.full_like(b, np.nan)
        self.pq, self.rr, self.rz = np.full((3, blocks), np.nan)
        self.control = np.zeros(1, CONTROL)
        self.control["scale"], self.control["tolerance"] = np.linalg.norm(b.astype(float)), tol
        self.control["most"] = most
        self.dots(self.r, self.r, self.rr)
        if inverse is not None:
            self.dots(self.r, self.r * inverse, self.rz)

    def dots(self, a, b, partials):
        """Sums of a.b."""
        own, free = (self.own, None) if b.dtype == a.dtype else (self.rough, self.free)
        run(own, "dots", self.blocks, 1, self.n, a, b, free, self.owned, partials, None)

    def sums(self, first, second):
        """As `CudaConjugateVectors._sums`."""
        if self.add is None:
            return np.int32(self.blocks), first, second
        totals = [own.copy() for own in (first, second)]
        for total in totals:
            self.add(total)
        return np.int32(self.blocks), *totals

    def direction(self, z=None):
        """As `update_direction`."""
        rz = self.rr if z is None and self.inverse is None else self.rz
        if z is not None:
            self.dots(self.r, z, rz)
        inverse = self.inverse if z is None else None
        rest = (*self.sums(self.rr, rz), self.r, self.r if z is None else z, self.free, inverse, self.x, self.p)
        run(self.rough, "direction", self.blocks, 2, self.n, self.control, *rest)

    def stop_if_done(self):
        """As there."""
        rest = (*self.sums(self.rr, self.rr), self.r, None, None, None, self.x, self.p)
        run(self.own, "direction", self.blocks, 2, self.n, self.control, *rest)

    def residual(self):
        """As `update_residual`."""
        self.dots(self.p, self.q, self.pq)
        rest = (*self.sums(self.pq, self.pq)[:2], self.q, self.inverse, self.owned, self.r, self.rr, self.rz)
        rest += (self.free, self.copy)
        run(self.rough, "residual", self.blocks, 2, self.n, self.control, *rest, descending=True)

    def iterate(self, product, M=None):
        """One iteration."""
        self.q = product(self.p)
        self.residual()
        self.direction(None if M is None else M(self.r if self.copy is None else self.copy))


def kernels(dtype, folder, shared=False, inverse=None, other=None):
    """Those of conjugate gradients."""
    return library(conjugate_source(dtype, inverse or dtype, shared, other), ("dots", "residual", "direction"), folder)
