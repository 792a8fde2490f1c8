"""Panels of measurements: a column for each shape, a row for whatever else differs, a line for each choice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from . import style

Record = Mapping[str, Any]
Keys = tuple[str, str, str, str]
Panels = dict[tuple[Any, str], Axes]
Looks = Mapping[Any, dict[str, Any]]
# More lines in a panel are not told apart: the fastest are drawn. Rows of orders, where lines are something else.
MOST_LINES, MOST_ROWS = 5, 3


def values(records: Iterable[Record], key: str) -> list[Any]:
    """Different values of an entry, in the order of the records; orders sorted."""
    found = list(dict.fromkeys(record[key] for record in records))
    return sorted(found) if key == "order" else found


def having(records: Iterable[Record], **wanted: Any) -> list[Record]:
    """Records with these values."""
    return [record for record in records if all(record[name] == value for name, value in wanted.items())]


def best(records: Iterable[Record], *keys: str) -> list[Record]:
    """The fastest of the records that agree in `keys`."""
    found: dict[tuple[Any, ...], Record] = {}
    for record in records:
        key = tuple(record[name] for name in keys)
        found[key] = max(found.get(key, record), record, key=lambda one: (one.get("fastest", False), one["value"]))
    return list(found.values())


def largest(records: Sequence[Record], *more: str) -> list[Record]:
    """Records of the largest size of each shape, geometry and order, so that all that are compared have one size."""
    names, sizes = ("shape", "geometry", "order", *more), dict[tuple[Any, ...], int]()
    for record in records:
        key = tuple(record[name] for name in names)
        sizes[key] = max(record["n_dofs"], sizes.get(key, 0))
    return [record for record in records if record["n_dofs"] == sizes[tuple(record[name] for name in names)]]


def with_spread(record: Record, rate: str = "dofs_per_second") -> Record:
    """A record with its rate as `value`; `low` and `high` are those of quartiles, in old files of the extremes."""
    value, seconds = record[rate], record.get("seconds", 1.0)
    slow, fast = record.get("high", record.get("worst", seconds)), record.get("low", record.get("best", seconds))
    return {**record, "value": value, "low": value * seconds / slow, "high": value * seconds / fast}


def picked(every: Sequence[Any], most: int) -> list[Any]:
    """At most so many, evenly chosen, with the first and the last."""
    if len(every) <= most:
        return list(every)
    return [every[round(i * (len(every) - 1) / (most - 1))] for i in range(most)]


def lines(
    records: Sequence[Record], keys: Keys, label: str = "", note: str = "", looks: Looks | None = None
) -> tuple[Figure, Panels]:
    """Draw values and their spread by keys: rows, columns, lines, x; of many lines the fastest, or those with looks."""
    row, column, line, x = keys
    looks = looks or _looks(records, line)
    rows, columns = values(records, row), style.in_order(values(records, column))
    spread = "bars: spread of the timings" if any(record["low"] < record["high"] for record in records) else ""
    legend = [[style.handle(said(line, name), **look) for name, look in looks.items()]]
    figure, axes = style.grid(
        len(rows), [name.capitalize() for name in columns], legend, note="; ".join(filter(None, (note, spread)))
    )
    panels = {(value, name): axes[i][k] for i, value in enumerate(rows) for k, name in enumerate(columns)}
    for (value, name), axis in panels.items():
        for way, look in looks.items():
            shown = having(records, **{row: value, column: name, line: way})
            draw_line(axis, sorted(shown, key=lambda record: record[x]), x, look)
        say_if_empty(axis, bool(axis.get_lines()))
    for own, value in zip(axes, rows, strict=True):
        own[0].set_ylabel("\n".join(filter(None, (said(row, value), label))), fontsize=9)
    if x == "order":
        for k, name in enumerate(columns):
            style.orders_axis(axes[-1][k], values(having(records, **{column: name}), "order"))
    else:
        style.log_dofs(axes[-1])
    return figure, panels


def _looks(records: Sequence[Record], line: str) -> dict[Any, dict[str, Any]]:
    """Colour, marker and dash of the lines."""
    rates = {name: max(record["value"] for record in having(records, **{line: name})) for name in values(records, line)}
    names = [name for name in rates if rates[name] in sorted(rates.values())[-MOST_LINES:]]
    shades = style.order_colours(names) if line == "order" else style.strategy_colours(names)
    return {name: style.order_line(i, shades[name], style.order_dash(2 * i)) for i, name in enumerate(names, 1)}


def draw_line(axis: Axes, shown: Sequence[Record], x: str, look: Mapping[str, Any]) -> None:
    """Draw values as a line, and their spread as bars."""
    if shown:
        places = [record[x] for record in shown]
        axis.plot(places, [record["value"] for record in shown], linewidth=1.2, **look)
        low, high = ([record[name] for record in shown] for name in ("low", "high"))
        axis.vlines(places, low, high, color=look["color"], linewidth=2.5, alpha=0.5)


def say_if_empty(axis: Axes, drawn: bool) -> None:
    """Write into a panel that has nothing to show."""
    if not drawn:
        axis.text(0.5, 0.4, "not measured", color="0.5", fontsize=8, ha="center", transform=axis.transAxes)


def said(key: str, value: Any) -> str:
    """A value in words."""
    return f"P = {value}" if key == "order" else f"{value} elements" if key == "geometry" else str(value)
