"""Private layouts of geometric factors for the CUDA kernels: made once, so that every load is coalesced."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...geometry import symmetric_pairs
from ..form import BlockProblem
from .tables import Levels
from .variant import FiberPlan


def kernel_order(factors: NDArray[Any], problem: BlockProblem, levels: Levels, kind: str) -> NDArray[Any]:
    """Factors with the kernel's order of directions.

    Parameters
    ----------
    factors : ndarray, [groups, factors, Q or 1, lanes]
        Of `BlockGeometry.factors`.
    problem : BlockProblem
    levels : Levels
        Of the kernel.
    kind : str
        Of the factors.

    Returns
    -------
    ndarray, [groups, factors, Q or 1, lanes]
    """
    if not levels.reverse:
        return factors
    d, space = problem.shape.dim, problem.geometry.space_dim
    rows = list(range(factors.shape[1]))
    if kind == "metric":
        number = {pair: n for n, pair in enumerate(symmetric_pairs(d))}
        rows = [number[d - 1 - b, d - 1 - a] for a, b in symmetric_pairs(d)] + rows[-1:]
    elif kind == "jacobian":
        rows = [(d - 1 - a) * space + x for a in range(d) for x in range(space)] + rows[-1:]
    factors = factors[:, rows]
    if factors.shape[2] == 1:
        return np.ascontiguousarray(factors)
    return np.ascontiguousarray(levels.points(factors, 2)).reshape(factors.shape)


def line_layout(factors: NDArray[np.floating[Any]], counts: tuple[int, ...], padded: int) -> NDArray[np.floating[Any]]:
    """Factors as the fiber kernel reads them.

    Parameters
    ----------
    factors : ndarray, [groups, factors, Q, E]
        In the kernel's order (`kernel_order`), E elements to a group.
    counts : tuple of int
        Q1, Q2, Q3.
    padded : int
        Lines of a block, with padding.

    Returns
    -------
    ndarray, [groups, Q1, factors, padded]
        Line (j Q3 + k) E + e.
    """
    groups, n = factors.shape[:2]
    lines = factors[0, 0].size // counts[0]
    out = np.zeros((groups, counts[0], n, padded), factors.dtype)
    out[..., :lines] = factors.reshape(groups, n, counts[0], lines).transpose(0, 2, 1, 3)
    return out


def fiber_factors(problem: BlockProblem, levels: Levels, plan: FiberPlan) -> NDArray[np.floating[Any]] | None:
    """Geometric factors of a problem in the layout of the fiber kernel, on the host; None where it needs none."""
    kind = problem.form.factor_kind
    if kind is None:
        return None
    if problem.geometry.affine:
        return kernel_order(problem.geometry.factors(kind, 1, problem.dtype), problem, levels, kind)
    stored = problem.geometry.factors(kind, plan.variant.elements, problem.dtype)
    stored = kernel_order(stored, problem, levels, kind)
    return line_layout(stored, levels.counts, plan.lines_padded)


def fiber_points(problem: BlockProblem, levels: Levels, plan: FiberPlan) -> NDArray[np.floating[Any]] | None:
    """Coordinates of the points in the layout of the fiber kernel, on the host; None where they are not used."""
    trace = problem.form.trace
    if trace is None or not any(key[0] == "x" for key in trace.inputs):
        return None
    stored = problem.geometry.factors("points", plan.variant.elements, problem.dtype)
    stored = kernel_order(stored, problem, levels, "points")
    return line_layout(stored, levels.counts, plan.lines_padded)
