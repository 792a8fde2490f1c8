"""Coefficients of a group from a global vector by signed indices, and results added to one.

A code is 2 * place, and 1 more where numbers are taken negative. The numbers of an entity of an element (an edge, a
face, its interior) mostly stand side by side in a vector: they have one code, and go through registers as an element's
do in `transpose`. Codes lie as [group, entity, lane] of i32; those of results are as many bytes behind those of
coefficients as the i64 before these says. Lanes past the last element repeat it, and add nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .ir import Builder, Index
from .levels import Integers
from .transpose import Layout, transposed, write_reader, write_writer

INDEX_BYTES = 4
CACHE_LINE = 64
_MODES_AHEAD = 128
Positions = NDArray[np.int64]
_ARGUMENTS = "ptr noalias %outside, ptr noalias %inside, ptr noalias %codes, i64 %left"


@dataclass(frozen=True)
class Runs:
    """Entities of an element with numbers that stand side by side, as many for each."""

    modes: tuple[tuple[int, ...], ...]  # of each entity
    signed: tuple[bool, ...]  # which of them have the sign of the code
    alone: bool = False  # results are stored: nothing else is added to their places


Indexed = Sequence[Runs] | None


def row_count(runs: Sequence[Runs]) -> int:
    """Number of codes of an element."""
    return sum(len(own.modes) for own in runs)


def codes_ahead(runs: Sequence[Runs]) -> int:
    """How many codes before their use numbers are fetched: memory needs the time that a hundred modes take."""
    modes = sum(len(own.modes) * len(own.signed) for own in runs)
    return max(1, _MODES_AHEAD // modes) * row_count(runs)


def codes_at(b: Builder, runs: Sequence[Runs], group: Index, results: bool) -> str:
    """What a reader or writer is given of a group: its codes, and the number of elements from it on."""
    codes = b.at("%codes", (group, row_count(runs)), unit=f"<{b.lanes} x i32>")
    if results:
        apart = b.new(f"load i64, ptr {b.at('%codes', (-1, 1), unit='i64')}, align 8")
        codes = b.new(f"getelementptr i8, ptr {codes}, i64 {apart}")
    before = b.new(f"mul nsw i64 {group.value}, {b.lanes}")
    return f"ptr {codes}, i64 {b.new(f'sub nsw i64 %elements, {before}')}"


def _pieces(n: int, lanes: int, loop: bool) -> list[tuple[int, int, int]]:
    """Start, width and number of pieces of n numbers: powers of two, up to a vector."""
    full = n // lanes
    found = [(0, lanes, full)] * (full > 0) if loop else [(i * lanes, lanes, 1) for i in range(full)]
    for width in (1 << bit for bit in reversed(range(lanes.bit_length() - 1))):
        if n % lanes & width:
            found.append((n - n % (2 * width), width, 1))
    return found


class _Signs:
    """The signs of an entity, lane by lane."""

    def __init__(self, b: Builder, at: str) -> None:
        bits, codes = 8 * b.dtype.itemsize, f"<{b.lanes} x i32>"
        self._b, self._kind = b, f"<{b.lanes} x i{bits}>"
        code = b.new(f"load {codes}, ptr {at}, align {INDEX_BYTES}")
        odd = b.new(f"{'zext' if bits > 32 else 'bitcast'} {codes} {code} to {self._kind}")
        self._top = b.new(f"shl {self._kind} {odd}, splat (i{bits} {bits - 1})")

    def of(self, value: str) -> str:
        """A vector with these signs."""
        b = self._b
        flipped = b.new(f"xor {self._kind} {b.new(f'bitcast {b.vector} {value} to {self._kind}')}, {self._top}")
        return b.new(f"bitcast {self._kind} {flipped} to {b.vector}")


@dataclass(frozen=True)
class _Piece:
    """Some numbers of an entity: of each lane a row of them in the global vector, of each number a vector inside."""

    places: list[str]
    inside: list[str]
    signs: list[_Signs | None]
    alone: bool


def _fetch(b: Builder, code: str, numbers: int, write: bool) -> None:
    """Fetch what an entity of a later group has in the vector; single numbers mostly are in lines of others."""
    b.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    place = b.new(f"zext i32 {b.new(f'lshr i32 {code}, 1')} to i64")
    start = b.new(f"getelementptr {b.real}, ptr %outside, i64 {place}")
    for line in range(0, numbers * b.dtype.itemsize, CACHE_LINE):
        there = b.new(f"getelementptr i8, ptr {start}, i64 {line}")
        b.emit(f"call void @llvm.prefetch.p0(ptr {there}, i32 {int(write)}, i32 2, i32 1)")


def _each_piece(
    b: Builder, runs: Sequence[Runs], positions: Positions | None, ahead: bool, write: bool
) -> Iterator[_Piece]:
    """Run over all pieces of a group; positions inside of the modes, by default in order."""
    first, following = 0, codes_ahead(runs)
    for own in runs:
        modes, n = np.array(own.modes), len(own.signed)
        order = Integers(b, (modes if positions is None else positions[modes]).ravel())
        with b.each(len(modes)) as entity:
            at, starts = b.at("%codes", (entity, 1), (first, 1), unit=f"<{b.lanes} x i32>"), list[str]()
            for lane in range(b.lanes):  # faster than a vector of indices and a gather
                code = b.new(f"load i32, ptr {b.new(f'getelementptr i32, ptr {at}, i32 {lane}')}, align {INDEX_BYTES}")
                place = b.new(f"zext i32 {b.new(f'lshr i32 {code}, 1')} to i64")
                starts.append(b.new(f"getelementptr {b.real}, ptr %outside, i64 {place}"))
                if ahead and n > 1:
                    then = b.new(f"getelementptr i32, ptr {at}, i32 {following * b.lanes + lane}")
                    _fetch(b, b.new(f"load i32, ptr {then}, align {INDEX_BYTES}"), n, write)
            signs = _Signs(b, at) if any(own.signed) else None
            for start, width, count in _pieces(n, b.lanes, signs is None):
                with b.each(count) as i:
                    places = [b.at(place, (i, width), (start, 1), unit=b.real) for place in starts]
                    numbers = [order[b.index((entity, n), (i, width), (start + j, 1))] for j in range(width)]
                    inside = [b.at("%inside", (number, 1)) for number in numbers]
                    turned = [signs if changes else None for changes in own.signed[start : start + width]]
                    yield _Piece(places, inside, turned, own.alone)
        first += len(modes)


def _joined(b: Builder, parts: list[str], width: int) -> str:
    """One vector of several of some width."""
    while len(parts) > 1:
        kind, both = f"<{width} x {b.real}>", ", ".join(f"i32 {i}" for i in range(2 * width))
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [b.new(f"shufflevector {kind} {x}, {kind} {y}, <{2 * width} x i32> <{both}>") for x, y in pairs]
        width *= 2
    return parts[0]


def write_indexed_reader(b: Builder, name: str, runs: Sequence[Runs], positions: Positions | None, ahead: bool) -> None:
    """Write a function that takes the numbers of a group out of a vector; see `transpose.write_reader`."""
    with b.function(name, _ARGUMENTS):
        for piece in _each_piece(b, runs, positions, ahead, False):
            width = len(piece.inside)
            kind = f"<{width} x {b.real}>"
            parts = [b.new(f"load {kind}, ptr {place}, align {b.dtype.itemsize}") for place in piece.places]
            values = transposed(b, [_joined(b, parts[i::width], width) for i in range(width)])
            for value, at, signs in zip(values, piece.inside, piece.signs, strict=True):
                b.store(value if signs is None else signs.of(value), at)


def write_indexed_writer(b: Builder, name: str, runs: Sequence[Runs], positions: Positions | None, ahead: bool) -> None:
    """Write a function that adds the numbers of a group to a vector, lane by lane; see `write_indexed_reader`."""
    with b.function(name, _ARGUMENTS):
        mask = b.first_lanes("%left")
        for piece in _each_piece(b, runs, positions, ahead, True):
            width, values = len(piece.inside), list[str]()
            kind = f"<{width} x {b.real}>"
            for at, signs in zip(piece.inside, piece.signs, strict=True):
                value = b.load(at) if signs is None else signs.of(b.load(at))
                if not piece.alone:
                    value = b.new(f"select <{b.lanes} x i1> {mask}, {b.vector} {value}, {b.vector} zeroinitializer")
                values.append(value)
            rows = transposed(b, values)
            # The last element's own lane comes after the lanes that repeat it.
            for lane, place in reversed(list(enumerate(piece.places))):
                part, first = rows[lane % width], lane - lane % width
                if width < b.lanes:
                    own = ", ".join(f"i32 {i}" for i in range(first, first + width))
                    part = b.new(f"shufflevector {b.vector} {part}, {b.vector} poison, <{width} x i32> <{own}>")
                if not piece.alone:
                    before = b.new(f"load {kind}, ptr {place}, align {b.dtype.itemsize}")
                    part = b.new(f"fadd {kind} {before}, {part}")
                b.emit(f"store {kind} {part}, ptr {place}, align {b.dtype.itemsize}")


def write_both(b: Builder, reader: str, writer: str, n: int, indexed: Indexed, ahead: bool) -> None:
    """Write the functions that load and store n numbers of each element, or those of a global vector."""
    if indexed:
        write_indexed_reader(b, reader, indexed, None, ahead)
        write_indexed_writer(b, writer, indexed, None, ahead)
    else:
        write_reader(b, reader, Layout(n))
        write_writer(b, writer, Layout(n))
