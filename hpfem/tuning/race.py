"""A race between callables: timed in turns, so that what slows the machine down slows all of them; medians count.

A challenger takes the incumbent's place only if it wins clearly: what is known to be good is not given up for noise.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from ..backends.timer import Timer

# What a callable is called: words, for JSON.
Name = tuple[str | None, ...]

# Share of its time by which a challenger must beat the incumbent.
MARGIN = 0.05
# Calls are put in a row until they take about this long, in seconds, and at most so many of them.
SAMPLE, MOST_CALLS = 0.002, 1000
# Times of the best beyond which one call is enough to know.
HOPELESS = 3.0


@dataclass
class Runner:
    """One that takes part.

    Attributes
    ----------
    call : callable or None
        The work; None when it is out of the race.
    calls : int
        Calls in a row of a sample.
    samples : list of float
        Seconds of one call.
    """

    call: Callable[[], object] | None
    calls: int
    samples: list[float] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """Median of the samples."""
        return statistics.median(self.samples)


@dataclass(frozen=True)
class Verdict:
    """Outcome of a race.

    Attributes
    ----------
    winner : Name
    seconds : float
        Of one call.
    runner_up : Name or None
        The fastest of the others; None if there was no other.
    ratio : float
        Its seconds by the winner's; below 1 if it is faster, but not by enough.
    kept : bool
        Whether the incumbent stays though another was faster.
    """

    winner: Name
    seconds: float
    runner_up: Name | None
    ratio: float
    kept: bool


class Race:
    """A race under way.

    Parameters
    ----------
    timer : Timer
    deadline : float
        When it ends, on `clock`; a call that runs is not interrupted.
    incumbent : Name, optional
        Who never drops out.
    clock : callable
        () -> seconds.
    """

    def __init__(
        self,
        timer: Timer,
        deadline: float,
        incumbent: Name | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.timer, self.deadline, self.incumbent, self.clock = timer, deadline, incumbent, clock
        self.runners: dict[Name, Runner] = {}

    def over(self) -> bool:
        """Whether its time is up."""
        return self.clock() >= self.deadline

    @property
    def seconds(self) -> dict[Name, float]:
        """Median seconds of one call of all that took part."""
        return {name: runner.seconds for name, runner in self.runners.items()}

    @property
    def active(self) -> list[Name]:
        """Those that have not dropped out, fastest first."""
        inside = [name for name, runner in self.runners.items() if runner.call is not None]
        return sorted(inside, key=lambda name: self.runners[name].seconds)

    def enter(self, name: Name, call: Callable[[], object]) -> None:
        """Let one take part: a first call is not counted, a second one tells how many make a sample.

        Parameters
        ----------
        name : Name
        call : callable
        """
        self.timer.seconds(call, 1)
        once = max(self.timer.seconds(call, 1), 1e-9)
        best = min(self.seconds.values(), default=once)
        runner = Runner(call, int(min(max(1.0, SAMPLE / once), MOST_CALLS)), [once])
        self.runners[name] = runner
        if once > HOPELESS * best and once > SAMPLE:
            self._drop([name])
        elif runner.calls > 1:
            # One short call by itself is mostly the time of starting it.
            runner.samples = [self.timer.seconds(call, runner.calls) / runner.calls]

    def run(self, repeats: int, within: float, names: Collection[Name] | None = None) -> None:
        """Time those still inside, in turns; whoever falls behind drops out.

        Parameters
        ----------
        repeats : int
            Samples of each.
        within : float
            Times of the best beyond which one drops out, at least 1.
        names : collection of Name, optional
            Who runs; all that are inside when left out.
        """
        for turn in range(repeats):
            inside = [name for name in self.active if names is None or name in names]
            # There and back: nobody always runs behind the same one.
            for name in inside if turn % 2 == 0 else reversed(inside):
                if self.over():
                    return
                runner = self.runners[name]
                if runner.call is not None:
                    runner.samples.append(self.timer.seconds(runner.call, runner.calls) / runner.calls)
            best = min((self.runners[name].seconds for name in self.active), default=0.0)
            self._drop([name for name in inside if self.runners[name].seconds > within * best])

    def only(self, most: int) -> None:
        """Let no more than the fastest stay inside, and the incumbent.

        Parameters
        ----------
        most : int
        """
        self._drop(self.active[most:])

    def _drop(self, names: Collection[Name]) -> None:
        for name in names:
            if name != self.incumbent:
                self.runners[name].call = None

    def verdict(self, margin: float = MARGIN) -> Verdict:
        """Say who won.

        Parameters
        ----------
        margin : float
            Share of its time by which the incumbent must be beaten.

        Returns
        -------
        Verdict

        Raises
        ------
        ValueError
            If nobody is inside.
        """
        best = self.active[0]
        winner, known = best, self.runners.get(self.incumbent) if self.incumbent is not None else None
        if known is not None and self.runners[best].seconds > (1.0 - margin) * known.seconds:
            winner = self.incumbent or best
        seconds = self.runners[winner].seconds
        others = [name for name in self.runners if name != winner]
        runner_up = min(others, key=lambda name: self.runners[name].seconds, default=None)
        ratio = self.runners[runner_up].seconds / seconds if runner_up is not None else 1.0
        return Verdict(winner, seconds, runner_up, ratio, winner != best)
