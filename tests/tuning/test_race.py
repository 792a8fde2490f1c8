"""Who wins a race: invented callables on an invented clock."""

import pytest

from hpfem.backends.timer import Timer
from hpfem.tuning.race import MARGIN, Race
from tests.tuning.world import World


@pytest.fixture
def world():
    """A fresh world."""
    return World()


def race_of(world, times, incumbent=None, deadline=1e9):
    """A race of callables by their times."""
    race = Race(world, deadline, incumbent, world.clock)
    for name, seconds in times.items():
        race.enter((name,), world.worker(name, *(seconds if isinstance(seconds, tuple) else (seconds,))))
    return race


def test_the_fastest_wins(world):
    race = race_of(world, {"a": 1.0, "b": 0.5, "c": 0.9})
    race.run(3, 2.5)
    verdict = race.record({})
    assert (verdict.winner, verdict.runner_up) == (("b",), ("c",))
    assert verdict.seconds == pytest.approx(0.5) and verdict.ratio == pytest.approx(1.8)
    assert not verdict.kept


@pytest.mark.parametrize(("challenger", "winner"), [(0.96, "old"), (0.94, "new"), (1.2, "old"), (1.0, "old")])
def test_a_challenger_wins_by_five_percent_or_not_at_all(world, challenger, winner):
    assert MARGIN == 0.05
    race = race_of(world, {"old": 1.0, "new": challenger}, incumbent=("old",))
    race.run(3, 1.5)
    verdict = race.record({})
    assert verdict.winner == (winner,)
    assert verdict.kept == (winner == "old" and challenger < 1.0)
    assert verdict.ratio == pytest.approx((challenger if winner == "old" else 1.0) / verdict.seconds)


def test_challengers_need_no_margin_among_themselves(world):
    race = race_of(world, {"old": 1.0, "new": 0.9, "newer": 0.89}, incumbent=("old",))
    race.run(3, 1.5)
    assert race.record({}).winner == ("newer",)


def test_medians_count_and_turns_alternate(world):
    # One of five samples of "a" is slow; without it, it is the faster one.
    race = race_of(world, {"a": (1.0, 1.0, 1.0, 9.0, 1.0, 1.0), "b": 1.1})
    world.log.clear()
    race.run(4, 20.0)
    assert race.record({}).winner == ("a",)
    assert world.log == ["a", "b", "b", "a", "a", "b", "b", "a"]


def test_slow_candidates_drop_out_except_the_incumbent(world):
    race = race_of(world, {"old": 2.0, "slow": 1.9, "fast": 1.0, "second": 1.8}, incumbent=("old",))
    race.run(3, 1.5)
    # The second fastest is timed to the end, for the sake of the record.
    assert race.active == [("fast",), ("second",), ("old",)]
    assert world.log.count("slow") == 3 and world.log.count("old") == world.log.count("fast") == 5
    assert race.record({}).runner_up == ("second",)
    assert race.runners["slow",].call is None  # and what it holds is free


def test_slow_candidates_get_no_further_sample(world):
    race = race_of(world, {"fast": 1.0, "hopeless": 4.0})
    assert race.active == [("fast",)] and race.seconds[("hopeless",)] == pytest.approx(4.0)


def test_a_runner_up_was_timed_to_its_end(world):
    # The machine is fast while "best" enters, so that "other" drops out at once, and slow after that.
    race = race_of(world, {"best": (0.1, 0.1, 1.0, 1.0, 1.0), "other": (0.43,)}, incumbent=("best",))
    race.run(3, 1.15)
    verdict = race.record({})
    assert race.seconds["other",] == pytest.approx(0.43) and verdict.seconds == pytest.approx(1.0)
    assert (verdict.runner_up, verdict.ratio, verdict.tried, verdict.kept) == (None, 1.0, 2, False)


def test_only_the_fastest_go_on(world):
    race = race_of(world, {"a": 1.0, "b": 1.1, "c": 1.2, "old": 1.3}, incumbent=("old",))
    race.only(2)
    assert race.active == [("a",), ("b",), ("old",)]


def test_short_calls_are_put_in_a_row(world):
    race = race_of(world, {"short": 1e-4, "shorter": 1e-9})
    assert race.runners["short",].calls == 20 and race.runners["shorter",].calls == 1000
    world.log.clear()
    race.run(2, 1e9)
    assert world.log.count("short") == 40
    assert race.seconds[("short",)] == pytest.approx(1e-4)


def test_it_ends_in_time(world):
    race = race_of(world, {"a": 1.0, "b": 1.05}, deadline=10.0)
    race.run(1000, 1.5)
    assert race.over() and 10.0 <= world.now < 11.5
    assert race.record({}).winner == ("a",)


def test_alone(world):
    verdict = race_of(world, {"a": 1.0}, incumbent=("a",)).record({})
    assert verdict.winner == ("a",) and verdict.runner_up is None and verdict.ratio == 1.0


def test_on_the_real_clock():
    race = Race(Timer(), 1e18)
    race.enter(("loop",), lambda: sum(range(20000)))
    race.enter(("nothing",), lambda: None)
    race.run(3, 1e9)
    assert race.record({}).winner == ("nothing",)
