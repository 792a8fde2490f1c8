"""Figure of scaling: what each process reaches of one alone, against their number."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.ticker import NullLocator

from ..benchmarks.scaling import efficiencies
from . import style


def plot_scaling(results: Mapping[str, Any], folder: str | os.PathLike[str], suffix: str = ".png") -> list[Path]:
    """Draw efficiency over the number of processes, a panel for weak and one for strong scaling.

    Parameters
    ----------
    results : mapping
        Result of `hpfem scale`.
    folder : path
        Where ``scaling`` goes; it must exist.
    suffix : str
        ".png", ".pdf" or ".svg".

    Returns
    -------
    list of Path
        One.
    """
    rows = results["results"]
    found = list(zip(rows, efficiencies(rows), strict=True))
    kinds = [kind for kind in ("weak", "strong", "alone") if any(row["scaling"] == kind for row in rows)]
    shapes, orders = style.in_order(row["shape"] for row in rows), sorted({row["order"] for row in rows})
    colours, dashes = style.strategy_colours(shapes), ("-", "--", ":", "-.")
    looks: dict[tuple[str, int], dict[str, Any]] = {
        (shape, order): {"color": colours[shape], "linestyle": dashes[orders.index(order) % 4], "marker": "o"}
        for shape in shapes
        for order in orders
    }
    handles = [style.handle(f"{shape}, P = {order}", **looks[shape, order]) for shape, order in looks]
    figure, axes = style.columns([f"{kind} scaling".capitalize() for kind in kinds], [handles])
    numbers = sorted({row["ranks"] for row in rows})
    for axis, kind in zip(axes, kinds, strict=True):
        for key, look in looks.items():
            for wanted in sorted({row["wanted"] for row in rows}):
                own = [
                    (row["ranks"], value)
                    for row, value in found
                    if (row["shape"], row["order"]) == key and (row["scaling"], row["wanted"]) == (kind, wanted)
                ]
                if own:
                    axis.plot(*zip(*sorted(own), strict=True), **look)
        axis.set_xscale("log", base=2)
        axis.set_xticks(numbers, [str(n) for n in numbers])
        axis.xaxis.set_minor_locator(NullLocator())
        axis.set_xlabel("Processes", fontsize=9)
        axis.set_ylim(0, 1.1)
    axes[0].set_ylabel("Efficiency", fontsize=9)
    return [style.save(figure, Path(folder) / f"scaling{suffix}")]
