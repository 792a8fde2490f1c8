"""Search for the fastest options of "sumfac-top", with invented times; options as text."""

from dataclasses import replace
from itertools import pairwise

import pytest

import hpfem as hp
from hpfem.backends import options as texts
from hpfem.backends.cuda.codegen.tables import Levels
from hpfem.backends.cuda.runtime import planned
from hpfem.backends.cuda.runtime.device import Limits
from hpfem.backends.cuda.sumfac_top.plan import SumFacTopOptions, checked_plan, default_plans
from hpfem.backends.cuda.sumfac_top.search import MOST
from hpfem.backends.cuda.sumfac_top.strategy import CudaSumFacTop
from hpfem.errors import ArgumentError, NotSuitable
from tests.samples import curved, straight


def problem_of(mesh, order, kind=hp.Mass, **options):
    """Problem of an operator on a mesh of one block."""
    return kind(hp.Space(mesh, order, quadrature="collapsed"), backend="numpy", **options).choices[0].kernel.problem


def rounds_of(problem, seconds, default=None, **options):
    """Rounds of a search, timed by a function of the options; and the times."""
    timed, rounds = {}, []
    found = CudaSumFacTop().rounds(problem, Limits(), default, **options)
    batch = next(found)
    while True:
        rounds.append(batch)
        timed.update({options: seconds(options) for options in batch})
        try:
            batch = found.send(timed)
        except StopIteration:
            return rounds, timed


def test_begins_with_the_measured_options_and_different_numbers_of_elements():
    problem = problem_of(curved("tet"), 4)
    known = CudaSumFacTop().chosen(problem, Limits())
    first = rounds_of(problem, lambda v: 1.0, known)[0][0]
    assert first[0] == known == CudaSumFacTop().known(problem)
    counts = sorted(v.elements for v in first[1:] if not v.split)
    assert {v.split for v in first} >= {0, 3}
    assert 1 < len(counts) <= MOST
    assert all(b > 1.1 * a for a, b in pairwise(counts))
    plain = rounds_of(problem, lambda v: 1.0, most=3)[0][0]
    assert len([v for v in plain if not v.split]) <= 3
    assert all(v == SumFacTopOptions(v.elements, split=v.split) for v in plain)
    assert rounds_of(problem, lambda v: 1.0, known, most=0)[0][0] == first[:1]


def test_options_that_help_are_combined():
    problem = problem_of(curved("tet"), 4)

    def seconds(v):
        """Best with the seven, the cache of level 2 asked for, and two points prefetched late."""
        return 2.0 - 0.2 * v.l2 - 0.1 * v.late - (0.1 if v.prefetch == 2 else 0) + 0.01 * abs(v.elements - 4)

    rounds, timed = rounds_of(problem, seconds)
    assert len(rounds) == 3
    best = min(timed, key=lambda v: timed[v])
    assert best.l2 and best.late and best.prefetch == 2
    everything = [v for batch in rounds for v in batch]
    assert len(everything) == len(set(everything))


def test_affine_elements_have_nothing_to_prefetch():
    rounds, _ = rounds_of(problem_of(straight("hex"), 3, hp.Helmholtz, lam=1.0), lambda v: 1.0)
    assert rounds[1] and all(not v.prefetch and not v.l2 for batch in rounds[1:] for v in batch)


def test_what_does_not_fit_is_refused():
    problem = problem_of(curved("hex"), 4)
    levels = Levels.of(problem)
    assert checked_plan(problem, levels, SumFacTopOptions(2), Limits()).options.elements == 2
    with pytest.raises(NotSuitable, match="shared memory"):
        checked_plan(problem, levels, SumFacTopOptions(60), Limits())
    with pytest.raises(NotSuitable, match="0 elements"):
        checked_plan(problem, levels, SumFacTopOptions(0), Limits())


def test_text_of_options():
    problem = problem_of(curved("tet"), 4)
    modelled = [layout.options for layout in default_plans(problem, Levels.of(problem), Limits())]
    for options in (CudaSumFacTop().known(problem), *modelled):
        for v in (options, replace(options, tables_shared=False, l2=True, prefetch=3, late=True)):
            assert texts.from_text(SumFacTopOptions, texts.to_text(v)) == v
    assert texts.to_text(SumFacTopOptions(4)) == "elements=4"
    assert (
        texts.to_text(SumFacTopOptions(4, 2, tables_shared=False, late=True))
        == "elements=4 prefetch=2 no-tables_shared late"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is incomplete; it takes elements, prefetch, min_blocks, tables_shared, l2, late, split"),
        ("prefetch=2", "is incomplete"),
        ("elements=x", "is not name=number"),
        ("elements=-1", "is not name=number"),
        ("elements=4 elements=5", "'elements' is unknown or twice there"),
        ("elements=4 no-late late", "'late' is unknown or twice there"),
        ("elements=4 fast", "'fast' is unknown or twice there; valid: elements, prefetch"),
        ("elements", "'elements' takes a number"),
        ("elements=4 no-prefetch", "'prefetch' takes a number"),
        ("elements=4 l2=1", "'l2' takes no number"),
        ("elements=4 tables_shared=0", "'tables_shared' takes no number"),
    ],
)
def test_text_that_is_no_option(text, message):
    with pytest.raises(ArgumentError, match=f"options {text!r}.*{message}"):
        texts.from_text(SumFacTopOptions, text)


def test_the_strategy_speaks_text(monkeypatch):
    monkeypatch.setattr(planned, "limits", Limits)
    problem, strategy = problem_of(curved("prism"), 3), CudaSumFacTop()
    rounds = strategy.search(problem)
    first = next(rounds)
    assert texts.from_text(SumFacTopOptions, first[0]) == CudaSumFacTop().known(problem)
    second = rounds.send({name: 1.0 + i for i, name in enumerate(first)})
    assert second and not set(second) & set(first)
    assert all(name.startswith(tuple(text.split()[0] for text in first[:2])) for name in second)
    third = rounds.send({name: 2.0 - 0.01 * i for i, name in enumerate([*first, *second])})
    assert isinstance(third, list)
    with pytest.raises(StopIteration):
        rounds.send({})


def test_strategies_without_options_refuse_some():
    from hpfem.backends.cuda.stdmat.strategy import CudaStdMat

    problem = problem_of(straight("tri"), 2)
    assert list(CudaStdMat().search(problem)) == [(None,)]
    with pytest.raises(ArgumentError, match="strategy 'stdmat' has no options 'elements=4'"):
        CudaStdMat().build(problem, "elements=4")
