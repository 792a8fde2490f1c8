"""Text of LLVM IR, one vector of lanes at a time: arithmetic, loops, tables.

A value is the name of a vector. Operations are counted as they are written, times the trips of the loops around them,
so that a kernel knows its own work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partialmethod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

# Of every kernel; `target.Run` is the same in Python.
ARGUMENTS = (
    "i64 %g0, i64 %g1, i64 %elements, i64 %components, ptr noalias %in, ptr noalias %out, ptr noalias %geometry,"
    " ptr noalias %points, ptr noalias %fields, ptr noalias %parameters, ptr noalias %scratch, ptr noalias %codes,"
    " i64 %stride"
)

_REALS = {np.dtype(np.float64): "double", np.dtype(np.float32): "float"}

# Bytes of several groups that are to stay in the first cache: factors from the second one cost more than short rows.
_SHARED = 32 << 10


@dataclass(frozen=True)
class Index:
    """A run-time index, an i64, plus a constant."""

    value: str
    offset: int = 0


Where = int | Index
# The name of a vector, or a number that is the same in all lanes.
Operand = str | float


@dataclass(frozen=True)
class Program:
    """A kernel as text."""

    text: str  # a module with the function `run`, which takes `ARGUMENTS`
    flops: int  # per lane on a group and component
    scratch_size: int  # vectors
    direction: int  # of the fibers along which points are visited: the order of the geometric factors
    # Whether components are faster one after the other where nothing is in cache: little is read that they share.
    one_by_one: bool = False


class Builder:
    """A module of functions on vectors of float64 or float32."""

    def __init__(self, lanes: int, dtype: DTypeLike) -> None:
        self.lanes = lanes
        self.dtype = np.dtype(dtype)
        self.real = _REALS[self.dtype]
        self.vector = self.vector_of(dtype)
        self.suffix = f"v{lanes}f{8 * self.dtype.itemsize}"
        self.nbytes = lanes * self.dtype.itemsize
        self.flops = 0  # per lane of what was written so far
        self.trips = 1  # how often what is written now is run
        self.lines: list[str] = []
        self._globals: list[str] = []
        self._tables: dict[tuple[str, bytes], str] = {}
        self._declared: set[str] = set()
        self.written: set[str] = set()
        self._count = 0
        self._block = "entry"

    def vector_of(self, dtype: DTypeLike) -> str:
        """Type of a vector of numbers."""
        return f"<{self.lanes} x {_REALS[np.dtype(dtype)]}>"

    def emit(self, text: str) -> None:
        """Append an instruction without a result."""
        self.lines.append("  " + text)

    def new(self, text: str) -> str:
        """Append an instruction with a result."""
        self._count += 1
        self.lines.append(f"  %v{self._count} = {text}")
        return f"%v{self._count}"

    def declare(self, text: str) -> None:
        """Declare an external function, once."""
        self._declared.add(text)

    @contextmanager
    def function(self, name: str, arguments: str, internal: bool = True, result: str = "void") -> Iterator[None]:
        """Write a function; what is written meanwhile is its body, which returns the result if there is one."""
        outer, self.lines, block, trips = self.lines, [], self._block, self.trips
        self._block, self.trips = "entry", 1
        yield
        if result == "void":
            self.emit("ret void")
        linkage, keep = ("internal ", " noinline") if internal else ("", "")
        # Vectors as wide as the lanes are.
        width = max(128, 8 * self.nbytes)
        attributes = f'nounwind "min-legal-vector-width"="{width}" "prefer-vector-width"="{width}"'
        body = "\n".join(self.lines)
        text = f"define {linkage}{result} @{name}({arguments}){keep} {attributes} {{\nentry:\n{body}\n}}\n"
        self._globals.append(text)
        self.lines, self._block, self.trips = outer, block, trips

    def module(self) -> str:
        """Put together everything that was written."""
        return "\n".join([*sorted(self._declared), *self._globals]) + "\n"

    def _number(self, value: float) -> str:
        """A number with its type as LLVM writes it, rounded to the kernel's type."""
        rounded = np.float64(np.float32(value)) if self.real == "float" else np.float64(value)
        return f"{self.real} 0x{rounded.view(np.uint64):016X}"

    def operand(self, value: Operand) -> str:
        """Make a constant vector of a number; vectors pass through."""
        return value if isinstance(value, str) else f"splat ({self._number(value)})"

    def broadcast(self, pointer: str) -> str:
        """Load a number to all lanes."""
        scalar = self.new(f"load {self.real}, ptr {pointer}")
        first = self.new(f"insertelement {self.vector} poison, {self.real} {scalar}, i32 0")
        zeros = f"<{self.lanes} x i32> zeroinitializer"
        return self.new(f"shufflevector {self.vector} {first}, {self.vector} poison, {zeros}")

    def real_table(self, values: NDArray[Any]) -> str:
        """Constant array of numbers in memory; the same values are stored once."""
        flat = np.ascontiguousarray(values, dtype=self.dtype).ravel()
        items = ", ".join(self._number(float(v)) for v in flat)
        return self._table("r", flat.tobytes(), f"[{len(flat)} x {self.real}] [{items}]", 64)

    def index_table(self, values: NDArray[Any]) -> str:
        """Constant array of i32 in memory; see `Builder.real_table`."""
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

    def index(self, *terms: tuple[Where, int]) -> Where:
        """Sum of index * stride."""
        constant, total = 0, None
        for index, stride in terms:
            if isinstance(index, int):
                constant += index * stride
                continue
            constant += index.offset * stride
            part = index.value if stride == 1 else self.new(f"mul nsw i64 {index.value}, {stride}")
            total = part if total is None else self.new(f"add nsw i64 {total}, {part}")
        return constant if total is None else Index(total, constant)

    def at(self, base: str, *terms: tuple[Where, int], unit: str | None = None) -> str:
        """Pointer base + sum of index * stride."""
        unit, where = unit or self.vector, self.index(*terms)
        if isinstance(where, Index):
            base = self.new(f"getelementptr {unit}, ptr {base}, i64 {where.value}")
            where = where.offset
        return self.new(f"getelementptr {unit}, ptr {base}, i64 {where}") if where else base

    def load(self, pointer: str, offset: int = 0, dtype: DTypeLike | None = None) -> str:
        """Load the vector at pointer + offset."""
        dtype = self.dtype if dtype is None else np.dtype(dtype)
        there, align = self.vector_of(dtype), self.lanes * dtype.itemsize
        loaded = self.new(f"load {there}, ptr {self.at(pointer, (offset, 1), unit=there)}, align {align}")
        return loaded if dtype == self.dtype else self.new(f"fpext {there} {loaded} to {self.vector}")

    def store(self, value: str, pointer: str, offset: int = 0) -> None:
        """Store a vector at pointer + offset; see `Builder.load`."""
        self.emit(f"store {self.vector} {value}, ptr {self.at(pointer, (offset, 1))}, align {self.nbytes}")

    def masked_load(self, pointer: str, mask: str | None) -> str:
        """Load a vector that may start anywhere; lanes outside of a mask are zero, and their memory is not read."""
        if mask is None:
            return self.new(f"load {self.vector}, ptr {pointer}, align {self.dtype.itemsize}")
        name, masks = f"@llvm.masked.load.{self.suffix}.p0", f"<{self.lanes} x i1>"
        self.declare(f"declare {self.vector} {name}(ptr, i32, {masks}, {self.vector})")
        where = f"ptr {pointer}, i32 {self.dtype.itemsize}, {masks} {mask}"
        return self.new(f"call {self.vector} {name}({where}, {self.vector} zeroinitializer)")

    def masked_store(self, value: str, pointer: str, mask: str | None) -> None:
        """Store the lanes of a mask; see `Builder.masked_load`."""
        if mask is None:
            self.emit(f"store {self.vector} {value}, ptr {pointer}, align {self.dtype.itemsize}")
            return
        name, masks = f"@llvm.masked.store.{self.suffix}.p0", f"<{self.lanes} x i1>"
        self.declare(f"declare void {name}({self.vector}, ptr, i32, {masks})")
        where = f"ptr {pointer}, i32 {self.dtype.itemsize}, {masks} {mask}"
        self.emit(f"call void {name}({self.vector} {value}, {where})")

    def first_lanes(self, count: str) -> str:
        """A mask of the first lanes."""
        kind, iota = f"<{self.lanes} x i64>", ", ".join(f"i64 {lane}" for lane in range(self.lanes))
        first = self.new(f"insertelement {kind} poison, i64 {count}, i32 0")
        everywhere = self.new(f"shufflevector {kind} {first}, {kind} poison, <{self.lanes} x i32> zeroinitializer")
        return self.new(f"icmp slt {kind} <{iota}>, {everywhere}")

    def load_fiber(self, pointer: str, stride: int, n: int) -> list[str]:
        """Load n vectors."""
        return [self.load(pointer, i * stride) for i in range(n)]

    def store_fiber(self, fiber: Sequence[str], pointer: str, stride: int) -> None:
        """Store vectors; see `Builder.load_fiber`."""
        for i, value in enumerate(fiber):
            self.store(value, pointer, i * stride)

    def load_scalar(self, table: str, *terms: tuple[Where, int]) -> str:
        """Load a number of a table to all lanes."""
        return self.broadcast(self.at(table, *terms, unit=self.real))

    def load_index(self, table: str, index: Index) -> Index:
        """Load an entry of an index table."""
        pointer = self.at(table, (index, 1), unit="i32")
        return Index(self.new(f"zext i32 {self.new(f'load i32, ptr {pointer}')} to i64"))

    def count_flops(self, flops: int) -> None:
        """Count operations that are written here."""
        self.flops += flops * self.trips

    def _binary(self, op: str, a: Operand, b: Operand) -> str:
        self.count_flops(1)
        return self.new(f"{op} contract {self.vector} {self.operand(a)}, {self.operand(b)}")

    # Of two vectors or numbers.
    add, sub = partialmethod(_binary, "fadd"), partialmethod(_binary, "fsub")
    mul, div = partialmethod(_binary, "fmul"), partialmethod(_binary, "fdiv")

    def neg(self, a: Operand) -> str:
        """Negative of a vector or number."""
        return self.new(f"fneg {self.vector} {self.operand(a)}")

    def fma(self, a: Operand, b: Operand, c: str | None) -> str:
        """Product and sum a * b + c, rounded once; a * b if c is None."""
        return self.mul(a, b) if c is None else self.call("fma", a, b, c, flops=2)

    def dot(self, pairs: Iterable[tuple[Operand, Operand]]) -> str:
        """Sum of products, at least one."""
        total: str | None = None
        for a, b in pairs:
            total = self.fma(a, b, total)
        assert total is not None
        return total

    def call(self, intrinsic: str, *operands: Operand, flops: int = 1) -> str:
        """Call an LLVM intrinsic on vectors."""
        name = f"@llvm.{intrinsic}.{self.suffix}"
        self.declare(f"declare {self.vector} {name}({', '.join([self.vector] * len(operands))})")
        self.count_flops(flops)
        return self.new(f"call {self.vector} {name}({', '.join(f'{self.vector} {self.operand(x)}' for x in operands)})")

    def sum_of_lanes(self, value: str) -> str:
        """Sum of the lanes of a vector."""
        name = f"@llvm.vector.reduce.fadd.{self.suffix}"
        self.declare(f"declare {self.real} {name}({self.real}, {self.vector})")
        found = self.new(f"call reassoc {self.real} {name}({self._number(0.0)}, {self.vector} {value})")
        return found if self.real == "double" else self.new(f"fpext {self.real} {found} to double")

    @contextmanager
    def loop(self, n: int | str, start: str = "0") -> Iterator[Index]:
        """A loop from start to n, at least once; where n is not a number, its work is counted for one trip."""
        self._count += 1
        k, before, trips = self._count, self._block, self.trips
        self.emit(f"br label %L{k}")
        self.lines.append(f"L{k}:")
        place = len(self.lines)
        self.lines.append("")
        self._block = f"L{k}"
        self.trips *= n if isinstance(n, int) else 1
        yield Index(f"%i{k}")
        self.trips = trips
        self.emit(f"%n{k} = add nsw i64 %i{k}, 1")
        self.emit(f"%c{k} = icmp slt i64 %n{k}, {n}")
        self.lines[place] = f"  %i{k} = phi i64 [ {start}, %{before} ], [ %n{k}, %{self._block} ]"
        self.emit(f"br i1 %c{k}, label %L{k}, label %E{k}")
        self.lines.append(f"E{k}:")
        self._block = f"E{k}"

    @contextmanager
    def turns(self, shared: int) -> Iterator[tuple[Index, Index]]:
        """Run over a kernel's groups and applications: some groups in a row, for all applications."""
        few = max(1, _SHARED // max(shared, 1))
        one, span = self.new("icmp eq i64 %components, 1"), self.new("sub nsw i64 %g1, %g0")
        few_or_all = self.new(f"select i1 {one}, i64 {span}, i64 {few}")
        last = self.new(f"sub nsw i64 {span}, 1")
        count = self.new(f"add nsw i64 {self.new(f'sdiv i64 {last}, {few_or_all}')}, 1")
        with self.loop(count) as turn:
            start = self.new(f"add nsw i64 {self.new(f'mul nsw i64 {turn.value}, {few_or_all}')}, %g0")
            end = self.new(f"add nsw i64 {start}, {few_or_all}")
            stop = self.new(f"select i1 {self.new(f'icmp slt i64 {end}, %g1')}, i64 {end}, i64 %g1")
            with self.loop("%components") as application, self.loop(stop, start) as group:
                yield application, group

    @contextmanager
    def each(self, n: int) -> Iterator[Where]:
        """Run over 0 .. n - 1: a loop, unless n is 1."""
        if n == 1:
            yield 0
        else:
            with self.loop(n) as i:
                yield i

    def row(self, index: str, numbers: int | None) -> str:
        """Where a row starts: one of `numbers` for each element or, without them, a global vector."""
        if numbers is None:
            return self.new(f"mul nsw i64 {index}, %stride")
        index = self.new(f"mul nsw i64 {index}, %elements")
        return self.new(f"mul nsw i64 {index}, {numbers}")

    def reduce(
        self, n: int | str, start: Sequence[Operand], body: Callable[[Index, list[str]], Sequence[str]]
    ) -> list[str]:
        """A loop over 0 .. n - 1 that carries vectors in registers."""
        self._count += 1
        names = [f"%c{self._count}_{i}" for i in range(len(start))]
        before = self._block
        with self.loop(n) as i:
            place = len(self.lines)
            self.lines += [""] * len(names)
            after = list(body(i, names))
            tail = self._block
        for k, (name, first, last) in enumerate(zip(names, start, after, strict=True)):
            phi = f"phi {self.vector} [ {self.operand(first)}, %{before} ], [ {last}, %{tail} ]"
            self.lines[place + k] = f"  {name} = {phi}"
        return after
