"""Clocks for work on a device, and timing with them: several repeats of a number of calls; the median counts.

Many short repeats are less sensitive to interruptions than a few long ones.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

MAX_CALLS = 10_000
SLOW_SECONDS = 1.0
# Number of retries if a difference of times is negative, because other work disturbed the subtracted time.
ATTEMPTS = 20


class Timer:
    """A clock for work on the host; devices have their own."""

    def seconds(self, call: Callable[[], object], calls: int) -> float:
        """Time calls in a row, until all their work is done; -> seconds of all of them."""
        start = time.perf_counter()
        for _ in range(calls):
            call()
        return time.perf_counter() - start


@dataclass(frozen=True)
class Timing:
    """Seconds of one call."""

    # Over the repeats.
    median: float
    best: float
    worst: float
    # Repeats, and calls in a row in each.
    repeats: int
    calls: int
    samples: tuple[float, ...]  # all of them

    @classmethod
    def of(cls, samples: Sequence[float], calls: int) -> Timing:
        """Make it of the seconds of one call in each repeat; see `Timing`."""
        return cls(statistics.median(samples), min(samples), max(samples), len(samples), calls, tuple(samples))

    @property
    def quartiles(self) -> tuple[float, float]:
        """Lower and upper quartile of the samples."""
        return quartiles(self.samples)[::2]


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile of one or more numbers."""
    low, middle, high = statistics.quantiles(values if len(values) > 1 else 2 * [*values], method="inclusive")
    return low, middle, high


def measure(
    call: Callable[[], object],
    timer: Timer | None = None,
    repeats: int = 9,
    min_seconds: float = 0.005,
    start: Callable[[], object] | None = None,
    steps: int = 1,
) -> Timing:
    """Time a call, or one of many equal steps of it, after a first call that is not counted.

    Parameters
    ----------
    call : callable
        The work; its result is dropped.
    timer : Timer, optional
        A `Timer` when left out.
    repeats : int
        Repeats; at most 3 of a call that takes longer than a second.
    min_seconds : float
        A repeat has as many calls as take about this long.
    start : callable, optional
        The part of the call without the steps: its time is subtracted in each repeat.
    steps : int
        Steps of the call; the timing is of one.

    Returns
    -------
    Timing
    """
    timer = timer or Timer()
    timer.seconds(call, 1)
    if start is not None:
        timer.seconds(start, 1)
    once = max(timer.seconds(call, 1), 1e-9)
    calls = int(min(max(1, min_seconds / once), MAX_CALLS))
    if once > SLOW_SECONDS:
        repeats = min(repeats, 3)

    def sample() -> float:
        seconds = 0.0
        for _ in range(ATTEMPTS):
            seconds = timer.seconds(call, calls) - (0.0 if start is None else timer.seconds(start, calls))
            if seconds > 0 or start is None:
                break
        return seconds / (calls * steps)

    return Timing.of([sample() for _ in range(max(repeats, 1))], calls)
