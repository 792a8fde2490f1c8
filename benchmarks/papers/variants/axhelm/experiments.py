"""axhelm by every source of geometric factors and every way of contraction, with the rooflines of [Cao] section 4.3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpfem.errors import NotSuitable
from hpfem.forms.form import BlockProblem
from hpfem.memory import HOST

from ...blocks import Copies
from ...cases import grid
from ...experiment import Counts, Series, Statement, experiment
from ...experiments.cao import AXHELM, EQUATIONS, NODAL, OPERATORS, ORDER, axhelm_flops
from ..gpu import LaunchedElements, LaunchedKernel, filled

# Ways of contraction, each with the switches of those before it, as in Sec. 5.3.
CONTRACTIONS = ("plain", "unrolled", "tensor cores", "constant memory")
# Equation and geometry of elements -> sources of factors.
SOURCES: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("Poisson", "affine"): ("parallelepiped",),
    ("Helmholtz", "affine"): ("parallelepiped",),
    ("Poisson", "trilinear"): ("stored", "trilinear", "partial"),
    ("Helmholtz", "trilinear"): ("stored", "trilinear", "merged"),
}
COPY = "copying for "


@dataclass(frozen=True)
class Variant:
    """A variant of axhelm.h."""

    source: str  # of geometric factors
    contraction: str  # in `CONTRACTIONS`
    scaled: bool  # whether of Helmholtz
    # Of the field, and along a direction.
    components: int
    points: int

    def on(self, contraction: str) -> bool:
        """Whether what a way of contraction adds is switched on."""
        return CONTRACTIONS.index(self.contraction) >= CONTRACTIONS.index(contraction)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block: D, three arrays of slices, vertices and what is common to rows of points."""
        slices = 2 if self.on("tensor cores") else 1
        vertices = 0 if self.source in ("stored", "parallelepiped") else 24 + 12 * self.points
        return 8 * ((1 + 3 * slices) * self.points**2 + vertices)

    @property
    def read(self) -> float:
        """Numbers that the paper counts for the geometry and the scale factors of an element, Tables 3 and 4."""
        at_points = {"stored": 6 + self.scaled, "partial": 1}.get(self.source, 0) + 2 * self.scaled
        constant = {"stored": 0, "parallelepiped": 6 + self.scaled}.get(self.source, 24)
        return float(at_points * self.points**3 + constant)

    def kernel(self) -> str:
        """Source of the kernel."""
        return filled(
            "axhelm/axhelm.h",
            Q=self.points,
            COMPONENTS=self.components,
            HELMHOLTZ=self.scaled,
            GEOMETRY=self.source.upper(),
            TENSOR_CORES=self.on("tensor cores"),
            CONSTANT=self.on("constant memory"),
            LOOP='_Pragma("unroll")' if self.on("unrolled") else "",
        )


def geometry_of(problem: BlockProblem, source: str) -> NDArray[np.float64]:
    """Make what the kernel reads of each element; -> [E, numbers]."""
    factors = problem.geometry.factors("metric", 1, problem.dtype)[: problem.n_elements, ..., 0]
    n, points = len(factors), len(problem.tabulation.rule.weights)
    scaled = bool(problem.fields)
    lambdas = [problem.fields[name].pair.read(HOST)[0, :n] for name in ("diffusivity", "lam")] if scaled else []
    if source in ("stored", "parallelepiped"):
        given = [factors[:, : 7 if scaled or source == "parallelepiped" else 6].reshape(n, -1)]
    else:
        q = problem.tabulation.rule.counts[0]
        nodes = problem.geometry.factors("points", 1, problem.dtype)[:n].reshape(n, 3, q, q, q)
        given = [np.moveaxis(nodes[:, :, :: q - 1, :: q - 1, :: q - 1].reshape(n, 3, 8), 1, 2).reshape(n, 24)]
        wJ = factors[:, 6]
        scale = problem.tabulation.rule.weights**2 / (4096 * wJ)  # w / 8 over the determinant of 8 J
        if source == "partial":
            given.append(scale.reshape(n, points))
        elif source == "merged":
            lambdas = [scale * lambdas[0], wJ * lambdas[1]]
    return np.ascontiguousarray(np.concatenate([*given, *lambdas], axis=1), problem.dtype)


class AxhelmKernel(LaunchedKernel):
    """A variant, "source of factors, way of contraction", on hexes whose nodes are the points."""

    def __init__(self, components: int, problem: BlockProblem, name: str) -> None:
        source, _, contraction = name.partition(", ")
        tabulation, rule = problem.tabulation, problem.tabulation.rule
        points = rule.counts[0]
        if problem.shape.dim != 3 or not problem.nodal or problem.form.factor_kind != "metric":
            raise NotSuitable("axhelm is of hexes whose nodes are the points")
        if problem.geometry.affine != (source == "parallelepiped"):
            raise NotSuitable(f"factors of these elements are not {source}")
        self.variant = variant = Variant(source, contraction, bool(problem.fields), components, points)
        if variant.on("tensor cores") and points != 8:
            raise NotSuitable(f"tensor cores multiply 8 x 8, a slice here is {points} x {points}")
        super().__init__(problem, name, variant.kernel(), "axhelm", 1, points**2, variant.shared_bytes)
        self.factors = self.memory.from_host(geometry_of(problem, source))
        D = np.ascontiguousarray(tabulation.differentiation[0], problem.dtype)
        tables = np.concatenate([D.ravel(), tabulation.directions[0].points, tabulation.directions[0].weights])
        self._D, self.constants = self.memory.from_host(D), {"constant_tables": self.memory.from_host(tables)}

    def arguments(self, given: Any, out: Any, n_elements: int) -> tuple[Any, ...]:
        """Elements, field, geometry, D, result; see `LaunchedKernel.arguments`."""
        return np.int64(n_elements), given, self.factors, self._D, out


class LeastBytes(Copies):
    """Copying what the paper counts of a source of factors, of Helmholtz if `scaled`; see `Copies`."""

    def __init__(self, scaled: bool, *what: Any, **options: Any) -> None:
        super().__init__(*what, **options)
        self._scaled = scaled

    def nbytes(self, strategy: str) -> int:
        """Bytes of an element by Tables 3 and 4; see `Copies.nbytes`."""
        points = self.problem.tabulation.rule.counts[0]
        variant = Variant(strategy.removeprefix(COPY), "plain", self._scaled, self.components, points)
        return int(8 * (variant.read + 2 * self.components * self.problem.n_modes))


def _cases(equation: str, geometry: str, backend: str, quick: bool) -> Sequence[Mapping[str, Any]]:
    return grid(
        benchmark=("axhelm variants",),
        equation=(equation,),
        d=(1,) if quick else (1, 3),
        geometry=(geometry,),
        shape=("hex",),
        order=(ORDER,),
    )


def _what(case: Mapping[str, Any], backend: str) -> tuple[Any, ...]:
    operator = OPERATORS[case["equation"]]
    return operator, case["shape"], case["order"], case["geometry"], backend, (AXHELM["cuda"],), case["d"]


def _block(case: Mapping[str, Any], backend: str) -> LaunchedElements:
    return LaunchedElements(partial(AxhelmKernel, case["d"]), "collocated", *_what(case, backend), **NODAL)


def _copies(case: Mapping[str, Any], backend: str) -> LeastBytes:
    return LeastBytes(case["equation"] == EQUATIONS[1], *_what(case, backend), **NODAL)


def _series(equation: str, geometry: str) -> list[Series]:
    sources, scaled = SOURCES[equation, geometry], equation == EQUATIONS[1]
    series = partial(
        Series,
        unit="GFLOP/s",
        cases=partial(_cases, equation, geometry),
        backends=("cuda",),
        counts=Counts("Table 3", flops=partial(axhelm_flops, scaled=scaled)),
    )
    elements = "parallelepipeds" if geometry == "affine" else "trilinear elements"
    return [
        series(
            f"{equation}, {elements}",
            block=_block,
            strategies={"cuda": tuple(f"{s}, {c}" for s, c in product(sources, CONTRACTIONS))},
            status="equivalent: one teaching kernel with switches; copies of a few elements",
        ),
        series(
            f"roofline of {equation}, {elements}",
            block=_copies,
            strategies={"cuda": tuple(COPY + source for source in sources)},
            status="equivalent: copying the bytes of Tables 3 and 4, by which Figs 7 and 8 are mostly bound (Sec. 5.2)",
        ),
    ]


def _of(*sources: str, contractions: Sequence[str] = CONTRACTIONS) -> tuple[str, ...]:
    return tuple(f"{source}, {contraction}" for source, contraction in product(sources, contractions))


_statement = partial(Statement, backend="cuda", by=("equation", "d"))
AGAIN = ("trilinear", "merged", "partial")
# What stands for the paper's original kernel: ours with its contraction, or with all that we add.
BASELINES = {"our plain kernel": CONTRACTIONS[:1], "the fastest of ours": CONTRACTIONS}

experiment(
    "cao-variants",
    "Cao",
    "axhelm at N = 7: five sources of factors, four ways of contraction",
    "Figs 7, 9 (A100: with tensor cores)",
    "Sec. 5.1: N = 7, 2^16 to 2^20 elements, the best of these sizes, in GFLOP/s of Table 3 (recalculation not"
    " counted). Ours: one kernel with switches (variants/axhelm/axhelm.h), 2^16 elements, median of 9; each way of"
    " contraction adds to those before it, as in Sec. 5.3. Stored factors are of the same trilinear elements.",
    tuple(series for equation, geometry in SOURCES for series in _series(equation, geometry)),
    statements=(
        *(
            _statement(
                f"stored factors reach 85 % to 100 % of their roofline: {what}",
                "Sec. 5.3, of the original kernels",
                above={"strategy": _of("stored", contractions=contractions)},
                below={"strategy": COPY + "stored"},
                low=0.85,
            )
            for what, contractions in BASELINES.items()
        ),
        *(
            _statement(
                f"{now} after {before} gains on parallelepipeds",
                "Sec. 5.3, Fig. 9",
                above={"strategy": _of("parallelepiped", contractions=(now,))},
                below={"strategy": _of("parallelepiped", contractions=(before,))},
                low=1.0,
            )
            for before, now in pairwise(CONTRACTIONS)
        ),
        _statement(
            "... and ends at 92.9 % to 99.8 % of the roofline",
            "Sec. 5.3",
            above={"strategy": _of("parallelepiped")},
            below={"strategy": COPY + "parallelepiped"},
            low=0.929,
        ),
        *(
            _statement(
                f"optimised kernels of trilinear elements are 1.74 to 4.10 times as fast as the original: {what}",
                "abstract (A100, all equations and both kinds of elements)",
                above={"strategy": _of(*AGAIN)},
                below={"strategy": _of("stored", contractions=contractions)},
                low=1.74,
                high=4.10,
                over="its original kernel of stored factors, without the ways of contraction of Sec. 5.3",
            )
            for what, contractions in BASELINES.items()
        ),
        _statement(
            "with merged or partial factors they come close to their roofline (we take 85 %, as the abstract)",
            "Sec. 5.4",
            above={"strategy": _of("merged", "partial")},
            below={"strategy": (COPY + "merged", COPY + "partial")},
            low=0.85,
        ),
        _statement(
            "merged scale factors gain on all cases of Helmholtz",
            "Sec. 5.4",
            above={"strategy": _of("merged")},
            below={"strategy": _of("trilinear")},
            low=1.0,
        ),
        _statement(
            "partial recalculation gains on all cases of Poisson, on the A100",
            "Sec. 5.4",
            above={"strategy": _of("partial")},
            below={"strategy": _of("trilinear")},
            low=1.0,
        ),
    ),
    not_possible={
        "rooflines by the time of computation (eq. 19)": "it binds the A100 in one case alone (Sec. 5.2)",
        "DCU K100 (Figs 8, 10)": "its numbers are in the figures alone",
    },
)
