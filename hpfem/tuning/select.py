"""One kernel per block: the user's tuning result, else the least expected time of the backend's strategies.

A measured time is taken where the shipped table has one, the strategy's model elsewhere. Nothing is timed here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from hpfem.shapes import SHAPES
from hpfem.shapes.arguments import name_of

from ..backends.base import Backend
from ..backends.strategy import Strategy
from ..errors import ArgumentError, DeviceError, NotSuitable
from ..forms.form import ALGORITHMS, BlockKernel, BlockProblem
from ..support.communicator import Communicator
from ..support.log import report_once, warn
from .key import tuning_key
from .store import Config, TuningRecord, find

ByShape = str | Mapping[str, str]  # for all shapes, or for some, of which others take "auto"
AUTO = "auto", "auto"


@dataclass(eq=False)
class Choice:
    """The choice for a block, and its reason."""

    config: Config
    backend: str
    kernel: BlockKernel
    reason: str  # "measured here: ...", "shipped table: ...", "least expected time by the model" or "asked for"
    unsuitable: tuple[str, ...]  # other strategies that were not suitable, each with its reason
    asked: tuple[str, str] = ("auto", "auto")  # strategy and algorithm of which it was chosen
    refusal: str = ""  # why that is not what the user asked for

    def __post_init__(self) -> None:
        self.strategy, self.options = self.config.strategy, self.config.options
        self.algorithm = self.kernel.problem.algorithm  # even if that has no effect
        self.unsuitable = tuple(t for t in self.unsuitable if t.replace(",", ":").partition(":")[0] != self.strategy)
        self.known: Known = (self.config, self.reason, self.unsuitable)  # from which `choose` builds it again


Known = tuple[Config, str, tuple[str, ...]]


def _algorithms(problem: BlockProblem, asked: str) -> list[str]:
    """Algorithms that are exact on the block's points ([Xing] section 2.2.1)."""
    gradients = problem.form.has_algorithms
    name_of(asked, ("auto", *ALGORITHMS), "algorithm")
    rule, order = problem.tabulation.rule, problem.tabulation.basis.order
    enough = rule.resolves(order)
    always, what = problem.form.always_collocated, f"{problem.form.name} on {problem.shape.name}"
    if gradients and asked == "collocated" and not rule.tensor:
        why = "a simplex rule has no directions to differentiate along; use algorithm='noncollocated'"
        raise NotSuitable(f"{what}: {why}, or a space with quadrature='collapsed'")
    if not enough and (always or (gradients and asked == "collocated")):
        other = "" if always else " or algorithm='noncollocated'"
        raise ArgumentError(
            f"{what}: collocated derivatives of order {order} need at least {order + 1} points in each direction,"
            f" the rule has {rule.counts}; use more points{other}"
        )
    if not gradients:
        return ["collocated"]
    if asked != "auto":
        return [asked]
    return list(ALGORITHMS) if enough and rule.tensor else ["noncollocated"]


def candidates(
    problem: BlockProblem, strategy: str, algorithm: str, backend: Backend
) -> dict[Config, tuple[Strategy, BlockProblem]]:
    """The candidates for a block."""
    names = backend.strategy_names
    name_of(strategy, ["auto", *names], "strategy", f" of backend {backend.name!r}")
    offered = [provider for provider in backend.strategies if strategy in ("auto", provider.name)]
    if not problem.tabulation.rule.tensor:
        offered = [provider for provider in offered if not provider.tensor]
        if not offered:
            able = ", ".join(provider.name for provider in backend.strategies if not provider.tensor)
            why = f"{strategy} factorises along directions, which a simplex rule has none of; there: {able}; or"
            raise NotSuitable(f"{problem.form.name} on {problem.shape.name}: {why} take quadrature='collapsed'")
    found = [
        (provider, replace(problem, algorithm=name)) for name in _algorithms(problem, algorithm) for provider in offered
    ]
    found.sort(key=lambda pair: pair[0].cost(pair[1]))
    gradients = problem.form.has_algorithms
    return {Config(provider.name, p.algorithm if gradients else None): (provider, p) for provider, p in found}


def suited(
    problem: BlockProblem, strategy: str, algorithm: str, backend: Backend
) -> Iterator[tuple[Config, Strategy, BlockProblem]]:
    """Candidates that serve a block, the least expected time first, as far as is known without building kernels."""
    for config, (provider, candidate) in candidates(problem, strategy, algorithm, backend).items():
        with suppress(DeviceError, ImportError):  # the device, or its library, may not be here
            try:
                provider.default(candidate)
            except NotSuitable:
                continue
        yield config, provider, candidate


def _tuned_reason(record: TuningRecord) -> str:
    rate = record.about.get("dofs_per_second")
    words = "measured here" + (f": {rate * 1e-9:.3g} GDoF/s" if isinstance(rate, (int, float)) else "")
    if record.runner_up is None:
        return f"{words}, {'others are far slower' if record.tried > 1 else 'nothing else serves'}"
    if record.kept:
        return f"{words}, kept: {record.runner_up} is {1 / record.ratio - 1:.1%} faster, which is not enough"
    return f"{words}, {record.ratio:.2f} times as fast as {record.runner_up}"


def tuned(problem: BlockProblem, strategy: str, algorithm: str, backend: Backend) -> Known | None:
    """Look up what tuning a problem found; see `choose`."""
    record = find(tuning_key(problem, strategy, algorithm, backend))
    if record is None:
        return None
    unfit = record.about.get("unsuitable")
    return record.winner, _tuned_reason(record), tuple(map(str, unfit)) if isinstance(unfit, list) else ()


def cell_times(problem: BlockProblem, strategy: str, algorithm: str, backend: Backend) -> tuple[float | None, float]:
    """Seconds of a cell of a block, if tuning has measured it, and the least estimate, relative to other blocks."""
    record = find(tuning_key(problem, strategy, algorithm, backend))
    rate = None if record is None else record.about.get("dofs_per_second")
    measured = problem.n_modes * problem.coupled / rate if isinstance(rate, (int, float)) and rate > 0 else None
    _, provider, candidate = next(suited(problem, strategy, algorithm, backend))
    return measured, provider.cost(candidate)


def choose(
    problem: BlockProblem, strategy: str, algorithm: str, backend: Backend, known: Known | None = None
) -> Choice:
    """Choose and build a block's kernel: an earlier choice, the user's tuning result, or the least expected time."""
    suited = candidates(problem, strategy, algorithm, backend)
    known = known or tuned(problem, strategy, algorithm, backend)
    if known is not None:
        config, reason, refused = known
        why = "there is no such strategy here"
        if config._replace(options=None) in suited:
            provider, candidate = suited[config._replace(options=None)]
            try:
                return Choice(config, backend.name, provider.build(candidate, config.options), reason, refused)
            except (NotSuitable, ArgumentError) as error:
                why = str(error)
        report_once(f"chosen/{backend.name}/{config}/{why}", f"{config} was chosen before and is not used now: {why}")
    unsuitable: dict[str, bool] = {}
    for config, (provider, candidate) in suited.items():
        try:
            options = provider.default(candidate)
            kernel = provider.build(candidate, options)
        except NotSuitable as error:
            unsuitable[f"{provider.name}: {error}"] = provider.special
            continue
        missed = [refusal for refusal, special in unsuitable.items() if not special]
        if missed:
            what = f"{problem.form.name}/{problem.shape.name} P={problem.tabulation.basis.order}"
            report_once(f"{what}/{backend.name}", f"{what}: using {provider.name} ({'; '.join(missed)})")
        table = provider.measured(candidate)
        reason = f"shipped table: {table}" if table else "least expected time by the model"
        reason = "asked for" if strategy != "auto" else reason
        return Choice(config._replace(options=options), backend.name, kernel, reason, tuple(unsuitable))
    raise NotSuitable(f"{problem.form.name} on {problem.shape.name}: {'; '.join(unsuitable)}")


def choose_else_auto(
    problem: BlockProblem, strategy: str, algorithm: str, backend: Backend, known: Known | None = None
) -> Choice:
    """`choose`; where what is asked for is not suitable, what "auto" takes, with the refusal."""
    fits = known is not None and strategy in ("auto", known[0].strategy)
    try:
        choice = choose(problem, strategy, algorithm, backend, known if fits else None)
        choice.asked = strategy, algorithm
    except NotSuitable as refusal:
        if is_auto(strategy, algorithm):
            raise
        choice = choose(problem, "auto", "auto", backend, known)
        choice.refusal = str(refusal)
    return choice


def is_auto(*asked: object) -> bool:
    """Whether nothing is asked for, by users who may give anything."""
    return all(isinstance(own, str) and own == "auto" for own in asked)


def asked_by_shape(strategy: ByShape, algorithm: ByShape, backend: Backend) -> dict[str, tuple[str, str]]:
    """Strategy and algorithm that are asked for, by shape."""
    names, where, found = backend.strategy_names, f" of backend {backend.name!r}", []
    for kind, given, valid, of in (("strategy", strategy, names, where), ("algorithm", algorithm, ALGORITHMS, "")):
        own = given if isinstance(given, Mapping) else dict.fromkeys(SHAPES, given)
        for shape, name in own.items():
            name_of(shape, SHAPES, "shape", f" in {kind}")
            name_of(name, ["auto", *valid], kind, of)
        found.append(own)
    return {shape: (found[0].get(shape, "auto"), found[1].get(shape, "auto")) for shape in SHAPES}


def agree(name: str, comm: Communicator, own: Iterable[tuple[tuple[str, str], str, str]]) -> None:
    """Warn of kernels for which what was asked for is not suitable; refuse it if it suits none; collective."""
    # Of each kernel of the process: what was asked for, the refusal, and a text about it, or "".
    found = dict.fromkeys(one for part in comm.allgather(list(own)) for one in part)
    for asked, refusal, _ in found:
        if refusal and (asked, "", "") not in found:
            raise NotSuitable(refusal)
    others = "; ".join(text for *_, text in found if text)
    if others and comm.rank == 0:
        warn(f"{name}: some blocks take what 'auto' takes, not what was asked for: {others}")


def expected_gain(choice: Choice, problem: BlockProblem, backend: Backend) -> str:
    """How much faster than the next best way a choice is expected to be; "" if measured, or nothing else serves."""
    if choice.reason.startswith("measured here"):
        return ""
    found, own = suited(problem, *choice.asked, backend), choice.config._replace(options=None)
    least = next((provider.cost(candidate) for config, provider, candidate in found if config == own), 0.0)
    others = ((config, provider.cost(candidate)) for config, provider, candidate in found)  # those after it
    second, cost = next(others, ("", math.inf))
    if not 0 < least <= cost < math.inf:
        return ""
    gain = f"{cost / least:.2f} times"
    return f"expected {'to be' if gain == '1.00 times' else gain} as fast as {second}"
