"""Operations on arrays of small matrices: determinants, inverses, normals and solutions for J [D, d, ...], D >= d.

Everything is done entry by entry with whole arrays, so the axes after the first two may have any shape. Arrays are of
NumPy or of a module like it; where that can fuse operations (CuPy), a function of square matrices is one kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import isqrt
from typing import Any

import numpy as np

from hpfem.shapes import Shape
from hpfem.shapes.arrays import Array


def symmetric_pairs(dim: int) -> list[tuple[int, int]]:
    """Index pairs of a stored symmetric matrix, row by row of its upper triangle."""
    return [(a, b) for a in range(dim) for b in range(a, dim)]


def _cofactor(J: Any, a: int, i: int) -> Any:
    """Cofactor of the entry J[i][a] of many d x d matrices [d][d], d <= 3: entry (a, i) of the adjugate."""
    if len(J) == 1:
        return 0 * J[0][0] + 1
    if len(J) == 2:
        return J[1 - i][1 - a] if i == a else -J[1 - i][1 - a]
    # Cyclic neighbours instead of minors: they include the signs.
    (i1, i2), (a1, a2) = ((i + 1) % 3, (i + 2) % 3), ((a + 1) % 3, (a + 2) % 3)
    return J[i1][a1] * J[i2][a2] - J[i1][a2] * J[i2][a1]


def _by_first_column(J: Any, cofactors: Any) -> Any:
    """The determinant of J [d][d] by the cofactors of its first column."""
    return sum((J[i][0] * cofactors[i] for i in range(1, len(J))), J[0][0] * cofactors[0])


def _determinant(*entries: Any) -> Any:
    """The determinant of a square matrix of these entries, row by row."""
    J = _square(entries)
    return _by_first_column(J, [_cofactor(J, 0, i) for i in range(len(J))])


def _metric(weights: Any, *entries: Any) -> tuple[Any, ...]:
    """Entries of w det J (J^T J)^-1, and w det J, of a square matrix of these entries, row by row."""
    J = _square(entries)
    adjugate = [[_cofactor(J, a, i) for i in range(len(J))] for a in range(len(J))]
    det = _by_first_column(J, adjugate[0])
    return _products([[entry / det for entry in row] for row in adjugate], weights * det)


def _products(inverse: Any, weighted: Any) -> tuple[Any, ...]:
    """Entries of w |J| J^-1 J^-T for J^-1 [d][D], and w |J|."""
    columns = range(len(inverse[0]))
    pairs = symmetric_pairs(len(inverse))
    return (*(weighted * sum(inverse[a][i] * inverse[b][i] for i in columns) for a, b in pairs), weighted)


def _square(entries: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    d = isqrt(len(entries))
    return [entries[i * d : (i + 1) * d] for i in range(d)]


def _entries(J: Any) -> list[Any]:
    return [entry for row in J for entry in row]


@cache
def _fused(function: Callable[..., Any], xp: Any) -> Callable[..., Any]:
    """The same function in one kernel."""
    return xp.fuse(function)


def _fuses(J: Any, xp: Any) -> bool:
    return hasattr(xp, "fuse") and J.shape[0] == J.shape[1]


def _gram(J: Any, xp: Any = np) -> Any:
    """J^T J of many matrices [D, d, ...]."""
    return xp.einsum("ia...,ib...->ab...", J, J)


def determinant(J: Any, xp: Any = np) -> Any:
    """Determinant of many small matrices; for tall matrices the area; J [D, d, ...] -> [...]."""
    if J.shape[0] > J.shape[1]:
        return xp.sqrt(xp.maximum(determinant(_gram(J, xp), xp), 0.0))
    return (_fused(_determinant, xp) if _fuses(J, xp) else _determinant)(*_entries(J))


def determinant_and_inverse(J: Any, xp: Any = np) -> tuple[Any, Any]:
    """Of small matrices, by cofactors, of tall ones area and left inverse; J [D, d, ...] -> [...], [d, D, ...]."""
    space_dim, d = J.shape[:2]
    if space_dim > d:
        det, inverse = determinant_and_inverse(_gram(J, xp), xp)
        return xp.sqrt(xp.maximum(det, 0.0)), xp.einsum("ab...,ib...->ai...", inverse, J)
    inverse = xp.empty_like(J)
    for a in range(d):
        for i in range(d):
            inverse[a, i] = _cofactor(J, a, i)
    det = _by_first_column(J, inverse[0])
    with np.errstate(divide="ignore", invalid="ignore"):
        inverse /= det
    return det, inverse


def triangular(A: Any, xp: Any = np) -> list[Any]:
    """The entries, row by row, of the lower triangular L with L L^T = A A^T; A [d, D, ...] -> [...] each."""
    found, directions = list[Any](), list[Any]()
    for row in A:
        for direction in directions:
            found.append((row * direction).sum(axis=0))
            row = row - found[-1] * direction
        found.append(xp.sqrt((row * row).sum(axis=0)))
        directions.append(row / found[-1])
    return found


def metric(J: Any, weights: Any, xp: Any = np) -> tuple[Any, ...]:
    """Entries of w |J| (J^T J)^-1 of many small matrices, and w |J|; J [D, d, ...] -> [...]."""
    if _fuses(J, xp):
        return _fused(_metric, xp)(weights, *_entries(J))
    det, inverse = determinant_and_inverse(J, xp)
    return _products(inverse, weights * det)


def solve(J: Array, r: Array) -> Array:
    """Solve J y = r, tall J by normal equations; J [D, d, ...], r [D, ...] -> [d, ...]; see `metric`."""
    if len(J) > J.shape[1]:
        J, r = _gram(J), np.einsum("ia...,i...->a...", J, r)
    det = determinant(J)
    y = np.stack([sum(_cofactor(J, a, i) * r[i] for i in range(len(J))) for a in range(len(J))])
    return np.divide(y, det, out=np.zeros_like(y), where=det != 0)


def project(r: Array, J: Array) -> tuple[Array, Array]:
    """Coefficients of r [D, ...] in columns of J [D, d, ...] by Gram-Schmidt, and the rest; -> [d, ...], [D, ...]."""
    d, rest = J.shape[1], r
    columns, shares = [J[:, a] for a in range(d)], {}
    rounding = 1e-28 * (J**2).sum(axis=0)
    parts = []
    for a in range(d):
        square = (columns[a] ** 2).sum(axis=0)
        one = np.divide(columns[a], square, out=np.zeros_like(columns[a]), where=square > rounding[a])
        for b in range(a + 1, d):
            shares[a, b] = (one * columns[b]).sum(axis=0)
            columns[b] = columns[b] - shares[a, b] * columns[a]
        parts.append((one * rest).sum(axis=0))
        rest = rest - parts[a] * columns[a]
    for a in reversed(range(d)):
        for b in range(a + 1, d):
            parts[a] = parts[a] - shares[a, b] * parts[b]
    return np.stack(parts), rest


def normal(J: Array) -> Array:
    """Normal of curves in the plane or surfaces in space, as long as the area; J [D, D - 1, ...] -> [D, ...]."""
    return np.stack([J[1, 0], -J[0, 0]]) if len(J) == 2 else np.cross(J[:, 0], J[:, 1], axis=0)


def scaled_jacobian(J: Any, det: Any, xp: Any = np) -> Any:
    """Det J over the product of the lengths of J's columns; J [D, d, ...], det [...] -> [...]."""
    lengths = xp.prod(xp.sqrt(sum(row * row for row in J)), axis=0)
    return xp.where(lengths > 0, det / xp.where(lengths > 0, lengths, 1.0), 0.0)


def inverse_collapse(shape: Shape, eta: Array) -> Array:
    """Derivatives d eta_a / d xi_i of the collapsed coordinates; eta [Q, d] -> [Q, d, d]."""
    return np.asarray(np.linalg.inv(shape.collapse_matrix(eta)), dtype=np.float64)
