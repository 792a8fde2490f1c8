"""[Xing], mixed elements: mass and Helmholtz on six shapes by three strategies (Figs 5-9, 12-14)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import inf
from typing import Any

from hpfem.benchmarks.cases import SOLID_FIRST, SOLID_SHAPES
from hpfem.benchmarks.problems import BENCHMARKS
from hpfem.operators import BwdTrans

from ..blocks import InTurns, Sized
from ..cases import grid
from ..experiment import Device, Published, Series, Statement, experiment

GH200 = Device("NVIDIA GH200", source="Sec. 4.1; neither bandwidth nor peak is printed")
XEON = "2x Intel Xeon 6526Y"
ORDERS = tuple(range(1, 8))
SIMPLICIAL = ("prism", "pyramid", "tet")
SIZES = {"cuda": (1e4, 1e5, 1e6, 1e7, 1e8), "cpu": (1e4, 1e5, 1e6)}
STRATEGIES = {"cuda": ("stdmat", "sumfac", "sumfac-top"), "cpu": ("stdmat", "sumfac")}
OPERATORS = {**BENCHMARKS, "bwdtrans": BwdTrans}
PROTOCOL = (
    "Sec. 4: throughput is elements x modes over the time of an application, P = 1..7, 1e4 to 1e9 degrees of freedom,"
    " geometric factors stored at every point, P + 2 Gauss-Lobatto points (Sec. 2.1). Ours: median of 5 timings or"
    " more, up to 1e8 degrees of freedom on a GPU and 1e6 on a CPU."
)
EQUIVALENT = (
    "equivalent: copies of a few elements, deformed ones of geometry order 2 where the paper's are isoparametric;"
    " both read all factors at every point"
)


# What is timed in turns: algorithms, degrees of freedom, and how the page tells it.
ALGORITHMS = ("collocated", "noncollocated")
SIZE = 1e5
TURNS = (
    "Ours: 1e5 degrees of freedom; the kernels of a case are timed in turns, so that others on the machine slow all of"
    " them down alike; ratios are medians over the turns, with their quartiles."
)


def _cases(benchmark: str, backend: str, quick: bool) -> Sequence[Mapping[str, Any]]:
    return grid(
        benchmark=(benchmark,),
        shape=SOLID_SHAPES[::3] if quick else SOLID_FIRST,
        order=(2,) if quick else ORDERS,
        geometry=("deformed",) if quick else ("deformed", "affine"),
    )


def _large(backend: str, quick: bool) -> Sequence[Mapping[str, Any]]:
    orders = (4,) if quick else (1, 4, 7)
    return grid(benchmark=("bk1", "bk3"), shape=SOLID_SHAPES, order=orders, geometry=("deformed",))


def _block(case: Mapping[str, Any], backend: str, sizes: Mapping[str, tuple[float, ...]] = SIZES) -> Sized:
    what = (case["shape"], case["order"], case["geometry"], backend, sizes[backend])
    return Sized(OPERATORS[case["benchmark"]], *what)


def _series(name: str, benchmark: str, **more: Any) -> Series:
    algorithms = more.pop("algorithms", ALGORITHMS)
    cases = partial(_cases, benchmark)
    about = {"strategies": STRATEGIES, "algorithms": algorithms, "repeats": 5}
    return Series(name, "GDoF/s", cases, _block, EQUIVALENT, **about, **more)


def _best(**where: Any) -> dict[str, Any]:
    return {"geometry": "deformed", **where}


experiment(
    "xing-mass",
    "Xing",
    "Mass (BK1) by dense matrices, sum factorisation by element and by point",
    "Figs 5, 7, 12",
    PROTOCOL,
    (_series("mass", "bk1", bench=True, algorithms=("collocated",)),),
    (
        Published(
            "hex, SumFacTOP, peak",
            35.0,
            "GDoF/s",
            "Sec. 4.1 (the exponent is damaged in the text at hand: read as 3.5e10, above MFEM's 2.5e10)",
            GH200,
            "cuda",
            _best(shape="hex", strategy="sumfac-top"),
        ),
        Published("hex, MFEM, peak", 25.0, "GDoF/s", "Sec. 4.1", GH200, "cuda", _best(shape="hex")),
    ),
    (
        Statement(
            "SumFacTOP is better than StdMat on hexes",
            "Sec. 4.1",
            "cuda",
            _best(strategy="sumfac-top", shape="hex"),
            _best(strategy="stdmat"),
            1.0,
        ),
        Statement(
            "... and StdMat better on elements with simplex faces",
            "Sec. 4.1",
            "cuda",
            _best(strategy="stdmat", shape=SIMPLICIAL),
            _best(strategy="sumfac-top"),
            1.0,
        ),
        Statement(
            "SumFac (a thread an element) excels at P = 1, 2 on elements with simplex faces",
            "Sec. 4.1",
            "cuda",
            _best(strategy="sumfac", shape=SIMPLICIAL, order=(1, 2)),
            _best(strategy=("stdmat", "sumfac-top")),
            1.0,
        ),
        Statement(
            "beyond P = 2 StdMat and SumFacTOP are better than SumFac",
            "Sec. 4.1",
            "cuda",
            _best(strategy=("stdmat", "sumfac-top"), shape=SOLID_SHAPES, order=(3, 4, 5, 6, 7)),
            _best(strategy="sumfac"),
            1.0,
        ),
        Statement(
            "SumFacTOP is slow at P = 1 (we take 0.8 of its best order)",
            "Sec. 4.1",
            "cuda",
            _best(strategy="sumfac-top", shape=SOLID_SHAPES, order=1),
            _best(strategy="sumfac-top"),
            0.0,
            0.8,
            by=("shape",),
        ),
        Statement(
            "elements with simplex faces are slower than hexes",
            "Sec. 4.1",
            "cuda",
            _best(shape="hex"),
            _best(shape=SIMPLICIAL),
            1.0,
            by=("order",),
        ),
        Statement(
            "regular and deformed elements hardly differ (we take 0.9 to 1.1)",
            "Sec. 4.3, B.1 (Fig. 12)",
            "cuda",
            {"geometry": "affine", "strategy": "sumfac-top", "shape": SOLID_SHAPES},
            _best(strategy="sumfac-top"),
            0.9,
            1.1,
        ),
        Statement(
            "StdMat drops dramatically with the order (we take P = 7 at half of its best)",
            "Sec. 4.2",
            "cpu",
            _best(strategy="stdmat", shape=SOLID_SHAPES, order=7),
            _best(strategy="stdmat"),
            0.0,
            0.5,
            by=("shape",),
        ),
        Statement(
            "deformed elements' throughput falls before that of regular ones: regular over deformed, out of cache",
            "Sec. 4.3 (Fig. 7)",
            "cpu",
            {"geometry": "affine", "strategy": "sumfac", "shape": SOLID_SHAPES},
            _best(strategy="sumfac"),
            1.0,
            smallest=5e5,
        ),
        Statement(
            "beyond a peak throughput falls with size: the largest problem over the peak",
            "Sec. 4.2",
            "cpu",
            _best(strategy="sumfac", shape=SOLID_SHAPES),
            _best(strategy="sumfac"),
            0.0,
            0.95,
            largest_above=True,
        ),
    ),
)

experiment(
    "xing-helmholtz",
    "Xing",
    "Helmholtz (BK3) by the same, collocated and not, regular and deformed",
    "Figs 6, 8, 9, 13, 14",
    PROTOCOL,
    (_series("Helmholtz", "bk3", bench=True),),
    (
        Published("hex, peak", 11.0, "GDoF/s", "Sec. 4.1: very similar to MFEM's", GH200, "cuda", _best(shape="hex")),
        Published("hex, MFEM, peak", 11.0, "GDoF/s", "Sec. 4.1", GH200, "cuda", _best(shape="hex")),
    ),
    (
        Statement(
            "tets are at most 2.5 times slower than hexes",
            "abstract, Sec. 4.1, 5",
            "cuda",
            _best(shape="hex"),
            _best(shape="tet"),
            0.0,
            2.5,
            by=("order",),
        ),
        Statement(
            "... by SumFacTOP on both",
            "abstract, Sec. 4.1, 5",
            "cuda",
            _best(shape="hex", strategy="sumfac-top"),
            _best(shape="tet", strategy="sumfac-top"),
            0.0,
            2.5,
            by=("order",),
        ),
        Statement(
            "tets take six times the operations of hexes (we take 5 to 7)",
            "abstract, Sec. 4",
            "cuda",
            _best(shape="tet", strategy="sumfac-top", algorithm="collocated"),
            _best(shape="hex", strategy="sumfac-top", algorithm="collocated"),
            5.0,
            7.0,
            by=("order",),
            operations=True,
        ),
        Statement(
            "SumFacTOP outperforms StdMat everywhere",
            "Sec. 4.1",
            "cuda",
            _best(strategy="sumfac-top", shape=SOLID_SHAPES),
            _best(strategy="stdmat"),
            1.0,
        ),
        Statement(
            "elements with simplex faces are slower than hexes",
            "Sec. 4.1",
            "cuda",
            _best(shape="hex"),
            _best(shape=SIMPLICIAL),
            1.0,
            by=("order",),
        ),
        Statement(
            "regular elements have up to twice the throughput at low order (we take P <= 4)",
            "Sec. 4.3, B.1 (Fig. 13)",
            "cuda",
            {"geometry": "affine", "strategy": "sumfac-top", "shape": SOLID_SHAPES, "order": (1, 2, 3, 4)},
            _best(strategy="sumfac-top"),
            1.0,
            2.0,
        ),
        Statement(
            "... and similar throughput at P = 5, 6, 7 (we take 0.8 to 1.25)",
            "Sec. 4.3, B.1 (Fig. 13)",
            "cuda",
            {"geometry": "affine", "strategy": "sumfac-top", "shape": SOLID_SHAPES, "order": (5, 6, 7)},
            _best(strategy="sumfac-top"),
            0.8,
            1.25,
        ),
        Statement(
            "throughput drops at many degrees of freedom: the largest problem over the peak",
            "Sec. 4.2",
            "cpu",
            _best(strategy="sumfac", shape=SOLID_SHAPES),
            _best(strategy="sumfac"),
            0.0,
            0.95,
            largest_above=True,
        ),
        Statement(
            "throughput is relatively consistent over the shapes: hexes over the others (we take 0.5 to 2)",
            "Sec. 4.2",
            "cpu",
            _best(strategy="sumfac", shape="hex"),
            _best(strategy="sumfac", shape=SIMPLICIAL),
            0.5,
            2.0,
            by=("order",),
        ),
        Statement(
            "regular elements have no such drop: the largest problem over the peak (we take 0.8)",
            "Sec. 4.3 (Fig. 8)",
            "cpu",
            {"geometry": "affine", "strategy": "sumfac", "shape": SOLID_SHAPES},
            {"geometry": "affine", "strategy": "sumfac"},
            0.8,
            largest_above=True,
        ),
        Statement(
            "regular elements are roughly twice as fast as deformed ones (we take 1.5 to 2.5), out of cache",
            "Sec. 4.3 (Fig. 8)",
            "cpu",
            {"geometry": "affine", "strategy": "sumfac", "shape": SOLID_SHAPES},
            _best(strategy="sumfac"),
            1.5,
            2.5,
            smallest=5e5,
        ),
    ),
    corrections=(
        "The Xeon 6526Y has 1.5 MB of L3 cache a core in Sec. 4.3, and 37.5 MB for 16 cores (2.3 a core) in B.2.",
    ),
    not_possible={
        f"{XEON}, AMD EPYC 9554 (Figs 5b, 6b, 7-9, 14)": "their numbers are in the figures alone",
        "SumFac beyond the registers of a thread": "the product's kernel refuses it; see xing-thread and"
        " xing-algorithms",
    },
)

experiment(
    "xing-bwdtrans",
    "Xing",
    "Backward transform, by which the paper explains its strategies",
    "Alg. 1, 3, 4",
    "The paper times no backward transform; ours as its mass operator.",
    (_series("BwdTrans", "bwdtrans", algorithms=("auto",)),),
)

experiment(
    "xing-large",
    "Xing",
    "The largest problems: 1e8 degrees of freedom",
    "Figs 5, 6 at their right end",
    PROTOCOL,
    (
        Series(
            "1e8 degrees of freedom",
            "GDoF/s",
            _large,
            partial(_block, sizes={"cuda": (1e8,)}),
            EQUIVALENT,
            backends=("cuda",),
            repeats=5,
        ),
    ),
)


def _collocated(backend: str, quick: bool) -> Sequence[Mapping[str, Any]]:
    return grid(
        benchmark=("bk3",),
        shape=SOLID_SHAPES[-1:] if quick else SOLID_FIRST,
        order=(2,) if quick else ORDERS,
        geometry=("affine",) if quick else ("affine", "deformed"),
    )


def _in_turns(case: Mapping[str, Any], backend: str) -> InTurns:
    what = BENCHMARKS[case["benchmark"]], case["shape"], case["order"], case["geometry"], backend, (SIZE,)
    return InTurns(("sumfac",), ALGORITHMS, {}, *what)


def _gain(
    says: str, geometry: str, shape: Any, low: float, high: float = inf, source: str = "Sec. 4.4 (Fig. 9)"
) -> Statement:
    above, below = ({"geometry": geometry, "algorithm": algorithm} for algorithm in ALGORITHMS)
    return Statement(says, source, "cpu", {**above, "shape": shape}, below, low, high)


experiment(
    "xing-collocation",
    "Xing",
    "SumFac of Helmholtz, collocated and not",
    "Fig. 9",
    f"Sec. 4.4: regular elements, P = 1..7. {TURNS}",
    (
        Series(
            "in turns",
            "GDoF/s",
            _collocated,
            _in_turns,
            EQUIVALENT,
            backends=("cpu",),
            strategies={"cpu": ("sumfac",)},
            algorithms=ALGORITHMS,
        ),
    ),
    statements=(
        _gain("collocation gains 25 to 50 % on regular hexes", "affine", "hex", 1.25, 1.5),
        _gain("... and about 50 % on regular tets (we take 35 to 65)", "affine", "tet", 1.35, 1.65),
        _gain("... and gains on every shape at every order", "affine", SOLID_SHAPES, 1.0),
        _gain("(ours) ... and on deformed elements", "deformed", SOLID_SHAPES, 1.0, source="not in the paper"),
    ),
    corrections=("The gain of collocation on hexes is 20 to 50 % in Sec. 2.2.1 and 25 to 50 % in Sec. 4.4.",),
)
