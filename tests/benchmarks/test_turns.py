"""Timing in turns: verdicts hold on a loaded machine, whose clock is simulated."""

import random

import pytest

from hpfem.benchmarks import turns as module
from hpfem.benchmarks.turns import FIRST, HOPELESS, LONGEST, MARGIN, gain, time_in_turns
from tests.tuning.world import World


@pytest.fixture(autouse=True)
def as_for_users(monkeypatch):
    """Turns go on, which they do not in other tests."""
    monkeypatch.setattr(module, "LONGEST", LONGEST)


class Loaded:
    """The clock of a machine that slows down and speeds up, and whose core other processes take for milliseconds."""

    def __init__(self, seed, share=0.6, slices=0.003):
        self.random, self.share, self.slices = random.Random(seed), share, slices
        self.now = self.change = self.taken = 0.0
        self.pace = 1.0

    def seconds(self, call, calls):
        """Time calls; what a call returns are its seconds on an idle machine."""
        start = self.now
        if self.now >= self.change:
            self.change, self.pace = self.now + self.random.expovariate(20), self.random.choice((1, 1, 1.3, 1.8))
        end = self.now + call() * calls * self.pace * self.random.lognormvariate(0, 0.02)
        while self.taken < end:
            wait = self.random.expovariate((1 - self.share) / (self.slices * self.share))
            end += wait
            self.taken = max(self.taken, self.now) + wait + self.random.expovariate(1 / self.slices)
        self.now = end
        return end - start


@pytest.mark.parametrize(("ratio", "sign"), [(1.0, 0), (1.005, 0), (1.06, 1), (1.3, 1), (2.0, 1), (0.94, -1), (9.0, 1)])
def test_verdicts_are_those_of_an_idle_machine(ratio, sign):
    for seed in range(8):
        timed = time_in_turns({"a": lambda: 2e-4, "b": lambda: 2e-4 * ratio}, Loaded(seed))
        found = gain(timed["a"], timed["b"])
        assert found.sign == sign == -gain(timed["b"], timed["a"]).sign, (seed, found)
        assert found.low <= found.median <= found.high
        assert ratio > HOPELESS or found.median == pytest.approx(ratio, rel=0.08)


def test_turns_alternate_and_the_least_of_three_samples_counts():
    world = World()
    # Every second sample of "a" is disturbed.
    calls = {"a": world.worker("a", 1.0, 1.0, 9.0), "b": world.worker("b", 1.5)}
    timed = time_in_turns(calls, world, turns=6, most_seconds=1e9)
    assert world.log[8:20] == 3 * ["a"] + 6 * ["b"] + 3 * ["a"]
    assert timed["a"].quartiles == (1.0, 1.0) and timed["a"].calls == 1
    assert gain(timed["a"], timed["b"]) == (1.5, 1.5, 1.5)


def test_there_are_turns_enough_for_a_verdict_but_no_more_than_there_is_time_for():
    world = World()
    timed = time_in_turns({"a": world.worker("a", 1.0), "b": world.worker("b", 1.5)}, world, turns=1, most_seconds=1e9)
    assert len(timed["a"].samples) == FIRST + 1  # a verdict of one asked turn would be chance
    slow = {name: world.worker(name, 10.0) for name in "ab"}
    assert len(time_in_turns(slow, world)["a"].samples) == FIRST
    short = time_in_turns({"a": world.worker("a", 1e-5)}, world, turns=7)["a"]
    assert (short.calls, short.repeats) == (30, 7) and short.median == pytest.approx(1e-5)


def test_what_is_far_slower_drops_out_and_still_has_its_ratio():
    world = World()
    timed = time_in_turns({"a": world.worker("a", 1e-3), "b": world.worker("b", 1.1e-3 * HOPELESS)}, world)
    assert (timed["a"].repeats, timed["b"].repeats) == (25, FIRST)
    assert gain(timed["a"], timed["b"]).low == pytest.approx(1.1 * HOPELESS)


def test_a_difference_within_the_margin_or_the_quartiles_is_none():
    world = World()
    close = time_in_turns({"a": world.worker("a", 1e-3), "b": world.worker("b", 1e-3 * (1 + MARGIN / 2))}, world)
    assert gain(close["a"], close["b"]).sign == 0
    # After four calls that are not counted, "b" is three times as slow in one turn of two, else faster.
    calls = {"a": world.worker("a", 1e-3), "b": world.worker("b", 3e-3, *3 * [0.9e-3], 3e-3, 3e-3)}
    wide = time_in_turns(calls, world)
    assert gain(wide["a"], wide["b"]).high > 2 and gain(wide["a"], wide["b"]).sign == 0
