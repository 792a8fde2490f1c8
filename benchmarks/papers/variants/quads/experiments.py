"""Helmholtz on quads by every place of the tables and every layout, with the rooflines of [Eichstaedt] Figs 5 and 6."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from hpfem.benchmarks.problems import BENCHMARKS
from hpfem.errors import NotSuitable
from hpfem.forms.form import BlockProblem

from ...blocks import Copies
from ...cases import grid
from ...experiment import Published, Series, Statement, experiment
from ...experiments.eichstaedt import TITAN_V
from ..gpu import LaunchedElements, LaunchedKernel, NearMemory
from .plan import VARIANTS, QuadPlan

# Degrees of freedom, and launches whose mean counts.
DOFS, LAUNCHES = 1e7, 1000
NEAR = "near memory of "
BOUND = ("block, global", "block, shared")


class QuadKernel(LaunchedKernel):
    """A variant of quads.h."""

    def __init__(self, problem: BlockProblem, name: str) -> None:
        tabulation = problem.tabulation
        B, DB = (table[0] for table in (tabulation.values, tabulation.derivatives))
        if problem.shape.dim != 2 or problem.n_modes != len(B) ** 2 or problem.nodal:
            raise NotSuitable("these kernels are of quads with a modal basis")
        block, stride, tables = VARIANTS[name]
        modes, points = B.shape
        weights = np.sqrt(np.diag(tabulation.rule.weights.reshape(points, points)))
        self.plan = plan = QuadPlan(block, stride, tables, modes, points, problem.geometry.affine)
        super().__init__(problem, name, plan.source(), "quads", plan.elements, plan.threads, plan.shared_bytes, stride)
        self.factors = self.memory.from_host(problem.geometry.factors("jacobian", stride, problem.dtype))
        self._tables = self.memory.from_host(np.concatenate([B.ravel(), DB.ravel(), weights]))
        if tables == "constant":
            self.constants = {"constant_tables": self._tables}

    def arguments(self, given: Any, out: Any, n_elements: int) -> tuple[Any, ...]:
        """Elements, coefficients, factors, tables, result; see `LaunchedKernel.arguments`."""
        lam = np.float64(self.problem.parameters["lam"])
        return np.int64(n_elements), given, self.factors, self._tables, out, lam


def _cases(backend: str, quick: bool) -> Sequence[Mapping[str, Any]]:
    return grid(
        benchmark=("bk3",),
        shape=("quad",),
        order=(3,) if quick else tuple(range(1, 11)),
        geometry=("affine", "deformed"),
    )


def _what(case: Mapping[str, Any], backend: str) -> tuple[Any, ...]:
    count = math.ceil(DOFS / (case["order"] + 1) ** 2) | 1
    return BENCHMARKS["bk3"], case["shape"], case["order"], case["geometry"], backend, (count,)


def _block(case: Mapping[str, Any], backend: str) -> LaunchedElements:
    return LaunchedElements(QuadKernel, "noncollocated", *_what(case, backend), launches=LAUNCHES)


def _copies(case: Mapping[str, Any], backend: str) -> Copies:
    return Copies(*_what(case, backend))


def _near(case: Mapping[str, Any], backend: str) -> NearMemory:
    what = _what(case, backend)

    def moved(name: str) -> Mapping[str, float]:
        modes, points = near.problem.tabulation.values[0].shape
        affine = near.problem.geometry.affine
        return QuadPlan(*VARIANTS[name.removeprefix(NEAR)], modes, points, affine).near_traffic()

    near = NearMemory(moved, *what)
    return near


LOW, HIGH = (1, 2, 3, 4), (5, 6, 7, 8, 9, 10)
THREAD, BLOCK = (tuple(name for name in VARIANTS if name.startswith(which)) for which in ("thread", "block"))
_series = partial(Series, unit="GFLOP/s", cases=_cases, backends=("cuda",))
_statement = partial(Statement, backend="cuda", by=("order",), low=1.0)

experiment(
    "eichstaedt-memory",
    "Eichstaedt",
    "Quads: tables in global, constant or shared memory, data of stride 1 or 32",
    "Figs 1-6",
    "Sec. 4: P = 1..10, mean of 1000 executions; neither sizes nor the count of operations is printed. Ours: one"
    " kernel with switches (variants/quads/quads.h), 1e7 degrees of freedom, nominal operations of"
    " `hpfem.forms.cost`, mean of 1000 launches. Loops of a thread an element are unrolled up to P = 4; beyond, the"
    " compiler decides, and numbers spill. Layouts are made before the timing, as in the paper.",
    (
        _series(
            "quads",
            block=_block,
            strategies={"cuda": tuple(VARIANTS)},
            status="other protocol: number of elements and count of operations are ours",
        ),
        _series("roofline", block=_copies, strategies={"cuda": ("copying",)}, status="equivalent: copying, Fig. 5"),
        _series(
            "roofline of near memory",
            block=_near,
            strategies={"cuda": tuple(NEAR + name for name in BOUND)},
            status="equivalent: Fig. 6, bytes of every thread by the kernel's plan, over the bandwidths of shared"
            " memory and L1 that kernels measure in the run",
        ),
    ),
    (
        Published(
            "the best kernel: 42 % of the peak",
            0.42 * 6900,
            "GFLOP/s",
            "derived from Sec. 4: the four best kernels reach 20 % to 42 % of 6900 GFLOP/s",
            TITAN_V,
            "cuda",
            {"strategy": tuple(VARIANTS)},
        ),
    ),
    (
        _statement(
            "constant memory gains over global, a thread an element (up to twice)",
            "Sec. 4, Fig. 3",
            above={"strategy": "thread, stride 32, constant", "geometry": "affine"},
            below={"strategy": "thread, stride 32, global", "geometry": "affine"},
        ),
        _statement(
            "shared memory gains over global for P > 6, a block an element (up to 20 %)",
            "Sec. 4, Fig. 3",
            above={"strategy": "block, shared", "geometry": "affine", "order": (7, 8, 9, 10)},
            below={"strategy": "block, global", "geometry": "affine"},
            high=1.25,
        ),
        _statement(
            "interleaved elements are significantly faster, a thread an element (we take 1.2 times)",
            "Sec. 3, Figs 1, 2",
            above={"strategy": tuple(name for name in THREAD if "32" in name)},
            below={"strategy": tuple(name for name in THREAD if "32" not in name)},
            by=("geometry", "order"),
            low=1.2,
        ),
        _statement(
            "a thread an element wins up to P = 4",
            "Sec. 4, 5",
            above={"strategy": THREAD, "order": LOW},
            below={"strategy": BLOCK},
            by=("geometry", "order"),
        ),
        _statement(
            "a block an element wins above",
            "Sec. 4, 5",
            above={"strategy": BLOCK, "order": HIGH},
            below={"strategy": THREAD},
            by=("geometry", "order"),
        ),
        _statement(
            "straight-sided elements are substantially faster (we take 1.2 times)",
            "Sec. 4, 5",
            above={"strategy": tuple(VARIANTS), "geometry": "affine"},
            below={"strategy": tuple(VARIANTS), "geometry": "deformed"},
            low=1.2,
        ),
        _statement(
            "a thread an element is bound by memory (we take 0.7 of copying), up to P = 4",
            "Sec. 4, Fig. 5",
            above={"strategy": THREAD, "order": LOW},
            below={"strategy": "copying"},
            by=("geometry", "order"),
            low=0.7,
        ),
        _statement(
            "a block an element is bound by L1 (we take half of its roofline)",
            "Sec. 4, Fig. 6",
            above={"strategy": "block, shared"},
            below={"strategy": NEAR + "block, shared"},
            by=("geometry", "order"),
            low=0.5,
        ),
    ),
    not_possible={
        "rooflines of L1 with a thread an element": "all threads of a warp read an entry of a table at once, which"
        " L1 serves as one: the kernel's plan does not tell the bytes",
    },
)
