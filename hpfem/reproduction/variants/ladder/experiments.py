"""The ladders of BP3.5 measured, rung by rung, with the rooflines of [Swirydowicz] section 5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ....errors import NotSuitable
from ....forms.form import BlockProblem
from ....operators import Helmholtz
from ...blocks import Copies
from ...cases import grid
from ...experiment import EXPERIMENTS, Counts, Experiment, Published, Series, Statement
from ...papers.swirydowicz import P100, bp35_flops
from ..gpu import LaunchedElements, LaunchedKernel, NearMemory
from .plan import COLUMNS, LADDERS, MOST_THREADS, NODES, Rung

NODAL: dict[str, Any] = {"basis": "lagrange", "quadrature": "collocated"}
ORDERS = {COLUMNS: range(1, 16), NODES: range(1, 10)}
# Rungs whose shared memory the second roofline is of, as in Fig. 5.
BOUND = {COLUMNS: ("unrolling", "fewer barriers", "symmetry"), NODES: ("padding", "fewer barriers")}
COPY, NEAR = "copying", "shared memory of "


class LadderKernel(LaunchedKernel):
    """A rung on nodal hexes.

    Parameters
    ----------
    threads : str
        See `Rung`.
    problem : BlockProblem
    name : str
        Of the rung.

    Raises
    ------
    NotSuitable
        Unless the points are the nodes, factors are stored at them, and a block has threads enough.
    """

    def __init__(self, threads: str, problem: BlockProblem, name: str) -> None:
        differentiation = problem.tabulation.differentiation
        if problem.shape.dim != 3 or not problem.nodal or problem.geometry.affine:
            raise NotSuitable("the ladder is of curved hexes whose nodes are the points")
        self.rung = Rung(threads, name, len(differentiation[0]))
        if self.rung.block > MOST_THREADS:
            raise NotSuitable(f"a block has no {self.rung.block} threads")
        super().__init__(problem, name, self.rung.source(), "ladder", 1, self.rung.block, self.rung.shared_bytes)
        self.factors = self.memory.from_host(problem.geometry.factors("metric", 1, problem.dtype))
        self._D = self.memory.from_host(differentiation[0].astype(problem.dtype))

    def arguments(self, module: Any, given: Any, out: Any, n_elements: int) -> tuple[Any, ...]:
        """Field, factors, D, result and scratch; see `LaunchedKernel.arguments`."""
        global_scratch = "SHARED" not in self.rung.switches
        scratch = self.memory.xp.empty(3 * given.size if global_scratch else 1, given.dtype)
        return given, self.factors, self._D, out, scratch, np.float64(self.problem.parameters["lam"])


def _cases(threads: str, backend: str, quick: bool) -> Sequence[Mapping[str, Any]]:
    return grid(
        benchmark=("BP3.5",),
        shape=("hex",),
        geometry=("deformed",),
        elements=(512,) if quick else (512, 4096),
        order=(3,) if quick else tuple(ORDERS[threads]),
    )


def _what(case: Mapping[str, Any], backend: str) -> tuple[Any, ...]:
    return Helmholtz, case["shape"], case["order"], case["geometry"], backend, (case["elements"],)


def _block(threads: str, case: Mapping[str, Any], backend: str) -> LaunchedElements:
    return LaunchedElements(partial(LadderKernel, threads), "collocated", *_what(case, backend), **NODAL)


def _copies(case: Mapping[str, Any], backend: str) -> Copies:
    return Copies(*_what(case, backend), **NODAL)


def _near(threads: str, case: Mapping[str, Any], backend: str) -> NearMemory:
    def moved(name: str) -> Mapping[str, float]:
        return {"shared": Rung(threads, name.removeprefix(NEAR), case["order"] + 1).shared_traffic}

    return NearMemory(moved, *_what(case, backend), **NODAL)


_statement = partial(Statement, backend="cuda", by=("elements",))


def _experiment(
    threads: str, title: str, figures: str, published: Sequence[Published], statements: Sequence[Statement], **more: Any
) -> None:
    series = partial(
        Series,
        unit="TFLOP/s",
        cases=partial(_cases, threads),
        backends=("cuda",),
        counts=Counts("derived from Alg. 6: 12 Nq^4 + 18 Nq^3", flops=bp35_flops),
    )
    ident = f"swirydowicz-ladder-{threads[:3].replace('-', '').lower()}"
    EXPERIMENTS.add(
        ident,
        Experiment(
            ident,
            "Swirydowicz",
            title,
            figures,
            "Sec. 5, 7: 512 and 4096 hexes, float64, a block of threads an element; ours: one kernel whose switches are"
            " turned on one after the other (variants/ladder/ladder.h), median of 9. Until loops are unrolled, columns"
            " of 8 nodes and more are in a thread's local memory, not in its registers: NVRTC unrolls shorter ones"
            " itself. Rows of even length are padded, the paper's at N = 7 and 15.",
            (
                series(
                    threads,
                    block=partial(_block, threads),
                    strategies={"cuda": tuple(LADDERS[threads])},
                    status="equivalent: one teaching kernel with switches; copies of a few hexes",
                ),
                series(
                    "roofline",
                    block=_copies,
                    strategies={"cuda": (COPY,)},
                    status="exact protocol",
                ),
                series(
                    "roofline of shared memory",
                    block=partial(_near, threads),
                    strategies={"cuda": tuple(NEAR + name for name in BOUND[threads])},
                    status="other protocol: eq. 13, bytes of every thread by the kernel's plan (what a warp reads at"
                    " once is served as one: a rung may exceed it), over a bandwidth that a kernel measures in the run",
                ),
            ),
            tuple(published),
            tuple(statements),
            **more,
        ),
    )


def _row(what: str, value: float, source: str, rung: str, **where: Any) -> Published:
    return Published(what, value, "TFLOP/s", source, P100, "cuda", {"strategy": rung, "elements": 4096, **where})


_experiment(
    COLUMNS,
    "BP3.5 rung by rung, a thread for each column of nodes",
    "Figs 1, 5-7",
    (
        _row("Kernel 10: slices in three shared arrays, columns in registers", 1.2, "Sec. 7, 2D results", "unrolling"),
        _row("Kernel 6: the field in shared memory", 0.5, "Sec. 7, Kernel 6", "shared memory"),
        _row("Kernel 1: partial sums in shared memory, the rest global", 0.2, "Sec. 7, Kernel 1", "global scratch"),
        _row(
            "roofline by the theoretical bandwidth, N = 15",
            bp35_flops(15) / (72 * 16**3) * 549e9 / 1e12,
            "derived from eq. 12, Table 2 and the 549 GB/s of Sec. 3",
            COPY,
            order=15,
        ),
    ),
    (
        _statement(
            "reading the field once and writing the result once gains about 40 % (we take 1.3 to 1.5)",
            "Sec. 7, Kernel 7",
            above={"strategy": "registers"},
            below={"strategy": "shared memory"},
            low=1.3,
            high=1.5,
        ),
        _statement(
            "padding gains at N = 15, 4096 hexes (we take 1.1 times)",
            "Sec. 7, Kernel 8",
            above={"strategy": "padding", "order": 15, "elements": 4096},
            below={"strategy": "registers", "order": 15},
            low=1.1,
        ),
        _statement(
            "unrolling gains for N >= 8 on 4096 hexes",
            "Sec. 7, Kernel 3",
            above={"strategy": "unrolling", "elements": 4096, "order": tuple(range(8, 16))},
            below={"strategy": "padding"},
            by=("elements", "order"),
            low=1.0,
        ),
        _statement(
            "fewer barriers gain (of BP1.0: from 1.4 to 2.25 TFLOP/s)",
            "Sec. 6, Kernel 7",
            above={"strategy": "fewer barriers"},
            below={"strategy": "unrolling"},
            low=1.0,
        ),
        _statement(
            "symmetry of the factors gains (of BP1.0: from 2.25 to 2.5 TFLOP/s)",
            "Sec. 6, Kernel 8",
            above={"strategy": "symmetry"},
            below={"strategy": "fewer barriers"},
            low=1.0,
        ),
        _statement(
            "the best is six times the reference (we take 5 to 7)",
            "Sec. 7, 2D results",
            above={"strategy": "unrolling"},
            below={"strategy": "global scratch"},
            low=5.0,
            high=7.0,
        ),
        _statement(
            "the best is comparable to streaming the necessary data (we take 0.9 times)",
            "Sec. 7, 2D results",
            above={"strategy": "unrolling"},
            below={"strategy": COPY},
            by=("elements", "order"),
            low=0.9,
        ),
        _statement(
            "(ours) the highest rung against streaming",
            "not in the paper",
            above={"strategy": "symmetry"},
            below={"strategy": COPY},
            by=("elements", "order"),
            low=0.9,
        ),
    ),
    not_possible={
        "Kernels 2 (const), 4 (order of loops) and 5": "no switch: const means nothing to today's compiler here, and"
        " our slices are the outer loop from the second rung on",
        "the rooflines that are drawn in Fig. 1": "their numbers are in the figure alone",
    },
)
_experiment(
    NODES,
    "BP3.5 rung by rung, a thread for each node",
    "Figs 1, 8",
    (
        _row("Kernel 5: the field in shared memory", 0.61, "Sec. 7, 3D, Kernel 5", "shared memory"),
        _row("Kernel 3: factors read once", 0.35, "Sec. 7, 3D, Kernel 3", "registers"),
        _row("Kernel 1: partial sums in global memory", 0.3, "Sec. 7, 3D, Kernel 1", "global scratch"),
    ),
    (
        _statement(
            "the largest jump is that to shared memory: about 1.7 times (0.61 over 0.35; we take 1.5)",
            "derived from Sec. 7, 3D, Kernels 3 and 5",
            above={"strategy": "shared memory"},
            below={"strategy": "registers"},
            low=1.5,
        ),
        _statement(
            "fewer barriers change almost nothing (we take 10 %)",
            "Sec. 7, 3D, Kernel 6",
            above={"strategy": "fewer barriers"},
            below={"strategy": "padding"},
            low=0.9,
            high=1.1,
        ),
    ),
    not_possible={"symmetry of the factors": "a thread needs each entry of D once: there is nothing to use twice"},
)
