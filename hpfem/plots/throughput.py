"""Figures of a benchmark run, laid out like [X] Figs 5 to 9: one column per shape, throughput over size."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch

from . import style

Record = Mapping[str, Any]

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
        - ``<benchmark>_by_order``: best throughput by order,
        - ``<benchmark>_roofline``: share of the machine's limit;

        with the precision after the benchmark's name where the results hold several.
    """
    folder = Path(folder)
    dtypes = list(dict.fromkeys(record.get("dtype") for record in results["results"]))
    paths = []
    for dtype in dtypes:
        of_dtype = [record for record in results["results"] if record.get("dtype") == dtype]
        about = _about(results, of_dtype[0])
        for benchmark in _values(of_dtype, "benchmark"):
            records = [record for record in of_dtype if record["benchmark"] == benchmark]
            name = benchmark if len(dtypes) == 1 else f"{benchmark}_{dtype}"
            paths += _benchmark(records, _OPERATORS.get(benchmark, benchmark), about, folder, name, suffix)
    return paths


def _benchmark(records: Sequence[Record], title: str, about: str, folder: Path, name: str, suffix: str) -> list[Path]:
    """Figures of one benchmark in one precision."""
    paths = []
    for geometry in _values(records, "geometry"):
        of_kind = [record for record in records if record["geometry"] == geometry]
        heading = f"{title}, {geometry} elements — {about}"
        paths.append(_strategies(of_kind, heading, folder / f"{name}_{geometry}{suffix}"))
    paths += _geometries(records, f"{title} — {about}", folder, name, suffix)
    paths += _collocation(records, f"{title} — {about}", folder, name, suffix)
    paths.append(_by_order(records, f"{title}, best throughput — {about}", folder / f"{name}_by_order{suffix}"))
    heading = f"{title}, share of the roofline — {about}"
    paths.append(_roofline(records, heading, folder / f"{name}_roofline{suffix}"))
    return paths


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
    return style.save(figure, path)


def _strategies(records: Sequence[Record], heading: str, path: Path) -> Path:
    colours = style.strategy_colours(_values(records, "strategy"))

    def look(strategy: str, order: int) -> dict[str, Any]:
        return {"color": colours[strategy], "marker": style.order_marker(order), "linestyle": style.order_dash(order)}

    return _curves(_best(records, "shape", "strategy", "order", "n_dofs"), heading, path, "strategy", look)


def _geometries(records: Sequence[Record], heading: str, folder: Path, benchmark: str, suffix: str) -> list[Path]:
    """Affine solid, deformed dashed; by the strategy with the best throughput of those that serve both."""
    both = _with_both(records, "geometry", "shape", "order")
    if not both:
        return []
    strategy = max((r for r in records if r["strategy"] in both), key=lambda r: r["dofs_per_second"])["strategy"]
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
    """Bars of the share of the roofline at the largest size; hatched where the flop rate is the bound."""
    geometries, shapes = _values(records, "geometry"), style.in_order(_values(records, "shape"))
    orders, strategies = sorted(_values(records, "order")), _values(records, "strategy")
    colours = style.strategy_colours(strategies)
    measured = {(record["strategy"], record["geometry"]) for record in records}
    series = [(s, g) for s in strategies for g in geometries if (s, g) in measured]

    def colour(strategy: str, geometry: str) -> Any:
        return colours[strategy] if geometry == "deformed" else _lighter(colours[strategy])

    bound = Patch(label="bound by flops (else by bandwidth)", facecolor="#888888", edgecolor="white", hatch="////")
    legend = [[Patch(label=f"{s}, {g}", facecolor=colour(s, g)) for s, g in series if s == own] for own in strategies]
    figure, axes = style.columns([style.shape_title(shape) for shape in shapes], [*legend, [bound]])
    style.heading(figure, heading)
    width = 0.8 / len(series)
    top = 1.0
    for axis, shape in zip(axes, shapes, strict=True):
        for number, (strategy, geometry) in enumerate(series):
            own = [r for r in records if (r["shape"], r["strategy"], r["geometry"]) == (shape, strategy, geometry)]
            for record in _largest(own):
                place = orders.index(record["order"]) + (number - (len(series) - 1) / 2) * width
                axis.bar(
                    place,
                    record["fraction"],
                    width * 0.92,
                    color=colour(strategy, geometry),
                    hatch="////" if record["bound"] == "flops" else None,
                    edgecolor="white",
                    linewidth=0,
                )
                top = max(top, record["fraction"])
        axis.axhline(1.0, color="#444444", linewidth=0.8)
        axis.set_xticks(range(len(orders)), [str(order) for order in orders])
        axis.set_xlabel("Order P", fontsize=9)
        axis.grid(visible=False, axis="x")
    axes[0].set_ylim(0, 1.06 * top)
    # Bounds are of memory's bandwidth and of nominal operations.
    note = "" if top == 1.0 else "\n(above 1: in cache, or fewer flops than nominal)"
    axes[0].set_ylabel(f"Share of the roofline{note}", fontsize=9 if top == 1.0 else 8)
    return style.save(figure, path)


def _largest(records: Sequence[Record]) -> list[Record]:
    """Per order the fastest record of the largest size."""
    chosen = []
    for order in _values(records, "order"):
        own = [record for record in records if record["order"] == order]
        size = max(record["n_dofs"] for record in own)
        chosen.append(max((r for r in own if r["n_dofs"] == size), key=lambda r: r["dofs_per_second"]))
    return chosen


def _lighter(colour: str) -> tuple[float, float, float]:
    red, green, blue = (1 - 0.5 * (1 - part) for part in to_rgb(colour))
    return red, green, blue
