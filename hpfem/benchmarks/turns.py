"""Timing in turns: what slows the machine down slows all calls alike, so that their ratios hold on a loaded machine.

In a turn each call is timed in a few short samples, and the least counts, since other processes only make it longer.
Turns go on until each difference is settled: whether one call is faster than another in three of four turns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import permutations
from typing import NamedTuple, TypeVar

from ..backends.timer import MAX_CALLS, Timer, Timing, quartiles

Name = TypeVar("Name")

# Samples of a call in a turn.
SAMPLES = 3
# A smaller difference is none, whatever the noise.
MARGIN = 0.02
# A call that takes so many times the least drops out after the first turns, of which there are never fewer; one of the
# square of it, after two.
HOPELESS, FIRST = 3.0, 5
# Turns end at so many times those that were asked for, settled or not.
LONGEST = 6
# Standard deviations that a share of turns is from three of four if the difference is settled.
SURE = 2.6


class Gain(NamedTuple):
    """How many times as fast a call is as another: quartiles over the turns."""

    low: float
    median: float
    high: float

    @property
    def sign(self) -> int:
        """1 if it is faster, -1 if it is slower, 0 for no difference: the quartiles reach into the margin around 1."""
        return (self.low > 1 + MARGIN) - (self.high < 1 / (1 + MARGIN))

    def __str__(self) -> str:
        return f"{self.median:.3g} ({self.low:.3g}-{self.high:.3g})" if self.sign else "no difference"


def gain(of: Timing, over: Timing) -> Gain:
    """How many times as fast the first is as the second, in the turns that had both."""
    return Gain(*quartiles([b / a for a, b in zip(of.samples, over.samples, strict=False)]))


def time_in_turns(
    calls: Mapping[Name, Callable[[], object]],
    timer: Timer | None = None,
    turns: int = 25,
    min_seconds: float = 0.0003,
    most_seconds: float = 4.0,
) -> dict[Name, Timing]:
    """Time calls in turns, at least `turns`, but no more than take `most_seconds`; a sample takes `min_seconds`."""
    timer = timer or Timer()
    once: dict[Name, float] = {}
    for name, call in calls.items():
        timer.seconds(call, 1)
        once[name] = max(min(timer.seconds(call, 1) for _ in range(SAMPLES)), 1e-9)
    counts = {name: int(min(max(1.0, min_seconds / seconds), MAX_CALLS)) for name, seconds in once.items()}
    samples: dict[Name, list[float]] = {name: [] for name in calls}
    inside, spent, turn = list(calls), 0.0, 0
    most = LONGEST * turns
    while turn < FIRST or (turn < most and spent < most_seconds and (turn < turns or not _settled(samples))):
        # Forwards and backwards, so that no call always follows the same one.
        for name in inside if turn % 2 == 0 else reversed(inside):
            seconds = [timer.seconds(calls[name], counts[name]) for _ in range(SAMPLES)]
            spent += sum(seconds)
            samples[name].append(min(seconds) / counts[name])
        turn += 1
        if turn in (2, FIRST):
            times = {name: quartiles(samples[name])[1] for name in inside}
            limit = HOPELESS ** (2 if turn == 2 else 1) * min(times.values())
            inside = [name for name in inside if times[name] <= limit]
    return {name: Timing.of(samples[name], counts[name]) for name in calls}


def _settled(samples: Mapping[Name, Sequence[float]]) -> bool:
    """Whether more turns would hardly change what is faster than what."""
    turns = max(map(len, samples.values()))
    inside = [times for times in samples.values() if len(times) == turns]
    for one, other in permutations(inside, 2):
        share = sum(b > (1 + MARGIN) * a for a, b in zip(one, other, strict=True)) / turns
        if abs(share - 0.75) < SURE * math.sqrt(0.75 * 0.25 / turns) and not (share == 1.0 and turns > 16):
            return False
    return True
