"""Strategies as providers: each says what it can serve and builds kernels; one is chosen per block."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ...backend import Backend
from ...errors import ArgumentError, NotSuitable
from ...kernels.form import ALGORITHMS, BlockKernel, BlockProblem
from ...reporting import report_once

# One of the ways in which a strategy can build a kernel, as text (`hpfem.kernels.variants`); None: the strategy's own.
Variant = str | None
# Gives variants to time; is sent the seconds of all that were timed so far.
Search = Generator[Sequence[Variant], Mapping[Variant, float], None]


class Strategy(Protocol):
    """A way to compute a form on a block; one file each.

    Attributes
    ----------
    name : str
        What users ask for: "stdmat", "sumfac", ...
    backend : str
        Name of the backend it belongs to.
    special : bool
        Whether it is meant for some problems only, so that its refusal is no fall from a fast path.
    """

    name: str
    backend: str
    special: bool

    def variants(self, problem: BlockProblem) -> Sequence[Variant]:
        """Variants worth timing before anything is known, the one that `build` takes by itself first.

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
        return (None,)

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

    def prepare(self, problem: BlockProblem, variant: Variant = None) -> None:
        """Do ahead of `build`, and beside others in threads, what takes long: compile into a cache.

        Parameters
        ----------
        problem : BlockProblem
        variant : str, optional

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
            One of `variants` or `search`; the strategy's own choice when left out.

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
        raise ArgumentError(f"strategy {strategy.name!r} of backend {strategy.backend!r} has no variant {variant!r}")


_PROVIDERS: list[Strategy] = []


def register_strategy(strategy: Strategy) -> None:
    """Add a provider."""
    _PROVIDERS.append(strategy)


def strategy_names(backend: str) -> list[str]:
    """Names of the strategies of a backend."""
    return [provider.name for provider in _PROVIDERS if provider.backend == backend]


@dataclass(frozen=True)
class Choice:
    """What was chosen for a block, and why.

    Attributes
    ----------
    kernel : BlockKernel
    strategy, algorithm, backend : str
    reason : str
    unsuitable : tuple of str
        Strategies that could not serve, each with its reason.
    """

    kernel: BlockKernel
    strategy: str
    algorithm: str
    backend: str
    reason: str
    unsuitable: tuple[str, ...]


def _algorithms(problem: BlockProblem, asked: str) -> list[str]:
    """Algorithms that are exact on the block's points ([X] section 2.2.1)."""
    gradients = problem.form.uses_gradient or problem.form.stage == "iproduct_wrt_deriv_base"
    if asked not in (*ALGORITHMS, "auto"):
        raise ArgumentError(f"unknown algorithm {asked!r}; valid: auto, {', '.join(ALGORITHMS)}")
    rule, order = problem.tabulation.rule, problem.tabulation.basis.order
    enough = min(rule.counts) >= order + 1
    if not enough and (problem.form.stage == "phys_deriv" or (gradients and asked == "collocated")):
        raise ArgumentError(
            f"{problem.form.name} on {problem.shape.name}: collocated derivatives of order {order} need at least"
            f" {order + 1} points in each direction, the rule has {rule.counts}; use more points or"
            " algorithm='noncollocated'"
        )
    if not gradients:
        return ["collocated"]
    if asked != "auto":
        return [asked]
    return list(ALGORITHMS) if enough else ["noncollocated"]


def choose(problem: BlockProblem, strategy: str, algorithm: str, backend: Backend) -> Choice:
    """Choose and build the kernel of a block.

    Parameters
    ----------
    problem : BlockProblem
    strategy : str
        A name, or "auto".
    algorithm : str
        "collocated", "noncollocated" or "auto".
    backend : Backend

    Returns
    -------
    Choice

    Raises
    ------
    ArgumentError
        For an unknown strategy or algorithm.
    NotSuitable
        If no strategy, or not the one asked for, can serve the block.
    """
    providers = [p for p in _PROVIDERS if p.backend == backend.name]
    if strategy != "auto":
        if strategy not in [p.name for p in providers]:
            valid = ", ".join(["auto", *(p.name for p in providers)])
            raise ArgumentError(f"unknown strategy {strategy!r} of backend {backend.name!r}; valid: {valid}")
        providers = [p for p in providers if p.name == strategy]
    candidates = [
        (provider, replace(problem, algorithm=name))
        for name in _algorithms(problem, algorithm)
        for provider in providers
    ]
    candidates.sort(key=lambda pair: pair[0].cost(pair[1]))
    unsuitable: list[str] = []
    missed: list[str] = []
    for provider, variant in candidates:
        try:
            kernel = provider.build(variant)
        except NotSuitable as reason:
            refusal = f"{provider.name}: {reason}"
            unsuitable += [refusal] * (refusal not in unsuitable)
            missed += [refusal] * (refusal not in missed and not provider.special)
            continue
        what = f"{problem.form.name}/{problem.shape.name} P={problem.tabulation.basis.order}"
        if missed:
            report_once(f"{what}/{backend.name}", f"{what}: using {provider.name} ({'; '.join(missed)})")
        why = "asked for" if strategy != "auto" else "least expected time"
        return Choice(kernel, provider.name, variant.algorithm, backend.name, why, tuple(unsuitable))
    raise NotSuitable(f"{problem.form.name} on {problem.shape.name}: {'; '.join(unsuitable)}")
