"""Named sets of a mesh: cells, facets, edges and points, from the arrays that files and callers give; and cell data."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hpfem.errors import ArgumentError
from hpfem.shapes.arguments import as_array, shown
from hpfem.shapes.arrays import Indices, frozen

from .sorting import marked, places, sorted_rows, unique
from .topology import Topology

# Dimension and name -> members as (cell number, number of the entity in the cell), [n, 2].
Sets = Mapping[tuple[int, str], Indices]


def looked_up(table: Indices, rows: Indices) -> Indices:
    """Look numbers up in a table; table [n]."""
    if not rows.size or (rows.min() >= 0 and rows.max() < len(table)):
        return table.take(rows)
    return np.append(table, -1)[np.where((rows >= 0) & (rows < len(table)), rows, -1)]


def rows_of_integers(value: ArrayLike, what: str, widths: Sequence[int]) -> Indices:
    """Check rows of integers; value [n, width] -> [n, width]."""
    found = as_array(value, what, "iu")
    if found.size and (found.ndim != 2 or found.shape[1] not in widths):
        raise ArgumentError(
            f"{what} are [n, {' or '.join(map(str, widths))}] integers, got an array {list(found.shape)}"
        )
    return found.astype(np.int64).reshape(-1, found.shape[1] if found.size else widths[0])


def sets(value: Any, what: str) -> list[tuple[str, Any]]:
    """Check a mapping from names."""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ArgumentError(f"{what} are a mapping from names, got {shown(value)}")
    return list(value.items())


def regions_of(given: Mapping[str, ArrayLike], n_cells: int) -> Mapping[str, Indices]:
    """Check regions."""
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
    """Find the facets of boundary elements; given [n, n_corners], vertex_of [n_points] -> sides [n, 2]."""
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


def lower_sets_of(
    topology: Topology,
    given: Mapping[tuple[int, str], Sequence[ArrayLike]],
    nodes: Mapping[str, Indices],
    sides: dict[str, Indices],
    regions: Collection[str],
    vertex_of: Indices,
) -> tuple[Sets, int]:
    """Find named edges and vertices, and what named nodes cover; given [n, dimension + 1], vertex_of [n_points]."""
    # Nodes cover facets, and away from them edges, with all vertices among them. A side between cells counts if neither
    # cell has all of its vertices among them. All nodes of the mesh stand for its cells, and cover no facets.
    ends: dict[tuple[int, str], list[Indices]] = {}
    for (dim, name), blocks in given.items():
        what = f"{'edges' if dim else 'points'} of {shown(name)}"
        if dim == topology.dim - 1:
            raise ArgumentError(f"{what}: edges of a 2-D mesh are boundaries")
        if not isinstance(blocks, (list, tuple)):
            raise ArgumentError(f"{what} are a list of arrays of their ends, got {shown(blocks)}")
        ends[dim, name] = [looked_up(vertex_of, rows_of_integers(block, what, [dim + 1])) for block in blocks]
    for name, rows in nodes.items():
        vertices = looked_up(vertex_of, rows)
        every = len(rows) >= topology.n_vertices and len(unique(vertices[vertices >= 0])) == topology.n_vertices
        facets, edges = _covered(topology, vertices[:0] if every else vertices)
        if len(edges):
            ends.setdefault((1, name), []).append(edges)
        # Nodes between vertices are missed where nothing is covered.
        kept = vertices[vertices >= 0] if len(facets) + len(edges) or every or name in regions else vertices
        ends.setdefault((0, name), []).append(kept[:, None])
        if len(facets) and name not in regions:
            sides.setdefault(name, frozen(facets))
    result, n_stray = {}, 0
    for (dim, name), parts in ends.items():
        vertices = np.concatenate([np.empty((0, dim + 1), dtype=np.int64), *parts])
        inside = (vertices >= 0).all(axis=1)
        result[dim, name], n_missing = _places(topology, dim, vertices[inside])
        n_stray += n_missing + int((~inside).sum())
    return MappingProxyType(result), n_stray


def _places(topology: Topology, dim: int, vertices: Indices) -> tuple[Indices, int]:
    """The first cells with given vertices or edges, as (cell, local number); how many no cell has."""

    def keys(rows: Indices) -> Indices:
        rows = np.sort(rows, axis=1)
        return np.asarray(rows[:, 0] * topology.n_vertices + rows[:, -1])

    wanted, known = unique(keys(vertices)), marked(topology.n_vertices, [vertices])
    found = [np.empty((0, 3), dtype=np.int64)]
    for position, number, entity in topology.local_entities(dim):
        own = topology.vertices[position][:, list(entity.vertices)]
        here = np.flatnonzero(known[own].all(axis=1))
        at, cells = places(wanted, keys(own[here])), topology.cells[position].indices[here]
        found.append(np.column_stack([at, cells, np.full(len(here), number)])[at >= 0])
    table = np.concatenate(found)
    table = table[np.lexsort(table.T[::-1])]
    _, first = np.unique(table[:, 0], return_index=True)
    return frozen(table[first, 1:]), len(wanted) - len(first)


def _covered(topology: Topology, vertices: Indices) -> tuple[Indices, Indices]:
    """The facets that vertices cover, as (cell, local number), and the vertices of edges away from them, in 3-D."""
    given = marked(topology.n_vertices, [vertices[vertices >= 0]])
    beside, left = topology.facets, given.copy()
    whole = np.zeros(topology.n_cells + 2, dtype=bool)  # with the cells -1 and -2
    inside = np.zeros(len(beside), dtype=bool)
    near, vertices_near = [], []  # of the cells that may have a covered edge
    for array, own in zip(topology.cells, topology.vertices, strict=True):
        count = given[own].sum(axis=1)
        whole[array.indices] = count == own.shape[1]
        left[own[count == own.shape[1]]] = False
        near.append(np.flatnonzero(count > 1))
        vertices_near.append(own[near[-1]])
    facets = [
        (vertices_near[position][:, list(facet.vertices)], topology.sides.ids[position][near[position], number])
        for position, number, facet in topology.local_entities(topology.dim - 1)
    ]
    for corners, ids in facets:
        inside[ids] |= given[corners].all(axis=1)
    inside &= beside.on_boundary | ~whole[beside.cells].any(axis=1)
    for corners, ids in facets:
        left[corners[inside[ids]]] = False
    edges = [np.empty((0, 2), dtype=np.int64)]
    for position, _, edge in topology.local_entities(1) if topology.dim == 3 else ():
        own = vertices_near[position][:, list(edge.vertices)]
        edges.append(own[left[own].all(axis=1)])
    return np.column_stack([beside.cells[inside, 0], beside.local[inside, 0]]), np.concatenate(edges)


def cell_data_of(given: Mapping[str, ArrayLike], n_cells: int) -> Mapping[str, NDArray[Any]]:
    """Check values of cells; given [n_cells, ...]."""
    result = {}
    for name, values in sets(given, "cell_data"):
        found = np.array(as_array(values, f"cell data {shown(name)}"))
        if found.shape[:1] != (n_cells,):
            raise ArgumentError(f"cell data {shown(name)} are of shape {found.shape}; there are {n_cells} cells")
        result[name] = frozen(found)
    return MappingProxyType(result)
