"""StdMat over groups of elements as wide as a register ([Xing] Alg. 2), on a CPU: small batched products."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpfem.benchmarks.cases import SOLID_FIRST, SOLID_SHAPES
from hpfem.benchmarks.problems import BENCHMARKS
from hpfem.errors import NotSuitable
from hpfem.forms.cost import operator_flops
from hpfem.forms.form import BlockKernel, BlockProblem
from hpfem.geometry.jacobians import symmetric_pairs
from hpfem.operators import Operator

from ..blocks import Sized, VariantElements
from ..cases import grid
from ..experiment import EXPERIMENTS, Experiment, Series, Statement

# Elements of a group: lanes of AVX-512 in float64. Groups whose arrays are in cache at a time.
WIDTH, GROUPS = 8, 16
NAME = "stdmat-grouped"
Array = NDArray[np.floating[Any]]


class GroupedMatrices(BlockKernel):
    """Mass, or Helmholtz with lam = 1, of curved elements by dense matrices, a small product for each group.

    Parameters
    ----------
    problem : BlockProblem

    Raises
    ------
    NotSuitable
        If the elements are affine, whose factors are not stored at the points.
    """

    strategy = NAME

    def __init__(self, problem: BlockProblem) -> None:
        if problem.geometry.affine:
            raise NotSuitable("groups take geometric factors at the points: curved elements only")
        form, tabulation = problem.form, problem.tabulation
        self.problem, self.flops = problem, operator_flops(problem, "stdmat")
        assert form.factor_kind is not None
        self._factors = problem.geometry.factors(form.factor_kind, WIDTH, problem.dtype)
        self._test = tabulation.dense.astype(problem.dtype)
        self._trial = np.ascontiguousarray(self._test.T)
        self._derivatives = list(tabulation.dense_gradient.astype(problem.dtype)) if form.gradients else []
        self._pairs = symmetric_pairs(len(self._derivatives))

    def apply(self, source: Array, out: Array) -> None:
        """Apply to one block of a field; see `BlockKernel.apply`."""
        n, modes = self.problem.n_elements, self.problem.n_modes
        for given, result in zip(source, out, strict=True):
            for first in range(0, n, WIDTH * GROUPS):
                chunk = given[first : first + WIDTH * GROUPS]
                groups = -(-len(chunk) // WIDTH)
                padded = np.zeros((groups * WIDTH, modes), given.dtype)
                padded[: len(chunk)] = chunk
                # Interleave: [group, mode, element of the group].
                u = np.ascontiguousarray(padded.reshape(groups, WIDTH, modes).transpose(0, 2, 1))
                start = first // WIDTH
                v = self._apply(u, self._factors[start : start + groups])
                result[first : first + len(chunk)] = v.transpose(0, 2, 1).reshape(-1, modes)[: len(chunk)]

    def _apply(self, u: Array, factors: Array) -> Array:
        """[Xing] Alg. 5, or the mass alone."""
        found = self._test @ (factors[:, -1] * (self._trial @ u))
        slopes = [table.T @ u for table in self._derivatives]
        for a, table in enumerate(self._derivatives):
            flux = sum(factors[:, self._pairs.index((min(a, b), max(a, b)))] * slope for b, slope in enumerate(slopes))
            found += table @ flux
        return found


def _cases(backend: str, quick: bool) -> Sequence[Mapping[str, Any]]:
    return grid(
        benchmark=("bk1",) if quick else ("bk1", "bk3"),
        shape=SOLID_SHAPES[-1:] if quick else SOLID_FIRST,
        order=(2,) if quick else tuple(range(1, 8)),
        geometry=("deformed",),
    )


def _what(case: Mapping[str, Any], backend: str) -> tuple[Callable[..., Operator], str, int, str, str]:
    return BENCHMARKS[case["benchmark"]], case["shape"], case["order"], case["geometry"], backend


def _grouped(case: Mapping[str, Any], backend: str) -> VariantElements:
    block = VariantElements(NAME, GroupedMatrices, *_what(case, backend), ())
    block.counts = _whole(case, backend).counts
    return block


def _whole(case: Mapping[str, Any], backend: str) -> Sized:
    return Sized(*_what(case, backend), (1e4, 1e5))


_series = partial(Series, unit="GDoF/s", cases=_cases, backends=("cpu",), repeats=5)

EXPERIMENTS.add(
    "xing-grouped",
    Experiment(
        "xing-grouped",
        "Xing",
        "StdMat over groups of 8 elements (Alg. 2) beside all elements at once (Alg. 1) and sum factorisation",
        "Alg. 2, Figs 5b, 6b",
        "Sec. 3.3.1: interleave a group, one small product for it, and back; the group is as wide as a register, the"
        " products are LIBXSMM's there and BLAS's in NumPy here. 1e4 and 1e5 degrees of freedom, deformed elements.",
        (
            _series(NAME, block=_grouped, status="other protocol: batched small products of NumPy, not LIBXSMM"),
            _series(
                "others",
                block=_whole,
                status="equivalent: copies of a few elements",
                strategies={"cpu": ("stdmat", "sumfac")},
                algorithms=("auto",),
            ),
        ),
        statements=tuple(
            Statement(
                f"groups are faster on CPUs than one product for many elements ({name})",
                "Sec. 3.3.1",
                "cpu",
                {"strategy": NAME, "benchmark": benchmark},
                {"strategy": "stdmat", "benchmark": benchmark},
                1.0,
            )
            for benchmark, name in (("bk1", "mass"), ("bk3", "Helmholtz"))
        ),
    ),
)
