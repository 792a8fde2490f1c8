"""Text of LLVM IR, one vector of lanes at a time: arithmetic, loops, tables.

A `Pack` is a tuple of values that are computed side by side (fibers that share their coefficients); every operation
acts on each member. Operations are counted as they are written, times the trips of the loops around them, so that a
kernel knows its own work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Pack = tuple[str, ...]

CACHE_LINE = 64
# Bytes between what is worked on and what is fetched, where groups are small.
PREFETCH_DISTANCE = 32 << 10
# Of every kernel; `target.Run` is the same in Python.
ARGUMENTS = (
    "i64 %g0, i64 %g1, i64 %elements, i64 %components, ptr noalias %in, ptr noalias %out, ptr noalias %geometry,"
    " ptr noalias %points, ptr noalias %fields, ptr noalias %parameters, ptr noalias %scratch"
)


def groups_ahead(nbytes: int) -> int:
    """How far ahead a group of that many bytes is prefetched: far enough for memory to answer."""
    return max(1, min(PREFETCH_DISTANCE // max(nbytes, 1), 16))


@dataclass(frozen=True)
class Index:
    """A run-time index plus a constant.

    Attributes
    ----------
    value : str
        The run-time part, an i64.
    offset : int
    """

    value: str
    offset: int = 0


Where = int | Index | tuple["int | Index", ...]


def _member(pack: Any, f: int) -> Any:
    """Member f of a pack; what is no pack, or has one member, is shared by all."""
    if isinstance(pack, tuple):
        return pack[f if len(pack) > 1 else 0]
    return pack


class Builder:
    """A module of functions on vectors.

    Parameters
    ----------
    lanes : int
        Elements of a vector.
    dtype : dtype
        float64 or float32.
    """

    def __init__(self, lanes: int, dtype: DTypeLike) -> None:
        self.lanes = lanes
        self.dtype = np.dtype(dtype)
        self.real = {8: "double", 4: "float"}[self.dtype.itemsize]
        self.vector = f"<{lanes} x {self.real}>"
        self.suffix = f"v{lanes}f{8 * self.dtype.itemsize}"
        self.nbytes = lanes * self.dtype.itemsize
        self.flops = 0
        self.lines: list[str] = []
        self._globals: list[str] = []
        self._tables: dict[tuple[str, bytes], str] = {}
        self._declared: set[str] = set()
        self._splats: dict[float, str] = {}
        self._count = 0
        self._block = "entry"
        self._trips = [1]
        self._prefetches: list[tuple[int, str]] = []
        self._prefetch_count = 0

    # --- text -----------------------------------------------------------------------------------------------------

    def emit(self, text: str) -> None:
        """Append an instruction without a result."""
        self.lines.append("  " + text)

    def new(self, text: str) -> str:
        """Append an instruction; returns the name of its result."""
        self._count += 1
        self.lines.append(f"  %v{self._count} = {text}")
        return f"%v{self._count}"

    def declare(self, text: str) -> None:
        """Declare an external function, once."""
        self._declared.add(text)

    def attribute(self) -> str:
        """Function attributes: full-width vectors, as wide as the lanes are."""
        width = max(128, 8 * self.nbytes)
        return f'nounwind "min-legal-vector-width"="{width}" "prefer-vector-width"="{width}"'

    @contextmanager
    def function(self, name: str, arguments: str, internal: bool = True, result: str = "void") -> Iterator[None]:
        """Write a function `result name(arguments)`; the body returns the result if there is one."""
        linkage = "internal " if internal else ""
        keep = " noinline" if internal else ""
        outer, self.lines, block = self.lines, [], self._block
        trips, self._trips = self._trips, [1]
        self._block = "entry"
        self.emit("")
        yield
        if result == "void":
            self.emit("ret void")
        body = "\n".join(self.lines)
        text = f"define {linkage}{result} @{name}({arguments}){keep} {self.attribute()} {{\nentry:\n{body}\n}}\n"
        self._globals.append(text)
        self.lines, self._block, self._trips = outer, block, trips

    def module(self) -> str:
        """The text of everything written."""
        return "\n".join([*sorted(self._declared), *self._globals]) + "\n"

    # --- numbers --------------------------------------------------------------------------------------------------

    def literal(self, value: float) -> str:
        """A number as LLVM writes it, rounded to the kernel's type."""
        rounded = np.float64(np.float32(value)) if self.real == "float" else np.float64(value)
        return f"0x{rounded.view(np.uint64):016X}"

    def splat(self, value: float) -> str:
        """A constant vector."""
        if value not in self._splats:
            item = f"{self.real} {self.literal(value)}"
            self._splats[value] = "<" + ", ".join([item] * self.lanes) + ">"
        return self._splats[value]

    def broadcast(self, scalar: str) -> str:
        """A vector of a run-time scalar."""
        first = self.new(f"insertelement {self.vector} poison, {self.real} {scalar}, i32 0")
        zeros = f"<{self.lanes} x i32> zeroinitializer"
        return self.new(f"shufflevector {self.vector} {first}, {self.vector} poison, {zeros}")

    def real_table(self, values: NDArray[Any]) -> str:
        """Constant array of numbers in memory; the same values are stored once."""
        flat = np.ascontiguousarray(values, dtype=self.dtype).ravel()
        items = ", ".join(f"{self.real} {self.literal(float(v))}" for v in flat)
        return self._table("r", flat.tobytes(), f"[{len(flat)} x {self.real}] [{items}]", 64)

    def index_table(self, values: NDArray[Any]) -> str:
        """Constant array of i32 in memory."""
        flat = np.ascontiguousarray(values, dtype=np.int32).ravel()
        items = ", ".join(f"i32 {int(v)}" for v in flat)
        return self._table("i", flat.tobytes(), f"[{len(flat)} x i32] [{items}]", 4)

    def _table(self, kind: str, content: bytes, text: str, align: int) -> str:
        key = (kind, content)
        if key not in self._tables:
            name = f"@table{len(self._tables)}"
            self._globals.append(f"{name} = internal unnamed_addr constant {text}, align {align}")
            self._tables[key] = name
        return self._tables[key]

    # --- addresses ------------------------------------------------------------------------------------------------

    def linear(self, *terms: tuple[int | Index, int]) -> tuple[str | None, int]:
        """Sum of index * stride: (run-time part or None, constant part)."""
        constant, total = 0, None
        for index, stride in terms:
            if isinstance(index, int):
                constant += index * stride
                continue
            constant += index.offset * stride
            part = index.value if stride == 1 else self.new(f"mul nsw i64 {index.value}, {stride}")
            total = part if total is None else self.new(f"add nsw i64 {total}, {part}")
        return total, constant

    def at(self, base: str | Pack, *terms: tuple[Where, int], unit: str | None = None) -> Pack:
        """Pointers base + sum of index * stride, in vectors.

        Parameters
        ----------
        base : str or tuple of str
            Pointer, or one per member.
        *terms : (index, stride)
            An index may be a tuple, one per member.
        unit : str, optional
            LLVM type the strides count; the vector type when left out.
        """
        sizes = [len(base)] if isinstance(base, tuple) else []
        sizes += [len(index) for index, _ in terms if isinstance(index, tuple)]
        unit = unit or self.vector
        out = []
        for f in range(max(sizes, default=1)):
            start = _member(base, f)
            moving, fixed = self.linear(*((_member(i, f), s) for i, s in terms))
            if moving is not None:
                start = self.new(f"getelementptr {unit}, ptr {start}, i64 {moving}")
            if fixed:
                start = self.new(f"getelementptr {unit}, ptr {start}, i64 {fixed}")
            out.append(start)
        return tuple(out)

    def load(self, pointers: Pack, offset: int = 0) -> Pack:
        """Vectors at pointers + offset."""
        where = self.at(pointers, (offset, 1)) if offset else pointers
        return tuple(self.new(f"load {self.vector}, ptr {p}, align {self.nbytes}") for p in where)

    def store(self, values: Pack, pointers: Pack, offset: int = 0) -> None:
        """Write vectors to pointers + offset."""
        where = self.at(pointers, (offset, 1)) if offset else pointers
        if len(values) < len(where):
            values = values * len(where)
        for v, p in zip(values, where, strict=True):
            self.emit(f"store {self.vector} {v}, ptr {p}, align {self.nbytes}")

    def load_fiber(self, pointers: Pack, stride: int, n: int) -> list[Pack]:
        """Vectors, `stride` apart."""
        return [self.load(pointers, i * stride) for i in range(n)]

    def store_fiber(self, fiber: Sequence[Pack], pointers: Pack, stride: int) -> None:
        """Write n vectors, `stride` apart."""
        for i, values in enumerate(fiber):
            self.store(values, pointers, i * stride)

    def load_scalar(self, table: str, *terms: tuple[Where, int]) -> Pack:
        """Broadcast numbers of a table at an index."""
        return tuple(
            self.broadcast(self.new(f"load {self.real}, ptr {p}")) for p in self.at(table, *terms, unit=self.real)
        )

    def load_index(self, table: str, index: Index) -> Index:
        """An entry of an index table."""
        (pointer,) = self.at(table, (index, 1), unit="i32")
        return Index(self.new(f"zext i32 {self.new(f'load i32, ptr {pointer}')} to i64"))

    # --- arithmetic -----------------------------------------------------------------------------------------------

    def spread(self, *operands: Pack | float) -> list[list[str]]:
        """Operands as lists of equal length; numbers become constant vectors."""
        size = max((len(o) for o in operands if isinstance(o, tuple)), default=1)
        rows = []
        for operand in operands:
            if isinstance(operand, tuple):
                rows.append(list(operand) if len(operand) == size else [operand[0]] * size)
            else:
                rows.append([self.splat(operand)] * size)
        return rows

    def count_flops(self, members: int, each: int = 1) -> None:
        """Count operations written here."""
        self.flops += members * each * self._trips[-1]

    def _binary(self, op: str, a: Pack | float, b: Pack | float) -> Pack:
        left, right = self.spread(a, b)
        self.count_flops(len(left))
        return tuple(self.new(f"{op} contract {self.vector} {x}, {y}") for x, y in zip(left, right))

    def add(self, a: Pack | float, b: Pack | float) -> Pack:
        """Sum a + b."""
        return self._binary("fadd", a, b)

    def sub(self, a: Pack | float, b: Pack | float) -> Pack:
        """Difference a - b."""
        return self._binary("fsub", a, b)

    def mul(self, a: Pack | float, b: Pack | float) -> Pack:
        """Product a * b."""
        return self._binary("fmul", a, b)

    def div(self, a: Pack | float, b: Pack | float) -> Pack:
        """Quotient a / b."""
        return self._binary("fdiv", a, b)

    def neg(self, a: Pack) -> Pack:
        """Negative -a."""
        return tuple(self.new(f"fneg {self.vector} {x}") for x in a)

    def fma(self, a: Pack | float, b: Pack | float, c: Pack | None) -> Pack:
        """Product and sum a * b + c, rounded once; a * b if c is None."""
        if c is None:
            return self.mul(a, b)
        return self.call("fma", a, b, c, flops=2)

    def call(self, intrinsic: str, *operands: Pack | float, flops: int = 1) -> Pack:
        """An LLVM intrinsic on vectors."""
        rows = self.spread(*operands)
        name = f"@llvm.{intrinsic}.{self.suffix}"
        self.declare(f"declare {self.vector} {name}({', '.join([self.vector] * len(rows))})")
        self.count_flops(len(rows[0]), flops)
        return tuple(
            self.new(f"call {self.vector} {name}({', '.join(f'{self.vector} {x}' for x in members)})")
            for members in zip(*rows)
        )

    # --- prefetch -------------------------------------------------------------------------------------------------

    def start_prefetch(self, pointers: Sequence[str]) -> None:
        """From here on every call of `prefetch` fetches its share of what lies at these pointers."""
        for i, pointer in enumerate(pointers):
            self.emit(f"store ptr {pointer}, ptr %ahead{i}")

    def prefetch(self) -> None:
        """Fetch a share, of a size that `finish_prefetch` knows."""
        self._prefetches.append((len(self.lines), f"q{len(self._prefetches)}"))
        self._prefetch_count += self._trips[-1]
        self.lines.append("")

    def finish_prefetch(self, nbytes: Sequence[int]) -> list[str]:
        """Share out that many bytes of each stream; returns what has to stand at the head of the function."""
        self.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        shares = [math.ceil(n / CACHE_LINE / max(self._prefetch_count, 1)) for n in nbytes]
        for place, name in self._prefetches:
            text = []
            for s, each in enumerate(shares):
                here = f"%{name}_{s}"
                text.append(f"  {here} = load ptr, ptr %ahead{s}")
                for i in range(each):
                    text.append(f"  {here}_{i} = getelementptr i8, ptr {here}, i64 {CACHE_LINE * i}")
                    # Read, into the second-level cache: the first has no room for a group.
                    text.append(f"  call void @llvm.prefetch.p0(ptr {here}_{i}, i32 0, i32 2, i32 1)")
                text.append(f"  {here}_n = getelementptr i8, ptr {here}, i64 {CACHE_LINE * each}")
                text.append(f"  store ptr {here}_n, ptr %ahead{s}")
            self.lines[place] = "\n".join(text)
        return [f"  %ahead{s} = alloca ptr, align 8" for s in range(len(shares))]

    # --- loops ----------------------------------------------------------------------------------------------------

    @contextmanager
    def loop(self, n: int | str, start: str = "0", trips: int | None = None) -> Iterator[Index]:
        """A loop from start to n, at least once; `trips` counts for work where n is not a number."""
        self._count += 1
        k, before = self._count, self._block
        self.emit(f"br label %L{k}")
        self.lines.append(f"L{k}:")
        place = len(self.lines)
        self.lines.append("")
        self._block = f"L{k}"
        self._trips.append(self._trips[-1] * (n if isinstance(n, int) else trips or 1))
        yield Index(f"%i{k}")
        self._trips.pop()
        self.emit(f"%n{k} = add nsw i64 %i{k}, 1")
        self.emit(f"%c{k} = icmp slt i64 %n{k}, {n}")
        self.lines[place] = f"  %i{k} = phi i64 [ {start}, %{before} ], [ %n{k}, %{self._block} ]"
        self.emit(f"br i1 %c{k}, label %L{k}, label %E{k}")
        self.lines.append(f"E{k}:")
        self._block = f"E{k}"

    def reduce(
        self, n: int | str, start: Sequence[Pack], body: Callable[[Index, list[Pack]], Sequence[Pack]]
    ) -> list[Pack]:
        """A loop over 0 .. n - 1 that carries vectors in registers; returns them after the last trip.

        Parameters
        ----------
        n : int or str
        start : sequence of Pack
            Values before the first trip.
        body : callable
            (index, values) -> values after the trip.
        """
        self._count += 1
        k = self._count
        names = [tuple(f"%c{k}_{i}_{f}" for f in range(len(pack))) for i, pack in enumerate(start)]
        places: list[int] = []
        before = self._block
        with self.loop(n) as i:
            head = self._block
            for _ in (name for pack in names for name in pack):
                places.append(len(self.lines))
                self.lines.append("")
            after = list(body(i, names))
            tail = self._block
        pairs = [
            (name, v0, v1)
            for pack, first, last in zip(names, start, after, strict=True)
            for name, v0, v1 in zip(pack, first, last, strict=True)
        ]
        for place, (name, v0, v1) in zip(places, pairs, strict=True):
            self.lines[place] = f"  {name} = phi {self.vector} [ {v0}, %{before} ], [ {v1}, %{tail} ]"
        assert head.startswith("L")
        return after

    def packs(self, n: int, width: int, body: Callable[[tuple[int | Index, ...]], None]) -> None:
        """Run a body over 0 .. n - 1, `width` indices side by side, and once over what is left.

        Parameters
        ----------
        n : int
            Number of indices.
        width : int
            Members of a pack.
        body : callable
            Takes the pack of indices.
        """
        width = min(width, n)
        full, rest = divmod(n, width)
        if full == 1:
            body(tuple(range(width)))
        else:
            with self.loop(full) as i:
                first = i if width == 1 else Index(self.new(f"mul nsw i64 {i.value}, {width}"))
                body(tuple(Index(first.value, f) for f in range(width)))
        if rest:
            body(tuple(range(full * width, n)))
