"""Pictures of flat meshes, by matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .paint import Paint
from .surface import Surface

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH, _DPI = 6.4, 150


def draw_flat(surface: Surface, paint: Paint, edges: bool) -> Figure:
    """Draw a flat surface."""
    from matplotlib.collections import LineCollection
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch
    from matplotlib.tri import Triangulation

    width, height = np.ptp(surface.points, axis=0)
    figure = Figure(figsize=(_WIDTH, float(np.clip(0.85 * _WIDTH * height / width, 1.8, 2 * _WIDTH))), dpi=_DPI)
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    axes.set_aspect("equal")
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("x", fontsize=9)
    axes.set_ylabel("y", fontsize=9)
    triangles = Triangulation(surface.points[:, 0], surface.points[:, 1], surface.triangles)
    if paint.values is not None:
        low, high = paint.limits
        drawn = axes.tripcolor(
            triangles, paint.values, shading="gouraud", cmap=paint.colours, vmin=low, vmax=high, rasterized=True
        )
        figure.colorbar(drawn, ax=axes, label=paint.name, shrink=0.9).ax.tick_params(labelsize=8)
    else:
        colours = ListedColormap([colour for _, colour in paint.fills])
        last = len(paint.fills) - 0.5
        # Without antialiasing, which would show the triangles.
        axes.tripcolor(triangles, paint.labels, cmap=colours, vmin=-0.5, vmax=last, antialiased=False, rasterized=True)
    if edges:
        axes.add_collection(LineCollection(list(surface.lines), colors="black", linewidths=0.35, alpha=0.6))
    for number, (_, colour) in enumerate(paint.strokes):
        own = surface.lines[paint.stroke_labels == number]
        axes.add_collection(LineCollection(list(own), colors=[colour], linewidths=2.0))
    axes.autoscale_view()
    handles: list[Any] = [Patch(color=colour, label=name) for name, colour in (*paint.fills, *paint.strokes) if name]
    if handles:
        figure.legend(handles=handles, loc="outside right upper", fontsize=8, frameon=False)
    return figure
