"""Parts of a mesh that no process holds as a whole: each process reads or makes its cells, or gets them from others.

Vertices have ids in the whole mesh. Which processes share vertices, edges and faces is found by communication.

So are made: gmsh's partitions, pieces of .pvtu files, blocks of boxes, and parts that `distribute` cuts anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpfem.errors import MeshError
from hpfem.shapes import SHAPES
from hpfem.shapes.arrays import Array, Indices, frozen

from ..support.communicator import Communicator
from .aligned import vertex_ranks
from .cells import CellArray, Labels, is_flat
from .hanging import Hanging, hanging_vertices
from .mesh import Mesh, groups_of, mesh_of, named_entities
from .named_sets import Sets
from .part import Part, beyond, combined, shared_corners, shared_vertices
from .sorting import distinct, marked, unique
from .topology import Topology


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of a mesh that one process has; shapes, orders and names are the same on every process."""

    points: Array  # [n_points, D]
    arrays: list[CellArray]  # nodes are rows of `points`; cells are numbered on this process
    vertices: list[Indices]  # [E, n_vertices] each, positions in `ids`
    ids: Indices  # of the vertices in the whole mesh, ascending
    numbers: Indices  # of the cells in the whole mesh
    regions: dict[str, Indices]
    sides: Sets  # as `Mesh.entity_sets`
    record: dict[str, Any]  # further arguments of `Mesh`; without "numbers", cells are called by `numbers`, from 1
    outer: Indices | None = None  # the vertices that others may have too, if they are known, positions in `ids`

    def mesh(self, comm: Communicator, hanging: Hanging | None = None) -> Mesh:
        """Make the part of this process, or with a single process the whole mesh; collective."""
        topology, vertices = Topology(self.arrays, self.vertices, len(self.ids)), self.ids
        if comm.size == 1:
            return self._made(topology, None, self.record)
        record = {"numbers": frozen(self.numbers + 1), **self.record}
        outer = np.arange(len(vertices)) if self.outer is None else self.outer
        shared_ids = {rank: outer[own] for rank, own in shared_vertices(vertices[outer], comm).items()}
        corners, once = shared_corners(topology, vertices, shared_ids, comm)
        with comm.together():
            if not once:
                name = record["name"]
                raise MeshError(f"{name}: more than two elements share one facet, in parts of several processes")

        def agree(values: Indices, operation: Any) -> tuple[Indices, bool]:
            found = combined(comm, values, shared_ids, operation)
            return found, comm.any(bool((found != values).any()))

        ranks = vertex_ranks(topology, agree, vertices)
        topology = topology.cut(beyond(corners))
        if hanging is None:
            hanging = hanging_vertices(self.points, topology, Labels("", record["numbers"]), comm)
        part = Part(comm, self.numbers, vertices, ranks, hanging, corners, tuple(comm.allgather(len(self.numbers))))
        return self._made(topology, part, record)

    def _made(self, topology: Topology, part: Part | None, record: Mapping[str, Any]) -> Mesh:
        """The mesh of a part, or a whole one."""
        return Mesh(
            frozen(self.points),
            groups_of(topology),
            MappingProxyType({name: frozen(own) for name, own in self.regions.items()}),
            **named_entities(topology.dim, self.sides),
            cell_data=MappingProxyType({name: frozen(own) for name, own in record.get("cell_data", {}).items()}),
            n_vertices=topology.n_vertices,
            part=part,
            **{name: value for name, value in record.items() if name != "cell_data"},
        )


def record_of(mesh: Mesh, chosen: Indices, numbers: Indices) -> dict[str, Any]:
    """Collect the `record` of `Cells` from a mesh; chosen, numbers [n]."""
    names = ("name", "n_mirrored", "n_stray", "periodic", "apart")
    data = {name: own[chosen] for name, own in mesh.cell_data.items()}
    return {**{name: getattr(mesh, name) for name in names}, "numbers": frozen(numbers), "cell_data": data}


def common_arrays(arrays: Sequence[CellArray], comm: Communicator) -> list[CellArray]:
    """Complete the arrays: one for every shape and order of which any process has cells; collective."""
    none, own = np.empty(0, dtype=np.int64), {(array.shape.name, array.order): array for array in arrays}
    widths = comm.allgather({key: array.nodes.shape[1] for key, array in own.items()})
    return [
        own[key] if key in own else CellArray(SHAPES[key[0]], key[1], none.reshape(0, width), none)
        for key, width in {key: width for others in widths for key, width in others.items()}.items()
    ]


def common_names(sets: Mapping[Any, Indices], comm: Communicator, width: int = 0) -> dict[Any, Indices]:
    """Complete the sets: one for every name that any process has; collective."""
    names = dict.fromkeys(name for names in comm.allgather([*sets]) for name in names)
    nothing = np.empty((0, width) if width else 0, dtype=np.int64)
    return {name: sets.get(name, nothing) for name in names}


def _common_data(mesh: Mesh, comm: Communicator) -> dict[str, NDArray[Any]]:
    """The cell data that any process has; not a number where this one has none."""
    shapes = comm.allgather({name: own.shape[1:] for name, own in mesh.cell_data.items()})
    known = {name: shape for own in shapes for name, shape in own.items()}
    nothing = {name: np.full((mesh.n_cells, *shape), np.nan) for name, shape in known.items()}
    return {name: mesh.cell_data.get(name, nothing[name]) for name in known}


def part_of(
    comm: Communicator,
    points: Array,
    ids: Indices,
    arrays: Sequence[CellArray],
    labels: Labels,
    regions: Mapping[str, Indices],
    boundaries: Mapping[str, list[Indices]],
    lower: Mapping[tuple[int, str], list[Indices]],
    cell_data: Mapping[str, NDArray[Any]],
) -> Mesh:
    """Make a part of a mesh from what this process has read; collective; points [n, 2 or 3], ids [n]."""
    arrays = common_arrays(arrays, comm)
    dims = {array.shape.dim for array in arrays}
    ends = np.concatenate([points.min(axis=0, initial=np.inf), -points.max(axis=0, initial=-np.inf)])
    extent = -np.min(comm.allgather(ends), axis=0).reshape(2, -1).sum(axis=0)
    flat = dims == {2} and len(extent) == 3 and is_flat(extent, labels.name if comm.rank == 0 else "")
    with comm.together():
        if len(dims) != 1:
            raise labels.error("there are no cells, or cells of several dimensions")
        sets: dict[str, Any] = {"regions": regions, "boundaries": boundaries, "lower": lower, "cell_data": cell_data}
        found = mesh_of(points, arrays, labels, periodic=(), flat=flat, **sets)
    first = sum(comm.allgather(found.n_cells)[: comm.rank])
    return _sides_once(
        Cells(
            found.points,
            [CellArray(own.shape, own.order, own.nodes, own.indices) for own in found.cells],
            [own.vertices for own in found.cells],
            ids[unique(np.concatenate([own.corners.ravel() for own in found.cells]))],
            first + np.arange(found.n_cells),
            common_names(found.regions, comm),
            common_names(found.entity_sets, comm, 2),
            {
                "name": found.name,
                "n_mirrored": int(comm.sum(found.n_mirrored)),
                "cell_data": _common_data(found, comm),
                "numbers": frozen(np.empty(0, np.int64) if found.numbers is None else found.numbers),
            },
        ).mesh(comm)
    )


def _sides_once(mesh: Mesh) -> Mesh:
    """Keep each named side that processes share on one of them: that of the cell of lower number; collective."""
    assert mesh.part is not None
    sides = {}
    for (dim, name), pairs in mesh.entity_sets.items():
        ids, n = mesh.entity_ids(dim, pairs), (mesh.n_vertices, mesh.edges.count, mesh.faces.count)[dim]
        numbers = np.full(n, np.iinfo(np.int64).max)
        numbers[ids] = mesh.part.cells[pairs[:, 0]]
        least = combined(mesh.comm, numbers, mesh.shared[dim], np.minimum)
        sides[dim, name] = pairs[least[ids] == numbers[ids]]
    return replace(mesh, **named_entities(mesh.dim, sides))


def moved(mesh: Mesh, owners: Indices) -> Mesh:
    """Move the cells of a mesh to other processes; collective; owners [n_cells]."""
    part = mesh.part
    assert part is not None
    comm = part.comm
    given = comm.alltoall({rank: packed(mesh, np.flatnonzero(owners == rank)) for rank in range(comm.size)})
    return unpacked(list(given.values())).mesh(comm, part.hanging)


def unpacked(given: Sequence[Mapping[str, Any]]) -> Cells:
    """Join cells that `packed` has taken out of the parts of one mesh."""
    numbers = np.concatenate([own["numbers"] for own in given])
    order = np.argsort(numbers)
    place = np.empty(len(order), dtype=np.int64)  # from positions as given to positions in order
    place[order] = np.arange(len(order))
    starts = np.cumsum([0, *(len(own["numbers"]) for own in given)])
    file = np.concatenate([own["record"]["numbers"] for own in given])[order]
    points = np.concatenate([own["points"] for own in given])
    point_of, first = np.arange(len(points)), np.cumsum([0, *(len(own["points"]) for own in given)])
    if len(given) > 1:  # which have points in common
        points, point_of = np.unique(points, axis=0, return_inverse=True)
    cells, vertices = [], []
    for position, (shape, geometry_order) in enumerate(given[0]["shapes"]):
        rows = np.concatenate([own["cells"][position] + start for own, start in zip(given, starts, strict=False)])
        nodes = np.concatenate([own["nodes"][position] + start for own, start in zip(given, first, strict=False)])
        by_number = np.argsort(place[rows])
        vertices.append(np.concatenate([own["vertices"][position] for own in given])[by_number])
        nodes, indices = point_of.ravel()[nodes[by_number]], place[rows][by_number]
        cells.append(CellArray(shape, geometry_order, nodes, indices))
    regions = {
        name: np.sort(place[np.concatenate([own["regions"][name] + s for own, s in zip(given, starts, strict=False)])])
        for name in given[0]["regions"]
    }
    sides = {
        name: np.concatenate([own["sides"][name] + [[s, 0]] for own, s in zip(given, starts, strict=False)])
        for name in given[0]["sides"]
    }
    known = np.concatenate([own.ravel() for own in vertices])
    first_place, vertex = distinct(known.copy(), int(known.max(initial=0)) + 1)
    ends = np.cumsum([own.size for own in vertices])
    vertices = [own.reshape(old.shape) for own, old in zip(np.split(vertex, ends), vertices, strict=False)]
    parts = [own["record"]["cell_data"] for own in given]
    data = {name: np.concatenate([own[name] for own in parts])[order] for name in parts[0]}
    record = {**given[0]["record"], "numbers": frozen(file), "cell_data": data}
    return Cells(points, cells, vertices, known[first_place], numbers[order], regions, sides_of(sides, place), record)


def sides_of(given: Sets, number: Indices) -> dict[tuple[int, str], Indices]:
    """Named entities of the cells that have a new number, which is -1 for others; number [n_cells]."""
    turned = {name: np.column_stack([number[own[:, 0]], own[:, 1]]) for name, own in given.items()}
    return {name: own[own[:, 0] >= 0] for name, own in turned.items()}


def numbers_of(mesh: Mesh) -> Indices:
    """Number the cells of a mesh as in the whole mesh; -> [n_cells]."""
    return np.arange(mesh.n_cells) if mesh.part is None else mesh.part.cells


def packed(mesh: Mesh, chosen: Indices) -> dict[str, Any]:
    """Take cells out of a mesh for `unpacked`, numbered by their positions in `chosen` [n]."""
    new = np.full(mesh.n_cells, -1, dtype=np.int64)
    new[chosen] = np.arange(len(chosen))
    cells, nodes, vertices = [], [], []
    for group in mesh.cells:
        rows = np.flatnonzero(new[group.indices] >= 0)
        cells.append(new[group.indices[rows]])
        nodes.append(group.nodes[rows])
        own = group.vertices[rows]
        vertices.append(own if mesh.part is None else mesh.part.vertices[own])
    used = marked(len(mesh.points), nodes)
    new_point = np.cumsum(used) - 1
    numbers = numbers_of(mesh)[chosen]
    return {
        "shapes": [(group.shape, group.order) for group in mesh.cells],
        "cells": cells,
        "points": mesh.points[used],
        "nodes": [new_point[own] for own in nodes],
        "vertices": vertices,
        "numbers": numbers,
        "regions": {name: new[own[new[own] >= 0]] for name, own in mesh.regions.items()},
        "sides": sides_of(mesh.entity_sets, new),
        "record": record_of(mesh, chosen, numbers + 1 if mesh.numbers is None else mesh.numbers[chosen]),
    }
