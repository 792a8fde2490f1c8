"""Figures of a benchmark run: first the one that answers which strategy is best, then the details."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter

from hpfem.shapes import SHAPES

from . import grid, style
from .best import draw_best
from .grid import Record, best, having, largest, said, values

# How the file's name ends, what the heading says after the benchmark, and the figure.
Drawn = tuple[str, str, Figure]
# More columns than these are parted by dimension.
MOST_COLUMNS = 4
# Where kernels have geometric factors from; the others recompute some or all of them.
STORED, RECOMPUTED = "stored", ("scaled", "recomputed")

# (benchmark, shape): code with the peak over orders and sizes, device, and degrees of freedom per second, ascending.
# [Xing] and MFEM: [Xing] section 4.1, on an NVIDIA GH200. libCEED: commit 64e0491, /gpu/cuda/gen, the better of apply
# and applyAdd over P = 1..7, measured on an H200; tets with a dense basis on the same points (best at P = 1).
GPU_REFERENCES: Mapping[tuple[str, str], Mapping[str, float]] = {
    ("bk1", "hex"): {"MFEM, GH200 (Xing et al.)": 25e9, "Xing et al., GH200": 35e9, "libCEED, H200": 60.7e9},
    ("bk3", "hex"): {"Xing et al. and MFEM, GH200": 11e9, "libCEED, H200": 15.2e9},
    ("bk3", "tet"): {"libCEED, H200": 7.5e9},
}
# What they are of.
_REFERRED = {"backend": "cuda", "dtype": "float64", "geometry": "deformed", "factors": STORED}

_OPERATORS = {
    "bk1": "BK1, mass",
    "bk3": "BK3, Helmholtz",
    "bp1": "BP1, mass",
    "bp3": "BP3, stiffness",
    "bp5": "BP5, collocated stiffness",
    "solve": "Whole solve",
}
# Names of the phases of problems on continuous functions, the first ones those whose strategy matters.
_PHASES = {"application": "application", "iteration": "CG iteration", "csr": "CSR product"}
_SOLVES = ("all in", "iterations", "pyamg")
_HATCHED: dict[str, Any] = {"facecolor": "0.6", "hatch": "////", "edgecolor": "white"}
# What a whole solve consists of, in order: together "all in".
_SOLVE_PHASES = ("space", "operator", "multigrid", "vertices", "right-hand side", "iterations")


def plot_throughput(results: Mapping[str, Any], folder: str | os.PathLike[str], suffix: str = ".png") -> list[Path]:
    """Draw every figure that the results of `hpfem bench` have the data for; see `plot_results`."""
    every = [{"dtype": None, "backend": None, **record} for record in _with_factors(results["results"])]
    paths = []
    for dtype, benchmark in dict.fromkeys((record["dtype"], record["benchmark"]) for record in every):
        name = benchmark if len(values(every, "dtype")) == 1 else f"{benchmark}_{dtype}"
        for shown, ending in _columns(having(every, dtype=dtype, benchmark=benchmark)):
            for what, words, figure in _figures(shown):
                about = _about(results, shown[0])
                style.heading(figure, f"{_OPERATORS.get(benchmark, benchmark)}{words} — {about}")
                paths.append(style.save(figure, Path(folder) / f"{name}_{what}{ending}{suffix}"))
    return paths


def _with_factors(records: Sequence[Record]) -> Iterator[Record]:
    """Records with their spread, and with the source of their factors: some files name it at the largest size only."""
    names = ("benchmark", "dtype", "shape", "geometry", "strategy", "algorithm", "order", "source")
    known: dict[tuple[Any, ...], str] = {}
    for record in sorted(records, key=lambda record: -record["n_dofs"]):
        key = tuple(record.get(name) for name in names)
        # Older results name it among the options of the kernel.
        words = " ".join(record.get(name) or "" for name in ("factors", "source", "variant"))
        known[key] = (
            next((word for word in RECOMPUTED if word in words), STORED) if words.strip() else known.get(key, STORED)
        )
        yield {**grid.with_spread(record), "factors": known[key]}


def _columns(records: Sequence[Record]) -> list[tuple[list[Record], str]]:
    """Records that go into a figure together, and how its name ends."""
    if len(values(records, "shape")) <= MOST_COLUMNS:
        return [(list(records), "")]
    flat = [record for record in records if record["shape"] in SHAPES and SHAPES[record["shape"]].dim <= 2]
    solid = [record for record in records if record not in flat]
    return [(shown, ending) for shown, ending in ((solid, ""), (flat, "_2d")) if shown]


def _about(results: Mapping[str, Any], first: Record) -> str:
    """Machine, backend and precision, for headings."""
    settings = results.get("settings") or {}
    words = [first.get(name, settings.get(name)) for name in ("backend", "dtype")]
    return ", ".join(str(word) for word in (style.processor(results, first.get("backend")), *words) if word)


def _figures(records: Sequence[Record]) -> Iterator[Drawn]:
    """Figures of one benchmark in one precision, those of stored factors first."""
    whole = any(record.get("phase") == _SOLVES[0] for record in records)
    for source in sorted(values(records, "factors"), key=lambda source: source != STORED):
        own, name = having(records, factors=source), "" if source == STORED else f"_{source}"
        first = [record for record in own if record.get("phase") in (_SOLVES[0], *_PHASES, None)]
        end = largest([record for record in first if record.get("phase") == first[0].get("phase")])
        words = f", {first[0]['phase']}" if "phase" in first[0] else ""
        yield f"best{name}", f"{words}, the fastest strategy{_at(end)}", draw_best(end)
        if "phase" in first[0]:
            yield from _phase_figures(own, name, whole)
        elif source == STORED:
            each = best(end, "shape", "geometry", "strategy", "order")
            yield "by_order", f", every strategy{_at(end)}", _throughput(each, "geometry", "strategy", "order")
            yield from _gain(largest(own, "algorithm"))
            yield from _sources(records)
            yield _roofline(end)
        if "phase" not in first[0]:
            yield from _over_sizes(own, name)


def _at(records: Sequence[Record]) -> str:
    """Size and factors of records, for headings."""
    sizes = [record["n_dofs"] for record in records]
    size = f"about {EngFormatter()(float(f'{max(sizes):.1g}'))} DoF"
    return f", at {size if max(sizes) < 1.5 * min(sizes) else 'the largest size'}{_by(records)}"


def _by(records: Sequence[Record]) -> str:
    """Source of the factors of records, which are numbers of an affine element."""
    sources = values([record for record in records if record["geometry"] != "affine"], "factors")
    return f", {sources[0]} factors" if len(sources) == 1 else ""


def _throughput(records: Sequence[Record], row: str, line: str, x: str) -> Figure:
    """Lines of throughput, with the peaks of others on panels of deformed elements."""
    figure, panels = grid.lines(records, (row, "shape", line, x))
    for (value, shape), axis in panels.items():
        if axis.get_ylabel():
            style.throughput_axis(axis)
        shown = having(records, **{"shape": shape, row: value})
        if any(all(record[name] == wanted for name, wanted in _REFERRED.items()) for record in shown):
            peaks = GPU_REFERENCES.get((shown[0]["benchmark"], shape), {})
            most = max(float(own.dataLim.y1) for own in axis.get_shared_y_axes().get_siblings(axis))
            levels = [(f"{code}: {rate / 1e9:g}", rate, "#444444") for code, rate in peaks.items()]
            style.draw_levels(axis, levels, most)
    return figure


def _gain(records: Sequence[Record]) -> Iterator[Drawn]:
    """Throughput of the collocated algorithm over that of the other, by one strategy; a row per geometry."""
    keys, spread = ("shape", "strategy", "geometry", "order"), ("low", "value", "high")
    others = {tuple(r[key] for key in keys): r for r in records if r["algorithm"] != "collocated"}
    # Those that were timed in turns, if there are any.
    gains = [{**r, **dict(zip(spread, r["collocation"], strict=True))} for r in records if r.get("collocation")]
    for record in having([] if gains else records, algorithm="collocated"):
        if other := others.get(tuple(record[key] for key in keys)):
            parts = zip(spread, reversed(spread), strict=True)
            gains.append({**record, **{own: record[own] / other[theirs] for own, theirs in parts}})
    if gains:
        figure, panels = grid.lines(gains, ("geometry", "shape", "strategy", "order"), "Collocated / not")
        for axis in panels.values():
            axis.axhline(1.0, color="#444444", linewidth=0.8)
        yield "gain", f", throughput collocated over not{_at(gains)}", figure


def _sources(records: Sequence[Record]) -> Iterator[Drawn]:
    """The fastest with each source of geometric factors; a row per geometry."""
    shown = best(largest(records), "shape", "geometry", "factors", "order")
    several = [record["geometry"] for record in shown if record["factors"] != STORED]
    if shown := [record for record in shown if record["geometry"] in several]:
        figure = _throughput(shown, "geometry", "factors", "order")
        yield "sources", f", the fastest by each source of factors{_at(shown)}", figure


def _over_sizes(records: Sequence[Record], ending: str) -> Iterator[Drawn]:
    """Figures over size: strategies; of stored factors geometries and algorithms too."""
    for geometry in values(records, "geometry"):
        own = best(having(records, geometry=geometry), "shape", "strategy", "order", "n_dofs")
        yield from _over_size(own, "strategy", f"{geometry}{ending}", f", {geometry} elements")
    if ending:
        return
    # Geometries by the strategy that serves most of their cases, algorithms by every one that has both.
    for strategy in _with_both(records, "geometry", "shape", "order")[:1]:
        own = best(having(records, strategy=strategy), "shape", "geometry", "order", "n_dofs")
        yield from _over_size(own, "geometry", "geometry", f", {strategy}")
    geometry = "affine" if "affine" in values(records, "geometry") else values(records, "geometry")[0]
    own = having(records, geometry=geometry)
    # By some problem's size as well: "auto" takes one algorithm here and the other there.
    both = _with_both(own, "algorithm", "shape", "order", "n_dofs")
    for strategy in both:
        name = "collocation" if len(both) == 1 else f"collocation_{strategy}"
        words = f", {strategy}, {geometry} elements"
        yield from _over_size(having(own, strategy=strategy), "algorithm", name, words)


def _over_size(records: Sequence[Record], key: str, name: str, words: str) -> Iterator[Drawn]:
    """A row for some orders, a line for each value; where there is one value, a line for some orders."""
    sizes = {tuple(record[name] for name in ("shape", key, "order", "n_dofs")) for record in records}
    counts = Counter(size[:-1] for size in sizes)
    records = [record for record in records if counts[record["shape"], record[key], record["order"]] > 1]
    several, orders = len(values(records, key)) > 1, values(records, "order")
    row, line = ("order", key) if several else (key, "order")
    shown = grid.picked(orders, grid.MOST_ROWS if several else grid.MOST_LINES)
    if records := [record for record in records if record["order"] in shown]:
        yield name, f"{words}{_by(records)}", _throughput(records, row, line, "n_dofs")


def _with_both(records: Sequence[Record], key: str, *same: str) -> list[str]:
    """Strategies with several values of `key` among records that agree in `same`; those that serve most cases first."""
    found: dict[tuple[Any, ...], set[Any]] = {}
    for record in records:
        found.setdefault((record["strategy"], *(record[name] for name in same)), set()).add(record[key])
    both = {strategy for (strategy, *_), several in found.items() if len(several) > 1}
    served = Counter(strategy for (strategy, *_), several in found.items() for _ in several if strategy in both)
    return [strategy for strategy, _ in served.most_common()]


def _phase_figures(records: Sequence[Record], ending: str, whole: bool) -> Iterator[Drawn]:
    """Figures of a problem on continuous functions: phases in place of strategies, of which the fastest counts."""
    phases = dict.fromkeys(_SOLVES) if whole else _PHASES
    named = [{**r, "strategy": _PHASES.get(r["phase"], r["phase"])} for r in records if r["phase"] in phases]
    end = best(largest(named, "phase"), "shape", "geometry", "strategy", "order")
    figure = _throughput(end, "geometry", "strategy", "order")
    yield f"by_order{ending}", f", each at its largest size{_by(end)}", figure
    # A matrix performs other operations.
    yield _solve_bars(records) if whole else _roofline([record for record in end if record["phase"] != "csr"])
    for geometry in values(named, "geometry"):
        own = best(having(named, geometry=geometry), "shape", "strategy", "order", "n_dofs")
        yield from _over_size(own, "strategy", f"{geometry}{ending}", f", {geometry} elements")


def _bars(records: Sequence[Record], quantity: str, label: str, colours: Mapping[str, Any], **layout: Any) -> Figure:
    """A row per geometry, a bar per order, of several records one upon the other; hatched where arithmetic binds."""
    geometries, shapes = values(records, "geometry"), style.in_order(values(records, "shape"))
    figure, axes = style.grid(len(geometries), [shape.capitalize() for shape in shapes], **layout)
    for k, shape in enumerate(shapes):
        orders = values(having(records, shape=shape), "order")
        style.orders_axis(axes[-1][k], orders, range(len(orders)))
        for row, geometry in zip(axes, geometries, strict=True):
            level = dict.fromkeys(orders, 0.0)
            for record in having(records, shape=shape, geometry=geometry):
                place, bottom = orders.index(record["order"]), level[record["order"]]
                look = {"facecolor": colours[record["strategy"]], "linewidth": 0}
                look = {**_HATCHED, **look} if record.get("bound") == "flops" else look
                row[k].bar(place, record[quantity], 0.7, bottom, **look)
                level[record["order"]] += record[quantity]
                if "sustained_fraction" in record:
                    row[k].plot([place - 0.35, place + 0.35], 2 * [record["sustained_fraction"]], color="black", lw=1)
            row[k].grid(visible=False, axis="x")
            grid.say_if_empty(row[k], bool(row[k].patches))
    for row, geometry in zip(axes, geometries, strict=True):
        row[0].set_ylabel(f"{said('geometry', geometry)}\n{label}", fontsize=9)
    return figure


def _solve_bars(records: Sequence[Record]) -> Drawn:
    """Bars of the phases of whole solves at the largest size."""
    end = best(largest(records), "shape", "geometry", "phase", "order")
    parts = [
        {**record, "strategy": phase, "microseconds": 1e6 / record["value"]}
        for phase in _SOLVE_PHASES
        for record in having(end, phase=phase)
    ]
    colours = dict(zip(_SOLVE_PHASES, style.order_colours(range(len(_SOLVE_PHASES))).values(), strict=True))
    legend = [Patch(label=phase, facecolor=colour) for phase, colour in colours.items()]
    figure = _bars(parts, "microseconds", "Microseconds per unknown", colours, legend=[legend[:3], legend[3:]])
    return "parts", f", parts{_at(parts)}", figure


def _roofline(records: Sequence[Record]) -> Drawn:
    """Bars of the fastest strategy's share of the roofline; a tick is its sustained speed over seconds."""
    shown = best(records, "shape", "geometry", "order")
    colours = style.strategy_colours(values(shown, "strategy"))
    notes: list[Any] = [Patch(label="bound by memory", facecolor="0.6"), Patch(label="bound by arithmetic", **_HATCHED)]
    if any("sustained_fraction" in record for record in shown):
        notes.append(style.handle("sustained", color="black", marker="_", markersize=8, linestyle="none"))
    legend = [[Patch(label=name, facecolor=colour) for name, colour in colours.items()], notes]
    note = "above 1: in cache, fewer operations than are counted, or tensor cores"
    note *= any(record["fraction"] > 1 for record in shown)
    figure = _bars(shown, "fraction", "Share of the roofline", colours, legend=legend, note=note)
    for axis in figure.axes:
        axis.axhline(1.0, color="#444444", linewidth=0.8)
    return "roofline", f", share of the roofline of the fastest strategy{_at(shown)}", figure
