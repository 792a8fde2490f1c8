"""The passes by rows (collocated): fibers along eta_1 are evaluated and differentiated; then, plane by plane, the other
derivatives, the pointwise function along rows of the last direction, and the transposed derivatives; then fibers along
eta_1 are tested.
"""

from __future__ import annotations

from .context import Context
from .ir import Where
from .line import Fiber
from .points import at_points


def _first(ctx: Context, c: int) -> str:
    """Derivatives by eta_1 at the points, or the fluxes that multiply them."""
    return ctx.area("d0", c, size=ctx.point_vectors)


def _second(ctx: Context, c: int) -> str:
    """Derivatives by eta_2 of one plane of three directions, or the fluxes that multiply them."""
    return ctx.area("d1", c, size=ctx.rest[0])


def evaluate_columns(ctx: Context, c: int) -> None:
    """Evaluate fibers along eta_1 of a component: values, and their derivative if rows want it."""
    b, plane, functions, from_modes = ctx.b, ctx.plane, ctx.root, ctx.from_modes
    differentiate = ctx.form.trial_gradient and ctx.dim > 1
    if from_modes:
        source, n = ctx.level(1, "v", c), functions.stop - functions.start
    elif differentiate:
        source, n = ctx.values(c), ctx.counts[0]
    else:
        return
    line = ctx.line("B", 0, functions)
    with ctx.fibers(ctx.rest[0]) as across:
        values = b.load_fiber(b.at(source, (across, 1)), plane, n)
        derivatives: Fiber = []
        if not from_modes:
            derivatives = ctx.differentiation(0).apply(b, values)
        elif differentiate:
            values, derivatives = line.apply_and_differentiate(b, ctx.differentiation(0), values)
        else:
            values = line.apply(b, values)
        if from_modes:
            b.store_fiber(values, b.at(ctx.values(c), (across, 1)), plane)
        if differentiate:
            b.store_fiber(derivatives, b.at(_first(ctx, c), (across, 1)), plane)


def test_columns(ctx: Context, c: int) -> None:
    """Test values, and fluxes by the derivative along eta_1, of a component; see `evaluate_columns`."""
    b, plane, q, functions = ctx.b, ctx.plane, ctx.counts[0], ctx.root
    if not ctx.to_modes:
        _test_nodes(ctx, c)
        return
    line = ctx.line("B", 0, functions, True)
    with ctx.fibers(ctx.rest[0]) as across:
        values = b.load_fiber(b.at(ctx.values(c), (across, 1)), plane, q)
        if ctx.form.test_gradient and ctx.dim > 1:
            fluxes = b.load_fiber(b.at(_first(ctx, c), (across, 1)), plane, q)
            result = line.test_differentiated(b, ctx.differentiation(0, True), values, fluxes)
        else:
            result = line.test(b, values)
        b.store_fiber(result, b.at(ctx.level(1, "v", c), (across, 1)), plane)


def _test_nodes(ctx: Context, c: int) -> None:
    """`test_columns` with functions of the points: by the derivative along eta_1, and by the weights, if any."""
    b, plane, along = ctx.b, ctx.plane, ctx.form.test_gradient and ctx.dim > 1
    if not along and not ctx.problem.geometry.affine:
        return
    with ctx.fibers(ctx.rest[0]) as across:
        target = b.at(ctx.values(c), (across, 1))
        values = b.load_fiber(target, plane, ctx.counts[0])
        if along:
            fluxes = b.load_fiber(b.at(_first(ctx, c), (across, 1)), plane, ctx.counts[0])
            values = ctx.differentiation(0, True).test(b, fluxes, values)
        b.store_fiber(ctx.weighted(values, across), target, plane)


def row_pass(ctx: Context) -> None:
    """Run over the rows of the last direction: plane by plane where there are three directions."""
    b, form = ctx.b, ctx.form
    row = _derivative_row if ctx.trace is None and not form.to_modes else _weak_row
    if ctx.dim == 1:
        row(ctx, 0, 0, 0)
    elif ctx.dim == 2:
        with ctx.fibers(ctx.counts[0]) as i:
            row(ctx, i, 0, i)
    else:
        with b.loop(ctx.counts[0]) as i:
            for c in range(form.components if form.trial_gradient else 0):
                _differentiate_plane(ctx, i, c)
            with ctx.fibers(ctx.counts[1]) as j:
                row(ctx, i, j, b.index((i, ctx.counts[1]), (j, 1)))
            for c in range(ctx.problem.given if form.test_gradient else 0):
                _test_plane(ctx, i, c)


def _differentiate_plane(ctx: Context, i: Where, c: int) -> None:
    """Derivatives by eta_2 of plane i."""
    b, (q1, q2) = ctx.b, ctx.counts[1:]
    values, target = b.at(ctx.values(c), (i, ctx.plane)), _second(ctx, c)
    with ctx.fibers(q2) as across:
        fiber = b.load_fiber(b.at(values, (across, 1)), q2, q1)
        b.store_fiber(ctx.differentiation(1).apply(b, fiber), b.at(target, (across, 1)), q2)


def _test_plane(ctx: Context, i: Where, c: int) -> None:
    """Fluxes of the derivative by eta_2, tested onto the values of plane i."""
    b, (q1, q2) = ctx.b, ctx.counts[1:]
    values, source = b.at(ctx.values(c), (i, ctx.plane)), _second(ctx, c)
    with ctx.fibers(q2) as across:
        fluxes = b.load_fiber(b.at(source, (across, 1)), q2, q1)
        target = b.at(values, (across, 1))
        onto = b.load_fiber(target, q2, q1)
        b.store_fiber(ctx.differentiation(1, True).test(b, fluxes, onto), target, q2)


def _row_places(ctx: Context, i: Where, j: Where, c: int) -> tuple[str, ...]:
    """Where row j of plane i starts: among the values, and in the other directions' derivatives."""
    b, plane = ctx.b, ctx.plane
    if ctx.dim == 1:
        return (ctx.values(c),)
    if not ctx.form.test_gradient and c >= ctx.problem.coupled:  # a result that no component comes in for
        return (b.at(ctx.values(c), (i, plane), *([(j, ctx.counts[2])] if ctx.dim > 2 else [])),)
    if ctx.dim == 2:
        return b.at(ctx.values(c), (i, plane)), b.at(_first(ctx, c), (i, plane))
    q2 = ctx.counts[2]
    first = b.at(_first(ctx, c), (i, plane), (j, q2))
    return b.at(ctx.values(c), (i, plane), (j, q2)), first, b.at(_second(ctx, c), (j, q2))


def _weak_row(ctx: Context, i: Where, j: Where, outer: Where) -> None:
    """Pointwise function along a row, between the derivative by the last direction and its transpose."""
    b, form, q, last = ctx.b, ctx.form, ctx.counts[-1], ctx.dim - 1
    places = [_row_places(ctx, i, j, c) for c in range(ctx.problem.given)]
    values: list[Fiber] = []
    derivatives: list[list[Fiber]] = []
    for c in range(ctx.problem.coupled):
        place, *others = places[c] if ctx.from_modes and c < len(places) else _row_places(ctx, i, j, c)
        values.append(b.load_fiber(place, 1, q))
        if form.trial_gradient:
            along = [b.load_fiber(other, 1, q) for other in others]
            derivatives.append([*along, ctx.differentiation(last).apply(b, values[c])])
    tested, fluxes = at_points(ctx, outer, values, derivatives)
    for (place, *others), total, flux in zip(places, tested, fluxes):
        if form.test_gradient:
            for other, along_other in zip(others, flux):
                b.store_fiber(along_other, other, 1)
            total = ctx.differentiation(last, True).test(b, flux[last], total or None)
        b.store_fiber(total, place, 1)


def _derivative_row(ctx: Context, i: Where, j: Where, outer: Where) -> None:
    """Derivatives by x along a row."""
    b, q = ctx.b, ctx.counts[-1]
    ctx.factors.start_fiber(outer)
    place, *others = _row_places(ctx, i, j, 0)
    fiber = b.load_fiber(place, 1, q)
    derivatives = [*(b.load_fiber(other, 1, q) for other in others), ctx.differentiation(ctx.dim - 1).apply(b, fiber)]
    points = [ctx.factors.physical(k, [along[k] for along in derivatives]) for k in range(q)]
    for x, result in enumerate(zip(*points)):
        b.store_fiber(result, b.at(ctx.result(x), (i, ctx.plane), (j, q)), 1)
