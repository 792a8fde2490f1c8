"""The ladders of three problems measured, rung by rung, with the rooflines of [Swirydowicz] section 5."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from hpfem.benchmarks.problems import BENCHMARKS
from hpfem.errors import NotSuitable
from hpfem.forms.form import BlockProblem
from hpfem.operators import Mass, Operator

from ...blocks import Copies
from ...cases import grid
from ...experiment import Published, Series, Statement, experiment
from ...experiments.swirydowicz import COUNTS, P100, bp35_flops
from ..gpu import LaunchedElements, LaunchedKernel, NearMemory
from .plan import COLUMNS, LADDERS, MOST_THREADS, POINTS, Rung

# Operator and points of a problem.
OPERATORS: Mapping[str, tuple[Callable[..., Operator], str]] = {
    "BP1.0": (Mass, "gauss"),
    "BP3.5": (BENCHMARKS["bk3"], "collocated"),
    "BP3.0": (BENCHMARKS["bk3"], "gauss"),
}
# Rungs whose shared memory the second roofline is of, as in Figs 5 and 10.
BOUND = {COLUMNS: ("unrolling", "fewer barriers", "symmetry"), POINTS: ("padding", "fewer barriers")}
COPY, NEAR = "copying", "shared memory of "


def orders(problem: str, threads: str) -> list[int]:
    """Orders up to 15 for which a block has threads enough."""
    return [n for n in range(1, 16) if Rung(problem, threads, "global scratch", n).block <= MOST_THREADS]


def rungs(problem: str, threads: str) -> tuple[str, ...]:
    """The ladder of a problem."""
    nothing = problem == "BP1.0" and threads == POINTS  # a value is read once and a result written once anyway
    return tuple(name for name in LADDERS[threads] if not (nothing and name == "registers"))


class LadderKernel(LaunchedKernel):
    """A rung of a problem, `name`, with columns or points as `threads`, on curved nodal hexes; see `Rung`."""

    def __init__(self, name: str, threads: str, problem: BlockProblem, rung: str) -> None:
        tabulation, kind = problem.tabulation, problem.form.factor_kind
        nodes, points = tabulation.values[0].shape
        self.rung = Rung(name, threads, rung, nodes - 1)
        wanted = "wJ" if OPERATORS[name][0] is Mass else "metric"
        nodal = problem.nodal if OPERATORS[name][1] == "collocated" else points == nodes + 1
        if problem.shape.dim != 3 or kind != wanted or not nodal or problem.geometry.affine:
            raise NotSuitable(f"the ladder of {name} is of curved hexes with its nodes and points")
        if self.rung.block > MOST_THREADS:
            raise NotSuitable(f"a block has no {self.rung.block} threads")
        super().__init__(problem, rung, self.rung.source(), "ladder", 1, self.rung.block, self.rung.shared_bytes)
        self.factors = self.memory.from_host(problem.geometry.factors(wanted, 1, problem.dtype))
        tables = (tabulation.values[0].T, tabulation.differentiation[0])
        self._tables = [self.memory.from_host(np.ascontiguousarray(table, problem.dtype)) for table in tables]

    def arguments(self, given: Any, out: Any, n_elements: int) -> tuple[Any, ...]:
        """Field, factors, I, D, result and scratch; see `LaunchedKernel.arguments`."""
        used = not {"SHARED", "REGISTERS"} <= self.rung.switches
        scratch = self.memory.xp.empty(4 * n_elements * self.rung.points**3 if used else 1, given.dtype)
        return given, self.factors, *self._tables, out, scratch, np.float64(self.problem.parameters.get("lam", 0))


def _cases(problem: str, threads: str, backend: str, quick: bool) -> Sequence[Mapping[str, Any]]:
    return grid(
        benchmark=(problem,),
        shape=("hex",),
        geometry=("deformed",),
        elements=(512,) if quick else (512, 4096),
        order=(3,) if quick else tuple(orders(problem, threads)),
    )


def _what(case: Mapping[str, Any], backend: str) -> tuple[Any, ...]:
    operator, _ = OPERATORS[case["benchmark"]]
    return operator, case["shape"], case["order"], case["geometry"], backend, (case["elements"],)


def _options(case: Mapping[str, Any]) -> dict[str, Any]:
    return {"basis": "lagrange", "quadrature": OPERATORS[case["benchmark"]][1]}


def _block(threads: str, case: Mapping[str, Any], backend: str) -> LaunchedElements:
    make = partial(LadderKernel, case["benchmark"], threads)
    return LaunchedElements(make, "collocated", *_what(case, backend), **_options(case))


def _copies(case: Mapping[str, Any], backend: str) -> Copies:
    return Copies(*_what(case, backend), **_options(case))


def _near(threads: str, case: Mapping[str, Any], backend: str) -> NearMemory:
    def moved(name: str) -> Mapping[str, float]:
        rung = Rung(case["benchmark"], threads, name.removeprefix(NEAR), case["order"])
        return {"shared": rung.shared_traffic}

    return NearMemory(moved, *_what(case, backend), **_options(case))


_statement = partial(Statement, backend="cuda", by=("elements",))


def _experiment(
    problem: str,
    threads: str,
    figures: str,
    published: Sequence[Published],
    statements: Sequence[Statement],
    **more: Any,
) -> None:
    series = partial(
        Series, unit="TFLOP/s", cases=partial(_cases, problem, threads), backends=("cuda",), counts=COUNTS[problem]
    )
    ident = f"swirydowicz-ladder-{problem.replace('.', '').lower()}-{threads[:3].replace('-', '').lower()}"
    experiment(
        ident,
        "Swirydowicz",
        f"{problem} rung by rung, a thread for each {'column of points' if threads == COLUMNS else 'point'}",
        figures,
        "Sec. 5-8: 512 and 4096 hexes, float64, a block of threads an element; ours: one kernel whose switches are"
        " turned on one after the other (variants/ladder/ladder.h), median of 9. Until loops are unrolled, columns"
        " of 8 numbers and more are in a thread's local memory, not in its registers: NVRTC unrolls shorter ones"
        " itself. Rows of even length are padded, the paper's of 8 and 16.",
        (
            series(
                threads,
                block=partial(_block, threads),
                strategies={"cuda": rungs(problem, threads)},
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
    )


def _row(what: str, value: float, source: str, rung: str, elements: int = 4096, **where: Any) -> Published:
    return Published(what, value, "TFLOP/s", source, P100, "cuda", {"strategy": rung, "elements": elements, **where})


def _gain(says: str, source: str, above: str, below: str, low: float, **more: Any) -> Statement:
    """A rung over another, on 4096 hexes, whose best orders the paper's numbers are."""
    by = ("elements", "order") if "order" in more else ("elements",)
    where = {name: more.pop(name) for name in ("order",) if name in more}
    elements = more.pop("elements", 4096)
    return _statement(
        says,
        source,
        above={"strategy": above, "elements": elements, **where},
        below={"strategy": below},
        low=low,
        by=by,
        **more,
    )


_SYMMETRY_3D = {"symmetry of the tables": "a thread needs each entry of a table once: there is nothing to use twice"}
_CONST = "const means nothing to today's compiler here"

_experiment(
    "BP1.0",
    COLUMNS,
    "Figs 1, 3, 5",
    (
        _row("Kernel 8", 2.5, "Sec. 6, BP1.0 results", "symmetry"),
        _row("Kernel 7", 2.25, "Sec. 6, Kernel 7", "fewer barriers"),
        _row("Kernel 6", 1.4, "Sec. 6, Kernel 6", "unrolling"),
        _row("Kernel 6, 512 hexes", 1.0, "Sec. 6, Kernel 6 (exceeds)", "unrolling", 512),
        _row("Kernel 3", 1.0, "Sec. 6, Kernel 3", "registers"),
        _row("Kernel 1", 0.08, "Sec. 6, Kernel 1", "global scratch"),
    ),
    (
        _gain(
            "shared memory in place of global scratch gains a factor of about two (we take 1.5 to 2.5)",
            "Sec. 6, Kernel 2",
            "shared memory",
            "global scratch",
            1.5,
            high=2.5,
        ),
        _gain(
            "... and registers a first major improvement (we take twice)",
            "Sec. 6, BP1.0 results",
            "registers",
            "shared memory",
            2.0,
        ),
        _gain(
            "padding gains at N = 14 on 4096 hexes (we take 1.1 times)",
            "Sec. 6, Kernel 5",
            "padding",
            "registers",
            1.1,
            order=14,
        ),
        _gain("... and at N = 15 on 512", "Sec. 6, Kernel 5", "padding", "registers", 1.1, order=15, elements=512),
        _gain("unrolling gains 1.4 times", "derived from Sec. 6, Kernels 3 and 6", "unrolling", "padding", 1.4),
        _gain(
            "fewer barriers gain 1.6 times", "derived from Sec. 6, Kernels 6 and 7", "fewer barriers", "unrolling", 1.6
        ),
        _gain("symmetry gains 1.1 times", "derived from Sec. 6, Kernels 7 and 8", "symmetry", "fewer barriers", 1.1),
        _gain(
            "the best is 31 times the reference (we take 25 to 37)",
            "Sec. 6, BP1.0 results",
            "symmetry",
            "global scratch",
            25.0,
            high=37.0,
        ),
    ),
    not_possible={"Kernel 4 (const)": f"no switch: {_CONST}"},
)
_experiment(
    "BP1.0",
    POINTS,
    "Fig. 2 (left): the layout; the paper took the other one, found to be more effective (Sec. 6), without a number",
    (),
    (),
    not_possible=_SYMMETRY_3D,
)
_experiment(
    "BP3.5",
    COLUMNS,
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
        "Kernels 2 (const), 4 (order of loops) and 5": f"no switch: {_CONST}, and our slices are the"
        " outer loop from the second rung on",
        "the rooflines that are drawn in Fig. 1": "their numbers are in the figure alone",
    },
)
_experiment(
    "BP3.5",
    POINTS,
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
    not_possible=_SYMMETRY_3D,
)
_experiment(
    "BP3.0",
    COLUMNS,
    "Figs 1, 9, 10",
    (
        _row("Kernel 9", 1.6, "Sec. 8, Kernel 9", "symmetry"),
        _row("Kernel 5", 1.5, "Sec. 8, Kernel 5", "fewer barriers"),
        _row("Kernel 3", 1.4, "Sec. 8, Kernel 3", "unrolling"),
        _row("Kernel 3, 512 hexes", 0.6, "Sec. 8, Kernel 3", "unrolling", 512),
        _row("Kernel 2, N >= 12", 1.25, "Sec. 8, Kernel 2 (over)", "registers", order=(12, 13, 14, 15)),
        _row("Kernel 1: slices in shared memory, the field global", 0.28, "Sec. 8, Kernel 1", "shared memory"),
    ),
    (
        _gain(
            "registers gain more than four times",
            "derived from Sec. 8, Kernels 1 and 2",
            "registers",
            "shared memory",
            4.0,
        ),
        _gain(
            "padding helps only on the smaller mesh: not on 4096 hexes (we take 5 %, N = 6, 14)",
            "Sec. 8, Kernel 4",
            "padding",
            "registers",
            0.95,
            high=1.05,
            order=(6, 14),
        ),
        _gain("unrolling gains 1.1 times", "derived from Sec. 8, Kernels 2 and 3", "unrolling", "padding", 1.1),
        _gain(
            "fewer barriers gain 1.07 times",
            "derived from Sec. 8, Kernels 3 and 5",
            "fewer barriers",
            "unrolling",
            1.07,
        ),
        _gain("symmetry gains 1.07 times", "derived from Sec. 8, Kernels 5 and 9", "symmetry", "fewer barriers", 1.07),
        _gain(
            "the best is four times the reference (we take 3.5 to 6)",
            "Sec. 8, 2D results",
            "symmetry",
            "shared memory",
            3.5,
            high=6.0,
        ),
        _gain(
            "the best is very close to streaming on 4096 hexes, N <= 12 (we take 0.9 times)",
            "Sec. 8, 2D results",
            "symmetry",
            COPY,
            0.9,
            order=tuple(range(1, 13)),
        ),
    ),
    corrections=(
        "Sec. 8 calls its best kernel Kernel 10 and about four times as fast as Kernel 1; it lists nine, of 0.28 to 1.6"
        " TFLOP/s, which is 5.7 times.",
    ),
    not_possible={
        "Kernels 6 to 8 (fewer arrays, D and its transpose in shared memory)": "no switch: lines of the whole element"
        " read D in the same order both ways",
    },
)
_experiment(
    "BP3.0",
    POINTS,
    "Fig. 11",
    (
        _row("Kernel 9: three more shared arrays", 0.9, "Sec. 8, 3D, Kernel 9", "fewer barriers"),
        _row("Kernel 1: partial results in global memory", 0.28, "Sec. 8, 3D, Kernel 1", "global scratch"),
    ),
    (
        _gain(
            "unrolling has a marginal influence (we take 10 %)",
            "Sec. 8, 3D, Kernel 3",
            "unrolling",
            "global scratch",
            0.9,
            high=1.1,
        ),
        _gain(
            "factors that are read once gain little (we take up to 1.2 times)",
            "Sec. 8, 3D, Kernel 4",
            "registers",
            "unrolling",
            1.0,
            high=1.2,
        ),
        _gain(
            "the field in shared memory is approximately 1.5 times as fast (we take 1.35 to 1.65)",
            "Sec. 8, 3D, Kernels 5 and 6",
            "shared memory",
            "registers",
            1.35,
            high=1.65,
            over="Kernel 4; its Kernels 5 and 6 still have results in global memory, ours none",
        ),
        _gain("more shared memory gains again", "Sec. 8, 3D, Kernel 9", "fewer barriers", "padding", 1.0),
    ),
    not_possible={
        "Kernel 1 as three launches, Kernels 5 to 7": "no switch: ours is one launch, which Kernel 2 finds to change"
        " nothing, and shared memory replaces all global arrays in one step",
        **_SYMMETRY_3D,
    },
)
