"""Users' arrays to the scratch of a group and back: modes and the leaves of the tree, values at the points, fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .context import Context
from .indexed import codes_at, write_indexed_reader, write_indexed_writer
from .ir import ARGUMENTS, Index, Program
from .levels import Integers
from .line import table_product
from .pointwise import field_inputs, load_parameters
from .transpose import Layout, write_reader, write_writer

# Rows of a basis' transform that are formed together.
_ROWS = 8


def write_transposes(ctx: Context) -> None:
    """Write the functions that transpose users' arrays."""
    b, problem = ctx.b, ctx.problem
    first, transform = ctx.tree.first_leaves[0], problem.tabulation.basis.transform
    in_order = transform is not None or np.array_equal(first, np.arange(len(first)))
    modes = Layout(problem.n_modes), None if in_order else b.index_table(first)
    contiguous = ctx.plane == ctx.rest[0]
    values = Layout(problem.n_points) if contiguous else Layout(ctx.rest[0], ctx.counts[0], ctx.plane), None
    if ctx.indexed:
        rows = np.add.outer(np.arange(ctx.counts[0]) * ctx.plane, np.arange(ctx.rest[0]))
        points, leaves = None if contiguous else rows.ravel(), None if in_order else first
        write_indexed_reader(b, "read_input", ctx.indexed, leaves if ctx.from_modes else points, ctx.ahead)
        write_indexed_writer(b, "write_result", ctx.indexed, leaves if ctx.to_modes else points, ctx.ahead)
    else:
        write_reader(b, "read_input", *(modes if ctx.from_modes else values))
        write_writer(b, "write_result", *(modes if ctx.to_modes else values))
    if field_inputs(ctx.trace):
        write_reader(b, "read_field", Layout(problem.n_points))


def call(ctx: Context, name: str, outside: str, inside: str) -> None:
    """Call a function that transposes on the present group."""
    where = f"i64 {ctx.group.value}, i64 %last"
    if ctx.indexed and name != "read_field":
        where = codes_at(ctx.b, ctx.indexed, ctx.group, name == "write_result")
    ctx.b.emit(f"call void @{name}(ptr {outside}, ptr {inside}, {where})")


def component(ctx: Context, base: str, application: Index, components: int, c: int, numbers: int) -> str:
    """Point at a component of those that an application takes or gives, in a user's array."""
    b = ctx.b
    index = b.new(f"mul nsw i64 {application.value}, {components}")
    index = b.new(f"add nsw i64 {index}, {c}")
    return b.new(f"getelementptr {b.real}, ptr {base}, i64 {b.row(index, None if ctx.indexed else numbers)}")


def program_of(ctx: Context, apply: Callable[[Index], None]) -> Program:
    """Write the kernel that runs over groups and applications of a form."""
    b = ctx.b
    with b.function("run", ARGUMENTS, internal=False):
        ctx.parameters = load_parameters(b, ctx.trace)
        b.emit("%last = sub nsw i64 %elements, 1")
        with b.turns(ctx.shared) as (application, ctx.group):
            _start_group(ctx, application)
            apply(application)
        b.lines[:0] = ctx.area_pointers() + ctx.prefetch.finish()
    return Program(b.module(), b.flops, ctx.scratch_size, ctx.direction)


def _start_group(ctx: Context, application: Index) -> None:
    """Go to a group: its geometry, points and fields; begin to fetch what later groups take and give."""
    problem = ctx.problem
    ctx.factors.start_group(ctx.group)
    ctx.coordinates = ctx.b.at("%points", (ctx.group, problem.n_points * ctx.space_dim))
    inputs = [component(ctx, "%in", application, problem.coupled, c, problem.n_input) for c in range(problem.coupled)]
    outputs = [component(ctx, "%out", application, problem.given, c, problem.n_output) for c in range(problem.given)]
    ctx.prefetch.start(ctx.group, ["%geometry", *(["%codes"] if ctx.indexed else [*inputs, *outputs])])
    read_fields(ctx)


def read_fields(ctx: Context) -> None:
    """Read the fields of the pointwise function."""
    for i, (name, c) in enumerate(field_inputs(ctx.trace)):
        source = ctx.b.new(f"load ptr, ptr {ctx.b.at('%fields', (i, 1), unit='ptr')}")
        call(ctx, "read_field", source, ctx.area("field", name, c, size=ctx.problem.n_points))


def read_input(ctx: Context, application: Index, c: int) -> None:
    """Read a component of the input: modes to leaves, or values at the points."""
    problem, transform = ctx.problem, ctx.problem.tabulation.basis.transform
    source = component(ctx, "%in", application, problem.coupled, c, problem.n_input)
    if not ctx.from_modes:
        call(ctx, "read_input", source, ctx.values(c))
        return
    leaves = ctx.level(ctx.dim, "v", c)
    if transform is None:
        call(ctx, "read_input", source, leaves)
        _share(ctx, leaves, scatter=False)
    else:
        nodal = ctx.stage(ctx.dim + 1, c, problem.n_modes)
        call(ctx, "read_input", source, nodal)
        multiply(ctx, transform[ctx.tree.leaf_to_mode], nodal, leaves)


def write_result(ctx: Context, application: Index, c: int) -> None:
    """Write a component of the result; see `read_input`."""
    problem, transform = ctx.problem, ctx.problem.tabulation.basis.transform
    target = component(ctx, "%out", application, problem.given, c, problem.n_output)
    if not ctx.to_modes:
        call(ctx, "write_result", target, ctx.result(c))
        return
    leaves = ctx.level(ctx.dim, "v", c)
    if transform is None:
        _share(ctx, leaves, scatter=True)
        call(ctx, "write_result", target, leaves)
    else:
        nodal = ctx.stage(ctx.dim + 1, c, problem.n_modes)
        multiply(ctx, transform[ctx.tree.leaf_to_mode].T, leaves, nodal)
        call(ctx, "write_result", target, nodal)


def _share(ctx: Context, leaves: str, scatter: bool) -> None:
    """Copy the first leaf of shared modes to the others, or add the others to it."""
    b, (first, others) = ctx.b, ctx.tree.first_leaves
    if not len(others):
        return
    sources, targets = Integers(b, others), Integers(b, first[ctx.tree.leaf_to_mode[others]])
    with b.each(len(others)) as i:
        other, own = b.at(leaves, (sources[i], 1)), b.at(leaves, (targets[i], 1))
        if scatter:
            b.store(b.add(b.load(own), b.load(other)), own)
        else:
            b.store(b.load(own), other)


def multiply(ctx: Context, matrix: NDArray[np.floating[Any]], source: str, target: str, together: int = _ROWS) -> None:
    """Store matrix @ source, a few rows at a time."""
    b, (rows, columns) = ctx.b, matrix.shape
    full, rest = divmod(rows, together)
    if full:
        table = b.real_table(matrix[: full * together].reshape(full, together, columns).transpose(0, 2, 1))
        with b.loop(full) as i:
            start = b.at(table, (i, together * columns), unit=b.real)
            for row, value in enumerate(table_product(b, start, source, columns, together)):
                b.store(value, b.at(target, (i, together), (row, 1)))
    if rest:
        table = b.real_table(matrix[full * together :].T)
        for row, value in enumerate(table_product(b, table, source, columns, rest)):
            b.store(value, target, full * together + row)
