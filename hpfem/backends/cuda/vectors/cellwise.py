"""Products with one matrix per group of cells on a GPU: by tensor cores in bfloat16, or by cuBLAS."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hpfem.shapes.cached import cached_property

from ...cellwise import CellwiseProduct, FactorisedMatrix
from ...restriction import BlockMatrix
from ..codegen.prelude import source_with
from ..runtime.device import current_device, limits, upload
from ..runtime.kernel import begin, functions
from .indexed import IndexedRestriction, bits_at, entity_key, index_type, places_of

WARP = 32
# Rows of a matrix (two tiles of 8), columns and elements that a warp multiplies at a time.
_ROWS, _COLUMNS, _ELEMENTS = 16, 16, 16
# Pairs of tiles of sums that a thread holds, 8 numbers each; those of rows take up to so many warps.
_PAIRS, _MOST_WARPS = 8, 16
# Warps of a block at least, and tiles of elements if there is room. Blocks are small: some read while others multiply.
_WARPS, _ELEMENT_TILES = 4, 2
# Elements with as many modes, for each multiprocessor, from which on a warp has more than one tile of them.
_MANY = 32
# The first architecture with bfloat16, and shared memory that a block may take on all of them.
_LEAST, _SHARED = 80, 96 << 10
# Numbers that a thread reads at a time.
_SIDE = 8
# What a block of threads multiplies: `Piece` of `cellwise.h`.
PIECE = np.dtype([("row", "i8")] + [(name, "i4") for name in ("elements", "matrix", "table", "unused")])
# Threads of a multiprocessor, by the sums and the words of the matrix that each holds.
_ON_MULTIPROCESSOR = {24: 1280, 48: 1024, 128: 512}


def bfloat16(values: NDArray[np.floating[Any]]) -> NDArray[np.uint16]:
    """Round finite numbers to bfloat16."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def has_bfloat16(architecture: str) -> bool:
    """Tell whether the tensor cores of a GPU multiply bfloat16."""
    return int(architecture.removeprefix("sm_")) >= _LEAST


def _stride(n: int) -> int:
    """Words between the elements in shared memory, two given numbers in each: no banks are hit twice."""
    return _COLUMNS // 2 * -(-n // _COLUMNS) + 4


def _words(n: int) -> int:
    """Words of an element in shared memory: its given numbers, and later one sum in each."""
    return max(_stride(n), n)


@dataclass(frozen=True, eq=False)
class MatrixTiles:
    """A square matrix of n rows in bfloat16, and who multiplies what, as `cellwise.h` wants it."""

    n: int
    element_warps: int
    element_tiles: int
    mode_warps: int
    mode_pairs: int
    words: NDArray[np.uint32]

    @classmethod
    def of(cls, matrix: NDArray[np.float64], tiles: int = _ELEMENT_TILES) -> MatrixTiles | None:
        """Tiles of a matrix, if a block's threads can hold its sums; matrix [n, n]; tiles of elements at most."""
        n = len(matrix)
        pairs = -(-n // _ROWS)
        warps = min(_MOST_WARPS, 1 << (pairs - 1).bit_length())
        own = -(-pairs // warps)
        room = _SHARED // (4 * _ELEMENTS * max(1, _WARPS // warps) * _words(n))
        if own > _PAIRS or room == 0:
            return None
        columns = -(-n // _COLUMNS)
        padded = np.zeros((own * warps * _ROWS, columns * _COLUMNS), np.uint16)
        padded[:n, :n] = bfloat16(matrix)
        # [pair, tile, row, tile of columns, half, word, number] in the order of lanes: a row's word
        parts = padded.reshape(own * warps, 2, _ROWS // 2, columns, 2, 4, 2).transpose(0, 3, 2, 5, 1, 4, 6)
        element_tiles = max(1, min(tiles, _PAIRS // own, room))
        return cls(n, max(1, _WARPS // warps), element_tiles, warps, own, np.ascontiguousarray(parts).view(np.uint32))

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return WARP * self.element_warps * self.mode_warps

    @property
    def elements(self) -> int:
        """Elements of a block."""
        return _ELEMENTS * self.element_warps * self.element_tiles

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        return 4 * self.elements * _words(self.n)

    def source(self, index: DTypeLike) -> str:
        """Source of the kernel."""
        types, held = {"real": np.float32, "Index": index}, 8 * self.mode_pairs * (self.element_tiles + 1)
        constants = {
            **{"MODES": self.n, "THREADS": self.threads, "SIDE": _SIDE},
            **{"BLOCKS": next(n for most, n in _ON_MULTIPROCESSOR.items() if held <= most) // self.threads},
            **{"ELEMENT_WARPS": self.element_warps, "ELEMENT_TILES": self.element_tiles},
            **{"MODE_WARPS": self.mode_warps, "MODE_PAIRS": self.mode_pairs},
        }
        return source_with(types, constants, "codegen/restriction.h", "vectors/cellwise.h")


@lru_cache(maxsize=512)
def _given(key: tuple[bytes, bytes], n: int, elements: int, count: int) -> NDArray[np.uint16]:
    """Places of given numbers in a tile of so many elements; -> [elements * n]."""
    table, (offset, size, within) = np.zeros(elements * n, dtype=np.uint16), places_of(*key)
    element = np.arange(count)[:, None]
    table[offset * count + element * size + within] = 2 * _stride(n) * element + np.arange(n)
    return table


def pieces(n: int, elements: int, sizes: Sequence[int]) -> tuple[NDArray[np.void], list[int]]:
    """Divide the elements of blocks with a matrix [n, n] each, as `cellwise.h` wants; and their numbers by table."""
    parts, row = list[NDArray[np.void]](), 0
    for number, size in enumerate(sizes):
        first = np.arange(0, size, elements)
        found = np.zeros(len(first), PIECE)
        found["row"], found["elements"] = row + n * first, np.minimum(size - first, elements)
        found["matrix"], row = number, row + size * n
        parts.append(found)
    result = np.concatenate(parts)
    counts, result["table"] = np.unique(result["elements"], return_inverse=True)
    return result, counts.tolist()


def layout(key: tuple[bytes, bytes], elements: int, counts: Sequence[int]) -> tuple[NDArray[np.uint16], ...]:
    """Places in tiles of elements, by an `entity_key`, for `cellwise.h`; -> [n, 4], given [counts, elements * n]."""
    places = places_of(*key)
    tables = np.stack([_given(key, places.shape[1], elements, count) for count in counts])
    return np.ascontiguousarray(np.vstack([places, 0 * places[:1]]).T.astype(np.uint16)), tables


# Kept on a device, as they depend on sizes and on classes of cells alone: changes of basis are made in both directions,
# and for every problem.
@lru_cache(maxsize=64)
def _on_device(
    key: tuple[bytes, bytes], elements: int, sizes: tuple[int, ...], device: str
) -> tuple[int, Any, tuple[Any, ...]]:
    """The number of `pieces`, these, and their `layout`."""
    found, counts = pieces(len(key[1]) // 8, elements, sizes)
    return len(found), upload(found.view(np.uint8)), tuple(map(upload, layout(key, elements, counts)))


@lru_cache(maxsize=32)
def _words_on_device(matrices: tuple[MatrixTiles, ...], device: str) -> Any:
    return upload(np.stack([own.words for own in matrices]))


class _Tiled:
    """Products of matrices with blocks of Q from `first` on, in one launch, on numbers entity by entity in tiles."""

    def __init__(
        self, matrices: Sequence[MatrixTiles], restriction: IndexedRestriction, first: int, every: Sequence[int]
    ) -> None:
        tiles, codes, device = matrices[0], restriction.codes(first), current_device().name
        self.first, self.elements, self._tiles = first, tiles.elements, tiles
        sizes = tuple(restriction.codes(number).shape[0] for number in range(first, first + len(matrices)))
        self._blocks, found, tables = _on_device(entity_key(codes), tiles.elements, sizes, device)
        self._Q, words = restriction.tiled(every, first), _words_on_device(tuple(matrices), device)
        self._arrays = found, *self._Q, words, *tables
        source, shared = tiles.source(self._Q[0].dtype), tiles.shared_bytes
        (self._function,) = functions(source, device, "cellwise", shared_bytes=shared)

    def __call__(self, x: Any, weights: Any, out: Any) -> None:
        """Write local numbers, those of one vector; out is that of the first block, which the others follow."""
        if self._blocks:
            arguments = *self._arrays, x, np.uint64(0) if weights is None else weights, out
            self._function((self._blocks,), (self._tiles.threads,), arguments, shared_mem=self._tiles.shared_bytes)


def _in_few_launches(operands: Sequence[Any], restriction: Any) -> list[Any]:
    """Join the tiles of blocks that follow each other and have the same modes."""
    found, blocks = list[Any](), [restriction.codes(number) for number in range(len(operands))]
    tiles = [own.elements if isinstance(own, MatrixTiles) else 0 for own in operands]
    kinds = [(*own.modes, *own.sizes) if tiles[i] else i for i, own in enumerate(blocks)]
    for _, numbers in groupby(range(len(operands)), kinds.__getitem__):
        first, *more = numbers
        some = operands[first : first + 1 + len(more)]
        found += [_Tiled(some, restriction, first, tiles)] * len(some) if tiles[first] else some
    return found


def _tiles_of(M: FactorisedMatrix, tiles: int) -> MatrixTiles | None:
    return MatrixTiles.of(M.dense, tiles)


def _element_tiles(Q: BlockMatrix) -> dict[int, int]:
    """Tiles of elements of a warp at most, by the modes of an element."""
    counts, many = Counter[int](), _MANY * limits().multiprocessors
    for own in Q.blocks:
        counts[own.shape[1]] += own.shape[0]
    return {n: _ELEMENT_TILES if count >= many else 1 for n, count in counts.items()}


def begin_tiles(Q: BlockMatrix) -> None:
    """Begin to compile products with blocks of Q, which differ by their sizes alone."""
    for n, most in _element_tiles(Q).items():
        if (tiles := MatrixTiles.of(np.broadcast_to(0.0, (n, n)), most)) is not None:
            begin(tiles.source(index_type(Q)))


class CudaCellwise(CellwiseProduct):
    """Products on a GPU; see `CellwiseProduct`. Nothing is allocated but results."""

    def _operands(self, matrices: Sequence[FactorisedMatrix], restriction: Any) -> list[Any]:
        operands, tiles_of = list[Any](), _element_tiles(self._Q) if self._rough and self._dtype == np.float32 else {}
        for M, own in zip(matrices, self._Q.blocks, strict=True):
            most = tiles_of.get(own.shape[1])
            tiles = None if most is None else M.kept((MatrixTiles, most), partial(_tiles_of, M, most))
            operands.append(self._dense(M.dense) if tiles is None else tiles)
        return _in_few_launches(operands, restriction)

    def _new_scratch(self) -> list[tuple[Any, list[Any]]]:
        after = self._new_local()
        direct = all(isinstance(own, _Tiled) for own in [*self._there, *self._back])
        return [after if direct else self._new_local(), after]

    def _gathering(self, outer: bool) -> Any:
        operands = self._there if outer else self._back
        tiles = [own.elements if isinstance(own, _Tiled) else 0 for own in operands]
        return super()._gathering(outer).by_entity(tiles)

    def apply(self, x: Any, scale: Any = None, onto: Any = None, more: Callable[[Any, bool], Any] | None = None) -> Any:
        """As there; what processes share is written beside the rest; see `CellwiseProduct.apply`."""
        if more is None or self._spared is None:
            return super().apply(x, scale, onto, more)
        out = self._vectors.xp.empty_like(x) if onto is None else onto
        with self._in_all_cells(self.restriction, self._there, x) as local:
            back, given = self._gathering(True), None if onto is None else onto[None]
            gather = partial(back.gather, local, out=out[None], scale=scale, onto=given, spared=self._spared)
            self._vectors.beside([gather, partial(more, out, onto is not None)])
        return out

    def _sums(self, outer: bool, local: Any, scale: Any, onto: Any = None, spared: Any = None) -> Any:
        rows = None if onto is None else onto[None]
        return self._gathering(outer).gather(local, out=rows, scale=scale, onto=rows, spared=spared)[0]

    @cached_property
    def _spared(self) -> Any:
        """Their bits; None without such."""
        shared = self._vectors.shared
        return upload(bits_at(shared, self._Q.size)) if len(shared) else None

    def _in_cells(
        self, there: Any, operands: Sequence[Any], x: Any, weights: Any, given: Sequence[Any], out: Sequence[Any]
    ) -> None:
        tiled = [isinstance(own, _Tiled) for own in operands]
        if not all(tiled):
            x, weights = x if weights is None else weights * x, None
        there.scatter(x[None], [None if own else block for own, block in zip(tiled, given, strict=True)])
        calls = list[Any]()
        for number, (operand, source, target) in enumerate(zip(operands, given, out, strict=True)):
            if not tiled[number]:
                self._vectors.multiply(source[0], operand, target[0])
            elif number == operand.first:
                calls.append(partial(operand, x, weights, target))
        self._vectors.beside(calls)
