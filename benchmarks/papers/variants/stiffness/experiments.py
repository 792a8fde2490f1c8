"""The stiffness of hexes as six small matrix products beside the classical sum over points ([Roget])."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from hpfem.backends.base import BACKENDS, vectors_on
from hpfem.backends.vectors import VectorSpace
from hpfem.errors import NotSuitable
from hpfem.forms.cost import operator_flops
from hpfem.forms.form import BlockKernel, BlockProblem
from hpfem.geometry.jacobians import symmetric_pairs
from hpfem.memory import HOST
from hpfem.operators import Laplacian

from ...blocks import Elements, VariantElements
from ...cases import grid
from ...experiment import Series, Statement, experiment
from ..gpu import WARP, LaunchedElements, LaunchedKernel, filled

# Elements whose arrays are in a CPU's cache at a time; threads of a block where each has an element.
CHUNK, THREADS = 32, 128
DIRECTIONS = range(3)


def _stored(problem: BlockProblem, memory: VectorSpace, stride: int = 1) -> tuple[Any, Any]:
    """Factors at the points, [groups, 7, points, stride], and D."""
    if problem.shape.dim != 3 or not problem.nodal or problem.geometry.affine:
        raise NotSuitable("the points are to be the nodes of hexes, and the elements curved")
    factors = problem.geometry.factors("metric", stride, problem.dtype)
    D = np.ascontiguousarray(problem.tabulation.differentiation[0], problem.dtype)
    return memory.from_host(factors), memory.from_host(D)


class PointStiffness(BlockKernel):
    """Stiffness of curved nodal hexes; what contracts along a direction is what the variants differ in."""

    def __init__(self, problem: BlockProblem, name: str, memory: VectorSpace) -> None:
        self.factors, D = _stored(problem, memory)
        self.problem, self.strategy, self.flops = problem, name, operator_flops(problem, "sumfac")
        self.n, self.xp = len(D), memory.xp
        self._matrices = (D, self.xp.ascontiguousarray(D.T))
        self._pairs = symmetric_pairs(3)
        self._chunk = CHUNK if memory.device.name == HOST.name else None

    def along(self, direction: int, matrix: Any, u: Any) -> Any:
        """Multiply by a matrix along a direction; matrix [n, n], u [elements, n, n, n]."""
        raise AssertionError("a variant overrides along")

    def apply(self, source: Any, out: Any) -> None:
        """Apply to one block of a field; see `BlockKernel.apply`."""
        for given, result in zip(source, out, strict=True):
            step = self._chunk or len(given)
            for first in range(0, len(given), step):
                u = given[first : first + step]
                result[first : first + step] = self._stiffness(u, self.factors[first : first + step])

    def _stiffness(self, u: Any, factors: Any) -> Any:
        cube, (D, transposed) = (len(u), self.n, self.n, self.n), self._matrices
        slopes = [self.along(a, D, u.reshape(cube)).reshape(u.shape) for a in DIRECTIONS]
        total = self.xp.zeros_like(u)
        for a in DIRECTIONS:
            flux = sum(factors[:, self._pairs.index((min(a, b), max(a, b))), :, 0] * slopes[b] for b in DIRECTIONS)
            total += self.along(a, transposed, flux.reshape(cube)).reshape(u.shape)
        return total


class ClassicalSum(PointStiffness):
    """The sum over the nodes of each line, without a library of matrix products."""

    def along(self, direction: int, matrix: Any, u: Any) -> Any:
        """Multiply by a matrix along a direction, in nested loops; see `PointStiffness.along`."""
        subscripts = ("pi,eijk->epjk", "pj,eijk->eipk", "pk,eijk->eijp")[direction]
        return np.asarray(np.einsum(subscripts, matrix, u, optimize=False))


class SixProducts(PointStiffness):
    """For each element the directional matrix [n, n^2], a product with D, and back."""

    def along(self, direction: int, matrix: Any, u: Any) -> Any:
        """Multiply by a matrix along a direction, an element at a time; see `PointStiffness.along`."""
        turned = self.xp.ascontiguousarray(self.xp.moveaxis(u, 1 + direction, 1))
        made = (matrix @ turned.reshape(len(u), self.n, -1)).reshape(turned.shape)
        return self.xp.moveaxis(made, 1, 1 + direction)


class BatchedProducts(PointStiffness):
    """One product [n, n] x [n, n^2 E] for many elements: the first of the slides' next steps."""

    def along(self, direction: int, matrix: Any, u: Any) -> Any:
        """Multiply by a matrix along a direction, all elements at once; see `PointStiffness.along`."""
        turned = self.xp.ascontiguousarray(self.xp.moveaxis(u, 1 + direction, 0))
        made = (matrix @ turned.reshape(self.n, -1)).reshape(turned.shape)
        return self.xp.moveaxis(made, 0, 1 + direction)


VARIANTS: Mapping[str, type[PointStiffness]] = {
    "classical": ClassicalSum,
    "gemm": SixProducts,
    "gemm-batched": BatchedProducts,
}
# Kernels of the GPU: whether by products, and whether a team takes an element.
LAUNCHED: Mapping[str, tuple[bool, bool]] = {
    "classical, a thread": (False, False),
    "classical, a team": (False, True),
    "products, a thread": (True, False),
    "products, a team": (True, True),
}


class StiffnessKernel(LaunchedKernel):
    """A kernel of stiffness.h, by its name in `LAUNCHED`."""

    def __init__(self, problem: BlockProblem, name: str) -> None:
        _, team = LAUNCHED[name]
        n = problem.tabulation.rule.counts[0]
        threads, stride = block(team, n)
        what = 1 if team else threads, threads, 8 * (n**2 + team * 4 * n**3), stride
        super().__init__(problem, name, source(name, n), "stiffness", *what)
        self.factors, self._D = _stored(problem, self.memory, stride)

    def arguments(self, given: Any, out: Any, n_elements: int) -> tuple[Any, ...]:
        """Elements, field, factors, D, result; see `LaunchedKernel.arguments`."""
        return np.int64(n_elements), given, self.factors, self._D, out


def block(team: bool, points: int) -> tuple[int, int]:
    """Threads of a block, and elements that are interleaved."""
    return (-(-points * points // WARP) * WARP, 1) if team else (THREADS, WARP)


def source(name: str, points: int) -> str:
    """Source of a kernel."""
    products, team = LAUNCHED[name]
    threads, stride = block(team, points)
    return filled("stiffness/stiffness.h", N=points, PRODUCTS=products, TEAM=team, THREADS=threads, STRIDE=stride)


# Degrees of freedom.
DOFS = {"cpu": 1e5, "cuda": 1e7}


def _cases(backend: str, quick: bool) -> Sequence[Mapping[str, Any]]:
    return grid(
        benchmark=("stiffness",),
        shape=("hex",),
        geometry=("deformed",),
        order=(3,) if quick else tuple(range(1, 8)),
    )


def _what(case: Mapping[str, Any], backend: str) -> tuple[Any, ...]:
    n = int(DOFS["cpu" if backend == "cpu" else "cuda"]) // (case["order"] + 1) ** 3
    return Laplacian, case["shape"], case["order"], case["geometry"], backend, (n,)


NODAL: dict[str, Any] = {"basis": "lagrange", "quadrature": "collocated"}


def _variant(name: str, case: Mapping[str, Any], backend: str) -> VariantElements:
    def build(problem: BlockProblem) -> BlockKernel:
        return VARIANTS[name](problem, name, vectors_on(BACKENDS[backend].device()))

    return VariantElements(name, build, *_what(case, backend), **NODAL)


def _launched(case: Mapping[str, Any], backend: str) -> LaunchedElements:
    return LaunchedElements(StiffnessKernel, "collocated", *_what(case, backend), **NODAL)


def _ours(case: Mapping[str, Any], backend: str) -> Elements:
    return Elements(*_what(case, backend), **NODAL)


_series = partial(Series, unit="GDoF/s", cases=_cases, status="other protocol: sizes are ours")
_statement = partial(Statement, by=("order",), low=1.0)

experiment(
    "roget-gemm",
    "Roget",
    "The stiffness as six small matrix products, beside the classical sum",
    "slides 'Stiffness Operator Computation', 'Performance Impact of the GEMM-Based Reformulation'",
    "The slides give no numbers (their figures are pictures) and no sizes; n = 2..8 points a direction, on GPUs."
    " Ours: curved hexes; on a CPU 1e5 degrees of freedom, BLAS's products and NumPy's loops; on a GPU 1e7, one"
    " kernel with switches (variants/stiffness/stiffness.h; 32 elements interleaved where a thread has one), and"
    " cuBLAS: gemm is a batch of small products, gemm-batched one product for all elements, with transposed copies"
    " between them.",
    (
        *(
            _series(name, block=partial(_variant, name), backends=("cpu",) if name == "classical" else ("cuda", "cpu"))
            for name in VARIANTS
        ),
        _series("kernels", block=_launched, backends=("cuda",), strategies={"cuda": tuple(LAUNCHED)}),
        _series("ours", block=_ours),
    ),
    statements=(
        *(
            _statement(
                f"products are faster than the sum ({which})",
                "slide 'Conclusion'",
                "cuda",
                {"strategy": f"products, {which}"},
                {"strategy": f"classical, {which}"},
            )
            for which in ("a thread", "a team")
        ),
        _statement(
            "batches of elements gain further",
            "slides 'Next Steps', 'Conclusion' (expected)",
            "cuda",
            {"strategy": ("gemm", "gemm-batched")},
            {"strategy": ("products, a thread", "products, a team")},
        ),
        *(
            _statement(
                f"products are faster than the sum ({name})",
                "slide 'Conclusion' (of GPUs)",
                "cpu",
                {"strategy": name},
                {"strategy": "classical"},
            )
            for name in ("gemm", "gemm-batched")
        ),
        _statement(
            "batches of elements gain further",
            "slides 'Next Steps', 'Conclusion' (expected)",
            "cpu",
            {"strategy": "gemm-batched"},
            {"strategy": "gemm"},
        ),
        *(
            _statement(
                "(ours) compiled sum factorisation over the fastest of these",
                "not in the paper",
                backend,
                {"series": "ours"},
                {"series": (*VARIANTS, "kernels")},
            )
            for backend in ("cuda", "cpu")
        ),
    ),
    not_possible={"WMMA (slides 'Next Steps')": "the slides have no such kernel; see cao-variants"},
)
