"""Strategies: ways to compute a form on a block. They build kernels, refuse unsuitable problems and estimate costs."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from ..errors import ArgumentError
from ..forms.form import BlockKernel, BlockProblem

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


# The only options of some strategies: factors are recomputed in the kernel, or read.
RECOMPUTED, STORED = "recomputed", "stored"


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
    return (default, STORED) if default == RECOMPUTED else (default, RECOMPUTED)[: 1 + problem.recomputable]


def with_source(strategy: Strategy, problem: BlockProblem, options: Options) -> BlockProblem:
    """Take the source of geometric factors that options name; see `BlockProblem.with_factors`.

    Parameters
    ----------
    strategy : Strategy
    problem : BlockProblem
    options : str or None
        "recomputed" or "stored"; the strategy's default when left out.

    Returns
    -------
    BlockProblem

    Raises
    ------
    ArgumentError
        For other options.
    NotSuitable
        If factors cannot be recomputed.
    """
    if options is None:
        options = strategy.default(problem)
    if options not in (RECOMPUTED, STORED):
        no_options(strategy, options)
    return problem.with_factors(options == RECOMPUTED)


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
