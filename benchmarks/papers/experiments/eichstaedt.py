"""[Eichstaedt], Helmholtz on quads: an element to a thread or to a block of threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hpfem.benchmarks.problems import BENCHMARKS

from ..blocks import Sized
from ..cases import grid
from ..experiment import Device, Series, Statement, experiment

TITAN_V = Device("NVIDIA Titan V", None, 6.9e12, "Sec. 4; peak theoretical")
SIZES = {"cuda": (1e7,), "cpu": (1e5,)}


def _cases(backend: str, quick: bool) -> Sequence[Mapping[str, Any]]:
    return grid(
        benchmark=("bk3",),
        shape=("quad",),
        order=(3,) if quick else tuple(range(1, 11)),
        geometry=("affine",) if quick else ("affine", "deformed"),
    )


def _block(case: Mapping[str, Any], backend: str) -> Sized:
    return Sized(BENCHMARKS["bk3"], case["shape"], case["order"], case["geometry"], backend, SIZES[backend])


THREAD, BLOCK = {"strategy": "sumfac"}, {"strategy": ("sumfac-top",)}
LOW = {"order": (1, 2, 3, 4)}
HIGH = {"order": (5, 6, 7, 8, 9, 10)}

experiment(
    "eichstaedt-quads",
    "Eichstaedt",
    "Helmholtz on straight and deformed quads, P = 1..10",
    "Figs 3-6",
    "Sec. 4: mean of 1000 executions, GFLOP/s; neither the number of elements nor the count of operations is"
    " printed. Ours: nominal operations of `hpfem.forms.cost`, median of 9 timings; 1e7 degrees of freedom on a"
    " GPU, 1e5 on a CPU. 'sumfac' is a thread an element there and 'sumfac-top' some elements a block of threads."
    " 'kronecker' and 'dense' execute fewer operations than the nominal ones: their numbers may exceed the peak."
    " The paper's 42 % of the peak is compared in eichstaedt-memory, with kernels of its form.",
    (
        Series(
            "quads",
            "GFLOP/s",
            _cases,
            _block,
            "other protocol: number of elements and count of operations are ours",
            strategies={"cuda": ("sumfac", "sumfac-top"), "cpu": ("sumfac",)},
            algorithms=("collocated", "noncollocated"),
            bench=True,
        ),
    ),
    statements=(
        Statement(
            "a thread an element wins up to P = 4",
            "Sec. 4, 5",
            "cuda",
            {**THREAD, **LOW},
            BLOCK,
            1.0,
            by=("geometry", "order"),
        ),
        Statement(
            "a block an element wins above",
            "Sec. 4, 5",
            "cuda",
            {**BLOCK, **HIGH},
            THREAD,
            1.0,
            by=("geometry", "order"),
        ),
        Statement(
            "straight-sided elements are substantially faster (we take 1.2 times)",
            "Sec. 4, 5",
            "cuda",
            {"geometry": "affine"},
            {"geometry": "deformed"},
            1.2,
            by=("order",),
        ),
        Statement(
            "straight-sided elements are substantially faster (we take 1.2 times)",
            "Sec. 4, 5, of a GPU",
            "cpu",
            {"geometry": "affine"},
            {"geometry": "deformed"},
            1.2,
            by=("order",),
        ),
    ),
    not_possible={
        "tables in global, constant or shared memory; stride 1 against 32 (Figs 1-3)": "our kernels have one layout"
        " each; see eichstaedt-memory",
        "L1 roofline (Fig. 6)": "our kernels' bytes of near memory are not counted; see eichstaedt-memory",
        "a thread an element beyond its registers": "the product's kernel refuses it; see eichstaedt-thread",
    },
)
