"""The picture that answers which shape, which strategy, at which order: all shapes in a panel, the best ones named."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from ..benchmarks.turns import Gain
from . import style
from .grid import Record, best, draw_line, having, values

# Inches: an order and its least, a panel, a row of names; the width of a letter in its size, in points.
_ORDER, _LEAST, _PANEL, _ROW, _LETTER = 0.62, 4.3, 1.9, 0.18, 0.62


def draw_best(records: Sequence[Record]) -> Figure:
    """Draw the fastest of records `with_spread` by shape over the order, a panel for each geometry, names below it."""
    orders, shapes = values(records, "order"), style.in_order(values(records, "shape"))
    looks = {shape: style.order_line(i, style.shape_colour(shape), "-") for i, shape in enumerate(shapes, 1)}
    several = len(values(records, "algorithm")) > 1
    note = f"in frames: the {'fastest' if len(records) > len(_winners(records)) else 'only'} strategy"
    note += "; filled: collocated, open: not" * several
    note += "\nbars: spread of the timings"
    note += "; ≈: another is as fast within the spread" * any(_equal(records, one) for one in _winners(records))
    width = max(_ORDER * len(orders), _LEAST)
    kinds = values(records, "geometry")
    each = {kind: [s for s in shapes if having(records, geometry=kind, shape=s)] for kind in kinds}
    legend = [[style.handle(shape, **look) for shape, look in looks.items()]]
    heights = [height for own in each.values() for height in (_PANEL, _ROW * (len(own) + 1))]
    figure, axes = style.grid(len(heights), [""], legend, heights, gap=0.1, width=1.25 + width, note=note)
    for number, (geometry, own) in enumerate(each.items()):
        [panel], [names] = axes[2 * number : 2 * number + 2]
        panel.set_title(f"{geometry.capitalize()} elements", fontsize=9, loc="left")
        for row, shape in enumerate(own):
            every = having(records, shape=shape, geometry=geometry)
            won = [{**one, "place": orders.index(one["order"]), "equal": _equal(every, one)} for one in _winners(every)]
            draw_line(panel, won, "place", looks[shape])
            for key, run in groupby(won, itemgetter("strategy", "algorithm", "equal")):
                places = [one["place"] for one in run]
                filled = not several or key[1] == "collocated"
                text = f"{key[0]}{' ≈' * key[2]}"
                size = min(7.5, 72 * width * (len(places) / len(orders) - 0.01) / (_LETTER * len(text)))
                _name(names, row, places, looks[shape]["color"], filled, text, size)
        style.throughput_axis(panel)
        names.set_ylim(len(own) + 0.5, -0.5)
        names.set_yticks(range(len(own)), own)
        for label, shape in zip(names.get_yticklabels(), own, strict=True):
            label.set_color(looks[shape]["color"])
        names.spines[["left", "bottom"]].set_visible(False)
        names.tick_params(length=0)
        names.grid(visible=False)
    style.orders_axis(names, orders, range(len(orders)))
    names.set_xlim(-0.5, len(orders) - 0.5)
    return figure


def _winners(records: Sequence[Record]) -> list[Record]:
    """The fastest record of each shape, geometry and order, in the order of the last."""
    return sorted(best(records, "shape", "geometry", "order"), key=lambda record: record["order"])


def _equal(records: Sequence[Record], winner: Record) -> bool:
    """Whether another strategy or algorithm is as fast as the fastest one, within the spread of both."""
    rivals = having(records, **{name: winner[name] for name in ("shape", "geometry", "order")})
    own = winner["strategy"], winner["algorithm"]
    return any(
        not Gain(*one["behind"]).sign if "behind" in one else one["high"] >= winner["low"]
        for one in rivals
        if (one["strategy"], one["algorithm"]) != own
    )


def _name(axis: Axes, row: int, places: Sequence[int], color: str, filled: bool, text: str, size: float) -> None:
    """Write a name over the orders that it is for, in a frame."""
    middle, face = (places[0] + places[-1]) / 2, (*to_rgb(color), 0.25) if filled else "none"
    axis.barh(row, len(places) - 0.06, height=0.84, left=places[0] - 0.47, color=face, edgecolor=color)
    axis.text(middle, row, text, fontsize=size, ha="center", va="center")
