"""Figures of a benchmark run, laid out like [Xing] Figs 5 to 9: one column per shape, throughput over size."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from hpfem.shapes import SHAPES

from . import style
from .references import draw_references

Record = Mapping[str, Any]
# Two values -> keyword arguments of their line.
Look = Callable[[Any, Any], dict[str, Any]]
# How the file's name ends, what the heading says after the benchmark, with {} for the machine, and the figure.
Drawn = tuple[str, str, Figure]
# More columns than these are parted by dimension; more lines or bars in a panel are drawn another way.
MOST_COLUMNS, MOST_LINES, MOST_BARS = 4, 12, 4

_OPERATORS = {
    "bk1": "BK1, mass",
    "bk3": "BK3, Helmholtz",
    "bp1": "BP1, mass",
    "bp3": "BP3, stiffness",
    "bp5": "BP5, collocated stiffness",
    "solve": "Whole solve",
}
# Names of the phases of problems on continuous functions, and their lines.
_PHASES = {"application": "application", "iteration": "CG iteration", "csr": "CSR product"}
_PHASE_DASHES: dict[str, Any] = {
    **{"application": "-", "iteration": (0, (5, 1.5)), "csr": (0, (1, 1.2))},
    **{"all in": "-", "iterations": (0, (5, 1.5)), "pyamg": (0, (1, 1.2))},
}
# Marker and dash of other elements than deformed ones, whose lines are solid; and how a bar's colour is changed.
_GEOMETRY_LINES = {"affine": ("s", "--"), "multilinear": ("^", ":")}
_SHADES: dict[str, Callable[[float], float]] = {"affine": lambda c: 1 - 0.5 * (1 - c), "multilinear": lambda c: c / 2}
# What a whole solve consists of, in order: together "all in".
_SOLVE_PHASES = ("space", "operator", "multigrid", "vertices", "right-hand side", "iterations")


def plot_throughput(results: Mapping[str, Any], folder: str | os.PathLike[str], suffix: str = ".png") -> list[Path]:
    """Draw every figure that the results of `hpfem bench` have the data for; see `plot_results`.

    - ``<benchmark>_<geometry>``: strategies and orders ([Xing] Figs 5, 6),
    - ``<benchmark>_geometry``: affine, deformed and multilinear ([Xing] Figs 7, 8),
    - ``<benchmark>_collocation``: collocated and not ([Xing] Fig. 9),
    - ``<benchmark>_gain``: collocated against not by order,
    - ``<benchmark>_by_order``: best throughput by order,
    - ``<benchmark>_roofline``: share of the machine's limit;

    for problems on continuous functions, phases take the place of strategies: the application, an iteration of
    conjugate gradients, SciPy's product. For whole solves these are the total, the iterations and a peer's solve, and
    in place of the roofline

    - ``<benchmark>_parts``: time of each part per unknown, at the largest size;

    with the precision after the benchmark's name where the results hold several, and ``_2d`` at the end for shapes of
    two dimensions where there are more columns than a page is wide. Of a GPU's results the peaks of others are drawn as
    lines (`hpfem.plots.references`). Precisions that were measured at one size only, beside another one at many, have
    no figures over size, and factors of another source than the strategy's default are not drawn.
    """
    by_dtype: dict[str | None, list[Record]] = {}
    for record in results["results"]:
        if record.get("source") is not None:
            continue  # at one size only; the strategy's own choice of factors is drawn
        by_dtype.setdefault(record.get("dtype"), []).append(record)
    swept = [dtype for dtype, records in by_dtype.items() if _swept(records)]
    paths = []
    for dtype, records in by_dtype.items():
        for benchmark in _values(records, "benchmark"):
            name = benchmark if len(by_dtype) == 1 else f"{benchmark}_{dtype}"
            title, about = _OPERATORS.get(benchmark, benchmark), _about(results, records[0])
            for shown, ending in _columns(_having(records, benchmark=benchmark)):
                draw = _phase_figures if "phase" in shown[0] else _figures
                for what, words, figure in draw(shown, not swept or dtype in swept):
                    style.heading(figure, title + words.format(about))
                    paths.append(style.save(figure, Path(folder) / f"{name}_{what}{ending}{suffix}"))
    return paths


def _swept(records: Sequence[Record]) -> bool:
    """Whether there are measurements at several sizes."""
    names = ("benchmark", "shape", "geometry", "strategy", "algorithm", "order", "phase")
    sizes = {(*(record.get(name) for name in names), record["n_dofs"]) for record in records}
    return len({size[:-1] for size in sizes}) < len(sizes)


def _columns(records: Sequence[Record]) -> list[tuple[list[Record], str]]:
    """Records that go into a figure together, and how its name ends."""
    if len(_values(records, "shape")) <= MOST_COLUMNS:
        return [(list(records), "")]
    flat = [record for record in records if record["shape"] in SHAPES and SHAPES[record["shape"]].dim <= 2]
    solid = [record for record in records if record not in flat]
    return [(shown, ending) for shown, ending in ((solid, ""), (flat, "_2d")) if shown]


def _figures(records: Sequence[Record], over_size: bool) -> Iterator[Drawn]:
    """Figures of one benchmark in one precision."""
    if over_size:
        for geometry in _values(records, "geometry"):
            shown = _having(records, geometry=geometry)
            best = _best(shown, "shape", "strategy", "order", "n_dofs")
            strategies = _values(shown, "strategy")
            look = _strategy_look(shown) if len(strategies) > 1 else _order_look(shown, strategies[0])
            yield geometry, f", {geometry} elements — {{}}", _over_size(best, "strategy", look)
        yield from _geometries(records)
        yield from _collocation(records)
    if _on_gpu(records):
        yield from _gain(records)
    lines = len(_values(records, "strategy")) * len(_values(records, "shape"))
    by_order = _by_order if lines <= MOST_LINES else _by_order_and_shape
    yield "by_order", ", best throughput — {}", by_order(records)
    yield _roofline(records)


def _phase_figures(records: Sequence[Record], over_size: bool) -> Iterator[Drawn]:
    """Figures of a problem on continuous functions: phases in place of strategies, of which the fastest counts."""
    solves = any(record["phase"] == "all in" for record in records)
    named = _best(
        [
            {**record, "strategy": _PHASES.get(record["phase"], record["phase"])}
            for record in records
            if record["phase"] in _PHASE_DASHES or not solves
        ],
        *("shape", "geometry", "strategy", "order", "n_dofs"),
    )
    colours = _order_look(named, "")
    dashes = {record["strategy"]: _PHASE_DASHES.get(record["phase"], "-.") for record in named}

    def look(phase: str, order: int) -> dict[str, Any]:
        return {**colours(phase, order), "linestyle": dashes[phase], "markersize": 3.5}

    if over_size:
        for geometry in _values(named, "geometry"):
            yield (
                geometry,
                f", {geometry} elements — {{}}",
                _over_size(_having(named, geometry=geometry), "strategy", look),
            )
    figure, axes = _lines_by_order(_largest(named), "dofs_per_second", named)
    yield "by_order", ", at the largest size — {}", _throughput(figure, axes, named)
    # A matrix performs other operations.
    yield _solve_bars(records) if solves else _roofline([r for r in named if r["phase"] != "csr"])


def _solve_bars(records: Sequence[Record]) -> Drawn:
    """Bars of the phases of whole solves at the largest size, one upon the other, side by side for each geometry."""
    phases = [{**record, "strategy": record["phase"]} for record in records if record["phase"] in _SOLVE_PHASES]
    chosen, shades = _largest(phases), style.order_colours(range(len(_SOLVE_PHASES)))
    geometries, shapes = _values(chosen, "geometry"), style.in_order(_values(chosen, "shape"))
    colours = {
        (phase, geometry): _shaded(shades[number], geometry) if len(geometries) > 1 else shades[number]
        for number, phase in enumerate(_SOLVE_PHASES)
        for geometry in geometries
    }
    patches = [Patch(label=phase, facecolor=shades[number]) for number, phase in enumerate(_SOLVE_PHASES)]
    legend = [patches[:3], patches[3:]]
    if len(geometries) > 1:
        legend.append([Patch(label=f"{name} elements", facecolor=colours["space", name]) for name in geometries])
    figure, axes = style.columns([shape.capitalize() for shape in shapes], legend)
    for axis, shape in zip(axes, shapes, strict=True):
        bars = _Bars(axis, _having(chosen, shape=shape), len(geometries))
        for number, geometry in enumerate(geometries):
            level = dict.fromkeys(bars.orders, 0.0)
            for phase in _SOLVE_PHASES:
                for record in _having(chosen, shape=shape, geometry=geometry, strategy=phase):
                    order, height = record["order"], 1e6 / record["dofs_per_second"]
                    bars.draw(order, number, height, bottom=level[order], color=colours[phase, geometry])
                    level[order] += height
    axes[0].set_ylim(bottom=0)
    axes[0].set_ylabel("Microseconds per unknown", fontsize=9)
    return "parts", ", parts, at the largest size — {}", figure


class _Bars:
    """Groups of bars, one for each order."""

    def __init__(self, axis: Axes, records: Sequence[Record], most: int) -> None:
        self.axis, self.orders, self.most, self.width = axis, sorted(_values(records, "order")), most, 0.8 / most
        style.bars_axis(axis, self.orders)

    def draw(self, order: int, number: int, height: float, **look: Any) -> float:
        """Draw the bar of that number; -> its centre."""
        centre = self.orders.index(order) + (number - (self.most - 1) / 2) * self.width
        self.axis.bar(centre, height, 0.92 * self.width, linewidth=0, **look)
        return centre


def _on_gpu(records: Sequence[Record]) -> bool:
    return records[0].get("backend") == "cuda"


def _about(results: Mapping[str, Any], first: Record) -> str:
    """Machine, backend and precision, for headings."""
    settings = results.get("settings") or {}
    words = [first.get(name, settings.get(name)) for name in ("backend", "dtype")]
    return ", ".join(str(word) for word in (style.processor(results, first.get("backend")), *words) if word)


def _values(records: Sequence[Record], key: str) -> list[Any]:
    return list(dict.fromkeys(record[key] for record in records))


def _having(records: Sequence[Record], **values: Any) -> list[Record]:
    """Records with these values."""
    return [record for record in records if all(record[name] == value for name, value in values.items())]


def _best(records: Sequence[Record], *keys: str) -> list[Record]:
    """The fastest of the records that agree in `keys`."""
    best: dict[tuple[Any, ...], Record] = {}
    for record in records:
        key = tuple(record[name] for name in keys)
        if key not in best or record["dofs_per_second"] > best[key]["dofs_per_second"]:
            best[key] = record
    return list(best.values())


def _lines(
    records: Sequence[Record],
    names: tuple[str, str, str, str],
    quantity: str,
    look: Look,
    entries: Callable[[Any], Sequence[Any]],
    entry_name: str = "{}",
) -> tuple[Figure, dict[Any, Axes]]:
    """Draw a quantity as lines; the names are of panels, rows and entries of the legend, and the horizontal axis."""
    panel, row, entry, x = names
    values = _values(records, panel)
    values = style.in_order(values) if panel == "shape" else values
    legend = [
        [
            style.handle(f"{first}:", linestyle="none"),
            *(style.handle(entry_name.format(second), **look(first, second)) for second in entries(first)),
        ]
        for first in _values(records, row)
    ]
    titles = [value.capitalize() + (" elements" if panel == "geometry" else "") for value in values]
    figure, axes = style.columns(titles, legend)
    for axis, value in zip(axes, values, strict=True):
        shown = _having(records, **{panel: value})
        for pair in dict.fromkeys((record[row], record[entry]) for record in shown):
            points = sorted((r[x], r[quantity]) for r in _having(shown, **{row: pair[0], entry: pair[1]}))
            axis.plot(*zip(*points, strict=True), linewidth=1.2, **look(*pair))
    return figure, dict(zip(values, axes, strict=True))


def _throughput(figure: Figure, axes: Mapping[Any, Axes], records: Sequence[Record]) -> Figure:
    """Finish a figure of throughput."""
    style.throughput_axis(next(iter(axes.values())))
    # Peaks of others are of GPUs, in double precision on deformed elements.
    if _on_gpu(records) and records[0].get("dtype") == "float64" and "deformed" in _values(records, "geometry"):
        for value, axis in axes.items():
            draw_references(axis, records[0]["benchmark"], value)
    return figure


def _over_size(records: Sequence[Record], key: str, look: Look) -> Figure:
    """One column per shape, one line per value of `key` and order."""
    values, orders = _values(records, key), sorted(_values(records, "order"))
    ordered = sorted(records, key=lambda record: (values.index(record[key]), record["order"]))
    names = ("shape", key, "order", "n_dofs")
    figure, axes = _lines(ordered, names, "dofs_per_second", look, lambda _: orders, "P = {}")
    style.log_dofs(axes.values())
    return _throughput(figure, axes, records)


def _strategy_look(records: Sequence[Record]) -> Look:
    """A colour per strategy, a marker and a dash per order."""
    colours = style.strategy_colours(_values(records, "strategy"))
    return lambda strategy, order: style.order_line(order, colours[strategy], style.order_dash(order))


def _order_look(records: Sequence[Record], solid: str) -> Look:
    """A colour and marker per order; solid for one value, dashed for others, multilinear elements dotted."""
    colours = style.order_colours(_values(records, "order"))
    dashes = {solid: "-", "multilinear": _GEOMETRY_LINES["multilinear"][1]}
    return lambda value, order: style.order_line(order, colours[order], dashes.get(value, "--"))


def _geometries(records: Sequence[Record]) -> Iterator[Drawn]:
    """Affine solid, deformed dashed, multilinear dotted; by the strategy that serves most of them, then the fastest."""
    both = _with_both(records, "geometry", "shape", "order")
    if not both:
        return

    def rank(strategy: str) -> tuple[int, float]:
        served = _having(records, strategy=strategy)
        cases = {(record["shape"], record["order"], record["geometry"]) for record in served}
        return len(cases), max(record["dofs_per_second"] for record in served)

    strategy = max(both, key=rank)
    best = _best(_having(records, strategy=strategy), "shape", "geometry", "order", "n_dofs")
    best.sort(key=lambda record: record["geometry"])
    yield "geometry", f" — {{}}, {strategy}", _over_size(best, "geometry", _order_look(best, "affine"))


def _collocation(records: Sequence[Record]) -> Iterator[Drawn]:
    """Collocated solid, non-collocated dashed; affine elements where there are some, as in the paper."""
    geometry = "affine" if "affine" in _values(records, "geometry") else _values(records, "geometry")[0]
    chosen = _having(records, geometry=geometry)
    # By some problem's size as well: "auto" takes one algorithm here and the other there.
    both = _with_both(chosen, "algorithm", "shape", "order", "n_dofs")
    for strategy in both:
        shown = sorted(_having(chosen, strategy=strategy), key=lambda record: record["algorithm"])
        figure = _over_size(shown, "algorithm", _order_look(shown, "collocated"))
        ending = "" if len(both) == 1 else f"_{strategy}"
        yield f"collocation{ending}", f" — {{}}, {strategy}, {geometry} elements", figure


def _with_both(records: Sequence[Record], key: str, *same: str) -> list[str]:
    """Strategies that have more than one value of `key` among some records that agree in `same`."""
    values: dict[tuple[Any, ...], set[Any]] = {}
    for record in records:
        values.setdefault((record["strategy"], *(record[name] for name in same)), set()).add(record[key])
    return list(dict.fromkeys(place[0] for place, several in values.items() if len(several) > 1))


def _gain(records: Sequence[Record]) -> Iterator[Drawn]:
    """Throughput of the collocated algorithm over that of the other, at the largest size."""
    rates: dict[tuple[str, str, str, int], dict[str, Record]] = {}
    for record in _largest(records, "algorithm"):
        key = (record["shape"], record["strategy"], record["geometry"], record["order"])
        rates.setdefault(key, {})[record["algorithm"]] = record
    gains: list[Record] = [
        {**pair["collocated"], "gain": pair["collocated"]["dofs_per_second"] / pair["noncollocated"]["dofs_per_second"]}
        for pair in rates.values()
        if len(pair) == 2
    ]
    if not gains:
        return
    figure, axes = _lines_by_order(gains, "gain", records)
    for axis in axes.values():
        axis.axhline(1.0, color="#444444", linewidth=0.8)
    first = next(iter(axes.values()))
    first.set_ylim(0, 1.06 * max(record["gain"] for record in gains))
    first.set_ylabel("Throughput, collocated / not", fontsize=9)
    yield "gain", ", collocated against not — {}", figure


def _lines_by_order(
    chosen: Sequence[Record], quantity: str, records: Sequence[Record]
) -> tuple[Figure, dict[Any, Axes]]:
    """One column per shape, a colour per strategy; affine elements dashed, multilinear ones dotted, both hollow."""
    colours = style.strategy_colours(_values(chosen, "strategy"))

    def look(strategy: str, geometry: str) -> dict[str, Any]:
        marker, dash = _GEOMETRY_LINES.get(geometry, ("o", "-"))
        return {
            "color": colours[strategy],
            "marker": marker,
            "markersize": 4,
            "linestyle": dash,
            "markerfacecolor": "white" if geometry in _GEOMETRY_LINES else colours[strategy],
        }

    def geometries(strategy: str) -> list[str]:
        return _values(_having(records, strategy=strategy), "geometry")

    names = ("shape", "strategy", "geometry", "order")
    figure, axes = _lines(chosen, names, quantity, look, geometries)
    for shape, axis in axes.items():
        _orders_axis(axis, _having(records, shape=shape))
    return figure, axes


def _orders_axis(axis: Axes, records: Sequence[Record]) -> None:
    axis.set_xlabel("Order P", fontsize=9)
    axis.set_xticks(sorted(_values(records, "order")))


def _by_order_and_shape(records: Sequence[Record]) -> Figure:
    """One column per shape, one line per strategy and geometry: the highest throughput of all sizes."""
    best = _best(records, "shape", "strategy", "geometry", "order")
    figure, axes = _lines_by_order(best, "dofs_per_second", records)
    return _throughput(figure, axes, records)


def _by_order(records: Sequence[Record]) -> Figure:
    """One column per geometry, one line per shape and strategy: the highest throughput of all sizes."""
    shapes, strategies = style.in_order(_values(records, "shape")), _values(records, "strategy")
    best = _best(records, "geometry", "strategy", "shape", "order")
    best.sort(key=lambda record: (strategies.index(record["strategy"]), shapes.index(record["shape"])))
    of_order = _strategy_look(records)

    def look(strategy: str, shape: str) -> dict[str, Any]:
        number = shapes.index(shape) + 1
        return {**of_order(strategy, number), "linestyle": style.order_dash(2 * number), "markersize": 4.5}

    names = ("geometry", "strategy", "shape", "order")
    figure, axes = _lines(best, names, "dofs_per_second", look, lambda _: shapes)
    for axis in axes.values():
        _orders_axis(axis, records)
    return _throughput(figure, axes, records)


def _roofline(records: Sequence[Record]) -> Drawn:
    """Bars of the share of the roofline at the largest size, hatched where the flop rate is the bound.

    If there are many strategies, only the fastest one has a bar; a tick is its sustained speed over seconds.
    """
    geometries, shapes = _values(records, "geometry"), style.in_order(_values(records, "shape"))
    strategies = _values(records, "strategy")
    chosen, colours = _largest(records), style.strategy_colours(strategies)
    fastest_only = len({(record["strategy"], record["geometry"]) for record in chosen}) > MOST_BARS
    whose = "fastest strategy's " if fastest_only else ""
    if fastest_only:
        chosen = _best(chosen, "shape", "geometry", "order")
    present = {(record["strategy"], record["geometry"]) for record in chosen}
    series = [(s, g) for s in strategies for g in geometries if (s, g) in present]
    slots = [(None, g) for g in geometries] if fastest_only else series
    notes: list[Any] = [Patch(label="bound by flops (else by bandwidth)", facecolor="#888888", hatch="////")]
    notes[0].set_edgecolor("white")
    if any("sustained_fraction" in record for record in chosen):
        notes.append(style.handle("sustained", color="black", marker="_", markersize=8, linestyle="none"))
    legend = [
        [Patch(label=f"{s}, {g}", facecolor=_shaded(colours[s], g)) for s, g in series if s == strategy]
        for strategy in strategies
    ]
    figure, axes = style.columns([shape.capitalize() for shape in shapes], [*filter(None, legend), notes])
    top = 1.0
    for axis, shape in zip(axes, shapes, strict=True):
        shown = _having(chosen, shape=shape)
        bars = _Bars(axis, shown, len(slots))
        for record in shown:
            strategy, geometry = record["strategy"], record["geometry"]
            number = slots.index((None if fastest_only else strategy, geometry))
            hatch = "////" if record["bound"] == "flops" else None
            colour = _shaded(colours[strategy], geometry)
            place = bars.draw(record["order"], number, record["fraction"], color=colour, hatch=hatch, edgecolor="white")
            top = max(top, record["fraction"], record.get("sustained_fraction", 0.0))
            if "sustained_fraction" in record:
                ends, level = [place - 0.46 * bars.width, place + 0.46 * bars.width], record["sustained_fraction"]
                axis.plot(ends, [level, level], color="black", linewidth=1)
        axis.axhline(1.0, color="#444444", linewidth=0.8)
    axes[0].set_ylim(0, 1.06 * top)
    # Bounds are of memory's bandwidth and of nominal operations.
    note = "" if top == 1.0 else "\n(above 1: in cache, fewer flops, tensor cores)"
    axes[0].set_ylabel(f"Speed over main memory's limit{note}", fontsize=9 if top == 1.0 else 8)
    return "roofline", f", {whose}speed over the roofline — {{}}", figure


def _largest(records: Sequence[Record], *more: str) -> list[Record]:
    """The fastest record of the largest size for each shape, strategy, geometry and order, and for each of `more`."""
    names = ("shape", "strategy", "geometry", "order", *more)
    sizes: dict[tuple[Any, ...], int] = {}
    for record in records:
        key = tuple(record[name] for name in names)
        sizes[key] = max(record["n_dofs"], sizes.get(key, 0))
    return _best([r for r in records if r["n_dofs"] == sizes[tuple(r[name] for name in names)]], *names)


def _shaded(colour: Any, geometry: str) -> Any:
    """The colour of a bar: lighter for affine elements, darker for multilinear ones."""
    return tuple(map(_SHADES[geometry], to_rgb(colour))) if geometry in _SHADES else colour
