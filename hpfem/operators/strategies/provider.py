"""Strategies as providers: each says what it can serve and builds kernels; one is chosen per block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from ...errors import ArgumentError, DeviceError, NotSuitable
from ...kernels.form import ALGORITHMS, BlockKernel, BlockProblem
from ...memory import HOST, Device
from ...registry import Registry
from ...reporting import report_once


class Strategy(Protocol):
    """A way to compute a form on a block; one file each.

    Attributes
    ----------
    name : str
        What users ask for: "stdmat", "sumfac", ...
    backend : str
        Name of the backend it belongs to.
    """

    name: str
    backend: str

    def build(self, problem: BlockProblem) -> BlockKernel:
        """Build the kernel.

        Raises
        ------
        NotSuitable
            With the reason, if this strategy cannot serve the problem.
        """

    def cost(self, problem: BlockProblem) -> float:
        """Estimate the relative time per element, to choose by before anything is measured."""


@dataclass(frozen=True)
class Backend:
    """Where kernels run.

    Attributes
    ----------
    name : str
        "numpy", "cpu" or "cuda".
    device : callable
        () -> the memory its kernels read and write.
    missing : callable
        () -> None if it works here, else one sentence: what is missing and how to install it.
    """

    name: str
    device: Callable[[], Device]
    missing: Callable[[], str | None]

    def __reduce__(self) -> tuple[Callable[[str], Backend], tuple[str]]:
        # By name: where it is opened, the backend may have to be refused.
        return choose_backend, (self.name,)


BACKENDS: Registry[Backend] = Registry("backend")
_PROVIDERS: list[Strategy] = []
# The order in which "auto" looks for a backend that works.
PREFERENCE = ("cpu", "numpy")

BACKENDS.add("numpy", Backend("numpy", lambda: HOST, lambda: None))


def register_strategy(strategy: Strategy) -> None:
    """Add a provider."""
    _PROVIDERS.append(strategy)


def strategy_names(backend: str) -> list[str]:
    """Names of the strategies of a backend."""
    return [provider.name for provider in _PROVIDERS if provider.backend == backend]


def choose_backend(name: str) -> Backend:
    """Backend of that name, or the first that works for "auto".

    Raises
    ------
    ArgumentError
        For an unknown name.
    DeviceError
        If the backend cannot run here; the message says what is missing.
    """
    if name == "auto":
        for candidate in (BACKENDS[n] for n in PREFERENCE if n in BACKENDS):
            reason = candidate.missing()
            if reason is None:
                return candidate
            report_once(f"backend/{candidate.name}", f"backend {candidate.name!r} is not used: {reason}")
    if name not in BACKENDS:
        raise ArgumentError(f"unknown backend {name!r}; valid: auto, {', '.join(BACKENDS)}")
    backend = BACKENDS[name]
    reason = backend.missing()
    if reason is not None:
        raise DeviceError(f"backend {name!r} cannot run here: {reason}")
    return backend


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
    for provider, variant in candidates:
        try:
            kernel = provider.build(variant)
        except NotSuitable as reason:
            unsuitable.append(f"{provider.name}: {reason}")
            continue
        what = f"{problem.form.name}/{problem.shape.name} P={problem.tabulation.basis.order}"
        if unsuitable:
            report_once(f"{what}/{backend.name}", f"{what}: using {provider.name} ({'; '.join(unsuitable)})")
        why = "asked for" if strategy != "auto" else "least expected time"
        return Choice(kernel, provider.name, variant.algorithm, backend.name, why, tuple(unsuitable))
    raise NotSuitable(f"{problem.form.name} on {problem.shape.name}: {'; '.join(unsuitable)}")
