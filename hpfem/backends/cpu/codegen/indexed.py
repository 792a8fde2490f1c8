"""Coefficients of a group from a global vector by signed indices, and results added to one.

A code is 2 * place, and 1 more where the number is taken negative; they lie as [group, mode, lane] of i32.
"""

from __future__ import annotations

from .ir import Builder, Index, Where

INDEX_BYTES = 4


def _signed(b: Builder, value: str, code: str) -> str:
    """A vector with the signs of its codes."""
    bits = 8 * b.dtype.itemsize
    whole = f"<{b.lanes} x i{bits}>"
    odd = b.new(f"{'zext' if bits > 32 else 'bitcast'} <{b.lanes} x i32> {code} to {whole}")
    top = b.new(f"shl {whole} {odd}, <{', '.join([f'i{bits} {bits - 1}'] * b.lanes)}>")
    flipped = b.new(f"xor {whole} {b.new(f'bitcast {b.vector} {value} to {whole}')}, {top}")
    return b.new(f"bitcast {whole} {flipped} to {b.vector}")


def _code(b: Builder, i: Where) -> str:
    """Codes of a mode in all lanes."""
    codes = f"<{b.lanes} x i32>"
    return b.new(f"load {codes}, ptr {b.at('%codes', (i, 1), unit=codes)}, align {INDEX_BYTES}")


def _places(b: Builder, i: Where) -> list[str]:
    """Pointers to the places of a mode, lane by lane: that is faster than a vector of indices and a gather."""
    row, places = b.at("%codes", (i, 1), unit=f"<{b.lanes} x i32>"), []
    for lane in range(b.lanes):
        code = b.new(f"load i32, ptr {b.new(f'getelementptr i32, ptr {row}, i32 {lane}')}, align {INDEX_BYTES}")
        place = b.new(f"zext i32 {b.new(f'lshr i32 {code}, 1')} to i64")
        places.append(b.new(f"getelementptr {b.real}, ptr %outside, i64 {place}"))
    return places


def _inside(b: Builder, i: Where, positions: str | None) -> str:
    if positions is None:
        return b.at("%inside", (i, 1))
    return b.at("%inside", (b.load_index(positions, i if isinstance(i, Index) else Index("0", i)), 1))


def write_indexed_reader(b: Builder, name: str, n: int, positions: str | None) -> None:
    """Write a function that takes the numbers of a group out of a vector; see `transpose.write_reader`."""
    with b.function(name, "ptr noalias %outside, ptr noalias %inside, ptr noalias %codes"), b.each(n) as i:
        value = "poison"
        for lane, place in enumerate(_places(b, i)):
            own = b.new(f"load {b.real}, ptr {place}")
            value = b.new(f"insertelement {b.vector} {value}, {b.real} {own}, i32 {lane}")
        b.store(_signed(b, value, _code(b, i)), _inside(b, i, positions))


def write_indexed_writer(b: Builder, name: str, n: int, positions: str | None) -> None:
    """Write a function that adds the numbers of a group to a vector, lane by lane; see `write_indexed_reader`."""
    with b.function(name, "ptr noalias %outside, ptr noalias %inside, ptr noalias %codes"), b.each(n) as i:
        value = _signed(b, b.load(_inside(b, i, positions)), _code(b, i))
        for lane, place in enumerate(_places(b, i)):
            own = b.new(f"extractelement {b.vector} {value}, i32 {lane}")
            after = b.new(f"fadd {b.real} {b.new(f'load {b.real}, ptr {place}')}, {own}")
            b.emit(f"store {b.real} {after}, ptr {place}")
