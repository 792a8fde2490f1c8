"""Figure of scaling: efficiency of each process over the number of processes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.ticker import NullLocator

from ..benchmarks.scaling import efficiencies
from . import style

_TITLES = {"weak": "Weak scaling", "strong": "Strong scaling", "alone": "Side by side, each its own problem"}


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
    kinds = [kind for kind in _TITLES if any(row["scaling"] == kind for row in rows)]
    shapes, orders = style.in_order(row["shape"] for row in rows), sorted({row["order"] for row in rows})
    dashes = ("-", "--", ":", "-.")
    looks: dict[tuple[str, int], dict[str, Any]] = {
        (shape, order): {"color": f"C{number}", "linestyle": dashes[orders.index(order) % 4], "marker": "o"}
        for number, shape in enumerate(shapes)
        for order in orders
        if any((row["shape"], row["order"]) == (shape, order) for row in rows)
    }
    handles = [style.handle(f"{shape}, P = {order}", **looks[shape, order]) for shape, order in looks]
    legend = [handles[i : i + 4] for i in range(0, len(handles), 4)]
    figure, axes = style.columns([_TITLES[kind] for kind in kinds], legend)
    machine, backends = results.get("machine") or {}, sorted({row["backend"] for row in rows})
    device = (machine.get("gpu") or [None])[0] if backends == ["cuda"] else machine.get("cpu")
    about = f"{', '.join(backends)}, {device or 'unknown machine'}"
    style.heading(figure, f"Conjugate gradients, rate of each process over that of one — {about}")
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
        axis.set_ylim(0, max(1.1, 1.05 * max(value for _, value in found)))
    axes[0].set_ylabel("Efficiency", fontsize=9)
    return [style.save(figure, Path(folder) / f"scaling{suffix}")]
