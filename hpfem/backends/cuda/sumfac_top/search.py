"""Search for the fastest options of "sumfac-top": elements per block, options one by one, what helped together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from itertools import zip_longest

from ....forms.form import BlockProblem
from ....forms.sources import possible_sources
from ..codegen.layout import numbers_read
from ..codegen.tables import Levels
from ..runtime.device import Limits
from .plan import SumFacTopOptions, SumFacTopPlan, default_plans, with_nearest_source

# Numbers of elements per block that are tried, and how many of the fastest are tried with one option more.
MOST, KEPT = 6, 2
# What an option must save to be combined with others.
HELPS = 0.995
# First numbers of elements with lines along the last direction in phases of their own, in blocks of enough threads.
SPLIT = tuple(SumFacTopOptions(elements, split=split) for elements, split in ((2, 3), (4, 7), (8, 3), (16, 7)))
SPLIT_THREADS = 80
OPTIONS = tuple(field.name for field in fields(SumFacTopOptions) if field.name != "elements")


def first_options(
    problem: BlockProblem, levels: Levels, limits: Limits, default: SumFacTopOptions | None, most: int
) -> list[SumFacTopOptions]:
    """The default options if there are some, and different numbers of elements per block in the model's order."""
    tried: list[list[SumFacTopOptions]] = []
    for source in possible_sources(problem):
        tried.append([])
        for own in [layout.options for layout in default_plans(problem, levels, limits, source)]:
            e, others = own.elements, [v.elements for v in tried[-1]]
            if len(tried[-1]) < most and all(max(e, other) > 1.1 * min(e, other) for other in others):
                tried[-1].append(SumFacTopOptions(e, source=source))
    in_turns = [v for pair in zip_longest(*tried) for v in pair if v is not None]
    first = [] if default is None else [default]
    split = [with_nearest_source(problem, v) for v in SPLIT if most and _can_split(levels)]
    split = [v for v in split if (p := SumFacTopPlan(problem, levels, v)).fits(limits) and p.threads >= SPLIT_THREADS]
    return list(dict.fromkeys([*first, *in_turns, *split]))


def _can_split(levels: Levels) -> bool:
    """Whether lines along the last direction may be a phase of their own."""
    return levels.dim > 1 and not levels.reverse


def second_options(
    problem: BlockProblem, levels: Levels, timed: Mapping[SumFacTopOptions, float], kept: int
) -> list[SumFacTopOptions]:
    """One option more at a time for the fastest."""
    found = []
    for v in sorted(timed, key=lambda options: timed[options])[:kept]:
        layout = SumFacTopPlan(problem, levels, v)
        found.append(replace(v, min_blocks=layout.min_blocks + 1))
        found += [replace(v, min_blocks=layout.min_blocks - 1)] if layout.min_blocks > 1 else []
        stored = numbers_read(layout.problem) > 0
        if stored:
            found += [replace(v, prefetch=1), replace(v, prefetch=2), replace(v, l2=True)]
            found += [replace(v, prefetch=n, late=True) for n in (1, 2, 4)]
        if not problem.geometry.affine:
            found += [replace(v, split=n) for n in (0, 1, 2, 3, 7) if _can_split(levels)]
            found += [] if problem.form.gradients or not stored else [replace(v, prefetch=levels.counts[0])]
        if not levels.uniform(1):
            found.append(replace(v, tables_shared=not layout.b_table_size))
    return [v for v in dict.fromkeys(found) if v not in timed]


def third_options(timed: Mapping[SumFacTopOptions, float], kept: int) -> list[SumFacTopOptions]:
    """The options that helped, together."""
    found, order = [], sorted(timed, key=lambda options: timed[options])
    names = ("elements", "split", "source")
    plain = [v for v in order if v == SumFacTopOptions(**{name: getattr(v, name) for name in names})]
    for base in plain[:kept]:
        better = [v for v in order if v.elements == base.elements and timed[v] < HELPS * timed[base]]
        merged = base
        # The best option of each name last, so that it stays.
        for v in reversed(better):
            changes = {name: getattr(v, name) for name in OPTIONS if getattr(v, name) != getattr(base, name)}
            merged = replace(merged, **changes)
            found.append(merged)
    return [v for v in dict.fromkeys(found) if v not in timed]
