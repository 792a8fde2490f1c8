"""Peaks of other codes on the same benchmarks, as lines for comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

from matplotlib.axes import Axes

from .style import DPI

_INK = "#444444"
_DASHES = ((0, (1, 1.5)), (0, (5, 2)), (0, (6, 2, 1, 2)))


# (benchmark, shape): code with the peak over orders and sizes, device, and degrees of freedom per second, ascending;
# deformed elements with stored factors, double precision.
# [Xing] and MFEM: [Xing] section 4.1, on an NVIDIA GH200. libCEED: commit 64e0491, /gpu/cuda/gen, the better of apply
# and applyAdd over P = 1..7, measured on an H200; tets with a dense basis on the same points (best at P = 1).
GPU_REFERENCES: Mapping[tuple[str, str], Mapping[str, float]] = {
    ("bk1", "hex"): {"MFEM, GH200 (Xing et al.)": 25e9, "Xing et al., GH200": 35e9, "libCEED, H200": 60.7e9},
    ("bk3", "hex"): {"Xing et al. and MFEM, GH200": 11e9, "libCEED, H200": 15.2e9},
    ("bk3", "tet"): {"libCEED, H200": 7.5e9},
}


def draw_references(axis: Axes, benchmark: str, shape: str) -> None:
    """Draw the peaks of other codes on a shape as lines, with names above all lines."""
    peaks = GPU_REFERENCES.get((benchmark, shape), {})
    most = max(float(own.dataLim.y1) for own in axis.get_shared_y_axes().get_siblings(axis))
    draw_levels(axis, [(f"{label}: {rate / 1e9:g}", rate, _INK) for label, rate in peaks.items()], most)


def draw_levels(axis: Axes, levels: Sequence[tuple[str, float, str]], most: float) -> None:
    """Draw values as lines across a panel, with names and colours; the names are above `most`, the largest value."""
    lines = [
        axis.axhline(value, color=colour, linewidth=1, linestyle=dash, label=label)
        for (label, value, colour), dash in zip(levels, cycle(_DASHES), strict=False)
    ]
    if lines:
        share = (8.5 * len(lines) + 6) / (72 * axis.bbox.height / DPI)
        axis.set_ylim(top=max(axis.get_ylim()[1], most / (1 - share)))
        look: dict[str, Any] = {"framealpha": 0.85, "edgecolor": "none", "handlelength": 2.0, "borderaxespad": 0.2}
        axis.legend(handles=lines[::-1], loc="upper right", fontsize=6.5, labelspacing=0.2, **look)
