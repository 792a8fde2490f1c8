"""Peaks of others on the same benchmarks, as lines to measure against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from matplotlib.axes import Axes

_INK = "#444444"
_DASHES = ((0, (1, 1.5)), (0, (5, 2)), (0, (6, 2, 1, 2)))


@dataclass(frozen=True)
class Reference:
    """The best throughput that somebody reached on a shape.

    Attributes
    ----------
    label : str
        Whose, and on what.
    rate : float
        Degrees of freedom per second, deformed elements with stored factors, double precision.
    """

    label: str
    rate: float


# (benchmark, shape): peaks over orders and sizes, rising.
# Xing et al. and MFEM: [X] section 4.1, on an NVIDIA GH200. libCEED: commit 64e0491, /gpu/cuda/gen, the better of apply
# and applyAdd over P = 1..7, measured on an H200; tets with a dense basis on the same points (best at P = 1).
GPU_REFERENCES: Mapping[tuple[str, str], tuple[Reference, ...]] = {
    ("bk1", "hex"): (
        Reference("MFEM, GH200 (Xing et al.)", 25e9),
        Reference("Xing et al., GH200", 35e9),
        Reference("libCEED, H200", 60.7e9),
    ),
    ("bk3", "hex"): (
        Reference("Xing et al. and MFEM, GH200", 11e9),
        Reference("libCEED, H200", 15.2e9),
    ),
    ("bk3", "tet"): (Reference("libCEED, H200", 7.5e9),),
}


def draw_references(axis: Axes, benchmark: str, shape: str) -> None:
    """Draw the peaks of others on a shape as lines, named where the panel has room.

    Parameters
    ----------
    axis : Axes
        Of throughput, with its own lines drawn and its limits set.
    benchmark, shape : str
    """
    peaks = GPU_REFERENCES.get((benchmark, shape), ())
    lines = [
        axis.axhline(peak.rate, color=_INK, linewidth=1, linestyle=dash, label=f"{peak.label}: {peak.rate / 1e9:g}")
        for peak, dash in zip(peaks, _DASHES, strict=False)
    ]
    if lines:
        axis.legend(handles=lines[::-1], fontsize=6.5, loc="best", framealpha=0.85, edgecolor="none", handlelength=2.8)
