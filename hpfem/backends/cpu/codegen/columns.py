"""The pass by columns: fibers along eta_1 are evaluated, go through the pointwise function and are tested at once."""

from __future__ import annotations

from .context import Context
from .line import Fiber
from .points import at_points


def column_pass(ctx: Context) -> None:
    """Evaluate fibers along eta_1, apply the pointwise function, test: all in registers.

    Parameters
    ----------
    ctx : Context
    """
    b, form, plane, functions = ctx.b, ctx.form, ctx.plane, ctx.root
    m = functions.stop - functions.start
    with ctx.fibers(ctx.rest[0]) as across:
        values: list[Fiber] = []
        derivatives: list[list[Fiber]] = []
        for c in range(ctx.problem.coupled):
            if not form.from_modes:
                values.append(b.load_fiber(b.at(ctx.values(c), (across, 1)), plane, ctx.counts[0]))
                continue
            chain = b.load_fiber(b.at(ctx.level(1, "v", c), (across, 1)), plane, m)
            line = ctx.line("B", 0, functions)
            if form.trial_value:
                values.append(line.apply(b, chain))
            if form.trial_gradient:
                above = (b.at(ctx.level(1, f"d{a}", c), (across, 1)) for a in range(1, ctx.dim))
                others = [line.apply(b, b.load_fiber(start, plane, m)) for start in above]
                derivatives.append([ctx.line("D", 0, functions).apply(b, chain), *others])
        tested, fluxes = at_points(ctx, across, values, derivatives)
        for c, (value, flux) in enumerate(zip(tested, fluxes)):
            line = ctx.line("B", 0, functions, True)
            result = line.test(b, value) if form.test_value else None
            if form.test_gradient:
                result = ctx.line("D", 0, functions, True).test(b, flux[0], result)
                for a in range(1, ctx.dim):
                    target = b.at(ctx.level(1, f"d{a}", c), (across, 1))
                    b.store_fiber(line.test(b, flux[a]), target, plane)
            b.store_fiber(result or [], b.at(ctx.level(1, "v", c), (across, 1)), plane)
