"""Strategies: ways to compute a form on a block, which say what they serve, build kernels and estimate their cost."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from ..errors import ArgumentError
from ..forms.form import BlockKernel, BlockProblem

# One of the ways in which a strategy can build a kernel, as text (`hpfem.backends.config`); None: the strategy's own.
Variant = str | None
# Gives variants to time; is sent the seconds of all that were timed so far.
Search = Generator[Sequence[Variant], Mapping[Variant, float], None]


class Strategy(Protocol):
    """A way to compute a form on a block; one file each.

    Attributes
    ----------
    name : str
        What users ask for: "stdmat", "sumfac", ...
    special : bool
        Whether it is meant for some problems only, so that its refusal is no fall from a fast path.
    """

    name: str
    special: bool

    def default(self, problem: BlockProblem) -> Variant:
        """Name the variant that `build` takes by itself: the shipped table's or the model's.

        Parameters
        ----------
        problem : BlockProblem

        Returns
        -------
        str or None
            None where there is nothing to choose.

        Raises
        ------
        NotSuitable
            As `variants`.
        """
        return None

    def measured(self, problem: BlockProblem) -> str | None:
        """Tell what is known of the default variant's speed, if somebody measured it and the package ships that.

        Parameters
        ----------
        problem : BlockProblem

        Returns
        -------
        str or None
            "22.4 GDoF/s on an H200"; None if `cost` is a model.
        """
        return None

    def variants(self, problem: BlockProblem) -> Sequence[Variant]:
        """Variants worth timing before anything is known, the default first.

        Parameters
        ----------
        problem : BlockProblem

        Returns
        -------
        sequence of str or None
            (None,) where there is nothing to choose.

        Raises
        ------
        NotSuitable
            With the reason, if this strategy cannot serve the problem; `build` may still refuse if this does not.
        """
        return (self.default(problem),)

    def search(self, problem: BlockProblem) -> Search:
        """Search the variants in rounds.

        Parameters
        ----------
        problem : BlockProblem

        Yields
        ------
        sequence of str or None
            Variants to time, `variants` first; what is sent back are the seconds of all that were timed so far, which
            may be none of these, or all of them.
        """
        yield self.variants(problem)

    def prepare(self, problem: BlockProblem, variant: Variant = None) -> Future[Any] | None:
        """Begin in the background what takes long in `build`: compiling into a cache.

        Parameters
        ----------
        problem : BlockProblem
        variant : str, optional

        Returns
        -------
        Future or None
            Of what was begun; None where there is nothing to begin.

        Raises
        ------
        NotSuitable, ArgumentError
            As `build`.
        """
        return None

    def build(self, problem: BlockProblem, variant: Variant = None) -> BlockKernel:
        """Build the kernel.

        Parameters
        ----------
        problem : BlockProblem
        variant : str, optional
            One of `variants` or `search`; the default when left out.

        Raises
        ------
        NotSuitable
            With the reason, if this strategy cannot serve the problem.
        ArgumentError
            If there is no such variant.
        """

    def cost(self, problem: BlockProblem) -> float:
        """Estimate the relative time per element, to choose by before anything is measured."""


def no_variants(strategy: Strategy, variant: Variant) -> None:
    """Refuse a variant of a strategy that has none.

    Raises
    ------
    ArgumentError
        If one is asked for.
    """
    if variant is not None:
        raise ArgumentError(f"strategy {strategy.name!r} has no variant {variant!r}")
