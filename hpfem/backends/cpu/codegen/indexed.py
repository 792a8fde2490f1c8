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


def _code(b: Builder, i: Where) -> tuple[str, str]:
    """Codes of a mode in all lanes, and the places that they stand for."""
    kind = f"<{b.lanes} x i32>"
    code = b.new(f"load {kind}, ptr {b.at('%codes', (i, 1), unit=kind)}, align {INDEX_BYTES}")
    return code, b.new(f"lshr {kind} {code}, <{', '.join(['i32 1'] * b.lanes)}>")


def _inside(b: Builder, i: Where, positions: str | None) -> str:
    if positions is None:
        return b.at("%inside", (i, 1))
    return b.at("%inside", (b.load_index(positions, i if isinstance(i, Index) else Index("0", i)), 1))


def write_indexed_reader(b: Builder, name: str, n: int, positions: str | None) -> None:
    """Write a function that takes the numbers of a group out of a vector; see `transpose.write_reader`.

    Parameters
    ----------
    b : Builder
    name : str
        The function is `name(ptr outside, ptr inside, ptr codes)`.
    n : int
        Numbers of an element.
    positions : str or None
        Index table: vector that each number goes to.
    """
    gather = f"@llvm.masked.gather.{b.suffix}.v{b.lanes}p0"
    pointers, mask = f"<{b.lanes} x ptr>", f"<{b.lanes} x i1>"
    b.declare(f"declare {b.vector} {gather}({pointers}, i32, {mask}, {b.vector})")
    ones = "<" + ", ".join(["i1 1"] * b.lanes) + ">"
    with b.function(name, "ptr noalias %outside, ptr noalias %inside, ptr noalias %codes"), b.each(n) as i:
        code, place = _code(b, i)
        where = b.new(f"getelementptr {b.real}, ptr %outside, <{b.lanes} x i32> {place}")
        size = b.dtype.itemsize
        value = b.new(
            f"call {b.vector} {gather}({pointers} {where}, i32 {size}, {mask} {ones}, {b.vector} zeroinitializer)"
        )
        b.store(_signed(b, value, code), _inside(b, i, positions))


def write_indexed_writer(b: Builder, name: str, n: int, positions: str | None) -> None:
    """Write a function that adds the numbers of a group to a vector, lane by lane; see `write_indexed_reader`."""
    with b.function(name, "ptr noalias %outside, ptr noalias %inside, ptr noalias %codes"), b.each(n) as i:
        code, place = _code(b, i)
        value = _signed(b, b.load(_inside(b, i, positions)), code)
        for lane in range(b.lanes):
            index = b.new(f"extractelement <{b.lanes} x i32> {place}, i32 {lane}")
            pointer = b.new(f"getelementptr {b.real}, ptr %outside, i32 {index}")
            own = b.new(f"extractelement {b.vector} {value}, i32 {lane}")
            before = b.new(f"load {b.real}, ptr {pointer}")
            after = b.new(f"fadd {b.real} {before}, {own}")
            b.emit(f"store {b.real} {after}, ptr {pointer}")
