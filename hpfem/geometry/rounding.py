"""What rounding does to geometric factors, and which elements are beyond the range of a type."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from hpfem.shapes.arrays import Array, Indices

from .block_geometry import BlockGeometry
from .jacobians import symmetric_pairs


def outside(geometry: BlockGeometry, dtype: DTypeLike) -> Indices:
    """Elements whose volumes, or products of these and coefficients, leave a type's range, with room for rounding."""
    limits, digits = np.finfo(np.dtype(dtype)), np.log10(np.finfo(np.dtype(dtype)).eps)
    inside = np.ones(len(geometry.widths), dtype=bool)
    for scale in (np.ones(1), *geometry.magnitudes):
        volumes = geometry.dim * np.log10(geometry.widths) + np.log10(scale)
        inside &= (volumes > np.log10(limits.tiny) - digits) & (volumes < np.log10(limits.max) + digits)
    return np.flatnonzero(~inside)


def rounding_error(geometry: BlockGeometry, kind: str, dtype: DTypeLike, points: int) -> float:
    """Largest relative change of w|J| and, with gradients, w|J| |grad u|^2 for any u if factors are rounded."""
    # At about so many points, of elements spread over the block. So energies, of functions and gradients, change by no
    # larger share; coefficients in the factors belong to them: large or infinite if one is a singular tensor.
    n = min(geometry.n_elements, max(1, points // geometry.n_points(kind)))
    some = np.unique(np.linspace(0, geometry.n_elements - 1, n).astype(int)) if n else np.empty(0, dtype=int)
    if not len(some):
        return 0.0
    exact = np.stack(list(geometry.factors_of(kind, some)), axis=-1)  # [E, S, factor]
    rounded = exact.astype(dtype).astype(np.float64)
    there = exact[..., -1] != 0  # a coefficient in the factors may be 0, which is not rounded
    change = np.abs(rounded[..., -1][there] / exact[..., -1][there] - 1).max(initial=0.0)
    if kind == "wJ":
        return float(change)
    before, after = (_metrics(geometry, kind, own) for own in (exact, rounded))
    there = before.any(axis=(-2, -1))
    try:
        relative = np.linalg.solve(before[there], (after - before)[there])
    except np.linalg.LinAlgError:  # a gradient without energy gets some
        return np.inf
    return float(max(change, np.abs(np.linalg.eigvals(relative)).max(initial=0.0)))


def _metrics(geometry: BlockGeometry, kind: str, factors: Array) -> Array:
    """Matrices w|J| J^-1 J^-T, [.., d, d], of factors [.., n_factors]."""
    if kind == "jacobian":
        inverse = factors[..., :-1].reshape(*factors.shape[:-1], geometry.dim, geometry.space_dim)
        return np.asarray(inverse @ (factors[..., -1:, None] * inverse.swapaxes(-1, -2)))
    matrices = np.empty((*factors.shape[:-1], geometry.dim, geometry.dim))
    for number, (a, b) in enumerate(symmetric_pairs(geometry.dim)):
        matrices[..., a, b] = matrices[..., b, a] = factors[..., number]
    return matrices
