"""Kernels on vectors: passes of linear updates and sums of products, entries taken and put by index, products with
sparse and dense matrices.

Their arguments may overlap, so that they work in place where an entry of the result depends on the same entries only.
"""

from __future__ import annotations

from collections.abc import Sequence

from numpy.typing import DTypeLike

from ...passes import Addend, Pass
from .ir import ARGUMENTS, Builder, Index

_ARGUMENTS = ARGUMENTS.replace(" noalias", "")
# Pointers to the vectors of a pass, in the order of its names; those of more vectors are in a table at %codes.
VECTORS = ("%in", "%out", "%geometry", "%points", "%fields")
# Entries of a block: its sums are made in one piece, so that they do not depend on the number of threads.
BLOCK = 2048
# Groups of lanes in a trip of a pass: sums are made in as many registers.
UNROLLED = 4


def blocks_of(n: int) -> int:
    """Number of blocks of a vector; the last one may be longer."""
    return max(1, n // BLOCK)


def write_pass(what: Pass, lanes: int, unrolled: int, dtype: DTypeLike) -> str:
    """Write a kernel that updates vectors, and sums up products of their entries, in one go over blocks %g0 to %g1.

    Vectors of %elements entries are at `VECTORS` and may start anywhere; numbers are at %parameters. The pass is made
    for each of %components rows of the first vector, %stride entries apart.
    """
    b = Builder(lanes, dtype)
    targets, sums = [target for target, _ in what.updates], [((False, factors),) for factors in what.sums]
    trip = lanes * unrolled

    def whole(op: str, *operands: object) -> str:
        return b.new(f"{op} i64 {', '.join(map(str, operands))}")

    def greater(x: object, y: object, yes: object, no: object) -> str:
        return b.new(f"select i1 {b.new(f'icmp sgt i64 {x}, {y}')}, i64 {yes}, i64 {no}")

    with b.function("run", _ARGUMENTS, internal=False):
        numbers = {what.arrays + i: b.load_scalar("%parameters", (i, 1)) for i in range(what.numbers)}
        bases = list(VECTORS)
        if what.arrays > len(bases):
            places = [b.at("%codes", (i, 1), unit="ptr") for i in range(what.arrays)]
            bases = [b.new(f"load ptr, ptr {place}, align 8") for place in places]
        count = greater(whole("sdiv", "%elements", BLOCK), 1, whole("sdiv", "%elements", BLOCK), 1)
        with b.loop("%g1", "%g0") as block, b.loop("%components") as row:
            start = whole("mul", block.value, BLOCK)
            next_one = whole("add", start, BLOCK)
            end = greater(whole("add", next_one, BLOCK), "%elements", "%elements", next_one)
            length = whole("sub", end, start)
            trips = whole("sdiv", length, trip)
            rest = whole("sub", length, whole("mul", trips, trip))
            groups = whole("sdiv", whole("add", rest, lanes - 1), lanes)
            at = [b.at(base, (Index(start), 1), unit=b.real) for base in bases[: what.arrays]]
            at[0] = b.at(at[0], (Index(whole("mul", row.value, "%stride")), 1), unit=b.real)
            done = Index(whole("mul", trips, unrolled))

            def group(number: Index, mask: str | None, totals: Sequence[str]) -> list[str]:
                """Work on a group of entries; returns its sums added to the totals."""
                found = dict(numbers)

                def place(own: int) -> str:
                    return b.at(at[own], (number, 1))

                def value(own: int) -> str:
                    if own not in found:
                        found[own] = b.masked_load(place(own), mask)
                    return found[own]

                def total(terms: Sequence[Addend], result: str | None) -> str:
                    for negative, places in terms:
                        *factors, last = map(value, places)
                        if not factors:
                            first = b.neg(last) if negative else last
                            result = first if result is None else (b.sub if negative else b.add)(result, last)
                            continue
                        product = factors[0]
                        for factor in factors[1:]:
                            product = b.mul(product, factor)
                        result = b.fma(b.neg(product) if negative else product, last, result)
                    return b.operand(0.0) if result is None else result

                for target, terms in what.updates:
                    found[target] = total(terms, None)
                after = [total(product, own) for product, own in zip(sums, totals, strict=True)]
                for target in targets:
                    b.masked_store(found[target], place(target), mask)
                return after

            def last_group(i: Index, totals: list[str]) -> list[str]:
                mask = b.first_lanes(whole("sub", rest, whole("mul", i.value, lanes)))
                return group(Index(whole("add", done.value, i.value)), mask, totals)

            def trip_of_groups(i: Index, totals: list[str]) -> list[str]:
                first, n = whole("mul", i.value, unrolled), len(sums)
                return [
                    total
                    for k in range(unrolled)
                    for total in group(Index(first, k), None, totals[k * n : (k + 1) * n])
                ]

            # The rest of a block, which may be nothing, is made first: loops run once at least.
            zeros = [0.0] * len(sums)
            found = b.reduce(greater(groups, 1, groups, 1), zeros, last_group)
            found = b.reduce(trips, [*found, *zeros * (unrolled - 1)], trip_of_groups)
            place = Index(whole("add", whole("mul", row.value, count), block.value))
            for number, own in enumerate(found[: len(sums)]):
                for other in found[number + len(sums) :: len(sums)]:
                    own = b.add(own, other)
                there = b.at("%scratch", (place, len(sums)), (number, 1), unit="double")
                b.emit(f"store double {b.sum_of_lanes(own)}, ptr {there}, align 8")
    return b.module()


def write_move(take: bool, put: bool, dtype: DTypeLike) -> str:
    """Write a kernel that copies entries %g0 to %g1: out[put[i]] = in[take[i]]."""
    b = Builder(1, dtype)
    with b.function("run", _ARGUMENTS, internal=False), b.loop("%g1", "%g0") as i:
        source, target = b.load_index("%geometry", i) if take else i, b.load_index("%codes", i) if put else i
        b.store(b.load(b.at("%in", (source, 1))), b.at("%out", (target, 1)))
    return b.module()


def _place(b: Builder, base: str, code: Index, start: Index) -> str:
    """Where entry start + code / 2 of a vector is."""
    return b.at(base, (start, 1), (Index(b.new(f"lshr i64 {code.value}, 1")), 1))


def _signed(b: Builder, at: str, code: Index) -> str:
    """What is there, times -1 if the code is odd."""
    x, odd = b.load(at), b.new(f"trunc i64 {code.value} to i1")
    return b.new(f"select i1 {odd}, {b.vector} {b.neg(x)}, {b.vector} {x}")


def write_scatter(dtype: DTypeLike) -> str:
    """out[i] = +-in[code / 2], - for odd codes at %codes, i32, for entries %g0 to %g1 of %components rows."""
    b = Builder(1, dtype)
    with b.function("run", _ARGUMENTS, internal=False), b.loop("%g1", "%g0") as i:
        code = b.load_index("%codes", i)
        with b.loop("%components") as row:
            start = Index(b.new(f"mul nsw i64 {row.value}, %stride"))
            there = Index(b.new(f"mul nsw i64 {row.value}, %elements"))
            b.store(_signed(b, _place(b, "%in", code, start), code), b.at("%out", (there, 1), (i, 1)))
    return b.module()


def write_add(dtype: DTypeLike) -> str:
    """Transpose of `write_scatter` for one thread, with the bits of `write_gather`: out[code / 2] += +-in[i]."""
    b = Builder(1, dtype)
    with b.function("run", _ARGUMENTS, internal=False), b.loop("%g1", "%g0") as i:
        code = b.load_index("%codes", i)
        with b.loop("%components") as row:
            given = Index(b.new(f"mul nsw i64 {row.value}, %elements"))
            there = _place(b, "%out", code, Index(b.new(f"mul nsw i64 {row.value}, %stride")))
            b.store(b.add(b.load(there), _signed(b, b.at("%in", (given, 1), (i, 1)), code)), there)
    return b.module()


def _entries(b: Builder, i: Index) -> tuple[str, str]:
    """Where those of a row start, and how many there are, by the starts of rows at %points."""
    start, end = b.load_index("%points", i), b.load_index("%points", Index(i.value, 1))
    return start.value, b.new(f"sub nsw i64 {end.value}, {start.value}")


def write_gather(dtype: DTypeLike) -> str:
    """Transpose of `write_scatter`: out[place[i]] += sum of +-in[code / 2], over one code or more of each i."""
    b = Builder(1, dtype)
    with b.function("run", _ARGUMENTS, internal=False), b.loop("%g1", "%g0") as i:
        start, count = _entries(b, i)
        place = b.load_index("%geometry", i)
        with b.loop("%components") as row:
            given = Index(b.new(f"mul nsw i64 {row.value}, %elements"))
            there = b.at("%out", (Index(b.new(f"mul nsw i64 {row.value}, %stride")), 1), (place, 1))

            def entry(j: Index, sums: list[str], start: str = start, given: Index = given) -> list[str]:
                code = b.load_index("%codes", Index(b.new(f"add nsw i64 {start}, {j.value}")))
                return [b.add(sums[0], _signed(b, _place(b, "%in", code, given), code))]

            b.store(b.reduce(count, [b.load(there)], entry)[0], there)
    return b.module()


def write_rows(add: bool, dtype: DTypeLike) -> str:
    """Rows %g0 to %g1, none empty, of a sparse matrix: out[%codes[i]] = sum of entries * in[column]."""
    b = Builder(1, dtype)
    with b.function("run", _ARGUMENTS, internal=False), b.loop("%g1", "%g0") as i:
        start, count = _entries(b, i)
        place = b.at("%out", (b.load_index("%codes", i), 1))

        def entry(j: Index, sums: list[str]) -> list[str]:
            at = Index(b.new(f"add nsw i64 {start}, {j.value}"))
            x = b.load(b.at("%in", (b.load_index("%fields", at), 1)))
            return [b.fma(b.load(b.at("%geometry", (at, 1))), x, sums[0])]

        b.store(b.reduce(count, [b.load(place) if add else 0.0], entry)[0], place)
    return b.module()


def write_row_panels(lanes: int, dtype: DTypeLike) -> str:
    """Panels %g0 to %g1 of a sparse matrix, rows of the same columns as lanes: out = A in."""
    b = Builder(lanes, dtype)
    with b.function("run", _ARGUMENTS, internal=False), b.loop("%g1", "%g0") as panel:

        def known(number: int) -> tuple[Index, str]:
            """A start of the panel, and how far that of the next one is."""
            at = Index(b.new(f"mul nsw i64 {panel.value}, 3"), number)
            start, end = b.load_index("%points", at), b.load_index("%points", Index(at.value, number + 3))
            return start, b.new(f"sub nsw i64 {end.value}, {start.value}")

        (columns, count), (values, _), (first, rows) = map(known, range(3))
        mask = b.first_lanes(rows)

        def entry(j: Index, sums: list[str]) -> list[str]:
            column = b.load_index("%fields", Index(b.new(f"add nsw i64 {columns.value}, {j.value}")))
            there = Index(b.new(f"mul nsw i64 {rows}, {j.value}"))
            own = b.at("%geometry", (values, 1), (there, 1), unit=b.real)
            return [b.fma(b.load_scalar("%in", (column, 1)), b.masked_load(own, mask), sums[0])]

        b.masked_store(b.reduce(count, [0.0], entry)[0], b.at("%out", (first, 1), unit=b.real), mask)
    return b.module()


def write_panels(lanes: int, dtype: DTypeLike) -> str:
    """Write a kernel for the panels %g0 to %g1 of a dense matrix: columns of x M, %stride rows of lanes each."""
    b = Builder(lanes, dtype)
    with b.function("run", _ARGUMENTS, internal=False), b.loop("%g1", "%g0") as panel:
        first = b.new(f"mul nsw i64 {panel.value}, %stride")

        def row(i: Index, sums: list[str]) -> list[str]:
            entries = b.load(b.at("%geometry", (Index(b.new(f"add nsw i64 {first}, {i.value}")), 1)))
            return [b.fma(b.load_scalar("%in", (i, 1)), entries, sums[0])]

        b.store(b.reduce("%stride", [0.0], row)[0], b.at("%out", (panel, 1)))
    return b.module()
