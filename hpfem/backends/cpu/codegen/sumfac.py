"""The sum-factorised kernel of a form, for all shapes, written from the mode tree.

One element per lane, fibers in registers, everything of a group of elements in one scratch buffer:

    leaves  --B_d..B_2-->  rows of eta_1 functions  --points-->  rows  --B_2^T..B_d^T-->  leaves

Users' arrays are read and written in `transfer`; the way to the rows and back is in `tree`, the middle in `columns`, or
in `rows` where derivatives are collocated.
"""

from __future__ import annotations

from ....forms.form import BlockProblem
from .columns import column_pass
from .context import Context
from .ir import ARGUMENTS, Index, Program
from .pointwise import load_parameters
from .rows import evaluate_columns, row_pass, test_columns
from .transfer import read_fields, read_input, write_result, write_transposes
from .tree import evaluate_tree, test_tree


def write_sumfac(problem: BlockProblem, lanes: int, prefetch: bool = False, indexed: bool = False) -> Program:
    """Write the kernel of a problem.

    Parameters
    ----------
    problem : BlockProblem
    lanes : int
        Elements of a group.
    prefetch : bool
        Whether the next group's geometry and input are fetched while a group is worked on: for data out of cache.
    indexed : bool
        See `Context`.

    Returns
    -------
    Program
    """
    ctx = Context(problem, lanes, prefetch, indexed)
    b = ctx.b
    write_transposes(ctx)
    with b.function("run", ARGUMENTS, internal=False):
        ctx.parameters = load_parameters(b, ctx.trace)
        b.emit("%last = sub nsw i64 %elements, 1")
        with b.loop("%g1", "%g0") as ctx.group:
            ctx.factors.start_group(ctx.group)
            ctx.prefetch.start(ctx.group)
            ctx.coordinates = b.at("%points", (ctx.group, problem.n_points * ctx.space_dim))
            read_fields(ctx)
            with b.loop("%components") as application:
                _apply(ctx, application)
        b.lines[:0] = ctx.area_pointers() + ctx.prefetch.finish()
    return Program(b.module(), b.flops, ctx.scratch_size, ctx.direction)


def _apply(ctx: Context, application: Index) -> None:
    """Components that go together: read, evaluate, apply the pointwise function, test, write."""
    form, problem = ctx.form, ctx.problem
    by_columns = form.to_modes and not ctx.by_rows
    for c in range(problem.coupled):
        read_input(ctx, application, c)
        if form.from_modes:
            evaluate_tree(ctx, c, by_columns and form.trial_gradient)
    if by_columns:
        column_pass(ctx)
    else:
        for c in range(problem.coupled):
            evaluate_columns(ctx, c)
        if form.gradients:
            row_pass(ctx)
        for c in range(problem.given if form.to_modes else 0):
            test_columns(ctx, c)
    for c in range(problem.given):
        if form.to_modes:
            test_tree(ctx, c, not by_columns or form.test_value, by_columns and form.test_gradient)
        write_result(ctx, application, c)
