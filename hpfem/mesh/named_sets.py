"""Named sets of a mesh: regions of cells and boundaries of facets, from the arrays that files and callers give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hpfem.errors import ArgumentError
from hpfem.shapes.arguments import as_array, shown

from ..support.immutable import frozen
from .sorting import sorted_rows, unique
from .symmetry import Indices
from .topology import Topology


def looked_up(table: Indices, rows: Indices) -> Indices:
    """Look numbers up in a table.

    Parameters
    ----------
    table : ndarray of int, [n]
    rows : ndarray of int
        Positions in the table, or any other numbers.

    Returns
    -------
    ndarray of int
        table[rows], -1 where the number is negative or beyond the table.
    """
    if not rows.size or (rows.min() >= 0 and rows.max() < len(table)):
        return table.take(rows)
    inside = (rows >= 0) & (rows < len(table))
    return np.where(inside, table[np.where(inside, rows, 0)], -1)


def rows_of_integers(value: ArrayLike, what: str, widths: Sequence[int]) -> Indices:
    """Check rows of integers.

    Parameters
    ----------
    value : array_like of int, [n, width]
        Given by the caller.
    what : str
        Its name in messages.
    widths : sequence of int
        The widths that it may have.

    Returns
    -------
    ndarray of int, [n, width]

    Raises
    ------
    ArgumentError
        If it is not such an array.
    """
    found = as_array(value, what, "iu")
    if found.size and (found.ndim != 2 or found.shape[1] not in widths):
        raise ArgumentError(
            f"{what} are [n, {' or '.join(map(str, widths))}] integers, got an array {list(found.shape)}"
        )
    return found.astype(np.int64).reshape(-1, found.shape[1] if found.size else widths[0])


def sets(value: Any, what: str) -> list[tuple[str, Any]]:
    """Check a mapping from names.

    Parameters
    ----------
    value : mapping of str to any
        Given by the caller.
    what : str
        Its name in messages.

    Returns
    -------
    list of (str, any)
        Its items.

    Raises
    ------
    ArgumentError
        If it is not a mapping from names.
    """
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ArgumentError(f"{what} are a mapping from names, got {shown(value)}")
    return list(value.items())


def regions_of(given: Mapping[str, ArrayLike], n_cells: int) -> Mapping[str, Indices]:
    """Check regions.

    Parameters
    ----------
    given : mapping of str to array_like of int
        Cell numbers by name.
    n_cells : int
        Number of cells.

    Returns
    -------
    mapping of str to ndarray of int
        Cell numbers, each once, ascending.

    Raises
    ------
    ArgumentError
        If they are not integers, or a cell does not exist.
    """
    result = {}
    for name, members in sets(given, "regions"):
        cells = as_array(members, f"cells of region {shown(name)}", "iu").astype(np.int64).ravel()
        if not np.all(cells[1:] > cells[:-1]):
            cells = unique(cells)
        if len(cells) and (cells[0] < 0 or cells[-1] >= n_cells):
            raise ArgumentError(f"region {shown(name)} holds cells that do not exist; there are {n_cells}")
        result[name] = frozen(cells)
    return MappingProxyType(result)


def boundaries_of(
    topology: Topology, given: Mapping[str, Sequence[ArrayLike]], vertex_of: Indices
) -> tuple[dict[str, Indices], int]:
    """Find the facets of boundary elements.

    Parameters
    ----------
    topology : Topology
        Of the cells.
    given : mapping of str to sequence of array_like of int, [n, n_corners] each
        Points at the corners of boundary elements, by name.
    vertex_of : ndarray of int, [n_points]
        The vertex at each point, -1 where there is none.

    Returns
    -------
    sides : dict of str to ndarray of int, [n, 2]
        Facets as (cell, local facet).
    n_stray : int
        Number of boundary elements that are not facets.

    Raises
    ------
    ArgumentError
        If they are not arrays of corners.
    """
    width = 2 if topology.dim == 2 else 4
    result, n_stray = {}, 0
    for name, blocks in sets(given, "boundaries"):
        if not isinstance(blocks, (list, tuple)):
            raise ArgumentError(f"boundary {shown(name)} is a list of arrays of corners, got {shown(blocks)}")
        numbers = [np.empty(0, dtype=np.int64)]
        for block in blocks:
            corners = rows_of_integers(block, f"corners of boundary {shown(name)}", [2] if width == 2 else [3, 4])
            vertices = looked_up(vertex_of, corners)
            found = topology.sides.index.find(sorted_rows(vertices))
            facets = np.where((vertices < 0).any(axis=1), -1, found)
            n_stray += int((facets < 0).sum())
            numbers.append(facets[facets >= 0])
        own = unique(np.concatenate(numbers))
        beside = topology.facets
        result[name] = frozen(np.column_stack([beside.cells[own, 0], beside.local[own, 0]]))
    return result, n_stray
