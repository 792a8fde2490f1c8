"""Sparse matrices on the device: nearly all entries +-1, by index tables (`indexed.h`), and in CSR (`sparse.h`).

In Q^T A Q local numbers are in memory twice: a kernel writes them, and `gather` sums them up. So kernels of products
leave results entity by entity (`result_place` in `codegen/helpers.h`), as `gather` reads them: numbers of an edge or a
face lie in one sector of memory. Whether a kernel reads the global vector itself or local coefficients is found by a
few launches of both at the first product; the results are the same to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array

from hpfem.shapes.cached import cached_property

from ....memory import moved
from ...restriction import BlockMatrix, Codes, ElementRestriction
from ...vectors import HOST_VECTORS, VectorSpace
from ..codegen.prelude import source_with
from ..runtime.device import current_device, limits, upload
from ..runtime.kernel import functions
from ..runtime.lazy import cupy

THREADS = 256
# Columns of a slice.
SLICE = 32
# Blocks on a multiprocessor of kernels that sum, and of `gather`: as many as run at once.
SUM_BLOCKS, GATHER_BLOCKS = 6, 6
# Rows that a thread of `scatter` takes at a time; half of them with several components.
ROWS = 8
# Columns that a thread of `gather` sums up, at a time if there is one component. Where columns have as many entries in
# the mean it takes one, since more loads under way would drive each other out of the cache; and where there are fewer
# columns, as threads are few then.
COLUMNS, LONG, FEWEST = 2, 3.0, 4_000_000
# Entries of a column that a thread takes at first, and later at a time, by columns at a time: what registers hold.
FEW, MANY = 2, {1: 6, 2: 4}
# Sums that the blocks of `gather` may leave; if there are more, they are folded to so many.
MOST_SUMS, FOLDED = 1024, 64
# Rows whose columns `gather` sums up at one time; those of some such parts fit the second cache.
ORDERED = 1 << 18
Indices = NDArray[np.integer[Any]]


def sum_bytes(sums: int) -> int:
    """Shared memory that sums over a block take."""
    return 8 * sums * (THREADS + 32)


def rows_per_thread(components: int) -> int:
    """Rows that a thread of `scatter` takes at a time: fewer with several components."""
    return ROWS if components == 1 else ROWS // 2


def bits_at(places: Indices, size: int) -> NDArray[np.uint32]:
    """A bit for each of so many entries, set at some different places; -> [size / 32]."""
    words = np.zeros(-(-size // 32), np.uint32)
    np.add.at(words, places >> 5, np.uint32(1) << (places & 31).astype(np.uint32))
    return words


def _stable(keys: Any) -> Any:
    """Places of an array in ascending order, equal ones as they come."""
    return keys.argsort(kind="stable") if isinstance(keys, np.ndarray) else keys.argsort()  # CuPy's is stable


def finish(xp: Any) -> None:
    """Wait for the current stream of a device, so that all streams can read what was made."""
    if xp is not np:
        xp.cuda.get_current_stream().synchronize()


def entity_key(codes: Codes) -> tuple[bytes, bytes]:
    """What `places_of` depends on."""
    return codes.sizes.astype(np.int64).tobytes(), codes.modes.astype(np.int64).tobytes()


@lru_cache(maxsize=256)
def places_of(sizes_of: bytes, modes: bytes) -> NDArray[np.int64]:
    """Find places of an element's modes that stand entity by entity, by their `entity_key`; -> [3, n_modes]."""
    sizes = np.frombuffer(sizes_of, np.int64)
    offset = np.repeat(np.cumsum(sizes) - sizes, sizes)
    found = np.stack([offset, np.repeat(sizes, sizes), np.arange(len(offset)) - offset])
    return found[:, np.argsort(np.frombuffer(modes, np.int64))]


@lru_cache
def tables_source(index: Any) -> str:
    """Source of the kernels that make tables."""
    return source_with({"Index": index}, {"THREADS": THREADS, "ORDERED": ORDERED}, "vectors/tables.h")


def _launch(index: Any, name: str, n: int, *arguments: Any) -> None:
    """Launch a kernel of `tables.h` with a thread for each of n, its first argument."""
    (function,) = functions(tables_source(index), current_device().name, name)
    if n:
        function((-(-n // THREADS),), (THREADS,), (np.int64(n), *arguments))


def _tiles(Q: BlockMatrix, tiles: Sequence[int], on: Callable[[Any], Any]) -> tuple[Any, Any]:
    """Numbers and places of `Tiles` in `tables.h`."""
    keys = list(map(entity_key, Q.blocks))
    places = {key: places_of(*key).astype(np.int32).ravel() for key in keys}
    begins = dict(zip(places, np.cumsum([0, *map(len, places.values())]).tolist(), strict=False))
    numbers = [(own.shape[1], tile, begins[key]) for own, tile, key in zip(Q.blocks, tiles, keys, strict=True)]
    return on(np.array(numbers, np.int32)), on(np.concatenate(list(places.values())))


def index_type(Q: BlockMatrix) -> Any:
    """Type of the numbers of rows, columns and entries."""
    return np.int32 if 2 * max(Q.starts[-1] + Q.rows.nnz, Q.size) + 2 < 2**31 else np.int64


class IndexTables:
    """A sparse matrix Q [local, global] as `indexed.h` wants it, with 32-bit indices where they are enough.

    Only columns to keep [global] count, if given; row 0 of `Q.rows` is empty then. For scatter there are the `codes` of
    all rows, and those that are not one entry +-1 as a CSR matrix: row_starts, columns, values. For gather there are
    columns in the `order` in which they are summed up, those before `single`, after which each has one entry; where the
    entries of their slices start, and their codes; and the rows of those that are not +-1. Each of `Q.rows` is one row.
    """

    def __init__(
        self, Q: BlockMatrix, keep: NDArray[np.bool_] | None = None, vectors: VectorSpace = HOST_VECTORS
    ) -> None:
        self.size, rows, kind, xp = Q.size, Q.rows, index_type(Q), vectors.xp
        on, launch, n, size = partial(moved, xp=xp), partial(_launch, kind), Q.starts[-1], np.int64(Q.size)
        self.starts = on(np.asarray(Q.starts, dtype=kind))
        self.codes = Q.on(xp).astype(kind, copy=keep is not None)
        if keep is not None:
            kept = keep[rows.indices]
            ends = np.concatenate([[0], np.cumsum(kept)])[rows.indptr]
            rows = csr_array((rows.data[kept], rows.indices[kept], ends), shape=rows.shape)
        self.row_starts, self.columns = (on(part.astype(kind)) for part in (rows.indptr, rows.indices))
        self.values, self.entry_rows = on(rows.data), xp.zeros(rows.nnz, kind)
        given, slices = (self.codes, self.row_starts, self.columns), -(-Q.size // SLICE)
        counts, first, single = xp.zeros(size, np.int32), xp.zeros(size, kind), xp.zeros(1, np.int64)
        keys, rank, lengths = xp.empty(size, np.int64), xp.empty(size, kind), xp.zeros(slices + 1, np.int64)
        kept = np.uint64(0) if keep is None else on(keep)
        launch("count_entries", n, kept, *given, self.entry_rows, counts, first)
        launch("end_of_several", Q.size, counts, single)
        launch("sort_keys", Q.size, np.int64(n), counts, first, single, keys)
        order = _stable(keys).astype(kind)
        launch("rank_columns", Q.size, single, order, rank)
        launch("slice_lengths", slices, size, single, order, counts, lengths)
        self.slice_starts, self.single = xp.cumsum(lengths), int(single[0])
        self.order = order[: self.single].copy()
        self.entry_codes = xp.full(int(self.slice_starts[-1]), -1, dtype=kind)
        launch("place_entries", n, *given, rank, self.slice_starts, counts, self.entry_codes)
        launch("order_entries", Q.size, self.slice_starts, self.entry_codes)
        finish(xp)

    def part(self, columns: Any, xp: Any) -> tuple[Any, Any]:
        """Take the entries of some columns, in the same order; columns [n]."""
        n, kind = len(columns), self.codes.dtype
        launch, slices = partial(_launch, kind), -(-n // SLICE)
        rank, lengths = xp.empty(self.size, kind), xp.zeros(slices + 1, np.int64)
        given = columns.astype(np.int64, copy=False), rank, self.slice_starts
        launch("rank_columns", self.size, xp.full(1, self.single, np.int64), self.order, rank)
        launch("part_lengths", slices, np.int64(n), *given, lengths)
        starts = xp.cumsum(lengths)
        codes = xp.full(int(starts[-1]), -1, dtype=kind)
        launch("part_entries", n, *given, self.entry_codes, starts, codes)
        finish(xp)
        return starts, codes

    @property
    def columns_each(self) -> int:
        """Columns that a thread of `gather` sums up."""
        return 1 if self.entry_codes.size >= LONG * self.size or self.size < FEWEST else COLUMNS

    def gather_blocks(self, n: int) -> int:
        """Count the blocks of `gather`."""
        return max(1, -(-n // (THREADS * self.columns_each)))

    def by_entity(self, Q: BlockMatrix, tiles: Sequence[int], vectors: VectorSpace) -> IndexTables:
        """Tables for gather of local numbers that stand entity by entity in tiles of elements."""
        found, xp = copy(self), vectors.xp
        found.entry_codes, found.entry_rows = map(xp.empty_like, (self.entry_codes, self.entry_rows))
        given = np.int32(len(Q.blocks)), self.starts, *_tiles(Q, tiles, partial(moved, xp=xp))
        for name, bits in (("entry_codes", 1), ("entry_rows", 0)):
            codes, out = getattr(self, name), getattr(found, name)
            _launch(codes.dtype, "move_codes", len(codes), *given, np.int32(bits), codes, out)
        finish(xp)
        return found

    def source(self, real: DTypeLike, components: int) -> str:
        """Source of the kernels."""
        types, at_once = {"real": real, "Index": self.codes.dtype}, self.columns_each if components == 1 else 1
        many = max(1, 4 * MANY[at_once] // (self.codes.dtype.itemsize * components))
        constants = {
            # One component: a row's place is its number, and kernels are the same for any blocks.
            **{"COMPONENTS": components, "BLOCKS": len(self.starts) - 1 if components > 1 else 1, "THREADS": THREADS},
            **{"ROWS": rows_per_thread(components), "GATHER_BLOCKS": GATHER_BLOCKS},
            **{"COLUMNS": at_once, "PASSES": self.columns_each // at_once},
            **{"FEW": min(FEW, many), "MANY": many},
        }
        return source_with(types, constants, "codegen/reduction.h", "codegen/restriction.h", "vectors/indexed.h")


def sum_blocks(n: int) -> int:
    """Blocks of a kernel that sums on the current device; each leaves a sum."""
    return max(1, min(-(-n // THREADS), SUM_BLOCKS * limits().multiprocessors))


class IndexedRestriction(ElementRestriction):
    """Q on a GPU. Kernels run on the current stream; nothing is allocated but results that nobody gives."""

    def __init__(self, Q: BlockMatrix, vectors: VectorSpace, dtype: DTypeLike, keep: Any = None) -> None:
        self._keep, self._vectors, tables = keep, vectors, IndexTables(Q, keep, vectors)
        self.size, self._device = tables.size, vectors.device
        self._take(Q, dtype, tables)

    def _take(self, Q: BlockMatrix, dtype: DTypeLike, tables: IndexTables) -> None:
        self._Q, self._dtype, self._tables = Q, np.dtype(dtype), tables
        codes = self._tables.codes
        self._codes = [codes[a:b] for a, b in zip(Q.starts, Q.starts[1:])]
        self._kernels: dict[int, tuple[Any, ...]] = {}
        self._sums = self._vectors.pool()
        self._by_entity: dict[tuple[int, ...], IndexedRestriction] = {}
        self._in_tiles: dict[tuple[int, ...], Any] = {}

    def at(self, Q: BlockMatrix, dtype: DTypeLike) -> IndexedRestriction:
        """Make the same with these tables; see `ElementRestriction.at`."""
        if not np.can_cast(dtype, self._dtype):  # entries here are rounded
            return IndexedRestriction(Q, self._vectors, dtype, self._keep)
        found, tables = copy(self), copy(self._tables)
        tables.values = tables.values.astype(dtype)
        finish(self.xp)
        found._take(Q, dtype, tables)
        return found

    def gather_squares(self, local: Sequence[Any]) -> Any:
        """Sum by the squares of entries, in a fixed order; see `ElementRestriction.gather_squares`."""
        codes = self._tables.codes
        signs, n = cupy.where(codes < 0, 0, 1 - 2 * (codes % 2)).astype(self._dtype), len(local[0])
        if n > 1:
            signs = cupy.concatenate([cupy.tile(signs[a:b], n) for a, b in pairwise(self._Q.starts)])
        signed = cupy.concatenate([own.reshape(-1) for own in local]) * signs
        return self.gather(signed.astype(self._dtype, copy=False)).astype(np.float64)

    def by_entity(self, tiles: Sequence[int]) -> IndexedRestriction:
        """Make what gathers local numbers that stand entity by entity in tiles of elements, or find it made."""
        key = tuple(map(int, tiles))
        if not any(key):
            return self
        if key not in self._by_entity:
            other = copy(self)
            other._tables = self._tables.by_entity(self._Q, key, self._vectors)
            other._by_entity = {}  # it must not hold itself: its memory is to be free as soon as nobody uses it
            self._by_entity[key] = other
        return self._by_entity[key]

    @property
    def xp(self) -> Any:
        """Module of its arrays."""
        return self._vectors.xp

    def codes(self, number: int) -> Codes:
        """Codes of a block."""
        return self._Q.blocks[number]

    def block(self, number: int) -> tuple[Any, ...]:
        """Rows of one block, for other kernels."""
        return self._codes[number], *self._rows

    @property
    def _rows(self) -> tuple[Any, Any, Any]:
        return self._tables.row_starts, self._tables.columns, self._tables.values

    def tiled(self, tiles: Sequence[int], first: int) -> tuple[Any, ...]:
        """Rows of blocks entity by entity in tiles of elements, from a block on."""
        if (key := tuple(tiles)) not in self._in_tiles:
            xp, a = self._vectors.xp, self._tables
            codes, given = xp.empty_like(a.codes), _tiles(self._Q, key, partial(moved, xp=xp))
            _launch(codes.dtype, "move_rows", len(codes), np.int32(self.n_blocks), a.starts, *given, a.codes, codes)
            finish(xp)
            self._in_tiles[key] = codes
        return self._in_tiles[key][self._Q.starts[first] :], *self._rows

    def gather_some(self, columns: Any) -> Callable[..., Any]:
        """Make what sums local numbers for some columns alone; see `ElementRestriction.gather_some`."""
        a, none, n = self._tables, np.uint64(0), len(columns)
        here = columns if self._vectors.has(columns) else self._vectors.from_host(columns)
        slice_starts, codes = a.part(here, self._vectors.xp) if n else (none, none)

        def gather(local: Any, onto: Any = None, factor: float = 1.0) -> Any:
            out = self._device.empty((self._components(local), n), self._dtype)
            if n:
                self._kernel(len(out))[1](
                    (a.gather_blocks(n),),
                    (THREADS,),
                    (
                        np.int64(n), np.int64(0), a.starts, a.order, slice_starts, codes, a.entry_rows, a.values,
                        local, none, none, none if onto is None else onto, np.full((), factor, self._dtype)[()], none,
                        out, none, none,
                    ),
                    shared_mem=sum_bytes(1),
                )  # fmt: skip
            return out

        return gather

    @cached_property
    def _between(self) -> Any:
        """Bits of the columns with entries that are exchanged, and of those without that another process counts; None
        without such.
        """
        shared, ghosts, keep = self._vectors.shared, self._vectors.ghosts, self._keep
        places = shared if keep is None else np.concatenate([shared[keep[shared]], ghosts[~keep[ghosts]]])
        return upload(bits_at(places, self.size)) if len(places) else None

    def _components(self, local: Any) -> int:
        """Components of local numbers; 1 if there are no numbers."""
        return max(1, local.size // max(1, len(self._tables.codes)))

    @property
    def n_blocks(self) -> int:
        """Blocks of the space."""
        return len(self._codes)

    @property
    def blocks(self) -> int:
        """Sums that `gather` leaves."""
        blocks = self._tables.gather_blocks(self.size)
        return blocks if blocks <= MOST_SUMS else FOLDED

    def source(self, real: DTypeLike, components: int = 1) -> str:
        """Source of the kernels for numbers of a type."""
        return self._tables.source(real, components)

    def _kernel(self, components: int) -> tuple[Any, ...]:
        if components not in self._kernels:
            source = self.source(self._dtype, components)
            self._kernels[components] = functions(source, current_device().name, "scatter", "gather", "fold")
        return self._kernels[components]

    def scatter(self, vector: Any, targets: Sequence[Any], stop: Any = None) -> None:
        """Write local numbers, Q times global ones; see `ElementRestriction.scatter`."""
        function, each, calls = self._kernel(len(vector))[0], rows_per_thread(len(vector)) * THREADS, list[Any]()
        for codes, target in zip(self._codes, targets, strict=True):
            if target is not None and (n := len(codes)):
                given = codes, *self._rows, vector, target, np.uint64(stop or 0)
                arguments = np.int64(n), np.int64(self.size), *given
                calls.append(partial(function, (-(-n // each),), (THREADS,), arguments))
        self._vectors.beside(calls)

    def gather(
        self,
        local: Any,
        vector: Any = None,
        out: Any = None,
        partials: Any = None,
        stop: Any = None,
        scale: Any = None,
        onto: Any = None,
        factor: float = 1.0,
        spared: Any = None,
    ) -> Any:
        """See `ElementRestriction.gather`; entries that are `spared`, by bits, are not written."""
        none, a, blocks = np.uint64(0), self._tables, self._tables.gather_blocks(self.size)
        if out is None:
            out = self._device.empty((self._components(local), self.size), self._dtype)
        _, gather, fold = self._kernel(len(out))
        many = partials is not None and blocks > MOST_SUMS
        marked = spared if partials is None else self._between
        sums = self._sums.take(lambda: self._device.empty((blocks,), np.float64)) if many else partials
        gather(
            (blocks,),
            (THREADS,),
            (
                np.int64(self.size), np.int64(a.single), a.starts, a.order, a.slice_starts, a.entry_codes,
                a.entry_rows, a.values, local, none if vector is None else vector,
                none if scale is None else scale, none if onto is None else onto, np.full((), factor, self._dtype)[()],
                none if marked is None else marked, out, none if sums is None else sums, np.uint64(stop or 0),
            ),
            shared_mem=sum_bytes(1),
        )  # fmt: skip
        if many:
            arguments = np.int32(blocks), sums, partials, np.uint64(stop or 0)
            fold((FOLDED,), (THREADS,), arguments, shared_mem=sum_bytes(1))
            self._sums.give(sums)
        return out


# Threads of a row: the first that is no less than a third of the mean number of its entries; or, from eight on, than
# a part of it, if twice as many threads in all are more than run at once.
_LANES, _EACH, _MOST_EACH, _AT_ONCE = (1, 2, 4, 8, 16, 32, 64, 128, 256), 3, 32, 1 << 18


def lanes_of(rows: int, entries: int) -> int:
    """Threads of a row of a matrix of so many entries."""
    mean = entries / max(1, rows)
    enough = (n for n in _LANES[3:] if _MOST_EACH * n >= mean and 2 * n * rows > _AT_ONCE)
    return min([n for n in _LANES if _EACH * n >= mean][:1] + [*enough][:1] or [_LANES[-1]])


def source(real: DTypeLike, index: DTypeLike, lanes: int) -> str:
    """Source of the kernel."""
    return source_with({"real": real, "Index": index}, {"THREADS": THREADS, "LANES": lanes}, "vectors/sparse.h")


class SparseMatrix:
    """A CSR matrix [rows, columns] of SciPy or CuPy; `@` multiplies vectors, on the current stream."""

    def __init__(self, matrix: Any) -> None:
        self.shape = matrix.shape
        kind = np.int32 if matrix.nnz < 2**31 else np.int64
        parts = matrix.indptr.astype(kind, copy=False), matrix.indices.astype(kind, copy=False), matrix.data
        given = parts if not isinstance(matrix.data, np.ndarray) else map(upload, parts)
        (self._starts, self._columns, self._values), self._dtype = given, matrix.dtype
        self._lanes = lanes_of(matrix.shape[0], matrix.nnz)
        self._multiply, *_ = functions(source(self._dtype, kind, self._lanes), current_device().name, "multiply")

    def __matmul__(self, x: Any) -> Any:
        """Multiply a vector; x [columns] -> [rows]."""
        out = current_device().empty((self.shape[0],), self._dtype)
        self.write(x, out)
        return out

    def write(self, x: Any, out: Any, places: Any = None, onto: Any = None, factor: float = 1.0) -> None:
        """Write the product with a vector as `sparse.h` does; x [columns], places [rows] of int64."""
        rows, none = self.shape[0], np.uint64(0)
        if rows:
            shared = THREADS * self._dtype.itemsize
            sizes = ((-(-rows * self._lanes // THREADS),), (THREADS,))
            arrays = self._starts, self._columns, self._values, x.astype(self._dtype, copy=False)
            where = none if places is None else places, none if onto is None else onto
            arguments = np.int64(rows), *arrays, *where, np.full((), factor, self._dtype)[()], out
            self._multiply(*sizes, arguments, shared_mem=shared)
