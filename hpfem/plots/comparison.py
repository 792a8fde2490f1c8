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
from .best import draw_best
from .grid import draw_line, having, with_spread

Row = Mapping[str, Any]


def plot_comparison(results: Mapping[str, Any], folder: str | os.PathLike[str], suffix: str = ".png") -> list[Path]:
    """Draw throughput and gains of ways by order as ``compare``, and the fastest as ``best``; see `plot_results`."""
    rows: Sequence[Row] = results["results"]
    blocks = _blocks(rows)
    # What is far slower everywhere would be lines at the bottom.
    ways = sorted({_way(row) for row in rows if row["behind"][1] <= HOPELESS})
    colours = style.strategy_colours(strategy for strategy, *_ in ways)
    looks = {way: _look(colours[way[0]], *way[1:]) for way in ways}
    handles = [style.handle(" ".join(filter(None, way)), **look) for way, look in looks.items()]
    handles.append(style.handle("fastest of the same results", **_FASTEST))
    titles = [f"{shape.capitalize()}, {geometry}" for shape, geometry in blocks]
    note = f"bars: quartiles; left out is what nowhere reaches 1/{HOPELESS:g} of the fastest"
    figure, [speeds, gains] = style.grid(2, titles, [handles, _FILLED], 2.3, note=note)
    fastest = draw_best([with_spread(row) for row in rows if not row["quadrature"]])  # of the same results
    what = f"Helmholtz on {Path(str(results.get('mesh', ''))).name}"
    style.heading(figure, f"{what} — {_machine(results)}")
    style.heading(fastest, f"{what}, the fastest way with the same results — {_machine(results)}")
    for block, above, below in zip(blocks, speeds, gains, strict=True):
        own = [with_spread(row) for row in rows if (row["shape"], row["geometry"]) == block]
        for way, look in looks.items():
            draw_line(above, [row for row in own if _way(row) == way], "order", look)
        best = having(own, fastest=True)
        above.plot([row["order"] for row in best], [row["value"] for row in best], **_FASTEST)
        _draw_gains(below, own, "#333333", 0.0)
        below.set_xlabel("Order P", fontsize=9)
        below.set_xticks(sorted({row["order"] for row in rows}))
    style.throughput_axis(speeds[0])
    gains[0].set_ylabel(_GAIN, fontsize=9)
    drawn = {"compare": figure, "best": fastest}
    return [style.save(own, Path(folder) / f"{name}{suffix}") for name, own in drawn.items()]


def plot_gains(several: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]) -> Path:
    """Draw what collocation gains by shape and order, a panel for each comparison; see `plot_comparison`."""
    blocks = list(dict.fromkeys(block for results in several for block in _blocks(results["results"])))
    colours = dict(zip(blocks, style.order_colours(range(len(blocks))).values(), strict=True))
    titles = [_machine(results) for results in several]
    handles = [style.handle(" ".join(block), color=colours[block], marker="o") for block in blocks]
    figure, [axes] = style.grid(1, titles, [handles, _FILLED], 3.0, note="bars: quartiles")
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
_DOT: dict[str, Any] = {"color": "#333333", "marker": "o", "linestyle": "none"}
# What filled and hollow markers of gains mean.
_FILLED = [style.handle("a difference", **_DOT), style.handle("no difference", **_DOT, markerfacecolor="white")]
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
    return {"color": colour, "linestyle": dash, "marker": marker, "markersize": 4}


def _draw_gains(axis: Axes, rows: Sequence[Row], colour: Any, shift: float) -> None:
    """Gains of the fastest strategy that has both algorithms."""
    slowest_first = sorted(rows, key=lambda row: row["seconds"], reverse=True)
    found = sorted({row["order"]: row for row in slowest_first if row.get("collocation")}.items())
    orders = [order + shift for order, _ in found]
    low, middle, high = np.array([row["collocation"] for _, row in found]).reshape(-1, 3).T
    axis.axhline(1, color="black", linewidth=0.8)
    axis.errorbar(orders, middle, [middle - low, high - middle], color=colour, capsize=2, linewidth=1.2)
    for order, gain, (_, row) in zip(orders, middle, found, strict=True):
        face = colour if Gain(*row["collocation"]).sign else "white"
        axis.plot(order, gain, "o", color=colour, markerfacecolor=face, markersize=5, zorder=3)
