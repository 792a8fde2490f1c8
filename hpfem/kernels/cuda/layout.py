"""Private layouts of geometric factors for the CUDA kernels: made once, so that every load is coalesced."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..form import BlockProblem
from .tables import Levels
from .variant import FiberPlan


def line_layout(factors: NDArray[np.floating[Any]], counts: tuple[int, ...], padded: int) -> NDArray[np.floating[Any]]:
    """Factors as the fiber kernel reads them.

    Parameters
    ----------
    factors : ndarray, [groups, factors, Q, E]
        Of `BlockGeometry.factors` with E lanes.
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
        return problem.geometry.factors(kind, 1, problem.dtype)
    stored = problem.geometry.factors(kind, plan.variant.elements, problem.dtype)
    return line_layout(stored, levels.counts, plan.lines_padded)


def fiber_points(problem: BlockProblem, levels: Levels, plan: FiberPlan) -> NDArray[np.floating[Any]] | None:
    """Coordinates of the points in the layout of the fiber kernel, on the host; None where they are not used."""
    trace = problem.form.trace
    if trace is None or not any(key[0] == "x" for key in trace.inputs):
        return None
    stored = problem.geometry.factors("points", plan.variant.elements, problem.dtype)
    return line_layout(stored, levels.counts, plan.lines_padded)
