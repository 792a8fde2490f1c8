"""The sources of geometric factors that a problem may have, and the problem with another one."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from ..errors import NotSuitable
from ..geometry.factors import FactorSource
from .form import BlockProblem
from .merged import merged

_MERGED = {FactorSource.STORED: FactorSource.MERGED, FactorSource.SCALED: FactorSource.SCALED_MERGED}


def of_source(problem: BlockProblem, source: FactorSource) -> BlockProblem:
    """The problem with a source of factors, or this one if it has it; what is merged stays merged."""
    if source.merges and not problem.source.merges:
        problem = merged(problem)
    if problem.source.merges:
        source = _MERGED.get(source, source)
    geometry, rule, name = problem.geometry, problem.tabulation.rule, problem.form.name
    if source.recomputes:
        low = geometry.kind.order is not None and geometry.space_dim == geometry.dim
        if not (low and problem.form.factor_kind is not None and rule.tensor):
            points = "" if rule.tensor else " on a simplex rule"
            raise NotSuitable(f"factors of {name} on {geometry.kind.name} elements{points} are not recomputed")
    if source.scales and (problem.form.factor_kind != "metric" or geometry.tensor):
        raise NotSuitable(f"factors of {name} are not scaled: it takes more than the symmetric metric")
    if problem.source.merges and not source.merges:
        raise NotSuitable(f"recomputed factors of {name} have no coefficients in them; use scaled ones")
    return problem if source is problem.source else replace(problem, source=source)


def possible_sources(problem: BlockProblem) -> tuple[FactorSource, ...]:
    """The sources that a problem may have; coefficients that can be multiplied into stored numbers, are."""
    first, scaled = FactorSource.MERGED, FactorSource.SCALED_MERGED
    try:
        of_source(problem, first)
    except NotSuitable:
        first, scaled = FactorSource.STORED, FactorSource.SCALED
    found = [first]
    for source in (FactorSource.RECOMPUTED, scaled):
        with suppress(NotSuitable):
            of_source(problem, source)
            found.append(source)
    return tuple(found)


def nearest_source(problem: BlockProblem, source: FactorSource) -> FactorSource:
    """The possible source that is most like another: stored if that is not, merged wherever that can be."""
    possible = possible_sources(problem)
    if FactorSource.MERGED in possible:
        scales = source.recomputes and FactorSource.SCALED_MERGED in possible
        return FactorSource.SCALED_MERGED if scales else FactorSource.MERGED
    plain = next((own for own, other in _MERGED.items() if other is source), source)
    return plain if plain in possible else FactorSource.STORED
