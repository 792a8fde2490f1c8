"""One kernel per block: the user's tuning result, else the least expected time of the backend's strategies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hpfem.shapes.arguments import name_of

from ..backends.base import Backend
from ..backends.strategy import Options, Strategy
from ..errors import ArgumentError, NotSuitable
from ..forms.form import ALGORITHMS, BlockKernel, BlockProblem
from ..support.log import report_once
from ..tuning import Name, Record, find
from .tuning_key import tuning_key


@dataclass(frozen=True)
class Pick:
    """A choice without its kernel, for files.

    Attributes
    ----------
    name : Name
        From `way`.
    reason : str
    unsuitable : tuple of str
    """

    name: Name
    reason: str
    unsuitable: tuple[str, ...] = ()


@dataclass(frozen=True)
class Choice:
    """What was chosen for a block, and why.

    Attributes
    ----------
    kernel : BlockKernel
    strategy, algorithm, backend : str
    options : str or None
        Of the strategy's configs; None where it has none.
    reason : str
        "tuned: ...", "shipped table: ...", "least expected time by the model" or "asked for".
    unsuitable : tuple of str
        Strategies that could not serve, each with its reason.
    """

    kernel: BlockKernel
    strategy: str
    algorithm: str
    backend: str
    options: Options
    reason: str
    unsuitable: tuple[str, ...]

    @property
    def pick(self) -> Pick:
        """All but the kernel, to be built again."""
        return Pick(way(self.strategy, self.kernel.problem, self.options), self.reason, self.unsuitable)


def _algorithms(problem: BlockProblem, asked: str) -> list[str]:
    """Algorithms that are exact on the block's points ([X] section 2.2.1)."""
    gradients = problem.form.has_algorithms
    name_of(asked, ("auto", *ALGORITHMS), "algorithm")
    rule, order = problem.tabulation.rule, problem.tabulation.basis.order
    enough = min(rule.counts) >= order + 1
    always = problem.form.always_collocated
    if not enough and (always or (gradients and asked == "collocated")):
        other = "" if always else " or algorithm='noncollocated'"
        raise ArgumentError(
            f"{problem.form.name} on {problem.shape.name}: collocated derivatives of order {order} need at least"
            f" {order + 1} points in each direction, the rule has {rule.counts}; use more points{other}"
        )
    if not gradients:
        return ["collocated"]
    if asked != "auto":
        return [asked]
    return list(ALGORITHMS) if enough else ["noncollocated"]


def candidates(
    problem: BlockProblem, strategy: str, algorithm: str, backend: Backend
) -> list[tuple[Strategy, BlockProblem]]:
    """What may serve a block.

    Parameters
    ----------
    problem : BlockProblem
    strategy, algorithm : str
        Names, or "auto".
    backend : Backend

    Returns
    -------
    list of (Strategy, BlockProblem)
        Each strategy with the problem for each algorithm, the least expected time first.

    Raises
    ------
    ArgumentError
        For an unknown strategy or algorithm.
    """
    providers = list(backend.strategies)
    name_of(strategy, ["auto", *(p.name for p in providers)], "strategy", f" of backend {backend.name!r}")
    if strategy != "auto":
        providers = [p for p in providers if p.name == strategy]
    found = [
        (provider, replace(problem, algorithm=name))
        for name in _algorithms(problem, algorithm)
        for provider in providers
    ]
    return sorted(found, key=lambda pair: pair[0].cost(pair[1]))


def way(strategy: str, problem: BlockProblem, options: Options) -> Name:
    """Name a way to compute a problem: strategy, algorithm (None where there are no gradients) and options."""
    return strategy, problem.algorithm if problem.form.has_algorithms else None, options


def title(name: Name) -> str:
    """Write a way for people: "sumfac-top, collocated, elements=4"."""
    return ", ".join(word for word in name if word)


def tuned_reason(record: Record) -> str:
    """Say what a tuning result tells."""
    rate = record.about.get("dofs_per_second")
    words = "tuned" + (f": {rate * 1e-9:.3g} GDoF/s" if isinstance(rate, (int, float)) else "")
    if record.runner_up is None:
        return f"{words}, nothing else serves"
    if record.kept:
        return f"{words}, kept: {title(record.runner_up)} is {1 / record.ratio - 1:.1%} faster, which is not enough"
    return f"{words}, {record.ratio:.2f} times as fast as {title(record.runner_up)}"


def tuned(problem: BlockProblem, strategy: str, algorithm: str, backend: Backend) -> Record | None:
    """Look up the tuning result of a problem; None where nobody has tuned it."""
    return find(tuning_key(problem, backend, strategy, algorithm))


def _build(pairs: Sequence[tuple[Strategy, BlockProblem]], pick: Pick, backend: Backend) -> Choice | None:
    """Build what was once chosen; None, and a report, if that cannot be done here."""
    why = "there is no such strategy here"
    for provider, problem in pairs:
        if way(provider.name, problem, None)[:2] != pick.name[:2] or len(pick.name) != 3:
            continue
        options = pick.name[2]
        try:
            kernel = provider.build(problem, options)
        except (NotSuitable, ArgumentError) as error:
            why = str(error)
            break
        return Choice(kernel, provider.name, problem.algorithm, backend.name, options, pick.reason, pick.unsuitable)
    what = title(pick.name)
    report_once(f"chosen/{backend.name}/{what}/{why}", f"{what} was chosen once and is not used now: {why}")
    return None


def choose(problem: BlockProblem, strategy: str, algorithm: str, backend: Backend, pick: Pick | None = None) -> Choice:
    """Choose and build the kernel of a block: the user's tuning result, else the least expected time.

    Expected times are measured ones of the shipped table where there are any, else the strategy's model.

    Parameters
    ----------
    problem : BlockProblem
    strategy : str
        A name, or "auto".
    algorithm : str
        "collocated", "noncollocated" or "auto".
    backend : Backend
    pick : Pick, optional
        What was chosen before; taken again if it can be built.

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
    pairs = candidates(problem, strategy, algorithm, backend)
    if pick is None:
        record = tuned(problem, strategy, algorithm, backend)
        if record is not None:
            unfit = record.about.get("unsuitable")
            pick = Pick(record.winner, tuned_reason(record), tuple(map(str, unfit)) if isinstance(unfit, list) else ())
    known = None if pick is None else _build(pairs, pick, backend)
    if known is not None:
        return known
    unsuitable: list[str] = []
    missed: list[str] = []
    for provider, special in pairs:
        try:
            options = provider.default(special)
            kernel = provider.build(special, options)
        except NotSuitable as reason:
            refusal = f"{provider.name}: {reason}"
            unsuitable += [refusal] * (refusal not in unsuitable)
            missed += [refusal] * (refusal not in missed and not provider.special)
            continue
        what = f"{problem.form.name}/{problem.shape.name} P={problem.tabulation.basis.order}"
        if missed:
            report_once(f"{what}/{backend.name}", f"{what}: using {provider.name} ({'; '.join(missed)})")
        table = provider.measured(special)
        why = f"shipped table: {table}" if table else "least expected time by the model"
        why = "asked for" if strategy != "auto" else why
        return Choice(kernel, provider.name, special.algorithm, backend.name, options, why, tuple(unsuitable))
    raise NotSuitable(f"{problem.form.name} on {problem.shape.name}: {'; '.join(unsuitable)}")
