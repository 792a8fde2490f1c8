"""[Roget], the acoustic wave equation: time steps on hexes whose points are the nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ..blocks import FUSED, SEPARATE, Wave
from ..cases import grid
from ..experiment import Counts, Series, Statement, experiment

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


_series = partial(
    Series,
    cases=_cases,
    block=_block,
    status="other protocol: sizes are ours",
    counts=Counts("unknowns of the box"),
    strategies=dict.fromkeys(("cuda", "cpu"), (FUSED, SEPARATE)),
)

experiment(
    "roget-wave",
    "Roget",
    "The proxy of wave propagation in 3-D: leapfrog steps",
    "slides 'FUnTiDES', 'Global SEM system'",
    "The slides give neither sizes nor numbers (their figures are pictures); N <= 5 ('Next Steps'). Ours: a box of"
    " 8^3 hexes on a CPU and 32^3 on a GPU. A step is the product with the stiffness, and an update of the pressure"
    f" by one kernel of the backend ({FUSED}) or by {SEPARATE} of NumPy or CuPy.",
    (_series("wave", "MDoF/s"), _series("steps", "steps/s")),
    statements=tuple(
        Statement(
            "(ours) an update by one kernel over one by vector operations",
            "not in the paper",
            backend,
            {"series": "wave", "strategy": FUSED},
            {"series": "wave", "strategy": SEPARATE},
            1.0,
            by=("order",),
        )
        for backend in ("cuda", "cpu")
    ),
    not_possible={"one element a thread, a team of threads an element": "of the stiffness alone: see roget-gemm"},
)
