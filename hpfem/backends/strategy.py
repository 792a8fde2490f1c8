"""Strategies: ways to compute a form on a block. They build kernels, refuse unsuitable problems and estimate costs.

A strategy is an object with a name; it is listed in the `strategies` of its `Backend`. One with free choices names
them: `default`, `search` (rounds of options to time, as text) and `prepare` (compile in the background); the tuner does
the rest. The source of geometric factors (stored, recomputed, scaled: recomputed but for w / |J|, merged) is such an
option: `with_source`, `BlockProblem.with_factors`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from ..errors import ArgumentError, NotSuitable
from ..forms.form import BlockKernel, BlockProblem
from ..forms.merged import merged

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
    """

    name: str
    special: bool
    tensor: bool = False

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
        """Tell the measured speed of the default options, if the package ships a measurement.

        Parameters
        ----------
        problem : BlockProblem

        Returns
        -------
        str or None
            "22.4 GDoF/s on an H200"; None if `cost` is a model.
        """
        return None

    def search(self, problem: BlockProblem) -> Search:
        """Search the options in rounds.

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
        yield (self.default(problem),)

    def prepare(self, problem: BlockProblem, options: Options = None) -> Future[Any] | None:
        """Begin in the background the slow part of `build`: compiling into a cache.

        Parameters
        ----------
        problem : BlockProblem
        options : str, optional

        Returns
        -------
        Future or None
            A future of this work; None if there is nothing to do.

        Raises
        ------
        NotSuitable, ArgumentError
            As `build`.
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


# The only options of some strategies: where a kernel has geometric factors from, and whether coefficients of the form
# are multiplied into what it reads of them.
STORED, RECOMPUTED, SCALED, MERGED = "stored", "recomputed", "scaled", "merged"
SCALED_MERGED = f"{SCALED} {MERGED}"
SOURCES = (STORED, RECOMPUTED, SCALED, MERGED, SCALED_MERGED)


def options_of_source(strategy: Strategy, problem: BlockProblem, source: str) -> Options:
    """First options of a strategy's search whose kernel has a source of geometric factors.

    Parameters
    ----------
    strategy : Strategy
    problem : BlockProblem
    source : str
        One of `SOURCES`.

    Returns
    -------
    str or None

    Raises
    ------
    NotSuitable
        If there are none before others were timed, or the strategy is not suitable.
    """
    wanted = set(source.split()) - {STORED}
    for options in next(strategy.search(problem), ()):
        words = set(((strategy.default(problem) if options is None else options) or "").split())
        if words & {RECOMPUTED, SCALED, MERGED} == wanted:
            return options
    raise NotSuitable(f"strategy {strategy.name!r} offers no factors that are {source} before it has timed others")


def of_source(
    problem: BlockProblem, recomputed: bool = False, scaled: bool = False, is_merged: bool = False
) -> BlockProblem:
    """Take another source of geometric factors.

    Parameters
    ----------
    problem : BlockProblem
    recomputed, scaled : bool
        See `BlockProblem.with_factors`.
    is_merged : bool
        Whether the form's coefficients are multiplied into the factors (`hpfem.forms.merged`).

    Returns
    -------
    BlockProblem

    Raises
    ------
    NotSuitable
        If there is no such source for the problem.
    """
    if is_merged and not problem.geometry.merged:
        problem = merged(problem)
    return problem.with_factors(recomputed, scaled)


def possible_sources(problem: BlockProblem) -> tuple[str, ...]:
    """List the sources of geometric factors that a kernel may have.

    Parameters
    ----------
    problem : BlockProblem

    Returns
    -------
    tuple of str
        Those of `SOURCES` that `of_source` takes. Coefficients that can be multiplied into stored numbers, are.
    """
    try:
        with_coefficients = merged(problem)
    except NotSuitable:
        again = (RECOMPUTED,) * problem.recomputable + (SCALED,) * problem.scalable
        return (STORED, *again)
    return (MERGED, *(RECOMPUTED,) * problem.recomputable, *(SCALED_MERGED,) * with_coefficients.scalable)


def sources(strategy: Strategy, problem: BlockProblem) -> tuple[Options, ...]:
    """List the options that name sources of geometric factors.

    Parameters
    ----------
    strategy : Strategy
    problem : BlockProblem

    Returns
    -------
    tuple of str or None
        The default first.
    """
    default = strategy.default(problem)
    return (default, *(source for source in possible_sources(problem) if source != (default or STORED)))


def with_source(strategy: Strategy, problem: BlockProblem, options: Options) -> BlockProblem:
    """Take the source of geometric factors that options name; see `of_source`.

    Parameters
    ----------
    strategy : Strategy
    problem : BlockProblem
    options : str or None
        One of `SOURCES`; the strategy's default when left out.

    Returns
    -------
    BlockProblem

    Raises
    ------
    ArgumentError
        For other options.
    NotSuitable
        If there is no such source for the problem.
    """
    if options is None:
        options = strategy.default(problem) or STORED
    if options not in SOURCES:
        no_options(strategy, options)
    words = options.split()
    return of_source(problem, RECOMPUTED in words, SCALED in words, MERGED in words)


def no_options(strategy: Strategy, options: Options) -> None:
    """Refuse options of a strategy that has none.

    Parameters
    ----------
    strategy : Strategy
    options : str or None

    Raises
    ------
    ArgumentError
        If any are asked for.
    """
    if options is not None:
        raise ArgumentError(f"strategy {strategy.name!r} has no options {options!r}")
