"""An element to a thread, what exceeds its registers in memory ([Xing] Alg. 3, [Eichstaedt]), on a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from hpfem.backends.base import BACKENDS
from hpfem.benchmarks.cases import SOLID_SHAPES
from hpfem.benchmarks.problems import BENCHMARKS
from hpfem.forms.form import BlockKernel, BlockProblem

from ..blocks import Sized, VariantElements
from ..cases import grid
from ..experiment import Series, Statement, experiment

NAME = "sumfac-spilling"
DOFS = 1e7
STATUS = "equivalent: copies of a few elements"


def spilling(problem: BlockProblem) -> BlockKernel:
    """Build the GPU's kernel with an element to a thread, whether its registers suffice or not."""
    return BACKENDS["cuda"].strategy("sumfac").build(problem, "spilling")


def _thread(case: Mapping[str, Any], backend: str) -> VariantElements:
    what = BENCHMARKS[case["benchmark"]], case["shape"], case["order"], case["geometry"], backend
    block = VariantElements(NAME, spilling, *what, ())
    block.counts = Sized(*what, (DOFS,)).counts
    return block


def _block(case: Mapping[str, Any], backend: str) -> Sized:
    return Sized(BENCHMARKS["bk3"], case["shape"], case["order"], case["geometry"], backend, (DOFS,))


def _quads(backend: str, quick: bool) -> Sequence[Mapping[str, Any]]:
    orders = (3,) if quick else tuple(range(1, 11))
    return grid(benchmark=("bk3",), shape=("quad",), order=orders, geometry=("affine", "deformed"))


def _solids(backend: str, quick: bool) -> Sequence[Mapping[str, Any]]:
    orders = (2,) if quick else tuple(range(1, 8))
    return grid(benchmark=("bk1", "bk3"), shape=SOLID_SHAPES, order=orders, geometry=("deformed",))


_series = partial(Series, backends=("cuda",), status=STATUS, repeats=5)
_spilling = partial(_series, NAME, block=_thread, algorithms=("noncollocated",))
_of_quads = partial(Statement, source="Sec. 4, 5", backend="cuda", low=1.0, by=("geometry", "order"))

experiment(
    "eichstaedt-thread",
    "Eichstaedt",
    "Quads: a thread an element at every order, beside a block of threads",
    "Fig. 4",
    "Sec. 4: P = 1..10; registers overflow beyond P = 4 on a Titan V. Ours: 1e7 degrees of freedom, median of 5.",
    (
        _spilling(unit="GFLOP/s", cases=_quads),
        _series(
            "block",
            unit="GFLOP/s",
            cases=_quads,
            block=_block,
            strategies={"cuda": ("sumfac-top",)},
            algorithms=("noncollocated",),
        ),
    ),
    statements=(
        _of_quads(
            "a thread an element wins up to P = 4",
            above={"strategy": NAME, "order": (1, 2, 3, 4)},
            below={"strategy": "sumfac-top"},
        ),
        _of_quads(
            "a block an element wins above",
            above={"strategy": "sumfac-top", "order": (5, 6, 7, 8, 9, 10)},
            below={"strategy": NAME},
        ),
    ),
)

experiment(
    "xing-thread",
    "Xing",
    "SumFac with a thread an element, spilling included",
    "Alg. 3, Figs 5a, 6a",
    "Sec. 3.3.2: every order that the paper draws. Ours: 1e7 degrees of freedom, median of 5; elements of more than"
    " 150 points, whose loops would take the compiler minutes, are refused: see xing-algorithms, with loops.",
    (_spilling(unit="GDoF/s", cases=_solids),),
)
