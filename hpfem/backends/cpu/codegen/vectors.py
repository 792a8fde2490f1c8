"""Kernels on vectors: sums of vectors, entries taken and put by index, products with sparse and dense matrices.

Their arguments may overlap, so that they work in place where an entry of the result depends on the same entries only.
"""

from __future__ import annotations

from collections.abc import Sequence

from numpy.typing import DTypeLike

from .ir import ARGUMENTS, Builder, Index, Operand

_ARGUMENTS = ARGUMENTS.replace(" noalias", "")
# Pointers to the vectors of a sum, in the order of its terms.
SOURCES = ("%in", "%geometry", "%points", "%fields")


def write_sum(terms: Sequence[str], lanes: int, dtype: DTypeLike) -> str:
    """Write a kernel that makes the groups %g0 to %g1 of a sum.

    Parameters
    ----------
    terms : sequence of str
        "plain" x, "minus" -x, "scaled" by its number of %parameters, or "weighted": x y, entry by entry. Their
        vectors are at `SOURCES`, one after the other; without terms the sum is zero.
    lanes : int
        Entries of a group; vectors may start anywhere.
    dtype : dtype

    Returns
    -------
    str
        A module with the function `run`, which takes `ARGUMENTS`.
    """
    b = Builder(lanes, dtype)
    with b.function("run", _ARGUMENTS, internal=False):
        factors = [b.load_scalar("%parameters", (i, 1)) for i in range(len(terms))]
        with b.loop("%g1", "%g0") as group:
            sources = iter(SOURCES)

            def load(group: Index = group) -> str:
                place = b.at(next(sources), (group, 1))
                return b.new(f"load {b.vector}, ptr {place}, align {b.dtype.itemsize}")

            total: str | None = None
            for number, term in enumerate(terms):
                x = load()
                if term == "plain":
                    total = x if total is None else b.add(total, x)
                elif term == "minus":
                    total = b.neg(x) if total is None else b.sub(total, x)
                else:
                    total = b.fma(factors[number] if term == "scaled" else load(), x, total)
            value: Operand = 0.0 if total is None else total
            place = b.at("%out", (group, 1))
            b.emit(f"store {b.vector} {b.operand(value)}, ptr {place}, align {b.dtype.itemsize}")
    return b.module()


def write_move(take: bool, put: bool, dtype: DTypeLike) -> str:
    """Write a kernel that copies entries %g0 to %g1: out[put[i]] = in[take[i]].

    Parameters
    ----------
    take, put : bool
        Whether there are such indices, i32 at %geometry and %codes; else entry i.
    dtype : dtype

    Returns
    -------
    str
    """
    b = Builder(1, dtype)
    with b.function("run", _ARGUMENTS, internal=False), b.loop("%g1", "%g0") as i:
        source, target = b.load_index("%geometry", i) if take else i, b.load_index("%codes", i) if put else i
        b.store(b.load(b.at("%in", (source, 1))), b.at("%out", (target, 1)))
    return b.module()


def write_rows(add: bool, dtype: DTypeLike) -> str:
    """Write a kernel for the rows %g0 to %g1 of a sparse matrix: out[%codes[i]] = sum of entries * in[column].

    Rows have one entry at least: entries are at %geometry, starts of rows at %points, columns at %fields, both i32.

    Parameters
    ----------
    add : bool
        Whether products are added to what is there.
    dtype : dtype

    Returns
    -------
    str
    """
    b = Builder(1, dtype)
    with b.function("run", _ARGUMENTS, internal=False), b.loop("%g1", "%g0") as i:
        start, end = b.load_index("%points", i), b.load_index("%points", Index(i.value, 1))
        place = b.at("%out", (b.load_index("%codes", i), 1))

        def entry(j: Index, sums: list[str]) -> list[str]:
            at = Index(b.new(f"add nsw i64 {start.value}, {j.value}"))
            x = b.load(b.at("%in", (b.load_index("%fields", at), 1)))
            return [b.fma(b.load(b.at("%geometry", (at, 1))), x, sums[0])]

        count = b.new(f"sub nsw i64 {end.value}, {start.value}")
        b.store(b.reduce(count, [b.load(place) if add else 0.0], entry)[0], place)
    return b.module()


def write_panels(lanes: int, dtype: DTypeLike) -> str:
    """Write a kernel for the panels %g0 to %g1 of a dense matrix: columns of x M, %stride rows of lanes each.

    Parameters
    ----------
    lanes : int
        Columns of a panel; panels lie one after the other at %geometry.
    dtype : dtype

    Returns
    -------
    str
    """
    b = Builder(lanes, dtype)
    with b.function("run", _ARGUMENTS, internal=False), b.loop("%g1", "%g0") as panel:
        first = b.new(f"mul nsw i64 {panel.value}, %stride")

        def row(i: Index, sums: list[str]) -> list[str]:
            entries = b.load(b.at("%geometry", (Index(b.new(f"add nsw i64 {first}, {i.value}")), 1)))
            return [b.fma(b.load_scalar("%in", (i, 1)), entries, sums[0])]

        b.store(b.reduce("%stride", [0.0], row)[0], b.at("%out", (panel, 1)))
    return b.module()
