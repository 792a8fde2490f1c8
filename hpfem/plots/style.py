"""Common parts of all figures: colours, markers, panels, files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogFormatterSciNotation, LogLocator, NullFormatter

from hpfem.shapes import SHAPES

from ..support.files import atomic_path

# One colour per strategy, those of [Xing] Figs 5 and 6 in shades that colour-blind readers tell apart.
_STRATEGY_COLOURS = {
    "stdmat": "#c8352b",
    "sumfac": "#2166ac",
    "sumfac-top": "#2e8b3d",
    "dense": "#e08214",
    "kronecker": "#17888f",
}
_FURTHER_COLOURS = ("#8c5aa8", "#4d4d4d", "#7f5539", "#d6569b")
MARKERS = "osD^vPX*<>hp"
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (2, 1)), (0, (5, 1, 1, 1)))
_LEVEL_DASHES = ((0, (1, 1.5)), (0, (5, 2)), (0, (6, 2, 1, 2)))
DPI = 150
# By the place of a shape among all.
_SHAPE_COLOURS = ("#4d4d4d", "#b8860b", "#1f5fa8", "#c2410c", "#15803d", "#9d3c8f")
# A row of a legend, and the least inches of an entry.
Row = Sequence[Artist]
ENTRY_WIDTH = 0.92


def strategy_colours(names: Iterable[str]) -> dict[str, Any]:
    """Choose a colour for each strategy: always the same for the usual ones."""
    names = dict.fromkeys(names)
    others = [name for name in names if name not in _STRATEGY_COLOURS]
    few = len(others) <= len(_FURTHER_COLOURS)
    shades = _FURTHER_COLOURS if few else order_colours(range(len(others))).values()
    further = dict(zip(others, shades, strict=False))
    return {name: _STRATEGY_COLOURS.get(name) or further[name] for name in names}


def order_line(order: int, color: Any, dash: Any) -> dict[str, Any]:
    """Keyword arguments of the line of an order: each has its marker."""
    return {"color": color, "marker": MARKERS[(order - 1) % len(MARKERS)], "linestyle": dash, "markersize": 4}


def order_dash(order: int) -> Any:
    """Line style of an order: changes slower than the marker, so that neighbours differ in both."""
    return _DASHES[(order - 1) // 2 % len(_DASHES)]


def order_colours(orders: Sequence[int]) -> dict[int, Any]:
    """Choose a colour per order, from dark to light."""
    shades = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.85, max(len(orders), 2)))
    return {order: tuple(shades[i]) for i, order in enumerate(sorted(orders))}


def in_order(shapes: Iterable[str]) -> list[str]:
    """Sort shapes in the order of `hpfem.shapes.SHAPES`: the paper's columns."""
    place = {name: number for number, name in enumerate(SHAPES)}
    return sorted(dict.fromkeys(shapes), key=lambda name: place.get(name, len(place)))


def shape_colour(shape: str) -> str:
    """Choose a colour for a shape: always the same."""
    return _SHAPE_COLOURS[[*SHAPES, shape].index(shape) % len(_SHAPE_COLOURS)]


def processor(results: Mapping[str, Any], backend: str | None) -> str | None:
    """Name of the processor that results of a backend were measured on."""
    machine = results.get("machine") or {}
    gpus = machine.get("gpu") or [None]
    return (gpus[0] if backend == "cuda" else None) or machine.get("cpu")


def heading(figure: Figure, text: str) -> None:
    """Give a whole figure a title: in two lines, and smaller, where it is wider than the figure."""
    title = figure.suptitle(text, fontsize=10, y=1 - 0.1 / figure.get_size_inches()[1], va="top")
    if title.get_window_extent().width > 0.96 * figure.bbox.width:
        title.set_text(text.replace(" — ", "\n", 1))
        title.set_fontsize(min(9.0, 9.6 * figure.bbox.width / title.get_window_extent().width))


def panels(
    counts: tuple[int, int],
    size: tuple[float, float],
    margins: tuple[float, float, float],
    gaps: tuple[float, float],
    heights: Sequence[float] | None = None,
) -> tuple[Figure, list[list[Axes]]]:
    """Panels that share the vertical axis along a row and the horizontal one along a column; heights of rows."""
    (width, height), (left, top, bottom) = size, margins
    figure = Figure(figsize=size, dpi=DPI)
    FigureCanvasAgg(figure)
    figure.subplots_adjust(left / width, bottom / height, 1 - 0.15 / width, 1 - top / height, *gaps)
    axes = figure.subplots(*counts, sharex="col", sharey="row", squeeze=False, height_ratios=heights)
    for axis in axes.flat:
        axis.grid(color="#dddddd", linewidth=0.6)
        axis.set_axisbelow(True)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, [list(row) for row in axes]


def grid(
    rows: int,
    titles: Sequence[str],
    legend: Sequence[Row],
    heights: float | Sequence[float] = 2.1,
    *,
    gap: float = 0.28,
    width: float | None = None,
    note: str = "",
) -> tuple[Figure, list[list[Axes]]]:
    """Panels of these heights in rows, a column for each title; a legend below, and a note below that."""
    width = width or max(2.9 * len(titles) + 1.05, 6.4)
    heights = [heights] * rows if isinstance(heights, float) else heights
    below, whole = 0.17 * len(note.splitlines()), sum(heights)
    room = 0.2 * len(broken(legend, width)) + below
    size = (width, whole + gap * (rows - 1) + 1.24 + room)
    figure, axes = panels((rows, len(titles)), size, (0.9, 0.62, 0.62 + room), (0.07, gap * rows / whole), heights)
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title, fontsize=10)
    figure.text(0.5, 0.06 / size[1], note, ha="center", va="bottom", fontsize=8)
    legend_below(figure, legend, below / size[1])
    return figure, axes


def log_dofs(axes: Sequence[Axes]) -> None:
    """Make the horizontal axis of the last row one of degrees of freedom: logarithmic, a label per decade or three."""
    every = [own for axis in axes for own in axis.get_shared_x_axes().get_siblings(axis)]
    sizes = [float(x) for axis in every for line in axis.get_lines() for x in np.asarray(line.get_xdata())]
    subs = (1.0,) if max(sizes) > 30 * min(sizes) else (1.0, 2.0, 5.0)
    for axis in axes:
        axis.set_xscale("log")
        axis.set_xlim(min(sizes) / 1.3, max(sizes) * 1.3)
        axis.xaxis.set_major_locator(LogLocator(10, subs, numticks=12))
        axis.xaxis.set_major_formatter(LogFormatterSciNotation(labelOnlyBase=False, minor_thresholds=(9.0, 9.0)))
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.set_xlabel("Degrees of freedom", fontsize=9)


def orders_axis(axis: Axes, orders: Sequence[int], places: Sequence[int] | None = None) -> None:
    """Make the horizontal axis one of orders; of bars, at 0, 1, ..."""
    axis.set_xticks(orders if places is None else places, [str(order) for order in orders])
    axis.tick_params(axis="x", labelsize=8 if len(orders) < 12 else 7)
    axis.set_xlabel("Order P", fontsize=9)


def throughput_axis(axis: Axes) -> None:
    """Make the vertical axis one of throughput: from zero, in engineers' units."""
    top = max(float(own.dataLim.y1) for own in axis.get_shared_y_axes().get_siblings(axis))
    units = {1e9: "GDoF/s", 1e6: "MDoF/s", 1e3: "kDoF/s"}
    unit = next((unit for unit in units if top >= unit), 1.0)
    name = units.get(unit, "DoF/s")
    axis.set_ylim(0, 1.06 * top)
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / unit:g}"))
    axis.set_ylabel("\n".join(filter(None, (axis.get_ylabel(), f"Throughput ({name})"))), fontsize=9)


def handle(label: str, **style: Any) -> Line2D:
    """Make an entry of a legend."""
    return Line2D([], [], label=label, **style)


def legend_below(figure: Figure, rows: Sequence[Row], bottom: float = 0.0) -> None:
    """A legend under the panels, with these rows."""
    lines = broken(rows, figure.get_size_inches()[0])
    width, blank = max(map(len, lines)), handle(" ", linestyle="none")
    # Matplotlib fills column by column.
    by_column = [line[i] if i < len(line) else blank for i in range(width) for line in lines]
    look: dict[str, Any] = {"fontsize": 8, "frameon": False, "handlelength": 2.6, "columnspacing": 1.6}
    figure.legend(handles=by_column, ncols=width, loc="lower center", bbox_to_anchor=(0.5, bottom), **look)


def broken(rows: Sequence[Row], width: float) -> list[Row]:
    """Cut the rows of a legend where they are longer than a figure."""
    longest = max(len(str(entry.get_label())) for row in rows for entry in row)
    most = max(int(width / max(ENTRY_WIDTH, 0.075 * longest + 0.4)), 1)
    return [row[i : i + most] for row in rows for i in range(0, len(row), most)]


def draw_levels(axis: Axes, levels: Sequence[tuple[str, float, str]], most: float) -> None:
    """Draw values as lines across a panel, with names and colours; the names are above `most`, the largest value."""
    lines = [
        axis.axhline(value, color=colour, linewidth=1, linestyle=dash, label=label)
        for (label, value, colour), dash in zip(levels, cycle(_LEVEL_DASHES), strict=False)
    ]
    if lines:
        share = (8.5 * len(lines) + 6) / (72 * axis.bbox.height / DPI)
        axis.set_ylim(top=max(axis.get_ylim()[1], most / (1 - share)))
        look: dict[str, Any] = {"framealpha": 0.85, "edgecolor": "none", "handlelength": 2.0, "borderaxespad": 0.2}
        axis.legend(handles=lines[::-1], loc="upper right", fontsize=6.5, labelspacing=0.2, **look)


def save(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write a figure, whole or not at all; see `hpfem.support.files.atomic_path`."""
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=figure.dpi)
    return Path(path)
