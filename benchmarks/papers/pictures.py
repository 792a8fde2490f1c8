"""Pictures of runs, the same for every experiment, with the papers' numbers where their texts give one."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from hpfem.plots import grid, style

from .experiment import EXPERIMENTS, Published, Record
from .report import DEVICES, measured, parts_of, words_of
from .results import key_of

# More lines in a panel are parted into rows, where the records tell by what.
MANY = 5
# A paper's numbers in a bar chart, by device.
_MARKS = ("D", "o", "s")


def draw(document: Mapping[str, Any], folder: str | os.PathLike[str]) -> dict[str, list[Path]]:
    """Draw every experiment over order, over size where there are many, as bars where one order; -> its files."""
    made: dict[str, list[Path]] = {}
    for experiment in EXPERIMENTS.values():
        for backend, device in DEVICES.items():
            rated = measured(document["results"], experiment=experiment.name, backend=backend)
            for number, unit in enumerate(dict.fromkeys(record["unit"] for record in rated)):
                own, title = measured(rated, unit=unit), f"{experiment.title}, {device}"
                stem = f"{experiment.name}_{device.lower()}{'' if number == 0 else f'_{number + 1}'}"
                files, target = made.setdefault(experiment.name, []), Path(folder) / f"{stem}.png"
                theirs = [one for one in experiment.published if (one.backend, one.unit) == (backend, unit)]
                pairs = {(record["series"], record["order"]) for record in own}
                several = [series for series, count in Counter(series for series, _ in pairs).items() if count > 1]
                if at_one := [record for record in own if record["series"] not in several]:
                    files.append(_bars(at_one, theirs, title, unit, target))
                    target = target.with_stem(f"{stem}_by_order")
                if some := [record for record in own if record["series"] in several]:
                    words = f"{some[0]['series']}, {device}" if at_one else title
                    files.append(_by_order(some, theirs, words, unit, target))
                sizes = {record["n_dofs"] for record in measured(own, order=own[0]["order"], shape=own[0]["shape"])}
                some = _of_several_sizes(measured(own, geometry="deformed", algorithm="collocated"))
                if len(sizes) > 3 and some:
                    target = target.with_stem(f"{stem}_by_size")
                    files.append(_by_size(some, theirs, f"{title}, deformed", unit, target))
    return made


def _of_several_sizes(records: Sequence[Record]) -> list[Record]:
    """Those of lines that have more than one size."""
    sizes: dict[Any, set[float]] = {}
    lines = [(key_of(record), record.get("strategy")) for record in records]
    for line, record in zip(lines, records, strict=True):
        sizes.setdefault(line, set()).add(record["n_dofs"])
    return [record for line, record in zip(lines, records, strict=True) if len(sizes[line]) > 1]


def _by_order(rated: Sequence[Record], theirs: Sequence[Published], title: str, unit: str, path: Path) -> Path:
    """A panel for each shape, or size or geometry; rows where there are many lines, one for each way."""
    parts = parts_of(rated)
    column = next((name for name in ("shape", "elements", "geometry") if name in parts), "shape")
    parts = [name for name in parts if name != column]
    if column != "shape":
        rated = sorted(rated, key=lambda record: record[column])
    rows: list[str] = []
    for name in ("benchmark", "equation", "geometry", "d"):
        if name in parts and len({_way(record, parts) for record in rated}) > MANY:
            rows, parts = [*rows, name], [one for one in parts if one != name]
    records = [{**r, "row": _way(r, rows), "panel": _way(r, [column]), "way": _way(r, parts) or "ours"} for r in rated]
    return _drawn(records, "row", "order", theirs, title, unit, path)


def _by_size(rated: Sequence[Record], theirs: Sequence[Published], title: str, unit: str, path: Path) -> Path:
    """A panel for each shape, a row for some orders, a line for each way."""
    parts = [name for name in parts_of(rated) if name != "shape"]
    orders = grid.picked(grid.values(rated, "order"), grid.MOST_ROWS)
    records = [{**r, "panel": r["shape"], "way": _way(r, parts) or "ours"} for r in rated if r["order"] in orders]
    return _drawn(records, "order", "n_dofs", theirs, title, unit, path)


def _way(record: Record, parts: Sequence[str]) -> str:
    return ", ".join(words_of(record, parts))


def _drawn(
    records: Sequence[Record], row: str, x: str, theirs: Sequence[Published], title: str, unit: str, path: Path
) -> Path:
    """Lines of the best of all sizes, or of each size, with the paper's numbers across the panels that they are of."""
    records = grid.best([grid.with_spread(record, "value") for record in records], row, "panel", "way", x)
    looks = _looks(records)
    shown = [one for one in theirs if measured(records, **one.where)]
    devices = ", ".join(dict.fromkeys(one.device.name for one in shown))
    limits = [record for record in records if record["series"].startswith("roofline")]
    notes = ["black: limits"] * bool(limits) + [f"lines across a panel: the paper's numbers, {devices}"] * bool(shown)
    figure, panels = grid.lines(records, (row, "panel", "way", x), unit, "; ".join(notes), looks)
    (_, first), *_ = panels
    for (at, value), axis in panels.items():
        # Limits may leave the panel.
        own = measured(records, **{row: at})
        top = max(record["high"] for record in own if record not in limits or len(limits) == len(own))
        if value == first:
            axis.set_ylim(0, 1.06 * top)
        _draw_theirs(axis, shown, measured(own, panel=value), looks, top)
    return _saved(figure, title, path)


def _looks(records: Sequence[Record]) -> dict[str, dict[str, Any]]:
    """Colour of each way by its strategy, if that differs, black for limits; each has its marker and dash."""
    strategies = grid.values(records, "strategy")
    limits = {record["strategy"] for record in records if record["series"].startswith("roofline")}
    colours = style.strategy_colours(str(name) for name in strategies if name not in limits)
    looks = {}
    for place, way in enumerate(grid.values(records, "way"), 1):
        strategy = next(record["strategy"] for record in records if record["way"] == way)
        colour = f"C{place - 1}" if len(strategies) == 1 else colours.get(str(strategy), "black")
        looks[way] = style.order_line(place, colour, style.order_dash(place))
    return looks


def _draw_theirs(
    axis: Axes, theirs: Sequence[Published], own: Sequence[Record], looks: Mapping[str, Any], top: float
) -> None:
    """The paper's numbers on what a panel shows, in the colour of the strategy that they are of."""
    names: dict[float, list[str]] = {}
    colours = {}
    for one in theirs:
        if found := measured(own, **one.where):
            names.setdefault(one.value, []).append(one.what.partition(":")[0])
            of_one = isinstance(one.where.get("strategy"), str)
            colours[one.value] = looks[found[0]["way"]]["color"] if of_one else "0.3"
    style.draw_levels(axis, [(f"{' and '.join(names[v])}: {v:.4g}", v, colours[v]) for v in sorted(names)], top)


def _bars(rated: Sequence[Record], theirs: Sequence[Published], title: str, unit: str, path: Path) -> Path:
    """A row of panels for each equation, a column for each number of components; bars, black for limits."""
    rows, columns = ([*dict.fromkeys(record.get(name) for record in rated)] for name in ("equation", "d"))
    parts = [name for name in parts_of(rated) if name not in ("equation", "d")]
    for name, other in (("strategy", "geometry"), ("geometry", "strategy")):
        if {name, other} <= {*parts} and _follows(name, other, rated):
            parts.remove(name)
    names = {_way(record, parts) for record in measured(rated, equation=rows[0])}
    devices = dict.fromkeys(one.device.name for one in theirs if measured(rated, **one.where))
    marks: dict[str, dict[str, Any]] = {
        device: {"marker": mark, "color": "#e08214", "markeredgecolor": "black", "linestyle": "none", "markersize": 5}
        for device, mark in zip(devices, _MARKS, strict=False)
    }
    left, gap, height = 0.4 + 0.065 * max(map(len, names)), 0.45, 0.19 * len(names)
    room = gap + 0.3 * bool(marks)
    size = left + 2.6 * len(columns) + 0.15, 0.65 + room - gap + len(rows) * (height + gap)
    figure, axes = style.panels((len(rows), len(columns)), size, (left, 0.65, room), (0.07, gap / height))
    for (row, equation), (column, d) in product(enumerate(rows), enumerate(columns)):
        axis = axes[row][column]
        for record in measured(rated, equation=equation, d=d):
            colour = "black" if record["series"].startswith("roofline") else "#2166ac"
            axis.barh(_way(record, parts) or "ours", record["value"], color=colour)
            for one in theirs:
                if measured([record], **one.where):
                    axis.plot([one.value], [_way(record, parts) or "ours"], **marks[one.device.name])
        axis.set_title(_way({"equation": equation, "d": d}, ("equation", "d")), fontsize=9)
        axis.grid(visible=False, axis="y")
        axis.margins(y=0.02)
        axis.xaxis.set_major_locator(MaxNLocator(4))
        if row == len(rows) - 1:
            axis.set_xlabel(unit, fontsize=9)
    for first, *_ in axes:
        first.invert_yaxis()  # shared along a row
    if marks:
        style.legend_below(figure, [[style.handle(f"the paper, {name}", **look) for name, look in marks.items()]])
    return _saved(figure, title, path)


def _saved(figure: Figure, title: str, path: Path) -> Path:
    """Give a picture its title; there are many, so each has few pixels."""
    style.heading(figure, title)
    figure.set_dpi(110)
    return style.save(figure, path)


def _follows(name: str, other: str, records: Sequence[Record]) -> bool:
    """Whether what one part of a case is follows from another part."""
    pairs = {(record.get(other), record.get(name)) for record in records}
    return len(pairs) == len({of for of, _ in pairs})
