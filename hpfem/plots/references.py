"""Peaks of other codes on the same benchmarks, as lines for comparison."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes

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
    lines = [
        axis.axhline(rate, color=_INK, linewidth=1, linestyle=dash, label=f"{label}: {rate / 1e9:g}")
        for (label, rate), dash in zip(peaks.items(), _DASHES, strict=False)
    ]
    if lines:
        # The names are above all that is drawn.
        every = [np.asarray(line.get_ydata(), float) for own in axis.figure.axes for line in own.get_lines()]
        most = max(float(heights.max()) for heights in every if heights.size)
        axis.set_ylim(top=max(axis.get_ylim()[1], (1.08 + 0.055 * len(lines)) * most))
        look: dict[str, Any] = {"framealpha": 0.85, "edgecolor": "none", "handlelength": 2.8, "borderaxespad": 0.2}
        axis.legend(handles=lines[::-1], loc="upper right", fontsize=6.5, **look)
