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
Row = Mapping[str, Any]
_DASHES = ("-", "--", ":", "-.")


def plot_scaling(results: Mapping[str, Any], folder: str | os.PathLike[str], suffix: str = ".png") -> list[Path]:
    """Draw efficiency over the number of processes as ``scaling``, a panel for each scaling; see `plot_results`."""
    pairs: list[tuple[Row, float]] = list(zip(results["results"], efficiencies(results["results"]), strict=True))
    # Problems that several numbers of processes have solved, if there are any.
    solved = Counter(line for line, _ in {(_line(row), row["ranks"]) for row, _ in pairs})
    pairs = [(row, value) for row, value in pairs if solved[_line(row)] > 1] or pairs
    rows = [row for row, _ in pairs]
    scalings = [scaling for scaling in _TITLES if any(row["scaling"] == scaling for row in rows)]
    shapes, orders = style.in_order(row["shape"] for row in rows), sorted({row["order"] for row in rows})
    cells = [one for one in product(shapes, orders) if one in {_cells(row) for row in rows}]
    problems = list(dict.fromkeys(_problem(row) for row in sorted(rows, key=lambda row: row["wanted"])))
    looks: dict[tuple[str, int], dict[str, Any]] = {
        (shape, order): {"color": f"C{shapes.index(shape)}", "linestyle": _DASHES[orders.index(order) % 4]}
        for shape, order in cells
    }
    markers = {problem: style.MARKERS[i % len(style.MARKERS)] for i, problem in enumerate(problems)}
    # What is the same everywhere goes without saying.
    common = set.intersection(*map(set, problems)) if len(problems) > 1 else set(problems[0][1:])
    words = [", ".join(word for word in problem if word not in common) for problem in problems]
    dots = dict(zip(words, markers.values(), strict=True))
    legend = [
        [style.handle(f"{shape}, P = {order}", **looks[shape, order]) for shape, order in cells],
        [style.handle(text, color="0.3", linestyle="none", marker=marker) for text, marker in dots.items()],
    ]
    figure, [axes] = style.grid(1, [_TITLES[scaling] for scaling in scalings], legend, 2.9)
    backends = sorted({row["backend"] for row in rows})
    device = style.processor(results, "cuda" if backends == ["cuda"] else None) or "unknown machine"
    about = f"{', '.join(backends)}, {device}"
    style.heading(figure, f"Conjugate gradients, rate of each process over that of one — {about}")
    numbers = sorted({row["ranks"] for row in rows})
    for axis, scaling in zip(axes, scalings, strict=True):
        for one, problem in product(cells, problems):
            line = [(row["ranks"], value) for row, value in pairs if _line(row) == (scaling, one, problem)]
            if line:
                axis.plot(*zip(*sorted(line), strict=True), marker=markers[problem], **looks[one])
        axis.set_xscale("log", base=2)
        axis.set_xlim(numbers[0] / 1.1, numbers[-1] * 1.1)
        axis.set_xticks(numbers, [str(n) for n in numbers])
        axis.xaxis.set_minor_locator(NullLocator())
        axis.set_xlabel("Processes", fontsize=9)
        axis.set_ylim(0, max(1.1, 1.05 * max(value for _, value in pairs)))
    axes[0].set_ylabel("Efficiency", fontsize=9)
    return [style.save(figure, Path(folder) / f"scaling{suffix}")]


def _line(row: Row) -> tuple[Any, ...]:
    """The line that a row is on: its panel, cells and problem."""
    return row["scaling"], _cells(row), _problem(row)


def _cells(row: Row) -> tuple[str, int]:
    """What a line has its colour and dashes by."""
    return row["shape"], row["order"]


def _problem(row: Row) -> tuple[str, ...]:
    """What it has its marker by, in words."""
    points = [f"quadrature {row['quadrature']}"] if row.get("quadrature") not in (None, "None") else []
    preconditioner = row.get("preconditioner", "none")
    whole = [] if preconditioner == "none" else [f"solution with {preconditioner}"]
    return f"{EngFormatter()(row['wanted'])} unknowns", row["geometry"], row["backend"], *points, *whole
