"""A race between callables: they are timed in turns, so that disturbances slow all of them; medians count.

A challenger replaces the incumbent only if it wins clearly, not by noise.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from ..backends.timer import Timer
from .store import Config, TuningRecord

# Share of its time by which a challenger must beat the incumbent.
MARGIN = 0.05
# A sample repeats calls for about this many seconds, and at most this often.
SAMPLE, MOST_CALLS = 0.002, 1000
# One call is enough for a candidate that takes more than this many times the best time.
HOPELESS = 3.0


@dataclass
class Runner:
    """A candidate of a race."""

    call: Callable[[], object] | None  # None when it is out of the race
    calls: int  # in a sample
    samples: list[float] = field(default_factory=list)  # seconds of one call

    @property
    def seconds(self) -> float:
        """Median of the samples."""
        return statistics.median(self.samples)


class Race:
    """A race that ends at a time of the clock; a running call is not interrupted. The incumbent never drops out."""

    def __init__(
        self,
        timer: Timer,
        deadline: float,
        incumbent: Config | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.timer, self.deadline, self.incumbent, self.clock = timer, deadline, incumbent, clock
        self.runners: dict[Config, Runner] = {}

    def over(self) -> bool:
        """Whether its time is up."""
        return self.clock() >= self.deadline

    @property
    def seconds(self) -> dict[Config, float]:
        """Median seconds of one call of every candidate."""
        return {name: runner.seconds for name, runner in self.runners.items()}

    @property
    def active(self) -> list[Config]:
        """The candidates that have not dropped out, fastest first."""
        inside = [name for name, runner in self.runners.items() if runner.call is not None]
        return sorted(inside, key=lambda name: self.runners[name].seconds)

    def enter(self, name: Config, call: Callable[[], object]) -> None:
        """Add a candidate: its first call is not counted, the second one determines the number of calls in a sample."""
        self.timer.seconds(call, 1)
        once = max(self.timer.seconds(call, 1), 1e-9)
        best = min(self.seconds.values(), default=once)
        runner = Runner(call, int(min(max(1.0, SAMPLE / once), MOST_CALLS)), [once])
        self.runners[name] = runner
        if once > HOPELESS * best and once > SAMPLE:
            self._drop([name])
        elif runner.calls > 1:
            # The time of one short call is mostly its start.
            runner.samples = [self.timer.seconds(call, runner.calls) / runner.calls]

    def run(self, repeats: int, within: float) -> None:
        """Samples of all in the race, in turns; those beyond `within` times the best, but the second, drop out."""
        for turn in range(repeats):
            inside = self.active
            # Forwards and backwards, so that no candidate always follows the same one.
            for name in inside if turn % 2 == 0 else reversed(inside):
                if self.over():
                    return
                runner = self.runners[name]
                if runner.call is not None:
                    runner.samples.append(self.timer.seconds(runner.call, runner.calls) / runner.calls)
            inside, seconds = self.active, self.seconds
            self._drop([name for name in inside[2:] if seconds[name] > within * seconds[inside[0]]])

    def only(self, most: int) -> None:
        """Keep only the fastest candidates, and the incumbent."""
        self._drop(self.active[most:])

    def _drop(self, names: Collection[Config]) -> None:
        for name in names:
            if name != self.incumbent:
                self.runners[name].call = None

    def record(self, key: Mapping[str, str | int]) -> TuningRecord:
        """The result: the incumbent wins, unless another is faster by a share of `MARGIN` of its time."""
        seconds = self.seconds
        best = winner = self.active[0]
        if self.incumbent in seconds and seconds[best] > (1.0 - MARGIN) * seconds[self.incumbent]:
            winner = self.incumbent
        runner_up = next((name for name in self.active if name != winner), None)
        ratio = seconds[runner_up] / seconds[winner] if runner_up is not None else 1.0
        return TuningRecord(key, winner, seconds[winner], runner_up, ratio, winner != best, len(seconds))
