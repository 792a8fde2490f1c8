"""Private layouts of geometric factors for the CUDA kernels: made once, so that every load is coalesced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....forms.form import BlockProblem
from .tables import Levels


def lines_padded(levels: Levels, elements: int) -> int:
    """Lines of a group of elements in the layout of stored factors, with padding.

    Parameters
    ----------
    levels : Levels
        Of the kernel.
    elements : int
        Of a group.

    Returns
    -------
    int
        Only Q2 Q3 E of them are used.
    """
    return -(-levels.counts[1] * levels.counts[2] * elements // 4) * 4


def line_view(lines: Any, levels: Levels, elements: int) -> Any:
    """Stored factors, element by element and point by point.

    Parameters
    ----------
    lines : array, [groups, Q1, factors, padded]
        Line (j Q3 + k) E + e, with padding behind the last.
    levels : Levels
        Of the kernel.
    elements : int
        E.

    Returns
    -------
    array, [groups, factors, *points, E]
        A view; points of the rule, the first direction slowest, in three axes.
    """
    q2, q3 = levels.counts[1:]
    split = lines[..., : q2 * q3 * elements].reshape(*lines.shape[:3], q2, q3, elements)
    order = [1, 3, 4]  # axes of the kernel's directions
    if levels.reverse:
        order[: levels.dim] = order[: levels.dim][::-1]
    return split.transpose(0, 2, *order, 5)


def stored_factors(
    problem: BlockProblem,
    levels: Levels,
    elements: int,
    kind: str,
    xp: Any = np,
    empty: Callable[..., Any] = np.empty,
    size: int | None = None,
) -> Any:
    """Geometric factors in the kernels' layout.

    Parameters
    ----------
    problem : BlockProblem
    levels : Levels
        Of the problem's tabulation.
    elements : int
        Elements of a group, whose factors are side by side.
    kind : str
        See `hpfem.geometry.block_geometry`.
    xp, size
        Where they are made, and how many at a time; see `BlockGeometry.write_factors`.
    empty : callable
        (shape, dtype) -> an uninitialised array of xp.

    Returns
    -------
    array of xp, [groups, Q1, factors, padded]
        Affine ones: [elements, factors, 1, 1]. Maps: [groups, factors, 1, elements of a group].
    """
    geometry, dtype = problem.geometry, problem.stored_dtype(kind)
    n, groups = geometry.n_factors(kind), -(-geometry.n_elements // elements)
    if kind == "map":
        view = out = empty((groups, n, 1, elements), dtype)
    elif geometry.n_points(kind) == 1:
        view = out = empty((geometry.n_elements, n, 1, 1), dtype)
    else:
        out = empty((groups, levels.counts[0], n, lines_padded(levels, elements)), dtype)
        out[..., levels.counts[1] * levels.counts[2] * elements :] = 0
        view = line_view(out, levels, elements)
    geometry.write_factors(kind, view, xp, size)
    return out


def stored_kinds(problem: BlockProblem) -> tuple[str | None, str | None]:
    """Kinds of arrays that a problem's kernel reads beside the field.

    Parameters
    ----------
    problem : BlockProblem

    Returns
    -------
    factors : str or None
        Their kind.
    points : str or None
        "points" if it reads coordinates.
    """
    trace = problem.form.trace
    return problem.read_factors, "points" if trace is not None and trace.uses_point else None
