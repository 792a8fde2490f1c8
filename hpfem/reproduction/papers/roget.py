"""[Roget], the acoustic wave equation: time steps on hexes whose points are the nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..blocks import Wave
from ..cases import grid
from ..experiment import EXPERIMENTS, Experiment, Series

BOXES = {"cuda": (32, 32, 32), "cpu": (8, 8, 8)}


def _cases(backend: str, quick: bool) -> Sequence[Mapping[str, Any]]:
    return grid(
        benchmark=("wave",),
        shape=("hex",),
        geometry=("affine",),
        order=(2,) if quick else (1, 2, 3, 4, 5, 6, 7),
        counts=((4, 4, 4),) if quick else (BOXES[backend],),
    )


def _block(case: Mapping[str, Any], backend: str) -> Wave:
    return Wave(case["shape"], case["order"], backend, case["counts"])


EXPERIMENTS.add(
    "roget-wave",
    Experiment(
        "roget-wave",
        "Roget",
        "The proxy of wave propagation in 3-D: leapfrog steps",
        "slides 'FUnTiDES', 'Global SEM system'",
        "The slides give neither sizes nor numbers (their figures are pictures); N <= 5 ('Next Steps'). Ours: a box of"
        " 8^3 hexes on a CPU and 32^3 on a GPU, unknowns times steps over seconds; the files have a step's seconds.",
        (
            Series(
                "wave",
                "MDoF/s",
                _cases,
                _block,
                "other protocol: sizes are ours, and the update is made of vector operations, not one fused kernel",
            ),
        ),
        not_possible={
            "leapfrog fused in one kernel": "AcousticWave updates by vector operations",
            "one element a thread, a team of threads an element": "of the stiffness alone: see roget-gemm",
        },
    ),
)
