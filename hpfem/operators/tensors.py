"""Coefficients that may be tensors: a scalar, the D entries of a diagonal, or D x D entries, row by row; their sign."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from hpfem.shapes.arguments import is_real

from ..backends.base import vectors_on
from ..errors import ArgumentError
from ..geometry.jacobians import symmetric_pairs
from ..memory import every
from ..mesh import Mesh
from ..space.evaluation import evaluated
from ..space.field import Field
from ..space.regions import ByRegion, regional

# Largest difference of two entries that are meant to be equal, relative to the largest entry at a point.
_ROUNDING = 64


def entries(components: Any, dim: int) -> Callable[[int, int], Any]:
    """Entries by row and column of a tensor from those kept: 1, its diagonal's D, a symmetric one's, or all D D."""
    count = len(components)
    if count in (1, dim):
        return lambda i, j: components[i % count] if i == j else 0.0
    if count == dim * dim:
        return lambda i, j: components[i * dim + j]
    place = {pair: number for number, pair in enumerate(symmetric_pairs(dim))}
    return lambda i, j: components[place[min(i, j), max(i, j)]]


def flat(function: Callable[..., Any]) -> Callable[..., list[Any]]:
    """Turn a function that may return a matrix into one that returns a list of entries."""

    def parts(found: Any, ndim: int) -> list[Any]:
        if isinstance(found, (list, tuple)) or getattr(found, "ndim", 0) > ndim:
            return [part for one in found for part in parts(one, ndim)]
        return [found]

    @wraps(function)
    def components(*x: Any) -> list[Any]:
        return parts(function(*x), getattr(x[0], "ndim", 0))

    return components


def matrix_numbers(value: Any, dim: int) -> list[Any] | None:
    """The numbers of a matrix, row by row; None if it is not a matrix of D x D numbers."""
    try:
        rows = [list(row) for row in value] if isinstance(value, (list, tuple, np.ndarray)) else []
    except TypeError:
        return None
    fits = len(rows) == dim and all(len(row) == dim and all(map(is_real, row)) for row in rows)
    return [number for row in rows for number in row] if fits else None


def sample_components(function: Callable[..., Any], mesh: Mesh, cell: int = 0) -> int:
    """Count the components of a function by calling it at a corner of a cell."""
    if cell >= mesh.n_cells:  # on this process
        return len(evaluated(function, list(mesh.points[:0].T), (0,)))
    group, row = (int(where[cell]) for where in mesh.locations)
    corner = mesh.points[mesh.cells[group].nodes[row, :1]]
    return len(evaluated(function, list(corner.T), (1,)))


def kept_components(given: Any, mesh: Mesh) -> int:
    """Count the numbers at a point that an operator keeps of a coefficient."""
    dim = mesh.points.shape[1]
    given = regional(given, mesh, (dim,), (dim, dim))
    if given is None or is_real(given):
        return 0
    if isinstance(given, Field):
        return given.components
    if isinstance(given, ByRegion):
        count = max(_counted(same_kind_everywhere(given, dim)))
    elif callable(given):
        count = sample_components(flat(given), mesh)
    else:  # an invalid coefficient is reported where it is used
        count = len(matrix_numbers(given, dim) or [0] * dim)
    return len(symmetric_pairs(dim)) if count == dim * dim else count


def _counted(given: ByRegion) -> list[int]:
    """Components of each part, of functions in one of its cells."""
    cells = [int(np.argmax(np.append(given.of_cells == number, True))) for number in range(len(given.values))]
    return [
        sample_components(value, given.mesh, cell) if callable(value) else len(value)
        for value, cell in zip(given.values, cells, strict=True)
    ]


def same_kind_everywhere(given: ByRegion, dim: int) -> ByRegion:
    """Convert values by region to one kind, scalar, diagonal or tensor: that of the value with most entries."""
    given = given.with_values([flat(value) if callable(value) else value for value in given.values])
    counts = _counted(given)
    most = max(counts)
    if min(counts) == most or not set(counts) <= {1, dim, dim * dim}:
        return given  # values that do not fit are reported where they are evaluated

    def widened(components: Sequence[Any]) -> tuple[Any, ...]:
        entry = entries(components, dim)
        pairs = [(i, i) for i in range(dim)] if most == dim else [(i, j) for i in range(dim) for j in range(dim)]
        return tuple(entry(i, j) for i, j in pairs)

    def of(value: Any) -> Any:
        return (lambda *x: widened(value(*x))) if callable(value) else widened(value)

    return given.with_values([of(value) for value in given.values])


def symmetric_part(arrays: Sequence[Any], dim: int) -> list[Any] | None:
    """Independent entries of a symmetric tensor at points; arrays [D D, E, Q] -> [D (D + 1) / 2, E, Q]."""
    for values in arrays:
        size = abs(values).max(axis=0)
        for i, j in symmetric_pairs(dim):
            apart = abs(values[i * dim + j] - values[j * dim + i])
            if not every(apart <= _ROUNDING * np.finfo(values.dtype).eps * size):
                return None
    return [values[[i * dim + j for i, j in symmetric_pairs(dim)]] for values in arrays]


def check_positive(operator: Any, key: str, name: str) -> None:
    """Check the sign of a coefficient at all points of the operator; tensors are positive definite; collective."""
    wanted = "> 0"
    if key in operator.fields and operator.fields[key].components > 1:
        wanted = "symmetric and positive definite"
    value = operator.parameters.get(key, 1.0)
    if value <= 0:
        raise ArgumentError(f"{name} must be {wanted}, got {value:g}")
    if key not in operator.fields:
        return
    with operator.space.comm.together():
        for pair, block in zip(operator.fields[key].data, operator.space.blocks, strict=True):
            values = pair.read(pair.home)
            scalar, xp = len(values) == 1, vectors_on(pair.home).xp
            least = values[0] if scalar else _least_pivot(values, operator.space.dim, xp)
            if not least.size:
                continue
            element, point = np.unravel_index(int(least.argmin()), least.shape)
            smallest = float(least[element, point])
            if not smallest > 0:
                said = f"{smallest:g}" if scalar else "not"
                x = block.geometry.coordinates(slice(element, element + 1))[:, 0, point]
                place = ", ".join(f"{c:.6g}" for c in x)
                cell = operator.space.mesh.describe_cell(int(block.elements[element]))
                raise ArgumentError(f"{name} must be {wanted} everywhere, it is {said} at ({place}) in {cell}")


def _least_pivot(components: Any, dim: int, xp: Any) -> Any:
    """Least pivot of tensors in Gauss' elimination over its diagonal entry; components [n, E, Q] -> [E, Q]."""
    entry, size = entries(components, dim), abs(components).max(axis=0)
    rounding = 64 * np.finfo(components.dtype).eps * size
    A = {(i, j): entry(i, j) for i, j in symmetric_pairs(dim)}
    least, one = xp.full(size.shape, xp.inf), xp.where(size > 0, size, 1)
    for k in range(dim):
        pivot, diagonal = A[k, k], entry(k, k)
        least = xp.minimum(least, pivot / xp.where(diagonal > 0, diagonal, one))
        for i, j in symmetric_pairs(dim):
            if i > k:
                A[i, j] = A[i, j] - A[k, i] * A[k, j] / xp.where(pivot > 0, pivot, one)
    for i, j in symmetric_pairs(dim):
        least = xp.where(abs(entry(i, j) - entry(j, i)) <= rounding, least, -1)
    return least
