"""What [Cao] does not have: axhelm at N = 1..15, and on other shapes, by our sources of geometric factors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from hpfem.geometry import FactorSource
from hpfem.operators import Helmholtz, Operator
from hpfem.space import Space

from ..blocks import Sourced
from ..experiment import Series, Statement, experiment
from .cao import COEFFICIENTS, EQUATIONS, NODAL, OPERATORS

DOFS = {"cuda": 1e7, "cpu": 1e5}
# Elements that are not affine: straight-sided; of tets, which are affine then, those of geometry order 2.
BENT = {"hex": "multilinear", "prism": "multilinear", "pyramid": "multilinear", "tet": "deformed"}
# Options of the spaces; by default a modal basis.
SPACES: Mapping[str, Mapping[str, Any]] = {"hex": NODAL}
# Highest order on a GPU, if not 11.
HIGHEST = {"hex": 15}
POISSON, HELMHOLTZ = EQUATIONS
STORED, MERGED, RECOMPUTED, SCALED, SCALED_MERGED = (source.value for source in FactorSource)


def _functions(space: Space) -> Operator:
    """Coefficients as functions, which a kernel may find multiplied into the factors."""
    return Helmholtz(space, *COEFFICIENTS)


def _orders(equation: str, shape: str, backend: str) -> Sequence[int]:
    """On a GPU odd ones, and where they go to 15 all of Poisson's: other kernels take long to compile above 11."""
    if backend == "cpu":
        return range(1, 8, 2)
    return range(1, HIGHEST.get(shape, 11) + 1, 1 if equation == POISSON and shape in HIGHEST else 2)


def _cases(equation: str, affine: bool, backend: str, quick: bool) -> Sequence[Mapping[str, Any]]:
    shapes = list(BENT)[::3] if quick else list(BENT)
    return [
        {
            "benchmark": "axhelm",
            "equation": equation,
            "shape": shape,
            "order": order,
            "geometry": "affine" if affine else BENT[shape],
        }
        for shape in shapes
        for order in ((2,) if quick else _orders(equation, shape, backend))
    ]


def _block(operator: Callable[[Space], Operator], case: Mapping[str, Any], backend: str) -> Sourced:
    shape, order = case["shape"], case["order"]
    block = Sourced(operator, shape, order, case["geometry"], backend, (), **SPACES.get(shape, {}))
    block.counts = (int(DOFS[backend] / block.problem.n_modes) | 1,)
    return block


def _series(name: str, equation: str, operator: Any, sources: tuple[str, ...], affine: bool = False) -> Series:
    return Series(
        name,
        "GDoF/s",
        partial(_cases, equation, affine),
        partial(_block, operator),
        "other protocol: the paper has hexes and N = 7 only",
        strategies=dict.fromkeys(("cuda", "cpu"), sources),
    )


AFFINE, COMMON, FIELDS, FUNCTIONS = (
    f"{POISSON}, affine",
    POISSON,
    f"{HELMHOLTZ}, coefficients in fields",
    f"{HELMHOLTZ}, coefficients as functions",
)


def _statements(backend: str) -> tuple[Statement, ...]:
    compared = (
        ("recomputed or scaled factors", COMMON, (RECOMPUTED, SCALED), COMMON, STORED),
        ("recomputed or scaled factors of Helmholtz", FUNCTIONS, (RECOMPUTED, SCALED_MERGED), FIELDS, STORED),
        ("stored factors with the coefficients in them", FUNCTIONS, MERGED, FIELDS, STORED),
        ("constant factors of affine elements", AFFINE, STORED, COMMON, STORED),
    )
    return tuple(
        Statement(
            f"(ours) {what} over stored ones",
            "not in the paper",
            backend,
            {"series": above, "strategy": sources},
            {"series": below, "strategy": source},
            1.0,
        )
        for what, above, sources, below, source in compared
    )


experiment(
    "cao-beyond",
    "Cao",
    "axhelm beyond N = 7 and hexes: sources of geometric factors by order and shape",
    "Figs 7 and 9 for other orders and shapes (not in the paper)",
    "Ours alone: 1e7 degrees of freedom on a GPU, 1e5 on a CPU; hexes with nodes at the points, other shapes with"
    " the modified basis and our default points; elements straight-sided, tets of geometry order 2, or affine."
    " 'stored': all factors at every point; 'recomputed' from the element's map; 'scaled': recomputed but for one"
    " number a point; 'merged': with the coefficients in the factors. Helmholtz's coefficients vary. Of each source"
    " what 'auto' takes, if it has this source, else the first strategy that offers it, collocated, with the"
    " options that the tuner times first; median of 9. On the H200 elements that are not affine ran collocated"
    " alone, and recomputed or affine hexes of N = 7 by sumfac-warp, a strategy that hpfem had up to commit"
    " b03092b.",
    (
        _series(AFFINE, POISSON, OPERATORS[POISSON], (STORED,), affine=True),
        _series(COMMON, POISSON, OPERATORS[POISSON], (STORED, RECOMPUTED, SCALED)),
        _series(FIELDS, HELMHOLTZ, OPERATORS[HELMHOLTZ], (STORED,)),
        _series(FUNCTIONS, HELMHOLTZ, _functions, (MERGED, RECOMPUTED, SCALED_MERGED)),
    ),
    statements=(
        Statement(
            "[Swirydowicz]: computing factors in the kernel is impractical, loading them is faster, on hexes",
            "[Swirydowicz] Sec. 7 (P100, screened Poisson)",
            "cuda",
            {"series": COMMON, "strategy": RECOMPUTED, "shape": "hex"},
            {"series": COMMON, "strategy": STORED, "shape": "hex"},
            high=1.0,
            by=("order",),
        ),
        *_statements("cuda"),
        *_statements("cpu"),
    ),
)
