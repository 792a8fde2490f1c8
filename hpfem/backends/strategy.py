"""Strategies: ways to compute a form on a block. They build kernels, refuse unsuitable problems and estimate costs.

A strategy is an object with a name; it is listed in the `strategies` of its `Backend`. One with free choices names
them: `default`, `search` (rounds of options to time, as text) and `prepare` (compile in the background); the tuner does
the rest. The source of geometric factors is such an option: `Strategy.sources`, `with_source`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from ..errors import ArgumentError, NotSuitable
from ..forms.form import BlockKernel, BlockProblem
from ..forms.sources import of_source, possible_sources
from ..geometry import FactorSource
from .options import source_in

# One of the ways in which a strategy can build a kernel, as text (`hpfem.backends.options`); None: the strategy's own.
Options = str | None
# A generator of options to time; it receives the seconds of all that were timed so far.
Search = Generator[Sequence[Options], Mapping[Options, float], None]


class Strategy(Protocol):
    """A way to compute a form on a block; one file each.

    Attributes
    ----------
    name : str
        Name for users: "stdmat", "sumfac", ...
    special : bool
        Whether it is meant for some problems only, so that its refusal needs no report.
    tensor : bool
        Whether it needs quadrature that is a tensor product of rules of one direction.
    sources : tuple of FactorSource
        Sources of geometric factors that are its only options; none if it has no such options.
    """

    name: str
    special: bool
    tensor: bool = False
    sources: tuple[FactorSource, ...] = ()

    def default(self, problem: BlockProblem) -> Options:
        """Name the default options of `build`: from the shipped table or the model.

        Parameters
        ----------
        problem : BlockProblem

        Returns
        -------
        str or None
            None if there is nothing to choose.

        Raises
        ------
        NotSuitable
            With the reason, if this strategy is not suitable for the problem; `build` may still refuse if this does
            not.
        """
        return None

    def measured(self, problem: BlockProblem) -> str | None:
        """Tell the measured speed of the default options, "22.4 GDoF/s on an H200"; None for a model; see `cost`."""
        return None

    def search(self, problem: BlockProblem) -> Search:
        """Search the options in rounds: the default, and other sources of geometric factors.

        Parameters
        ----------
        problem : BlockProblem

        Yields
        ------
        sequence of str or None
            Options to time, the default first; it receives the seconds of all options that were timed so far, which may
            be none or all of these.

        Raises
        ------
        NotSuitable
            As `default`.
        """
        default = self.default(problem)
        possible = possible_sources(problem) if self.sources else ()
        others = [own.value for own in possible if own in self.sources and own != (default or FactorSource.STORED)]
        yield (default, *others)

    def prepare(self, problem: BlockProblem, options: Options = None) -> Future[Any] | None:
        """Begin the slow part of `build` in the background: compiling into a cache; for the arguments see `build`.

        Returns a future of this work; None if there is nothing to do.
        """
        return None

    def build(self, problem: BlockProblem, options: Options = None) -> BlockKernel:
        """Build the kernel.

        Parameters
        ----------
        problem : BlockProblem
        options : str, optional
            One of `search`; the default when left out.

        Returns
        -------
        BlockKernel

        Raises
        ------
        NotSuitable
            With the reason, if this strategy cannot serve the problem.
        ArgumentError
            If there are no such options.
        """

    def cost(self, problem: BlockProblem) -> float:
        """Estimate the time of an element, for choices without measurements.

        Parameters
        ----------
        problem : BlockProblem

        Returns
        -------
        float
            Relative to other strategies.
        """


def options_of_source(strategy: Strategy, problem: BlockProblem, source: FactorSource) -> Options:
    """First options whose kernel has a source of geometric factors; see `Strategy.search`.

    NotSuitable is raised if there are none before others were timed.
    """
    for options in next(strategy.search(problem), ()):
        if source_in((strategy.default(problem) if options is None else options) or "") is source:
            return options
    raise NotSuitable(f"strategy {strategy.name!r} offers no factors that are {source} before it has timed others")


def with_source(strategy: Strategy, problem: BlockProblem, options: Options) -> BlockProblem:
    """A problem with the source of factors that options name, the default's when left out; see `Strategy.build`.

    These are all options of a strategy with `sources`.
    """
    if options is None:
        options = strategy.default(problem)
    if options is not None and options not in strategy.sources:
        raise ArgumentError(f"strategy {strategy.name!r} has no options {options!r}")
    return of_source(problem, FactorSource(options or FactorSource.STORED))
