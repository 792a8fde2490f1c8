"""Figure of scaling: efficiency of each process over the number of processes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

from matplotlib.ticker import EngFormatter, NullLocator

from ..benchmarks.scaling import efficiencies
from . import style

_TITLES = {
    "weak": "Weak scaling, size of each part",
    "strong": "Strong scaling, size of the whole",
    "alone": "Side by side, size of each",
}
_DASHES = ("-", "--", ":", "-.")
# Letters of a problem's words of which three fit a row of the legend.
_SHORT = 30


def plot_scaling(results: Mapping[str, Any], folder: str | os.PathLike[str], suffix: str = ".png") -> list[Path]:
    """Draw efficiency over the number of processes, a panel for weak and one for strong scaling.

    Parameters
    ----------
    results : mapping
        Result of `hpfem scale`.
    folder : path
        Where ``scaling`` goes; it must exist.
    suffix : str
        ".png", ".pdf" or ".svg".

    Returns
    -------
    list of Path
        One.
    """
    found = _compared(list(zip(results["results"], efficiencies(results["results"]), strict=True)))
    rows = [row for row, _ in found]
    kinds = [kind for kind in _TITLES if any(row["scaling"] == kind for row in rows)]
    shapes, orders = style.in_order(row["shape"] for row in rows), sorted({row["order"] for row in rows})
    kinds_of_cells = [own for own in product(shapes, orders) if own in {_cells(row) for row in rows}]
    problems = list(dict.fromkeys(_problem(row) for row in sorted(rows, key=lambda row: row["wanted"])))
    colours: dict[tuple[str, int], dict[str, Any]] = {
        own: {"color": f"C{shapes.index(own[0])}", "linestyle": _DASHES[orders.index(own[1]) % 4]}
        for own in kinds_of_cells
    }
    markers = {own: style.MARKERS[i % len(style.MARKERS)] for i, own in enumerate(problems)}
    cells = [style.handle(f"{shape}, P = {order}", **colours[shape, order]) for shape, order in kinds_of_cells]
    # What is the same everywhere goes without saying.
    common = set.intersection(*map(set, problems)) if len(problems) > 1 else set(problems[0][1:])
    words = [", ".join(word for word in own if word not in common) for own in problems]
    sizes = [
        style.handle(text, color="0.3", linestyle="none", marker=markers[own])
        for own, text in zip(problems, words, strict=True)
    ]
    each = 3 if max(map(len, words)) <= _SHORT else 2
    legend = [row[i : i + each] for row in (cells, sizes) for i in range(0, len(row), each)]
    figure, axes = style.columns([_TITLES[kind] for kind in kinds], legend)
    machine, backends = results.get("machine") or {}, sorted({row["backend"] for row in rows})
    device = (machine.get("gpu") or [None])[0] if backends == ["cuda"] else machine.get("cpu")
    about = f"{', '.join(backends)}, {device or 'unknown machine'}"
    style.heading(figure, f"Conjugate gradients, rate of each process over that of one — {about}")
    numbers = sorted({row["ranks"] for row in rows})
    for axis, kind in zip(axes, kinds, strict=True):
        for own, problem in product(kinds_of_cells, problems):
            line = [(row["ranks"], value) for row, value in found if _line(row) == (kind, own, problem)]
            if line:
                axis.plot(*zip(*sorted(line), strict=True), marker=markers[problem], **colours[own])
        axis.set_xscale("log", base=2)
        axis.set_xlim(numbers[0] / 1.1, numbers[-1] * 1.1)
        axis.set_xticks(numbers, [str(n) for n in numbers])
        axis.xaxis.set_minor_locator(NullLocator())
        axis.set_xlabel("Processes", fontsize=9)
        axis.set_ylim(0, max(1.1, 1.05 * max(value for _, value in found)))
    axes[0].set_ylabel("Efficiency", fontsize=9)
    return [style.save(figure, Path(folder) / f"scaling{suffix}")]


def _compared(found: list[tuple[Mapping[str, Any], float]]) -> list[tuple[Mapping[str, Any], float]]:
    """Rows of problems that several numbers of processes have solved; all rows where there are none."""
    numbers = Counter(line for line, _ in {(_line(row), row["ranks"]) for row, _ in found})
    return [(row, value) for row, value in found if numbers[_line(row)] > 1] or found


def _line(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """The line that a row is on: its panel, cells and problem."""
    return row["scaling"], _cells(row), _problem(row)


def _cells(row: Mapping[str, Any]) -> tuple[str, int]:
    """What a line has its colour and dashes by."""
    return row["shape"], row["order"]


def _problem(row: Mapping[str, Any]) -> tuple[str, ...]:
    """What it has its marker by, in words."""
    points = [f"quadrature {row['quadrature']}"] if row.get("quadrature") not in (None, "None") else []
    solved = row.get("preconditioner", "none")
    whole = [] if solved == "none" else [f"solution with {solved}"]
    return f"{EngFormatter()(row['wanted'])} unknowns", row["geometry"], row["backend"], *points, *whole
