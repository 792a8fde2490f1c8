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
    """The device of a paper's measurements.

    Attributes
    ----------
    name : str
    bandwidth : float, optional
        Bytes per second, of all that was used; None where the paper does not say.
    peak : float, optional
        Operations per second in FP64.
    source : str
        Where the paper says so, and whether it was measured.
    """

    name: str
    bandwidth: float | None = None
    peak: float | None = None
    source: str = ""


@dataclass(frozen=True)
class Counts:
    """A paper's own counts of an element and component, by order.

    Attributes
    ----------
    source : str
        Equation or table, or what they are derived from.
    dofs, flops : callable, optional
        order -> number; None: modes, and the nominal operations of `hpfem.forms.cost`.
    """

    source: str
    dofs: Callable[[int], float] | None = None
    flops: Callable[[int], float] | None = None


@dataclass(frozen=True)
class Published:
    """A number that a paper publishes, to be compared with the best of ours.

    Attributes
    ----------
    what : str
    value : float
        In the unit.
    unit : str
        "GDoF/s", "GFLOP/s", ...
    source : str
        Section, table, figure's text, or "derived from ...".
    device : Device
    backend : str
        Whose results of ours are compared.
    where : mapping
        What these results hold; a tuple stands for any of its entries.
    """

    what: str
    value: float
    unit: str
    source: str
    device: Device
    backend: str
    where: Where = field(default_factory=dict)


@dataclass(frozen=True)
class Statement:
    """A paper's statement on two speeds, as bounds of the ratio of ours.

    Attributes
    ----------
    says : str
        In short.
    source : str
    backend : str
    above, below : mapping
        What the results above and below the line hold; the fastest of each group counts.
    low, high : float
        Bounds of the ratio if our results confirm the statement.
    by : tuple of str
        What both results of a ratio agree in.
    smallest : float
        Degrees of freedom of the smallest problems that count.
    largest_above : bool
        Whether above the line the largest problem counts, and not the fastest.
    operations : bool
        Whether operations a degree of freedom are compared, and not rates.
    over : str
        What the paper's ratio is over, where `below` holds something else.
    """

    says: str
    source: str
    backend: str
    above: Where
    below: Where
    low: float = 0.0
    high: float = math.inf
    by: tuple[str, ...] = ("shape", "order")
    smallest: float = 0.0
    largest_above: bool = False
    operations: bool = False
    over: str = ""


@dataclass(frozen=True)
class Series:
    """Cases that are measured and drawn together.

    Attributes
    ----------
    name : str
    unit : str
        Prefix and "DoF/s" or "FLOP/s"; "steps/s".
    cases : callable
        (backend, quick) -> mappings: `benchmark`, `shape`, `order`, `geometry`, and whatever else tells cases apart.
    block : callable
        (case, backend) -> what the engine of the benchmarks builds and times (`hpfem.benchmarks.tiled`).
    status : str
        "exact protocol", "equivalent: ..." or "other protocol: why".
    backends : tuple of str
    strategies, algorithms : mapping or tuple
        What is measured of each case; the strategies by backend.
    counts : Counts
    phase : str, optional
        Of several phases that are timed, the one that counts.
    repeats : int
        Timings, whose median counts.
    bench : bool
        Whether `hpfem bench` measures the same, whose files are taken over.
    """

    name: str
    unit: str
    cases: Callable[[str, bool], Sequence[Mapping[str, Any]]]
    block: Callable[[Mapping[str, Any], str], Any]
    status: str
    backends: tuple[str, ...] = ("cuda", "cpu")
    strategies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    algorithms: tuple[str, ...] = ("auto",)
    counts: Counts = Counts("elements x modes; operations by hpfem.forms.cost")
    phase: str | None = None
    repeats: int = 9
    bench: bool = False

    def value(self, record: Record) -> float:
        """Rate of a measurement, by the paper's counts.

        Parameters
        ----------
        record : mapping

        Returns
        -------
        float
            In the series' unit.
        """
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
    """An experiment of a paper.

    Attributes
    ----------
    name : str
        Name for users.
    paper : str
        Key in REFERENCES.md.
    title, figures : str
        What it is, and which of the paper's figures and tables it makes again.
    protocol : str
        The paper's, and ours where it differs.
    series : tuple of Series
    published : tuple of Published
    statements : tuple of Statement
    corrections : tuple of str
        Misprints of the paper, each with its place.
    not_possible : mapping
        Other measurements of the paper -> why we cannot repeat them.
    """

    name: str
    paper: str
    title: str
    figures: str
    protocol: str
    series: tuple[Series, ...]
    published: tuple[Published, ...] = ()
    statements: tuple[Statement, ...] = ()
    corrections: tuple[str, ...] = ()
    not_possible: Mapping[str, str] = field(default_factory=dict)


EXPERIMENTS: Registry[Experiment] = Registry("experiment")


def matches(record: Record, where: Where) -> bool:
    """Say whether a result holds what is asked for."""
    return all(record.get(name) in (v if isinstance(v, tuple) else (v,)) for name, v in where.items())
