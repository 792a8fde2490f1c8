"""Users' arrays [element][mode] to vectors of lanes and back, inside the kernel, by W x W transposes in registers.

Lanes past the last element repeat it: they are loaded from it, and stored before it, so that its own result is the one
that stays.
"""

from __future__ import annotations

from dataclasses import dataclass

from .ir import Builder, Index, Where


@dataclass(frozen=True)
class Layout:
    """What one element of a user's array looks like inside."""

    n: int  # numbers of a segment
    segments: int = 1  # of contiguous numbers
    stride: int = 0  # vectors from a segment to the next, inside


def _shuffle(b: Builder, x: str, y: str, mask: list[int]) -> str:
    indices = ", ".join(f"i32 {m}" for m in mask)
    return b.new(f"shufflevector {b.vector} {x}, {b.vector} {y}, <{b.lanes} x i32> <{indices}>")


def transposed(b: Builder, rows: list[str]) -> list[str]:
    """Transpose n vectors of W numbers, n of these at a time, log2(n) rounds of shuffles."""
    w = b.lanes
    step = 1
    while step < len(rows):
        low = [j if not (j // step) % 2 else w + j - step for j in range(w)]
        high = [j + step if not (j // step) % 2 else w + j for j in range(w)]
        new = list(rows)
        for i in range(len(rows)):
            if not (i // step) % 2:
                new[i] = _shuffle(b, rows[i], rows[i + step], low)
                new[i + step] = _shuffle(b, rows[i], rows[i + step], high)
        rows = new
        step *= 2
    return rows


def _rows(b: Builder, base: str, numbers: int) -> list[str]:
    """Pointers to the elements of a group."""
    first = b.new(f"mul nsw i64 %g, {b.lanes}")
    pointers = []
    for lane in range(b.lanes):
        element = b.new(f"add nsw i64 {first}, {lane}")
        past = b.new(f"icmp sgt i64 {element}, %last")
        element = b.new(f"select i1 {past}, i64 %last, i64 {element}")
        offset = b.new(f"mul nsw i64 {element}, {numbers}")
        pointers.append(b.new(f"getelementptr {b.real}, ptr {base}, i64 {offset}"))
    return pointers


def _write(b: Builder, name: str, layout: Layout, positions: str | None, inwards: bool) -> None:
    n = min(b.lanes, layout.n)
    mask = None if n == b.lanes else "<" + ", ".join(f"i1 {int(i < n)}" for i in range(b.lanes)) + ">"

    def place(segment: Where, first: Where, i: int) -> str:
        if positions is None:
            return b.at("%inside", (segment, layout.stride), (first, 1), (i, 1))
        start = first if isinstance(first, Index) else Index("0", first)
        return b.at("%inside", (b.load_index(positions, Index(start.value, start.offset + i)), 1))

    def block(segment: Where, first: Where) -> None:
        outside = [b.at(row, (segment, layout.n), (first, 1), unit=b.real) for row in rows]
        inside = [place(segment, first, i) for i in range(n)]
        if inwards:
            vectors = transposed(b, [b.masked_load(pointer, mask) for pointer in outside])
            for pointer, value in zip(inside, vectors):
                b.store(value, pointer)
        else:
            values = [b.load(pointer) for pointer in inside] + ["poison"] * (b.lanes - n)
            # The last element's own lane comes after the lanes that repeat it.
            for value, pointer in reversed(list(zip(transposed(b, values), outside))):
                b.masked_store(value, pointer, mask)

    with b.function(name, "ptr noalias %outside, ptr noalias %inside, i64 %g, i64 %last"):
        rows = _rows(b, "%outside", layout.n * layout.segments)
        with b.each(layout.segments) as segment:
            with b.each(-(-layout.n // n)) as i:
                first: Where = 0
                if isinstance(i, Index):  # the last numbers overlap others
                    start = b.new(f"mul nsw i64 {i.value}, {n}")
                    over = b.new(f"icmp sgt i64 {start}, {layout.n - n}")
                    first = Index(b.new(f"select i1 {over}, i64 {layout.n - n}, i64 {start}"))
                block(segment, first)


def write_reader(b: Builder, name: str, layout: Layout, positions: str | None = None) -> None:
    """Write a function that loads a group of elements into vectors."""
    _write(b, name, layout, positions, True)


def write_writer(b: Builder, name: str, layout: Layout, positions: str | None = None) -> None:
    """Write a function that stores a group of elements from vectors; see `write_reader`."""
    _write(b, name, layout, positions, False)
