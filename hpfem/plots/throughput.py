"""Figures of a benchmark run, laid out like [X] Figs 5 to 9: one column per shape, throughput over size."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch

from hpfem.shapes import SHAPES

from . import style
from .references import draw_references

Record = Mapping[str, Any]
# More columns than these are parted by dimension; more lines or bars in a panel are drawn another way.
MOST_COLUMNS, MOST_LINES, MOST_BARS = 4, 12, 4

_OPERATORS = {"bk1": "BK1, mass", "bk3": "BK3, Helmholtz"}


def plot_throughput(results: Mapping[str, Any], folder: str | os.PathLike[str], suffix: str = ".png") -> list[Path]:
    """Draw every figure that the results have the data for.

    Parameters
    ----------
    results : mapping
        Result of `hpfem bench`, see `hpfem.benchmarks.read_results`.
    folder : path
        Where the files go; it must exist.
    suffix : str
        ".png", ".pdf" or ".svg".

    Returns
    -------
    list of Path
        - ``<benchmark>_<geometry>``: strategies and orders ([X] Figs 5, 6),
        - ``<benchmark>_geometry``: affine and deformed ([X] Figs 7, 8),
        - ``<benchmark>_collocation``: collocated and not ([X] Fig. 9),
        - ``<benchmark>_gain``: collocated against not by order,
        - ``<benchmark>_by_order``: best throughput by order,
        - ``<benchmark>_roofline``: share of the machine's limit;

        with the precision after the benchmark's name where the results hold several, and ``_2d`` at the end for shapes
        of two dimensions where there are more columns than a page is wide. Of a GPU's results the peaks of others are
        drawn as lines (`hpfem.plots.references`). Precisions that were measured at one size only, beside another one at
        many, have no figures over size.
    """
    folder = Path(folder)
    dtypes = list(dict.fromkeys(record.get("dtype") for record in results["results"]))
    of = {dtype: [r for r in results["results"] if r.get("dtype") == dtype] for dtype in dtypes}
    swept = [dtype for dtype in dtypes if _swept(of[dtype])]
    paths = []
    for dtype in dtypes:
        about = _about(results, of[dtype][0])
        for benchmark in _values(of[dtype], "benchmark"):
            records = [record for record in of[dtype] if record["benchmark"] == benchmark]
            name = benchmark if len(dtypes) == 1 else f"{benchmark}_{dtype}"
            for own, ending in _columns(records):
                title = _OPERATORS.get(benchmark, benchmark)
                over_size = not swept or dtype in swept
                paths += _benchmark(own, title, about, folder, name, f"{ending}{suffix}", over_size)
    return paths


def _swept(records: Sequence[Record]) -> bool:
    """Whether something was measured at several sizes."""
    sizes: dict[tuple[Any, ...], set[int]] = {}
    for record in records:
        key = tuple(record[name] for name in ("benchmark", "shape", "geometry", "strategy", "algorithm", "order"))
        sizes.setdefault(key, set()).add(record["n_dofs"])
    return any(len(own) > 1 for own in sizes.values())


def _columns(records: Sequence[Record]) -> list[tuple[list[Record], str]]:
    """Records that go into a figure together, and how its name ends."""
    if len(_values(records, "shape")) <= MOST_COLUMNS:
        return [(list(records), "")]
    flat = [record for record in records if record["shape"] in SHAPES and SHAPES[record["shape"]].dim <= 2]
    solid = [record for record in records if record not in flat]
    return [(own, ending) for own, ending in ((solid, ""), (flat, "_2d")) if own]


def _benchmark(
    records: Sequence[Record], title: str, about: str, folder: Path, name: str, suffix: str, over_size: bool
) -> list[Path]:
    """Figures of one benchmark in one precision."""
    paths = []
    for geometry in _values(records, "geometry") if over_size else ():
        of_kind = [record for record in records if record["geometry"] == geometry]
        heading = f"{title}, {geometry} elements — {about}"
        paths.append(_strategies(of_kind, heading, folder / f"{name}_{geometry}{suffix}"))
    if over_size:
        paths += _geometries(records, f"{title} — {about}", folder, name, suffix)
        paths += _collocation(records, f"{title} — {about}", folder, name, suffix)
    if _on_gpu(records):
        paths += _gain(records, f"{title}, collocated against not — {about}", folder / f"{name}_gain{suffix}")
    lines = len(_values(records, "strategy")) * len(_values(records, "shape"))
    by_order = _by_order if lines <= MOST_LINES else _by_order_and_shape
    paths.append(by_order(records, f"{title}, best throughput — {about}", folder / f"{name}_by_order{suffix}"))
    heading = f"{title}, share of the roofline — {about}"
    paths.append(_roofline(records, heading, folder / f"{name}_roofline{suffix}"))
    return paths


def _on_gpu(records: Sequence[Record]) -> bool:
    return records[0].get("backend") == "cuda"


def _references(axis: Axes, records: Sequence[Record], shape: str) -> None:
    """Peaks of others, which are of GPUs, in double precision on deformed elements."""
    if _on_gpu(records) and records[0].get("dtype") == "float64" and "deformed" in _values(records, "geometry"):
        draw_references(axis, records[0]["benchmark"], shape)


def _about(results: Mapping[str, Any], first: Record) -> str:
    """Machine, backend and precision, for headings."""
    machine, settings = results.get("machine") or {}, results.get("settings") or {}
    parts = [first.get("backend", settings.get("backend")), first.get("dtype", settings.get("dtype"))]
    gpus = machine.get("gpu") or []
    processor = gpus[0] if first.get("backend") == "cuda" and gpus else machine.get("cpu")
    return ", ".join(str(part) for part in (processor, *parts) if part)


def _values(records: Sequence[Record], key: str) -> list[Any]:
    return list(dict.fromkeys(record[key] for record in records))


def _best(records: Sequence[Record], *keys: str) -> list[Record]:
    """Of records that agree in `keys`, the fastest."""
    best: dict[tuple[Any, ...], Record] = {}
    for record in records:
        key = tuple(record[name] for name in keys)
        if key not in best or record["dofs_per_second"] > best[key]["dofs_per_second"]:
            best[key] = record
    return list(best.values())


def _curve(axis: Axes, records: Sequence[Record], **line: Any) -> None:
    points = sorted((record["n_dofs"], record["dofs_per_second"]) for record in records)
    axis.plot(*zip(*points, strict=True), markersize=4, linewidth=1.2, **line)


def _curves(
    records: Sequence[Record], heading: str, path: Path, key: str, look: Callable[[Any, int], dict[str, Any]]
) -> Path:
    """One column per shape, one line per value of `key` and order; the legend has one row per value."""
    shapes, values = style.in_order(_values(records, "shape")), _values(records, key)
    orders = sorted(_values(records, "order"))
    legend = []
    for value in values:
        entries = [style.handle(f"P = {order}", markersize=4, **look(value, order)) for order in orders]
        legend.append([style.handle(f"{value}:", linestyle="none"), *entries])
    figure, axes = style.columns([style.shape_title(shape) for shape in shapes], legend)
    style.heading(figure, heading)
    for axis, shape in zip(axes, shapes, strict=True):
        for value in values:
            for order in orders:
                own = [r for r in records if (r["shape"], r[key], r["order"]) == (shape, value, order)]
                if own:
                    _curve(axis, own, **look(value, order))
    style.log_dofs(axes)
    style.throughput_axis(axes[0])
    for axis, shape in zip(axes, shapes, strict=True):
        _references(axis, records, shape)
    return style.save(figure, path)


def _strategies(records: Sequence[Record], heading: str, path: Path) -> Path:
    colours = style.strategy_colours(_values(records, "strategy"))

    def look(strategy: str, order: int) -> dict[str, Any]:
        return {"color": colours[strategy], "marker": style.order_marker(order), "linestyle": style.order_dash(order)}

    return _curves(_best(records, "shape", "strategy", "order", "n_dofs"), heading, path, "strategy", look)


def _geometries(records: Sequence[Record], heading: str, folder: Path, benchmark: str, suffix: str) -> list[Path]:
    """Affine solid, deformed dashed; by the strategy that serves most of both, the fastest of those."""
    both = _with_both(records, "geometry", "shape", "order")
    if not both:
        return []

    def rank(strategy: str) -> tuple[int, float]:
        own = [record for record in records if record["strategy"] == strategy]
        served = {(record["shape"], record["order"], record["geometry"]) for record in own}
        return len(served), max(record["dofs_per_second"] for record in own)

    strategy = max(both, key=rank)
    chosen = [record for record in records if record["strategy"] == strategy]
    colours = style.order_colours(_values(chosen, "order"))

    def look(geometry: str, order: int) -> dict[str, Any]:
        dash = "-" if geometry == "affine" else "--"
        return {"color": colours[order], "marker": style.order_marker(order), "linestyle": dash}

    best = sorted(_best(chosen, "shape", "geometry", "order", "n_dofs"), key=lambda record: record["geometry"])
    path = folder / f"{benchmark}_geometry{suffix}"
    return [_curves(best, f"{heading}, {strategy}", path, "geometry", look)]


def _collocation(records: Sequence[Record], heading: str, folder: Path, benchmark: str, suffix: str) -> list[Path]:
    """Collocated solid, non-collocated dashed; affine elements where there are some, as in the paper."""
    geometry = "affine" if "affine" in _values(records, "geometry") else _values(records, "geometry")[0]
    chosen = [record for record in records if record["geometry"] == geometry]
    # By some problem's size as well: "auto" takes one algorithm here and the other there.
    both = _with_both(chosen, "algorithm", "shape", "order", "n_dofs")
    paths = []
    for strategy in both:
        own = [record for record in chosen if record["strategy"] == strategy]
        colours = style.order_colours(_values(own, "order"))

        def look(algorithm: str, order: int, colours: Mapping[int, Any] = colours) -> dict[str, Any]:
            dash = "-" if algorithm == "collocated" else "--"
            return {"color": colours[order], "marker": style.order_marker(order), "linestyle": dash}

        ordered = sorted(own, key=lambda record: record["algorithm"])
        name = f"{benchmark}_collocation" if len(both) == 1 else f"{benchmark}_collocation_{strategy}"
        title = f"{heading}, {strategy}, {geometry} elements"
        paths.append(_curves(ordered, title, folder / f"{name}{suffix}", "algorithm", look))
    return paths


def _with_both(records: Sequence[Record], key: str, *same: str) -> list[str]:
    """Strategies that have more than one value of `key` among some records that agree in `same`."""
    found: dict[tuple[Any, ...], set[Any]] = {}
    for record in records:
        found.setdefault((record["strategy"], *(record[name] for name in same)), set()).add(record[key])
    return list(dict.fromkeys(place[0] for place, values in found.items() if len(values) > 1))


def _gain(records: Sequence[Record], heading: str, path: Path) -> list[Path]:
    """Throughput of the collocated algorithm over that of the other, at the largest size."""
    rates: dict[tuple[str, str, str, int], dict[str, Record]] = {}
    for record in records:
        key = (record["shape"], record["strategy"], record["geometry"], record["order"])
        own = rates.setdefault(key, {})
        if record["n_dofs"] >= own.get(record["algorithm"], record)["n_dofs"]:
            own[record["algorithm"]] = record
    gains = {
        key: own["collocated"]["dofs_per_second"] / own["noncollocated"]["dofs_per_second"]
        for key, own in rates.items()
        if len(own) == 2
    }
    if not gains:
        return []
    shapes, strategies = style.in_order(key[0] for key in gains), list(dict.fromkeys(key[1] for key in gains))
    look = _strategy_and_geometry(strategies)
    figure, axes = style.columns([style.shape_title(shape) for shape in shapes], _legend(records, strategies, look))
    style.heading(figure, heading)
    for axis, shape in zip(axes, shapes, strict=True):
        for place in dict.fromkeys(key[:3] for key in gains if key[0] == shape):
            points = sorted((key[3], gain) for key, gain in gains.items() if key[:3] == place)
            axis.plot(*zip(*points, strict=True), linewidth=1.2, **look(*place[1:]))
        axis.axhline(1.0, color="#444444", linewidth=0.8)
        _orders_axis(axis, [record for record in records if record["shape"] == shape])
    axes[0].set_ylim(0, 1.06 * max(gains.values()))
    axes[0].set_ylabel("Throughput, collocated / not", fontsize=9)
    return [style.save(figure, path)]


def _strategy_and_geometry(strategies: Sequence[str]) -> Callable[[str, str], dict[str, Any]]:
    """Looks of lines: a colour per strategy; deformed elements solid and filled, affine ones dashed and hollow."""
    colours = style.strategy_colours(strategies)

    def look(strategy: str, geometry: str) -> dict[str, Any]:
        solid = geometry == "deformed"
        face = colours[strategy] if solid else "white"
        return {
            "color": colours[strategy],
            "marker": "o" if solid else "s",
            "markersize": 4,
            "linestyle": "-" if solid else "--",
            "markerfacecolor": face,
        }

    return look


def _legend(
    records: Sequence[Record], strategies: Sequence[str], look: Callable[[str, str], dict[str, Any]]
) -> list[list[Any]]:
    """Rows of a legend: one per strategy, with its geometries."""
    rows = []
    for strategy in strategies:
        own = [record for record in records if record["strategy"] == strategy]
        entries = [style.handle(geometry, **look(strategy, geometry)) for geometry in _values(own, "geometry")]
        rows.append([style.handle(f"{strategy}:", linestyle="none"), *entries])
    return rows


def _orders_axis(axis: Axes, records: Sequence[Record]) -> None:
    axis.set_xlabel("Order P", fontsize=9)
    axis.set_xticks(sorted(_values(records, "order")))


def _by_order_and_shape(records: Sequence[Record], heading: str, path: Path) -> Path:
    """One column per shape, one line per strategy and geometry: the highest throughput of all sizes."""
    shapes, strategies = style.in_order(_values(records, "shape")), _values(records, "strategy")
    look = _strategy_and_geometry(strategies)
    figure, axes = style.columns([style.shape_title(shape) for shape in shapes], _legend(records, strategies, look))
    style.heading(figure, heading)
    for axis, shape in zip(axes, shapes, strict=True):
        own = [record for record in records if record["shape"] == shape]
        best = _best(own, "strategy", "geometry", "order")
        for place in dict.fromkeys((record["strategy"], record["geometry"]) for record in best):
            points = sorted((r["order"], r["dofs_per_second"]) for r in best if (r["strategy"], r["geometry"]) == place)
            axis.plot(*zip(*points, strict=True), linewidth=1.2, **look(*place))
        _orders_axis(axis, own)
    style.throughput_axis(axes[0])
    for axis, shape in zip(axes, shapes, strict=True):
        _references(axis, records, shape)
    return style.save(figure, path)


def _by_order(records: Sequence[Record], heading: str, path: Path) -> Path:
    """One column per geometry, one line per shape and strategy: the highest throughput of all sizes."""
    geometries, shapes = _values(records, "geometry"), style.in_order(_values(records, "shape"))
    strategies = _values(records, "strategy")
    colours = style.strategy_colours(strategies)

    def look(strategy: str, shape: str) -> dict[str, Any]:
        number = shapes.index(shape) + 1
        return {
            "color": colours[strategy],
            "marker": style.order_marker(number),
            "linestyle": style.order_dash(2 * number),
        }

    legend = []
    for strategy in strategies:
        entries = [style.handle(shape, markersize=4.5, **look(strategy, shape)) for shape in shapes]
        legend.append([style.handle(f"{strategy}:", linestyle="none"), *entries])
    figure, axes = style.columns([f"{g.capitalize()} elements" for g in geometries], legend)
    style.heading(figure, heading)
    for axis, geometry in zip(axes, geometries, strict=True):
        own = [record for record in records if record["geometry"] == geometry]
        for strategy in strategies:
            for shape in shapes:
                best = _best([r for r in own if (r["strategy"], r["shape"]) == (strategy, shape)], "order")
                points = sorted((record["order"], record["dofs_per_second"]) for record in best)
                if points:
                    axis.plot(*zip(*points, strict=True), markersize=4.5, linewidth=1.2, **look(strategy, shape))
        axis.set_xlabel("Order P", fontsize=9)
        axis.set_xticks(sorted(_values(records, "order")))
    style.throughput_axis(axes[0])
    return style.save(figure, path)


def _roofline(records: Sequence[Record], heading: str, path: Path) -> Path:
    """Bars of the share of the roofline at the largest size, hatched where the flop rate is the bound.

    Of many strategies the fastest alone has a bar; a tick is what it reaches for seconds without a pause.
    """
    geometries, shapes = _values(records, "geometry"), style.in_order(_values(records, "shape"))
    strategies = _values(records, "strategy")
    colours = style.strategy_colours(strategies)
    chosen = [
        record
        for shape in shapes
        for strategy in strategies
        for geometry in geometries
        for record in _largest(
            [r for r in records if (r["shape"], r["strategy"], r["geometry"]) == (shape, strategy, geometry)]
        )
    ]
    fastest_only = len({(record["strategy"], record["geometry"]) for record in chosen}) > MOST_BARS
    if fastest_only:
        chosen = _best(chosen, "shape", "geometry", "order")
        heading = heading.replace("share of the roofline", "fastest strategy's share of the roofline")
    present = {(record["strategy"], record["geometry"]) for record in chosen}
    series = [(s, g) for s in strategies for g in geometries if (s, g) in present]
    slots = [(None, g) for g in geometries] if fastest_only else series

    def colour(strategy: str, geometry: str) -> Any:
        return colours[strategy] if geometry == "deformed" else _lighter(colours[strategy])

    notes: list[Any] = [Patch(label="bound by flops (else by bandwidth)", facecolor="#888888", hatch="////")]
    notes[0].set_edgecolor("white")
    if any("sustained_fraction" in record for record in chosen):
        notes.append(style.handle("sustained", color="black", marker="_", markersize=8, linestyle="none"))
    legend = [[Patch(label=f"{s}, {g}", facecolor=colour(s, g)) for s, g in series if s == own] for own in strategies]
    figure, axes = style.columns([style.shape_title(shape) for shape in shapes], [*filter(None, legend), notes])
    style.heading(figure, heading)
    width = 0.8 / len(slots)
    top = 1.0
    for axis, shape in zip(axes, shapes, strict=True):
        own = [record for record in chosen if record["shape"] == shape]
        orders = sorted(_values(own, "order"))
        for record in own:
            strategy, geometry = record["strategy"], record["geometry"]
            number = slots.index((None if fastest_only else strategy, geometry))
            place = orders.index(record["order"]) + (number - (len(slots) - 1) / 2) * width
            axis.bar(
                place,
                record["fraction"],
                width * 0.92,
                color=colour(strategy, geometry),
                hatch="////" if record["bound"] == "flops" else None,
                edgecolor="white",
                linewidth=0,
            )
            top = max(top, record["fraction"], record.get("sustained_fraction", 0.0))
            if "sustained_fraction" in record:
                level = record["sustained_fraction"]
                axis.plot([place - 0.46 * width, place + 0.46 * width], [level, level], color="black", linewidth=1)
        axis.axhline(1.0, color="#444444", linewidth=0.8)
        axis.set_xticks(range(len(orders)), [str(order) for order in orders])
        axis.set_xlabel("Order P", fontsize=9)
        axis.grid(visible=False, axis="x")
    axes[0].set_ylim(0, 1.06 * top)
    # Bounds are of memory's bandwidth and of nominal operations.
    note = "" if top == 1.0 else "\n(above 1: in cache, fewer flops, tensor cores)"
    axes[0].set_ylabel(f"Share of the roofline{note}", fontsize=9 if top == 1.0 else 8)
    return style.save(figure, path)


def _largest(records: Sequence[Record]) -> list[Record]:
    """Per order the fastest record of the largest size."""
    chosen = []
    for order in sorted(_values(records, "order")):
        own = [record for record in records if record["order"] == order]
        size = max(record["n_dofs"] for record in own)
        chosen.append(max((r for r in own if r["n_dofs"] == size), key=lambda r: r["dofs_per_second"]))
    return chosen


def _lighter(colour: str) -> tuple[float, float, float]:
    red, green, blue = (1 - 0.5 * (1 - part) for part in to_rgb(colour))
    return red, green, blue
