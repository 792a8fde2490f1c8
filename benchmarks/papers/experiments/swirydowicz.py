"""[Swirydowicz], mass and screened Poisson on hexes at orders 1 to 15: BP1.0, BP3.5, BP3.0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from hpfem.benchmarks.problems import BENCHMARKS
from hpfem.operators import Mass

from ..blocks import Copies, Elements
from ..cases import grid
from ..experiment import Counts, Device, Published, Series, Statement, experiment

P100 = Device("NVIDIA Tesla P100 (PCI-E)", 549e9, None, "Sec. 3 and Fig. 1; bandwidth theoretical")
PROTOCOL = (
    "Sec. 3, 5: 512 and 4096 hexes, N = 1..15, float64, TFLOP/s; seven stored factors (BP1.0: one) a point. The paper"
    " prints no count of operations: ours follows its algorithms. Ours: median of 9; on a CPU 512 hexes, N = 1..8,"
    " whose copies fit its caches."
)
# What Fig. 1 has as the roofline: copying each problem's own bytes.
COPY = "copying"


def interpolation(order: int) -> float:
    """Operations of interpolation to N + 2 Gauss points in three directions, once there."""
    n, q = order + 1, order + 2
    return 2.0 * (n**3 * q + n**2 * q**2 + n * q**3)


def differentiation(points: int) -> float:
    """Operations of the screened Poisson operator where the nodes are the points."""
    return 12.0 * points**4 + 18.0 * points**3


def bp10_flops(order: int) -> float:
    """Operations of BP1.0 on an element: there, the Jacobian, and back; see `interpolation`."""
    return 2 * interpolation(order) + (order + 2) ** 3


def bp35_flops(order: int) -> float:
    """Operations of BP3.5 on an element; see `differentiation`."""
    return differentiation(order + 1)


def bp30_flops(order: int) -> float:
    """Operations of BP3.0 on an element: there, BP3.5 on Gauss points, and back; see `differentiation`."""
    return 2 * interpolation(order) + differentiation(order + 2)


COUNTS = {
    "BP1.0": Counts("derived from Alg. 1-3: six contractions and the Jacobian", flops=bp10_flops),
    "BP3.5": Counts("derived from Alg. 6: 12 Nq^4 + 18 Nq^3", flops=bp35_flops),
    "BP3.0": Counts("derived from Alg. 5 and BP1.0", flops=bp30_flops),
}


def _cases(name: str, backend: str, quick: bool) -> Sequence[Mapping[str, Any]]:
    orders = {"cuda": range(1, 16), "cpu": range(1, 9)}[backend]
    return grid(
        benchmark=(name,),
        shape=("hex",),
        geometry=("deformed",),
        elements=(512,) if quick or backend == "cpu" else (512, 4096),
        order=(3,) if quick else tuple(orders),
    )


def _block(kind: type[Elements], operator: Any, quadrature: str, case: Mapping[str, Any], backend: str) -> Elements:
    what = (operator, case["shape"], case["order"], case["geometry"], backend, (case["elements"],))
    return kind(*what, basis="lagrange", quadrature=quadrature)


def _experiment(
    name: str,
    operator: Any,
    quadrature: str,
    figures: str,
    close: str,
    where: Mapping[str, Any],
    best: tuple[str, float, str],
) -> None:
    ident = f"swirydowicz-{name.replace('.', '').lower()}"
    what, value, source = best
    row = Published(what, value, "TFLOP/s", source, P100, "cuda", {"series": name, "elements": 4096})
    series = partial(Series, unit="TFLOP/s", cases=partial(_cases, name), counts=COUNTS[name])
    experiment(
        ident,
        "Swirydowicz",
        f"{name} at high order",
        figures,
        PROTOCOL,
        (
            series(
                name,
                block=partial(_block, Elements, operator, quadrature),
                status="equivalent: copies of a few hexes; their own factors are read",
            ),
            series(
                "roofline",
                block=partial(_block, Copies, operator, quadrature),
                strategies=dict.fromkeys(("cuda", "cpu"), (COPY,)),
                status="exact protocol",
            ),
        ),
        (row,),
        statements=(
            Statement(
                "the best kernel is close to copying what it reads and writes (we take 0.9 times)",
                close,
                "cuda",
                {"series": name, **where},
                {"series": "roofline"},
                0.9,
                by=("elements", "order"),
            ),
        ),
        corrections=(
            "Sec. 5 and Table 2 call T_BP1.0 = 2 N_p + N_p^GL 'bytes'; these are doubles, as the factor 8 of the"
            " next formula shows.",
        )
        if name == "BP1.0"
        else (),
    )


_experiment(
    "BP1.0",
    Mass,
    "gauss",
    "Figs 1, 3",
    "Sec. 6, Kernel 8",
    {},
    ("Kernel 8 (best)", 2.5, "Sec. 6, BP1.0 results"),
)
_experiment(
    "BP3.5",
    BENCHMARKS["bk3"],
    "collocated",
    "Figs 1, 7",
    "Sec. 7, Kernel 10",
    {},
    ("Kernel 10, 2-D threads (best)", 1.2, "Sec. 7, BP3.5 results: 2D"),
)
_experiment(
    "BP3.0",
    BENCHMARKS["bk3"],
    "gauss",
    "Figs 1, 9",
    "Sec. 8, 2D results (4096 hexes, N <= 12)",
    {"elements": 4096, "order": tuple(range(1, 13))},
    ("Kernel 9, 2-D threads (best)", 1.6, "Sec. 8, Kernel 9"),
)
