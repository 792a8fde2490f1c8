"""An experiment of a paper: its cases, protocol, units and formulas, and all numbers that the paper publishes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpfem.support.registry import Registry

# A result, as it stands in result files; and what a result must hold to be taken.
Record = Mapping[str, Any]
Where = Mapping[str, Any]

# Prefix of a unit -> factor.
SCALES = {"M": 1e6, "G": 1e9, "T": 1e12}


@dataclass(frozen=True)
class Device:
    """The device of a paper's measurements."""

    name: str
    bandwidth: float | None = None  # bytes per second, of all that was used; None where the paper does not say
    peak: float | None = None  # operations per second in FP64
    source: str = ""  # where the paper says so, and whether it was measured


@dataclass(frozen=True)
class Counts:
    """A paper's own counts of an element and component, by order."""

    source: str  # equation or table, or what they are derived from
    # order -> number; None: modes, and the nominal operations of `hpfem.forms.cost`.
    dofs: Callable[[int], float] | None = None
    flops: Callable[[int], float] | None = None


@dataclass(frozen=True)
class Published:
    """A number that a paper publishes, to be compared with the best of ours."""

    what: str
    value: float  # in the unit
    unit: str  # "GDoF/s", "GFLOP/s", ...
    source: str  # section, table, figure's text, or "derived from ..."
    device: Device
    backend: str  # whose results of ours are compared
    where: Where = field(default_factory=dict)  # what these results hold; a tuple stands for any of its entries


@dataclass(frozen=True)
class Statement:
    """A paper's statement on two speeds, as bounds of the ratio of ours."""

    says: str  # in short
    source: str
    backend: str
    # What the results above and below the line hold; the fastest of each group counts.
    above: Where
    below: Where
    # Bounds of the ratio if our results confirm the statement.
    low: float = 0.0
    high: float = math.inf
    by: tuple[str, ...] = ("shape", "order")  # what both results of a ratio agree in
    smallest: float = 0.0  # degrees of freedom of the smallest problems that count
    largest_above: bool = False  # whether above the line the largest problem counts, and not the fastest
    operations: bool = False  # whether operations a degree of freedom are compared, and not rates
    over: str = ""  # what the paper's ratio is over, where `below` holds something else


@dataclass(frozen=True)
class Series:
    """Cases that are measured and drawn together."""

    name: str
    unit: str  # prefix and "DoF/s" or "FLOP/s"; "steps/s"
    # (backend, quick) -> mappings: `benchmark`, `shape`, `order`, `geometry`, and whatever else tells cases apart.
    cases: Callable[[str, bool], Sequence[Mapping[str, Any]]]
    # (case, backend) -> what the engine of the benchmarks builds and times (`hpfem.benchmarks.tiled`).
    block: Callable[[Mapping[str, Any], str], Any]
    status: str  # "exact protocol", "equivalent: ..." or "other protocol: why"
    backends: tuple[str, ...] = ("cuda", "cpu")
    # What is measured of each case; the strategies by backend.
    strategies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    algorithms: tuple[str, ...] = ("auto",)
    counts: Counts = Counts("elements x modes; operations by hpfem.forms.cost")
    phase: str | None = None  # of several phases that are timed, the one that counts
    repeats: int = 9  # timings, whose median counts
    bench: bool = False  # whether `hpfem bench` measures the same, whose files are taken over

    def value(self, record: Record) -> float:
        """Rate of a measurement in the series' unit, by the paper's counts."""
        elements, order = record["n_cells"] * record.get("d", 1), record["order"]
        if self.unit == "steps/s":
            return float(1 / record["seconds"])
        if self.unit.endswith("FLOP/s"):
            work = record["flops"] if self.counts.flops is None else self.counts.flops(order) * elements
        else:
            work = record["n_dofs"] if self.counts.dofs is None else self.counts.dofs(order) * elements
        return float(work / record["seconds"] / SCALES[self.unit[0]])


@dataclass(frozen=True)
class Experiment:
    """An experiment of a paper."""

    name: str  # name for users
    paper: str  # key in REFERENCES.md
    # What it is, and which of the paper's figures and tables it makes again.
    title: str
    figures: str
    protocol: str  # the paper's, and ours where it differs
    series: tuple[Series, ...]
    published: tuple[Published, ...] = ()
    statements: tuple[Statement, ...] = ()
    corrections: tuple[str, ...] = ()  # misprints of the paper, each with its place
    # Other measurements of the paper -> why we cannot repeat them.
    not_possible: Mapping[str, str] = field(default_factory=dict)


EXPERIMENTS: Registry[Experiment] = Registry("experiment")


def experiment(name: str, *given: Any, **more: Any) -> None:
    """Declare an experiment: its fields after the name."""
    EXPERIMENTS.add(name, Experiment(name, *given, **more))


def matches(record: Record, where: Where) -> bool:
    """Say whether a result holds what is asked for."""
    return all(record.get(name) in (v if isinstance(v, tuple) else (v,)) for name, v in where.items())
