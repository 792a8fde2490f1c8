"""Functions of coefficients on rules without directions: dense products with the tables of all points, one element per
lane.

Values and derivatives at a few points are formed in registers, go through the pointwise function there, and its results
are stored; those of weak forms are taken back by one product. With the mirror that rule and basis have, even and odd
modes need half of the tables each (`hpfem.shapes.mirror`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hpfem.shapes.arrays import Floats
from hpfem.shapes.mirror import Mirror, mirror_of, without_mirror

from ....errors import NotSuitable
from ....forms.cost import operator_flops
from ....forms.form import BlockProblem
from .context import Context
from .indexed import Indexed, write_both
from .ir import Index, Program, Where
from .levels import Integers
from .line import table_product
from .points import at_point
from .pointwise import field_inputs
from .transfer import call, component, multiply, program_of
from .transpose import Layout, write_reader, write_writer

# Sums that are formed together: what the registers of AVX-512 hold beside an input.
_SUMS = 24
# The derivative across the mirror: values have number 0, derivatives come behind.
_ACROSS = 1

# Time per operation relative to collocated sum factorisation, and of a mode besides.
_COST, _OVERHEAD = 0.5, 24.0


def fused_cost(problem: BlockProblem) -> float:
    """Operations, of which the mirror saves half."""
    return _COST * operator_flops(problem, "stdmat") + _OVERHEAD * problem.n_modes


def check_fused(problem: BlockProblem) -> None:
    """Check that a problem is one for the kernel."""
    form = problem.form
    if problem.tabulation.rule.tensor:
        raise NotSuitable('fused kernels are for quadrature="simplex" only')
    if not (form.from_modes and form.trace):
        raise NotSuitable("products and points are fused for functions of coefficients only")


class _Writer:
    """Writes the kernel of a problem."""

    def __init__(self, ctx: Context) -> None:
        tabulation, form = ctx.problem.tabulation, ctx.form
        self.ctx, self.b, self.n = ctx, ctx.b, ctx.problem.n_modes
        self.modes: Mirror = mirror_of(tabulation) or without_mirror(tabulation)
        tables = np.concatenate([tabulation.dense[None], tabulation.dense_gradient]).transpose(1, 0, 2)
        self.even, self.odd = self.modes.of_modes(tables)
        # Of affine elements the matrices that test have the weights; images have equal ones.
        self.weights = tabulation.rule.weights if ctx.factors.affine else np.ones(ctx.problem.n_points)
        derivatives = list(range(1, 1 + ctx.dim))
        self.trial = [0] * form.trial_value + derivatives * form.trial_gradient
        self.test = [0] * (form.test_value or not form.to_modes) + derivatives * form.test_gradient

    def columns(self, quantities: list[int], paired: bool) -> tuple[list[int], list[int]]:
        """Quantities of a point that even and odd modes contribute to; on the mirror each comes from one of them."""
        if paired:
            return quantities, quantities
        across = [a for a in quantities if a == _ACROSS and self.modes.odd]
        return [a for a in quantities if a not in across], across

    def split(self, modes: str, halves: str, back: bool) -> None:
        """Even and odd modes from those of the basis, or back."""
        b, m = self.b, self.modes
        first, second = Integers(b, m.first), Integers(b, m.second)

        def place(number: Where, odd: bool = False) -> str:
            return b.at(halves, (number, 1), (m.even * odd, 1))

        if m.paired:
            with b.each(m.paired) as i:
                one, other = b.at(modes, (first[i], 1)), b.at(modes, (second[i], 1))
                targets = [one, other] if back else [place(i), place(i, True)]
                x, z = (b.load(pointer) for pointer in ([place(i), place(i, True)] if back else [one, other]))
                total, difference = b.add(x, z), b.sub(x, z)
                b.store(total, targets[0])
                b.store(difference, targets[1])
        for odd, count, numbers in ((False, m.even, first), (True, m.odd, second)):
            if count > m.paired:
                with b.each(count - m.paired) as i:
                    k = b.index((i, 1), (m.paired, 1))
                    here, there = b.at(modes, (numbers[k], 1)), place(k, odd)
                    b.store(b.load(there if back else here), here if back else there)

    def points(self, halves: Sequence[str], tested: Sequence[tuple[str, str]]) -> None:
        """A few points at a time: evaluate even and odd modes `halves`, apply the function, keep what is `tested`."""
        m = self.modes
        start = 0, 0
        for paired, first, count in ((True, 0, m.pairs), (False, 2 * m.pairs, m.singles)):
            trial, test = self.columns(self.trial, paired), self.columns(self.test, paired)
            test = test if self.ctx.form.to_modes else ([], [])  # results are in the order of the points
            together = max(1, _SUMS // max((len(trial[0]) + len(trial[1])) * len(halves), 1))
            full, rest = divmod(count, together)
            targets = [tuple(self.b.at(own, (at, 1)) for own, at in zip(pair, start, strict=True)) for pair in tested]
            tables = [
                side[:, quantities, first : first + count].transpose(2, 0, 1)
                for side, quantities in zip((self.even, self.odd), trial, strict=True)
            ]
            if full:
                with self.b.each(full) as i:
                    self.some(paired, first, together, i, [t[: full * together] for t in tables], halves, targets)
            if rest:
                last = full * together
                behind = [
                    tuple(self.b.at(t, (last * len(own), 1)) for t, own in zip(pair, test, strict=True))
                    for pair in targets
                ]
                self.some(paired, first + last, rest, 0, [t[last:] for t in tables], halves, behind)
            start = start[0] + count * len(test[0]), start[1] + count * len(test[1])

    def some(
        self,
        paired: bool,
        first: int,
        together: int,
        i: Where,
        tables: Sequence[Floats],
        halves: Sequence[str],
        targets: Sequence[tuple[str, ...]],
    ) -> None:
        """Some points, or pairs of them: block i of those of the tables [point, mode, column]."""
        b, trial, test = self.b, self.columns(self.trial, paired), self.columns(self.test, paired)
        sums: list[list[list[str]]] = [[] for _ in halves]
        for table, at, own in zip(tables, (0, self.modes.even), trial, strict=True):
            size, modes = len(own) * together, table.shape[1]
            by_block = table.reshape(len(table) // together, together, *table.shape[1:]).transpose(0, 2, 1, 3)
            start = b.at(b.real_table(by_block), (i, modes * size), unit=b.real) if own else ""
            for source, found in zip(halves, sums, strict=True):
                given = b.at(source, (at, 1))
                found.append(table_product(b, start, given, modes, size, self.ctx.prefetch.fetch) if own else [])
        for r in range(together):
            parts = [
                [dict(zip(own, s[r * len(own) :], strict=False)) for s, own in zip(found, trial, strict=True)]
                for found in sums
            ]
            point = b.index((i, together), (first + r, 1))
            there: list[dict[int, str]] = []
            image = b.index((i, together), (first + r + self.modes.pairs, 1)) if paired else 0
            if paired:
                here = self.at(point, [{a: b.add(even[a], odd[a]) for a in even} for even, odd in parts])
                there = self.at(image, [{a: self.image(a, even[a], odd[a]) for a in even} for even, odd in parts])
            else:
                here = self.at(point, [even | odd for even, odd in parts])
            if not self.ctx.form.to_modes:
                for place, results in ((point, here), (image, there)):
                    for result, (area, _) in zip(results, targets, strict=False):
                        b.store(result[0], b.at(area, (place, 1)))
                continue
            if paired:
                tested = []
                for one, other in zip(here, there, strict=True):
                    total = {a: b.add(one[a], other[a]) for a in one}
                    difference = {a: b.sub(one[a], other[a]) for a in one}
                    swapped = (difference, total)
                    tested.append([{a: own[a == _ACROSS][a] for a in one} for own in ((total, difference), swapped)])
            else:
                tested = [[own, own] for own in here]
            for of_component, target in zip(tested, targets, strict=True):
                for values, start, own in zip(of_component, target, test, strict=True):
                    for k, a in enumerate(own):
                        b.store(values[a], b.at(start, (i, together * len(own)), (r * len(own) + k, 1)))

    def image(self, a: int, even: str, odd: str) -> str:
        """A quantity at the image of a point."""
        return self.b.sub(odd, even) if a == _ACROSS else self.b.sub(even, odd)

    def at(self, point: Where, found: Sequence[dict[int, str]]) -> list[dict[int, str]]:
        """What is tested at a point, of what is evaluated there, by component."""
        ctx = self.ctx
        ctx.factors.start_fiber(point)
        values = [own[0] for own in found if 0 in own]
        derivatives = [[own[a] for a in sorted(own) if a] for own in found]
        tested = at_point(ctx, point, 0, values, derivatives)
        return [dict(zip(self.test, [*value, *flux], strict=True)) for value, flux in tested]

    def back(self, even: str, odd: str, halves: str) -> None:
        """Products of all that is tested with even and odd modes."""
        m = self.modes
        for modes, source, number, at in ((self.even, even, 0, 0), (self.odd, odd, 1, m.even)):
            parts = []
            for paired, first, count in ((True, 0, m.pairs), (False, 2 * m.pairs, m.singles)):
                own = modes[:, self.columns(self.test, paired)[number], first : first + count]
                own = own * self.weights[first : first + count]
                parts.append(own.transpose(0, 2, 1).reshape(len(own), own.shape[1] * own.shape[2]))
            if len(modes):
                multiply(self.ctx, np.concatenate(parts, axis=1), source, self.b.at(halves, (at, 1)), _SUMS)


def write_fused(problem: BlockProblem, lanes: int, prefetch: int = 0, indexed: Indexed = None) -> Program:
    """Write the kernel of a problem; see `write_sumfac`."""
    check_fused(problem)
    ctx, n = Context(problem, lanes, prefetch, indexed), problem.n_modes
    b, form, ctx.by_rows = ctx.b, problem.form, True
    writer = _Writer(ctx)
    if form.to_modes:
        write_both(b, "read_input", "write_result", n, indexed, prefetch != 0)
    else:
        write_reader(b, "read_input", Layout(n))
        write_writer(b, "write_result", Layout(problem.n_points))
    if field_inputs(ctx.trace):
        write_reader(b, "read_field", Layout(problem.n_points))
    modes = ctx.area("modes", size=n)
    halves = [ctx.area("halves", c, size=n) for c in range(problem.coupled)]
    size = max(len(writer.test), 1) * problem.n_points
    sides = ("even", "odd") if form.to_modes else ("even", "even")
    tested = [(ctx.area(sides[0], c, size=size), ctx.area(sides[1], c, size=size)) for c in range(problem.given)]

    def apply(application: Index) -> None:
        for c, own in enumerate(halves):
            call(ctx, "read_input", component(ctx, "%in", application, problem.coupled, c, n), modes)
            writer.split(modes, own, back=False)
        writer.points(halves, tested)
        for c, pair in enumerate(tested):
            if form.to_modes:
                writer.back(*pair, halves[0])
                writer.split(modes, halves[0], back=True)
            result = component(ctx, "%out", application, problem.given, c, problem.n_output)
            call(ctx, "write_result", result, modes if form.to_modes else pair[0])

    return program_of(ctx, apply)
