"""Strong couplings between functions of low energy in stretched cells: whole matrices in place of the diagonal.

Across a thin cell the functions of opposite vertices, edges and faces nearly cancel, so that their sum has little
energy. The diagonal does not see that. Strongly coupled functions of neighbouring cells form groups, as lines through
the layers of a mesh; the matrix of each group is inverted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from hpfem.shapes import Shape
from hpfem.shapes.low_energy import regular_jacobian

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

# Ratio of energies by direction from which on a cell counts as stretched; an entry of its matrix that is strong,
# relative to the diagonal; and the largest group.
_STRETCHED, _STRONG, _MOST = 16.0, 0.6, 100
# Smallest eigenvalue of a group's matrix, relative to its diagonal, that float32 can invert.
_SMALLEST = 1e-5


def strong_pairs(shape: Shape, S: Array, A: Array, T: Array) -> tuple[Indices, Indices]:
    """Find pairs of functions of a cell that are in one group.

    Parameters
    ----------
    shape : Shape
    S : ndarray, [dim, dim]
        The cell's diffusion in local coordinates.
    A : ndarray, [n, n]
        Its energy in modes.
    T : ndarray, [n, n]
        The functions, in columns; zero where there is none.

    Returns
    -------
    ndarray of int, [pairs] each
        Rows and columns, both ways. Groups are whole, so that their part of the energy is positive semidefinite.
    """
    R = regular_jacobian(shape)
    values = np.linalg.eigvalsh(R @ S @ R.T)
    if values[-1] <= _STRETCHED * values[0]:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    energy = T.T @ (A @ T)
    size = np.sqrt(energy.diagonal())
    _, group = connected_components(csr_array(np.abs(energy) > _STRONG * np.outer(size, size)))
    i, j = np.nonzero(group[:, None] == group)
    return i[i != j], j[i != j]


def inverse_of_groups(coupled: csr_array, diagonal: Array) -> tuple[Indices, csr_array] | None:
    """Invert the matrices of groups.

    Parameters
    ----------
    coupled : csr_array, [n, n]
        Entries between strongly coupled unknowns, which make groups; symmetric. Groups that are too large are left
        to the diagonal.
    diagonal : ndarray, [n]
        Positive; infinite where nothing is free.

    Returns
    -------
    (ndarray of int, [k], csr_array, [k, k]) or None
        The unknowns in groups, and the inverses times the diagonal: what is to follow a division by the diagonal. None
        if there are no groups.
    """
    n, scale = len(diagonal), 1 / np.sqrt(diagonal)
    entries = coo_array(coupled)
    inside = (scale[entries.row] > 0) & (scale[entries.col] > 0) & (entries.row != entries.col)
    i, j = entries.row[inside], entries.col[inside]
    N = csr_array((entries.data[inside] * scale[i] * scale[j], (i, j)), shape=(n, n))
    _, group = connected_components(N, directed=False)
    counts = np.bincount(group)
    by_group, starts = np.argsort(group, kind="stable"), np.cumsum(counts) - counts
    members = np.flatnonzero((counts[group] > 1) & (counts[group] <= _MOST))
    parts = list[tuple[Any, Any, Any]]()
    for size in np.unique(counts[group[members]]):
        own = by_group[starts[counts == size][:, None] + np.arange(size)]
        row, column = np.broadcast_arrays(own[:, :, None], own[:, None, :])
        matrices = np.asarray(N[row.ravel(), column.ravel()]).reshape(row.shape) + np.eye(size)
        values, V = np.linalg.eigh(matrices)
        inverse = (V / np.maximum(values, _SMALLEST)[:, None]) @ V.swapaxes(1, 2)
        inverse *= scale[row] / scale[column]
        parts.append((row.ravel(), column.ravel(), inverse.ravel()))
    if not parts:
        return None
    row, column, given = (np.concatenate(own) for own in zip(*parts, strict=True))
    places = np.searchsorted(members, row), np.searchsorted(members, column)
    return members, csr_array((given, places), shape=(len(members),) * 2)
