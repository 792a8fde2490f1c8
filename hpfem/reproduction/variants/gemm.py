"""The stiffness of hexes as six small matrix products beside the classical sum over points ([Roget]), on a CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import NotSuitable
from ...forms.cost import operator_flops
from ...forms.form import BlockKernel, BlockProblem
from ...geometry.block_geometry import symmetric_pairs
from ...operators import Laplacian
from ..blocks import Elements, VariantElements
from ..cases import grid
from ..experiment import EXPERIMENTS, Experiment, Series, Statement

# Elements whose arrays are in cache at a time.
CHUNK = 32
DIRECTIONS = range(3)
Array = NDArray[np.floating[Any]]


class PointStiffness(BlockKernel):
    """Stiffness of curved nodal hexes; what contracts along a direction is what the variants differ in.

    Parameters
    ----------
    problem : BlockProblem
    name : str

    Raises
    ------
    NotSuitable
        Unless the points are the nodes and factors are stored at them.
    """

    def __init__(self, problem: BlockProblem, name: str) -> None:
        if not problem.nodal or problem.geometry.affine:
            raise NotSuitable("the points are to be the nodes, and the elements curved")
        self.problem, self.strategy, self.flops = problem, name, operator_flops(problem, "sumfac")
        self._factors = problem.geometry.factors("metric", 1, problem.dtype)[..., 0]
        self._D = [np.ascontiguousarray(D, problem.dtype) for D in problem.tabulation.differentiation]
        self._pairs = symmetric_pairs(3)
        self.n = len(self._D[0])

    def along(self, direction: int, matrix: Array, u: Array) -> Array:
        """Multiply by a matrix along a direction.

        Parameters
        ----------
        direction : int
        matrix : ndarray, [n, n]
        u : ndarray, [elements, n, n, n]

        Returns
        -------
        ndarray, as u

        Raises
        ------
        AssertionError
            If a variant does not override this.
        """
        raise AssertionError("a variant overrides along")

    def apply(self, source: Array, out: Array) -> None:
        """Apply to one block of a field; see `BlockKernel.apply`."""
        for given, result in zip(source, out, strict=True):
            for first in range(0, len(given), CHUNK):
                u = given[first : first + CHUNK]
                result[first : first + CHUNK] = self._stiffness(u, self._factors[first : first + CHUNK])

    def _stiffness(self, u: Array, factors: Array) -> Array:
        cube = (len(u), self.n, self.n, self.n)
        slopes = [self.along(a, self._D[a], u.reshape(cube)).reshape(u.shape) for a in DIRECTIONS]
        total = np.zeros_like(u)
        for a in DIRECTIONS:
            flux = sum(factors[:, self._pairs.index((min(a, b), max(a, b)))] * slopes[b] for b in DIRECTIONS)
            total += self.along(a, self._D[a].T, np.asarray(flux).reshape(cube)).reshape(u.shape)
        return total


class ClassicalSum(PointStiffness):
    """The sum over the nodes of each line, without a library of matrix products."""

    def along(self, direction: int, matrix: Array, u: Array) -> Array:
        """Multiply by a matrix along a direction, in nested loops; see `PointStiffness.along`."""
        subscripts = ("pi,eijk->epjk", "pj,eijk->eipk", "pk,eijk->eijp")[direction]
        return np.asarray(np.einsum(subscripts, matrix, u, optimize=False))


class SixProducts(PointStiffness):
    """For each element the directional matrix [n, n^2], a product with D, and back."""

    def along(self, direction: int, matrix: Array, u: Array) -> Array:
        """Multiply by a matrix along a direction, an element at a time; see `PointStiffness.along`."""
        turned = np.ascontiguousarray(np.moveaxis(u, 1 + direction, 1))
        made = (matrix @ turned.reshape(len(u), self.n, -1)).reshape(turned.shape)
        return np.moveaxis(made, 1, 1 + direction)


class BatchedProducts(PointStiffness):
    """One product [n, n] x [n, n^2 E] for many elements: the first of the slides' next steps."""

    def along(self, direction: int, matrix: Array, u: Array) -> Array:
        """Multiply by a matrix along a direction, all elements at once; see `PointStiffness.along`."""
        turned = np.ascontiguousarray(np.moveaxis(u, 1 + direction, 0))
        made = (matrix @ turned.reshape(self.n, -1)).reshape(turned.shape)
        return np.moveaxis(made, 0, 1 + direction)


VARIANTS: Mapping[str, type[PointStiffness]] = {
    "classical": ClassicalSum,
    "gemm": SixProducts,
    "gemm-batched": BatchedProducts,
}


def _cases(backend: str, quick: bool) -> Sequence[Mapping[str, Any]]:
    return grid(
        benchmark=("stiffness",),
        shape=("hex",),
        geometry=("deformed",),
        order=(3,) if quick else tuple(range(1, 8)),
    )


def _what(case: Mapping[str, Any], backend: str) -> tuple[Any, ...]:
    n = int(1e5) // (case["order"] + 1) ** 3
    return Laplacian, case["shape"], case["order"], case["geometry"], backend, (n,)


NODAL: dict[str, Any] = {"basis": "lagrange", "quadrature": "collocated"}


def _variant(name: str, case: Mapping[str, Any], backend: str) -> VariantElements:
    build = partial(VARIANTS[name], name=name)
    return VariantElements(name, build, *_what(case, backend), **NODAL)


def _ours(case: Mapping[str, Any], backend: str) -> Elements:
    return Elements(*_what(case, backend), **NODAL)


_series = partial(Series, unit="GDoF/s", cases=_cases, backends=("cpu",))

EXPERIMENTS.add(
    "roget-gemm",
    Experiment(
        "roget-gemm",
        "Roget",
        "The stiffness as six small matrix products, beside the classical sum",
        "slides 'Stiffness Operator Computation', 'Performance Impact of the GEMM-Based Reformulation'",
        "The slides give no numbers (their figures are pictures) and no sizes; n = 2..8 points a direction, on GPUs."
        " Ours: 1e5 degrees of freedom on a CPU, curved hexes, BLAS's products and NumPy's loops, beside our kernel.",
        (
            *(
                _series(
                    name,
                    block=partial(_variant, name),
                    status="other protocol: NumPy and BLAS on a CPU, sizes are ours",
                )
                for name in VARIANTS
            ),
            _series("ours", block=_ours, status="other protocol: sizes are ours"),
        ),
        statements=(
            *(
                Statement(
                    f"products are faster than the sum ({name})",
                    "slide 'Conclusion' (of GPUs)",
                    "cpu",
                    {"strategy": name},
                    {"strategy": "classical"},
                    1.0,
                    by=("order",),
                )
                for name in ("gemm", "gemm-batched")
            ),
            Statement(
                "batches of elements gain further",
                "slides 'Next Steps', 'Conclusion' (expected)",
                "cpu",
                {"strategy": "gemm-batched"},
                {"strategy": "gemm"},
                1.0,
                by=("order",),
            ),
            Statement(
                "(ours) compiled sum factorisation over the fastest of these",
                "not in the paper",
                "cpu",
                {"series": "ours"},
                {"series": tuple(VARIANTS)},
                1.0,
                by=("order",),
            ),
        ),
        not_possible={
            "on a GPU: an element a thread or a team (Methods 1, 2), cuBLAS": "these kernels are not written yet"
        },
    ),
)
