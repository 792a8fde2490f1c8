"""Figure of a comparison of algorithms: throughput, cost and agreement by order, one column per shape."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from . import style

Row = Mapping[str, Any]

# Differences of exactly zero are drawn here, under every rounding error of float64.
LEAST_DIFFERENCE = 1e-17


def plot_comparison(results: Mapping[str, Any], folder: str | os.PathLike[str], suffix: str = ".png") -> list[Path]:
    """Draw throughput, operations and agreement of each algorithm over the order as ``compare``; see `plot_results`."""
    rows: Sequence[Row] = results["results"]
    shapes = style.in_order(row["shape"] for row in rows)
    blocks = sorted({(row["shape"], row["geometry"]) for row in rows}, key=lambda b: (shapes.index(b[0]), b[1]))

    def way(row: Row) -> tuple[str, str, str]:
        return row["strategy"], row["algorithm"], row.get("quadrature", "")

    variants = list(dict.fromkeys(map(way, rows)))
    colours = style.strategy_colours(strategy for strategy, *_ in variants)
    quantities: list[Callable[[Row], float]] = [
        lambda row: row["dofs_per_second"],
        lambda row: row["flops"] / row["n_dofs"],
        lambda row: max(row["difference"], LEAST_DIFFERENCE),
    ]
    width = max(2.7 * len(blocks) + 0.95, 6.4)
    figure, axes = style.panels((len(quantities), len(blocks)), (width, 7.2), (0.85, 0.65, 0.8), (0.08, 0.1))
    machine = style.processor(results, None) or "unknown machine"
    style.heading(figure, f"Helmholtz, algorithms compared — {Path(str(results.get('mesh', ''))).name}, {machine}")

    def look(strategy: str, algorithm: str, quadrature: str) -> dict[str, Any]:
        dash, marker = (":", "^") if quadrature else ("-", "o") if algorithm == "collocated" else ("--", "s")
        return {"color": colours[strategy], "linestyle": dash, "marker": marker, "markersize": 4, "linewidth": 1.2}

    for column, block in enumerate(blocks):
        axes[0][column].set_title(f"{block[0].capitalize()}, {block[1]}", fontsize=10)
        for line, quantity in enumerate(quantities):
            # Differences are relative to the first variant.
            for variant in variants[1:] if line == len(quantities) - 1 else variants:
                shown = [row for row in rows if (row["shape"], row["geometry"]) == block and way(row) == variant]
                if shown:  # a rule may be for other shapes only
                    points = [row["order"] for row in shown], [quantity(row) for row in shown]
                    axes[line][column].plot(*points, **look(*variant))
        axes[-1][column].set_xlabel("Order P", fontsize=9)
        axes[-1][column].set_xticks(sorted({row["order"] for row in rows}))
    style.throughput_axis(axes[0][0])
    _log_axis(axes[1][0], "Flops per DoF", (1.0, 2.0, 5.0))
    axes[1][0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    _log_axis(axes[2][0], f"Relative difference to\n{_said(variants[0])}")
    low, high = axes[2][0].get_ylim()
    axes[2][0].set_ylim(min(low, 1e-16), max(high, 1e-14))
    handles = [style.handle(_said(variant), **look(*variant)) for variant in variants]
    style.legend_below(figure, [handles])
    return [style.save(figure, Path(folder) / f"compare{suffix}")]


def _said(variant: tuple[str, str, str]) -> str:
    return ", ".join(filter(None, variant))


def _log_axis(axis: Axes, label: str, ticks: Sequence[float] = (1.0,)) -> None:
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(10, subs=ticks, numticks=20))
    axis.yaxis.set_minor_formatter(NullFormatter())
    axis.set_ylabel(label, fontsize=9)
