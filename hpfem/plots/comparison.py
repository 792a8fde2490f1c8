"""Figures of comparisons: throughput by way and what collocation gains, by shape and order."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MultipleLocator

from ..benchmarks.turns import HOPELESS, Gain
from . import style
from .best import plot_best

Row = Mapping[str, Any]


def plot_comparison(results: Mapping[str, Any], folder: str | os.PathLike[str], suffix: str = ".png") -> list[Path]:
    """Draw throughput and gains of ways by order as ``compare``, and the fastest as ``best``; see `plot_results`."""
    rows: Sequence[Row] = results["results"]
    blocks = _blocks(rows)
    # What is far slower everywhere would be lines at the bottom.
    ways = sorted({_way(row) for row in rows if row["behind"][1] <= HOPELESS})
    colours = style.strategy_colours(strategy for strategy, *_ in ways)
    handles = [style.handle(" ".join(filter(None, way)), **_look(colours[way[0]], *way[1:])) for way in ways]
    handles.append(style.handle("fastest of the same results", **_FASTEST))
    titles = [f"{shape.capitalize()}, {geometry}" for shape, geometry in blocks]
    legend = [*_in_rows(handles, 2.9 * len(blocks)), _filled("#333333")]
    note = f"bars: quartiles; left out is what nowhere reaches 1/{HOPELESS:g} of the fastest"
    figure, [speeds, gains] = style.grid(2, titles, legend, 2.3, note=note)
    style.heading(figure, f"Helmholtz on {Path(str(results.get('mesh', ''))).name}, {_machine(results)}")
    for block, above, below in zip(blocks, speeds, gains, strict=True):
        own = [row for row in rows if (row["shape"], row["geometry"]) == block]
        for way in (way for way in ways if way in map(_way, own)):
            shown = [row for row in own if _way(row) == way]
            rates = np.array([row["dofs_per_second"] for row in shown])
            bars = [np.array([row["n_dofs"] / row[end] for row in shown]) - rates for end in ("high", "low")]
            look = _look(colours[way[0]], *way[1:])
            above.errorbar([row["order"] for row in shown], rates, np.abs(bars), **look, capsize=2)
        best = [row for row in own if row["fastest"]]
        above.plot(*zip(*((row["order"], row["dofs_per_second"]) for row in best), strict=True), **_FASTEST)
        _draw_gains(below, own, "#333333", 0.0)
        below.set_xlabel("Order P", fontsize=9)
        below.set_xticks(sorted({row["order"] for row in rows}))
    style.throughput_axis(speeds[0])
    gains[0].set_ylabel(_GAIN, fontsize=9)
    return [style.save(figure, Path(folder) / f"compare{suffix}"), plot_best(results, folder, suffix)]


def plot_gains(several: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]) -> Path:
    """Draw what collocation gains by shape and order, a panel for each comparison; see `plot_comparison`."""
    blocks = list(dict.fromkeys(block for results in several for block in _blocks(results["results"])))
    colours = dict(zip(blocks, style.order_colours(range(len(blocks))).values(), strict=True))
    titles = [_machine(results) for results in several]
    handles = [style.handle(" ".join(block), color=colours[block], marker="o") for block in blocks]
    legend = [*_in_rows(handles, 2.9 * len(titles)), _filled("#333333")]
    figure, [axes] = style.grid(1, titles, legend, 3.0, note="bars: quartiles")
    for axis, results in zip(axes, several, strict=True):
        for number, block in enumerate(blocks):
            own = [row for row in results["results"] if (row["shape"], row["geometry"]) == block]
            _draw_gains(axis, own, colours[block], 0.08 * (number - (len(blocks) - 1) / 2))
        axis.set_xlabel("Order P", fontsize=9)
        axis.xaxis.set_major_locator(MultipleLocator(1))
    style.heading(figure, "Is collocation worth it? Helmholtz, the same strategy with and without it")
    axes[0].set_ylabel(_GAIN, fontsize=9)
    return style.save(figure, path)


_GAIN = "Times as fast\nby collocation"
_FASTEST: dict[str, Any] = {"marker": "*", "markersize": 13, "color": "none", "markeredgecolor": "black", "zorder": 4}


def _blocks(rows: Sequence[Row]) -> list[tuple[str, str]]:
    shapes = style.in_order(row["shape"] for row in rows)
    return sorted({(row["shape"], row["geometry"]) for row in rows}, key=lambda b: (shapes.index(b[0]), b[1]))


def _way(row: Row) -> tuple[str, str, str]:
    return row["strategy"], row["algorithm"], row["quadrature"]


def _machine(results: Mapping[str, Any]) -> str:
    return style.processor(results, results["results"][0]["backend"]) or "unknown machine"


def _look(colour: Any, algorithm: str, quadrature: str) -> dict[str, Any]:
    dash, marker = (":", "^") if quadrature else ("-", "o") if algorithm == "collocated" else ("--", "s")
    return {"color": colour, "linestyle": dash, "marker": marker, "markersize": 4, "linewidth": 1.2}


def _in_rows(handles: list[Any], width: float) -> list[list[Any]]:
    """Rows of a legend of long entries."""
    each = max(int(width / 1.9), 2)
    return [handles[i : i + each] for i in range(0, len(handles), each)]


def _filled(colour: str) -> list[Any]:
    """Entries of a legend: what filled and hollow markers of gains mean."""
    look = {"color": colour, "marker": "o", "linestyle": "none"}
    return [style.handle("a difference", **look), style.handle("no difference", **look, markerfacecolor="white")]


def _draw_gains(axis: Axes, rows: Sequence[Row], colour: Any, shift: float) -> None:
    """Gains of the fastest strategy that has both algorithms."""
    slowest_first = sorted(rows, key=lambda row: row["seconds"], reverse=True)
    found = sorted({row["order"]: row for row in slowest_first if row["collocation"]}.items())
    orders = [order + shift for order, _ in found]
    low, middle, high = np.array([row["collocation"] for _, row in found]).reshape(-1, 3).T
    axis.axhline(1, color="black", linewidth=0.8)
    axis.errorbar(orders, middle, [middle - low, high - middle], color=colour, capsize=2, linewidth=1.2)
    for order, gain, (_, row) in zip(orders, middle, found, strict=True):
        face = colour if Gain(*row["collocation"]).sign else "white"
        axis.plot(order, gain, "o", color=colour, markerfacecolor=face, markersize=5, zorder=3)
