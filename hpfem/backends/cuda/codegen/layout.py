"""Private layouts of geometric factors for the CUDA kernels: made once, so that every load is coalesced."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ....forms.form import BlockProblem
from .tables import Levels


def lines_padded(levels: Levels, elements: int) -> int:
    """Lines of a group of elements in the layout of stored factors, with padding."""
    return -(-levels.counts[1] * levels.counts[2] * elements // 4) * 4


def numbers_read(problem: BlockProblem) -> int:
    """Count the numbers of geometric factors that a kernel reads at every point."""
    kind, geometry = problem.read_factors, problem.geometry
    return 0 if kind is None or kind == "map" or geometry.affine else geometry.n_factors(kind)


def numbers_stored(problem: BlockProblem, levels: Levels, elements: int) -> int:
    """Count the numbers of a group of elements in stored factors, maps included."""
    at_points = levels.counts[0] * numbers_read(problem) * lines_padded(levels, elements)
    n_map = problem.geometry.n_factors("map") * elements if problem.source.recomputes else 0
    return at_points + (-(-n_map // 4) * 4 if at_points else n_map)


def line_view(lines: Any, levels: Levels, elements: int) -> Any:
    """Stored factors by element and point; lines [groups, Q1, factors, padded] -> [groups, factors, *points, E]."""
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
    """Geometric factors in the kernels' layout; -> [groups, Q1, factors, padded]."""
    geometry, dtype = problem.geometry, problem.stored_dtype(kind)
    n, groups = geometry.n_factors(kind), -(-geometry.n_elements // elements)
    if kind == "scale" and problem.source.scales:
        out = empty((groups, numbers_stored(problem, levels, elements)), dtype)
        out[...] = 0
        shape = groups, levels.counts[0], n, lines_padded(levels, elements)
        n_map, at_points = geometry.n_factors("map") * elements, math.prod(shape[1:])
        maps = out[:, at_points : at_points + n_map].reshape(groups, -1, 1, elements)
        geometry.write_factors("map", maps, xp, size)
        view = line_view(out[:, :at_points].reshape(shape), levels, elements)
    elif kind == "map":
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
    """Kinds of arrays that a problem's kernel reads beside the field."""
    trace = problem.form.trace
    return problem.read_factors, "points" if trace is not None and trace.uses_point else None
