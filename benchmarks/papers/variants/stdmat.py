"""StdMat compiled, over groups of elements as wide as a register ([Xing] Alg. 2), beside sum factorisation on a CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpfem.backends.cpu.runtime.kernel import CpuKernel
from hpfem.benchmarks.cases import SOLID_FIRST, SOLID_SHAPES
from hpfem.benchmarks.problems import BENCHMARKS
from hpfem.errors import NotSuitable
from hpfem.forms.form import BlockProblem
from hpfem.shapes import Tabulation
from hpfem.shapes.quadrature import TensorRule

from ..blocks import InTurns
from ..cases import grid
from ..experiment import Series, Statement, experiment
from ..experiments.xing import ALGORITHMS, SIZE, TURNS

NAME = "stdmat-compiled"
STDMAT = ("stdmat", NAME)
STRATEGIES = (*STDMAT, "sumfac")


class AllPoints(TensorRule):
    """The points of a rule without their directions, in the order in which compiled kernels read geometric factors."""

    tensor = False

    def __reduce__(self) -> tuple[Any, ...]:
        return AllPoints, (self.rules,)

    @property
    def eta(self) -> NDArray[np.float64]:
        """Points in collapsed coordinates, the first direction fastest; [Q, dim]."""
        dim = len(self.rules)
        in_order = TensorRule(self.rules).eta.reshape(*self.counts, dim)
        return np.moveaxis(in_order, 0, -2).reshape(-1, dim)


def compiled(problem: BlockProblem) -> CpuKernel:
    """Build the product's kernel for rules without directions, for a rule that has them, on curved elements."""
    if problem.geometry.affine:
        raise NotSuitable("StdMat is compiled for geometric factors at the points: curved elements only")
    basis, rule = problem.tabulation.basis, problem.tabulation.rule
    assert isinstance(rule, TensorRule)
    tabulation = Tabulation(basis, AllPoints(rule.rules))
    return CpuKernel(replace(problem, tabulation=tabulation, algorithm="noncollocated"), "fused")


def _cases(backend: str, quick: bool) -> Sequence[Mapping[str, Any]]:
    return grid(
        benchmark=("bk3",) if quick else ("bk1", "bk3"),
        shape=SOLID_SHAPES[-1:] if quick else SOLID_FIRST,
        order=(2,) if quick else tuple(range(1, 8)),
        geometry=("deformed",),
    )


def _block(case: Mapping[str, Any], backend: str) -> InTurns:
    what = BENCHMARKS[case["benchmark"]], case["shape"], case["order"], case["geometry"], backend, (SIZE,)
    return InTurns(STRATEGIES, ALGORITHMS, {NAME: compiled}, *what)


def _said(
    says: str, benchmark: str, above: Mapping[str, Any], below: Any, low: float = 1.0, source: str = "Sec. 4.2"
) -> Statement:
    both = {"benchmark": benchmark, "geometry": "deformed"}
    return Statement(says, source, "cpu", {**both, **above}, {**both, "strategy": below}, low)


experiment(
    "xing-stdmat",
    "Xing",
    "StdMat beside SumFac, both compiled",
    "Alg. 1, 2, Figs 5b, 6b",
    "Sec. 4 on CPUs. StdMat is measured as products of BLAS for many elements (stdmat, Alg. 1), and as compiled"
    " products for 8 elements, a register, that stay in the cache (stdmat-compiled; Alg. 2, whose products are"
    f" LIBXSMM's); the faster counts. {TURNS}",
    (
        Series(
            "in turns",
            "GDoF/s",
            _cases,
            _block,
            "equivalent: copies of a few elements, deformed ones of geometry order 2",
            backends=("cpu",),
            strategies={"cpu": STRATEGIES},
            algorithms=ALGORITHMS,
        ),
    ),
    statements=(
        _said(
            "mass: StdMat is better at low order (we take P <= 3) on all shapes",
            "bk1",
            {"strategy": STDMAT, "order": (1, 2, 3), "shape": SOLID_SHAPES},
            "sumfac",
        ),
        _said(
            "mass: SumFac is better for P > 3 (tets apart)",
            "bk1",
            {"strategy": "sumfac", "order": (4, 5, 6, 7), "shape": ("hex", "prism", "pyramid")},
            STDMAT,
        ),
        _said(
            "mass: StdMat stays competitive on tets at every order (we take 0.8 of SumFac and more)",
            "bk1",
            {"strategy": STDMAT, "shape": "tet"},
            "sumfac",
            0.8,
        ),
        _said(
            "Helmholtz: SumFac is markedly superior to StdMat for almost all orders and shapes",
            "bk3",
            {"strategy": "sumfac", "shape": SOLID_SHAPES},
            STDMAT,
        ),
        *(
            _said(
                f"{name}: groups of elements are faster on CPUs than one product for many",
                benchmark,
                {"strategy": NAME},
                "stdmat",
                source="Sec. 3.3.1",
            )
            for benchmark, name in (("bk1", "mass"), ("bk3", "Helmholtz"))
        ),
    ),
)
