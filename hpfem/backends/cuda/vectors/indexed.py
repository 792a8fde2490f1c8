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

from ....geometry.element_map import chunks
from ....memory import as_numpy, moved
from ...restriction import BlockMatrix, Codes, ElementRestriction, row_entries
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
# Entries that are moved at a time, beside which there is little other memory.
AT_ONCE = 1 << 24
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


def entity_places(codes: Codes) -> NDArray[np.int64]:
    """Find the places of an element's modes where they stand entity by entity; -> [3, n_modes]."""
    return places_of(*entity_key(codes))


def entity_key(codes: Codes) -> tuple[bytes, bytes]:
    """What `entity_places` depends on."""
    return codes.sizes.astype(np.int64).tobytes(), codes.modes.astype(np.int64).tobytes()


@lru_cache(maxsize=256)
def places_of(sizes_of: bytes, modes: bytes) -> NDArray[np.int64]:
    """Find `entity_places` by their `entity_key`."""
    sizes = np.frombuffer(sizes_of, np.int64)
    offset = np.repeat(np.cumsum(sizes) - sizes, sizes)
    found = np.stack([offset, np.repeat(sizes, sizes), np.arange(len(offset)) - offset])
    return found[:, np.argsort(np.frombuffer(modes, np.int64))]


@lru_cache(maxsize=512)
def _tile(given: tuple[bytes, bytes], count: int, kind: Any, xp: Any, device: str) -> Any:
    """Places in a tile of so many elements, kept on the device, as tiles of all classes have few sizes; [count * n]."""
    offset, size, within = places_of(*given)
    table = offset * count + np.arange(count)[:, None] * size + within
    return moved(table.ravel().astype(kind), xp)


def _in_tiles(Q: BlockMatrix, tiles: Sequence[int], kind: Any, vectors: VectorSpace) -> Any:
    """Where blocks' local numbers are if they stand entity by entity in tiles of elements, unless a block's tile is 0;
    kept if they are few; -> [local], of a type of integers.
    """
    xp, key = vectors.xp, (*tiles, vectors.device.name)
    if key in Q.places:
        return Q.places[key]
    found = xp.empty(Q.starts[-1], kind)
    for own, start, given in zip(Q.blocks, Q.starts, tiles, strict=False):
        elements, n = own.shape
        if not given:
            found[start : start + elements * n] = xp.arange(start, start + elements * n, dtype=kind)
            continue
        whole = elements // given * given
        for count, first, last in ((given, 0, whole), (elements - whole, whole, elements)):
            if first < last:
                begins = xp.arange(start + first * n, start + last * n, count * n, dtype=kind)
                here = found[start + first * n : start + last * n].reshape(len(begins), -1)
                table = _tile(entity_key(own), int(count), np.dtype(kind), xp, vectors.device.name)
                xp.add(begins[:, None], table, out=here)
    if len(found) <= AT_ONCE:
        Q.places[key] = found
    return found


def index_type(Q: BlockMatrix) -> Any:
    """Type of the numbers of rows, columns and entries."""
    return np.int32 if 2 * max(Q.starts[-1] + Q.rows.nnz, Q.size) + 2 < 2**31 else np.int64


class IndexTables:
    """A sparse matrix Q [local, global] as `indexed.h` wants it, with 32-bit indices where they are enough.

    Only columns to keep [global] count, if given; row 0 of `Q.rows` is empty then. For scatter there are the `codes` of
    all rows, and those that are not one entry +-1 as a CSR matrix: row_starts, columns, values. For gather there are
    columns in the `order` in which they are summed up, those before `single`, after which each has one entry; where the
    entries of their slices start, and their codes; and the rows and values of those that are not +-1.
    """

    def __init__(
        self, Q: BlockMatrix, keep: NDArray[np.bool_] | None = None, vectors: VectorSpace = HOST_VECTORS
    ) -> None:
        self.size, rows, kind = Q.size, Q.rows, index_type(Q)
        xp, on = vectors.xp, partial(moved, xp=vectors.xp)
        self.starts = on(np.asarray(Q.starts, dtype=kind))
        self.codes = Q.on(xp).astype(kind, copy=False)
        several, given = np.empty(0, dtype=kind), np.empty(0, dtype=np.int64)
        if not Q.signed:
            there = (self.codes < 0).nonzero()[0].astype(kind)
            several, given = as_numpy(there), as_numpy(self.codes[there]).astype(np.int64)
        if keep is not None:
            kept = keep[rows.indices]
            ends = np.concatenate([[0], np.cumsum(kept)])[rows.indptr]
            rows = csr_array((rows.data[kept], rows.indices[kept], ends), shape=rows.shape)
            self.codes = xp.where((self.codes >= 0) & on(~keep)[self.codes >> 1], -1, self.codes)
        self.row_starts, self.columns = (on(part.astype(kind)) for part in (rows.indptr, rows.indices))
        self.values = on(rows.data)

        entries, counts = row_entries(rows, -1 - given)
        columns = rows.indices[entries]
        self.entry_rows = on(np.repeat(several, counts).astype(kind))
        self.entry_values = on(rows.data[entries])
        # Entries of columns, in a fixed order: first those that are +-1, by rows.
        place = (self.codes >= 0).nonzero()[0].astype(kind)
        single = self.codes[place]
        keys = xp.concatenate([single >> 1, on(columns.astype(kind))])
        codes = xp.concatenate([place << 1 | single & 1, on(-2 - np.arange(len(columns), dtype=kind))])
        entries = _stable(keys)
        columns = keys[entries]
        starts = xp.searchsorted(columns, xp.arange(Q.size + 1, dtype=kind))
        counts = xp.diff(starts)
        not_one = (counts != 1).nonzero()[0]
        self.single = int(not_one[-1]) + 1 if len(not_one) else 0
        # Columns by parts of their first rows, those with as many entries together, and with most first.
        first = xp.append(xp.concatenate([place, self.entry_rows])[entries], 0)[starts[:-1]]
        parts = xp.where(counts > 0, first, 0)[: self.single] // ORDERED
        self.order = _stable(parts.astype(np.int64) * (len(columns) + 1) - counts[: self.single]).astype(kind)
        rank = xp.arange(Q.size)
        rank[self.order] = xp.arange(self.single)
        padded = xp.zeros(-(-Q.size // SLICE) * SLICE, dtype=np.int64)
        padded[rank] = counts
        widths = padded.reshape(-1, SLICE).max(axis=1)
        self.slice_starts = xp.concatenate([xp.zeros(1, dtype=np.int64), xp.cumsum(SLICE * widths)])
        self.entry_codes = xp.full(int(self.slice_starts[-1]), -1, dtype=kind)
        at, among = rank[columns], xp.arange(len(columns)) - starts[columns]
        self.entry_codes[self.slice_starts[at // SLICE] + SLICE * among + at % SLICE] = codes[entries]
        finish(xp)

    def part(self, columns: Any, xp: Any) -> tuple[Any, Any]:
        """Take the entries of some columns, in the same order; columns [n]."""
        n, rank = len(columns), xp.arange(self.size)
        rank[self.order] = xp.arange(self.single)
        at = rank[columns]
        first = self.slice_starts[at // SLICE]
        widths = (self.slice_starts[at // SLICE + 1] - first) // SLICE
        padded = xp.zeros(-(-n // SLICE) * SLICE, dtype=np.int64)
        padded[:n] = widths
        starts = xp.concatenate([xp.zeros(1, np.int64), xp.cumsum(SLICE * padded.reshape(-1, SLICE).max(axis=1))])
        codes, first = xp.empty(int(starts[-1]), self.entry_codes.dtype), first + at % SLICE
        for part in chunks(len(codes), 1, most=AT_ONCE):
            place = xp.arange(part.start, part.stop)
            row = xp.searchsorted(starts, place, "right") - 1
            among, row = (place - starts[row]) // SLICE, SLICE * row + place % SLICE
            there = among < padded[row]
            given = xp.where(there, first[xp.minimum(row, n - 1)] + SLICE * among, 0)
            codes[part] = xp.where(there, self.entry_codes[given], -1)
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
        found.entry_codes, found.entry_rows = self.entry_codes.copy(), self.entry_rows.copy()
        places = _in_tiles(Q, tiles, self.codes.dtype, vectors)
        for codes, bits in ((found.entry_codes, 1), (found.entry_rows, 0)):
            for part in chunks(len(codes), 1, most=AT_ONCE):
                here = codes[part]
                codes[part] = xp.where(here >= 0, (places[xp.maximum(here, 0) >> bits] << bits) | (here & bits), here)
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
        tables.values, tables.entry_values = tables.values.astype(dtype), tables.entry_values.astype(dtype)
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
            xp, given = self._vectors.xp, self._tables.codes
            codes = xp.empty_like(given)
            codes[_in_tiles(self._Q, tiles, given.dtype, self._vectors)] = given
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
                        np.int64(n), np.int64(0), a.starts, a.order, slice_starts, codes, a.entry_rows, a.entry_values,
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
                a.entry_rows, a.entry_values, local, none if vector is None else vector,
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
