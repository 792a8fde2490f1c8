"""Diagonals of element matrices, sum-factorised: d_m = sum_q sum_ab K_ab(q) t_a[m, q] t_b[m, q], t = (value, gradient).

K is what the form makes of a value 1 and of unit derivatives by eta at a point. Its entries are tested with products of
the modes' values and derivatives, up the tree of pairs of leaves (`hpfem.shapes.squares`). A chain is what is still to
be differentiated, directions counted from 0: "vv" nothing, "v1" one of the two by eta_2, "12" one by eta_2 and the
other by eta_3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations_with_replacement

from hpfem.shapes.squares import pair_tree, squared

from ....forms.form import BlockProblem
from .context import Context
from .indexed import Indexed
from .ir import ARGUMENTS, Index, Program, Where
from .line import Fiber, Line
from .points import at_point
from .pointwise import load_parameters
from .transfer import read_fields, write_result, write_transposes


class SquareContext(Context):
    """State of a kernel on the tree of pairs, of the form whose diagonal is made."""

    def __init__(self, problem: BlockProblem, lanes: int) -> None:
        self._plain, self._pairs = problem.tabulation, pair_tree(problem.tabulation.basis)
        super().__init__(replace(problem, tabulation=squared(problem.tabulation)), lanes, False)
        self.to_modes = True  # products of functions are tested with, never functions of the points

    def square(self, kind: str, direction: int, functions: slice) -> Line:
        """Table of products of 1-D functions, points by functions, to test with."""
        key = (kind, direction, functions.start, True)
        if key not in self._lines:
            table = self._pairs.table(self._plain, direction, (kind[0] == "D", kind[1] == "D"))[functions].T
            self._lines[key] = Line(table * self._weights(direction)[:, None])
        return self._lines[key]


def _split(chain: str, direction: int) -> tuple[str, str]:
    """Kind of the table that a chain is tested with in a direction, and the chain of what is left."""
    here = [part == str(direction) for part in chain]
    left = "".join(sorted(("v" if found else part for part, found in zip(chain, here)), reverse=True))
    return "".join("D" if found else "B" for found in here), left.replace("21", "12")


def chains(problem: BlockProblem) -> list[str]:
    """Chains of a form: its entries K_ab."""
    trace = problem.form.trace
    assert trace is not None
    directions = [str(a) for a in range(problem.shape.dim)]
    value = ["v"] if trace.value is not None or trace.flux is not None else []
    given = [*value, *(directions if problem.form.gradients else [])]
    found = ["".join(pair) for pair in combinations_with_replacement(given, 2)]
    return found if trace.general else [chain for chain in found if (chain[0] == "v") == (chain[1] == "v")]


def write_diagonal(problem: BlockProblem, lanes: int, prefetch: int = 0, indexed: Indexed = None) -> Program:
    """Write the kernel that makes the diagonals of a form's element matrices, all components."""
    ctx = SquareContext(problem, lanes)
    b, wanted = ctx.b, chains(problem)
    write_transposes(ctx)
    with b.function("run", ARGUMENTS, internal=False):
        ctx.parameters = load_parameters(b, ctx.trace)
        b.emit("%last = sub nsw i64 %elements, 1")
        with b.loop("%g1", "%g0") as ctx.group:
            ctx.factors.start_group(ctx.group)
            ctx.coordinates = b.at("%points", (ctx.group, problem.n_points * ctx.space_dim))
            read_fields(ctx)
            for c in range(ctx.form.components):
                _points(ctx, c, wanted)
                live = wanted
                for k in range(ctx.dim):
                    live = _level(ctx, c, k, live)
                write_result(ctx, Index("0"), c)
        b.lines[:0] = ctx.area_pointers()
    return Program(b.module(), b.flops, ctx.scratch_size, ctx.direction)


def _entries(ctx: SquareContext, k: int, outer: Where, c: int, wanted: list[str]) -> dict[str, str]:
    """Entries of K at a point, those of a chain summed up."""
    b, n = ctx.b, ctx.form.components
    zero, one = b.operand(0.0), b.operand(1.0)
    found: dict[str, str] = {}
    for column in dict.fromkeys("".join(wanted)):
        values = [zero] * n
        derivatives = [[zero] * ctx.dim for _ in range(n)]
        if column == "v":
            values[c] = one
        else:
            derivatives[c][int(column)] = one
        value, flux = at_point(ctx, outer, k, values, derivatives)[c]
        rows = {**({"v": value[0]} if value else {}), **{str(a): part for a, part in enumerate(flux)}}
        for row, entry in rows.items():
            chain = row + column if row == "v" or (column != "v" and row <= column) else column + row
            if chain in wanted:
                found[chain] = b.add(found[chain], entry) if chain in found else entry
    return found


def _area(ctx: SquareContext, k: int, chain: str, c: int) -> str:
    """Pointer to a chain at a level of the tree; at level 0 to its entries of K at the points."""
    if k == 0:
        return ctx.area("K", chain, size=ctx.point_vectors)
    return ctx.level(k, "v" if chain == "vv" else chain, c)


def _fibers(ctx: SquareContext) -> Iterator[tuple[Where, Where]]:
    """Run over the fibers along which points are visited: number, and place of the first point."""
    b = ctx.b
    if not ctx.by_rows:
        with b.each(ctx.rest[0]) as outer:
            yield outer, outer
    elif ctx.dim < 3:
        with b.each(ctx.rest[0] * ctx.counts[0] // ctx.counts[-1]) as i:
            yield i, b.index((i, ctx.plane))
    else:
        with b.each(ctx.counts[0]) as i, b.each(ctx.counts[1]) as j:
            yield b.index((i, ctx.counts[1]), (j, 1)), b.index((i, ctx.plane), (j, ctx.counts[2]))


def _points(ctx: SquareContext, c: int, wanted: list[str]) -> None:
    """Write K at all points of the group."""
    step = 1 if ctx.by_rows else ctx.plane
    for outer, place in _fibers(ctx):
        ctx.factors.start_fiber(outer)
        for k in range(ctx.factors.fiber_points):
            for chain, entry in _entries(ctx, k, outer, c, wanted).items():
                ctx.b.store(entry, ctx.b.at(_area(ctx, 0, chain, c), (place, 1)), k * step)


def _level(ctx: SquareContext, c: int, k: int, live: list[str]) -> list[str]:
    """Test along eta_(k+1); the chains that are left."""
    b, left = ctx.b, list[str]()
    outer, inner = ctx.block[k : k + 2]
    for functions, node, child, across in ctx.walk(k):
        results: dict[str, Fiber] = {}
        for chain in live:
            kind, below = _split(chain, k)
            start = b.at(_area(ctx, k, chain, c), (node, outer), (across, 1))
            fiber = b.load_fiber(start, inner, ctx.counts[k])
            results[below] = ctx.square(kind, k, functions).test(b, fiber, results.get(below))
        for below, result in results.items():
            b.store_fiber(result, b.at(_area(ctx, k + 1, below, c), (child, inner), (across, 1)), inner)
        left = list(results)
    return left
