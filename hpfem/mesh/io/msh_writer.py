"""Write the gmsh format MSH 4.1, binary: the one format with complete cells of all shapes and orders, and their names.

Cells that have the same names lie on one entity of the model. A block is a run of cells of one entity, so that they
keep their order; their numbers are those in the mesh. Named points, edges and sides come before them, in the order of
their names, which counts where values meet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import BinaryIO

import numpy as np

from hpfem.errors import ArgumentError
from hpfem.shapes import Shape, equispaced_nodes
from hpfem.shapes.arguments import shown
from hpfem.shapes.arrays import Array, Indices, Mask
from hpfem.shapes.cached import cached_property

from ..cells import CellArray
from ..named_sets import Sets
from ..node_order import gmsh_nodes, permutation
from ..sorting import TupleIndex, marked, run_starts
from ..symmetry import entity_nodes
from ..topology import Topology
from .msh import ELEMENT_TYPES

_NUMBER_OF = {cell_type: number for number, cell_type in ELEMENT_TYPES.items()}


@dataclass(frozen=True, eq=False)
class _Elements:
    """Elements of one shape and order: their nodes in our order, and their names as flags, [E, n_names]."""

    shape: Shape
    order: int
    nodes: Indices
    numbers: Indices
    names: Mask

    @cached_property
    def by_names(self) -> tuple[Mask, Indices]:
        """The sets of names that occur, in order, and which of them each element has, [E]."""
        which = TupleIndex(np.column_stack([np.zeros(len(self.names), np.int8), self.names]), 2).ids
        first = np.empty(int(which.max(initial=-1)) + 1, dtype=np.int64)
        first[which] = np.arange(len(which))
        return self.names[first], which


def write_msh(file: BinaryIO, points: Array, topology: Topology, regions: Mapping[str, Indices], sides: Sets) -> None:
    """Write a mesh; points [n, D], sides [n, 2]."""
    dim, number = topology.dim, 1 + topology.n_cells
    elements: dict[int, list[_Elements]] = {}
    names: dict[int, list[str]] = {}
    for own in range(dim):
        named = {name: pairs for (of, name), pairs in sides.items() if of == own}
        if named or own == dim - 1:
            elements[own], names[own] = list(_sides(topology, own, named, number)), list(named)
            number += sum(map(len, (each.nodes for each in elements[own])))
    elements[dim], names[dim] = [_cells(array, topology, regions) for array in topology.cells], list(regions)
    for name in (name for own in names.values() for name in own):
        if f"-{name}-".splitlines() != [f"-{name}-"] or not name.isprintable():
            raise ArgumentError(f"a mesh file cannot have the name {shown(name)}; give one on one line")
    file.write(b"$MeshFormat\n4.1 1 8\n" + _int(1) + b"\n$EndMeshFormat\n")
    lines = [f'{own} {tag} "{name}"' for own in names for tag, name in enumerate(names[own], start=1)]
    file.write("\n".join(["$PhysicalNames", str(len(lines)), *lines, "$EndPhysicalNames", ""]).encode())
    entities = {own: _entities(of_dim) for own, of_dim in elements.items()}
    _write_entities(file, entities, points)
    count = len(points)
    file.write(b"$Nodes\n" + _size(1, count, 1, count) + _int(dim, 1, 0) + _size(count))
    file.write(np.arange(1, count + 1, dtype="<u8").tobytes())
    padded = np.zeros((count, 3), dtype="<f8")
    padded[:, : points.shape[1]] = points
    file.write(padded.tobytes() + b"\n$EndNodes\n")
    _write_elements(file, [(entities[own], elements[own]) for own in elements])


def _int(*numbers: int) -> bytes:
    return np.array(numbers, dtype="<i4").tobytes()


def _size(*numbers: int) -> bytes:
    return np.array(numbers, dtype="<u8").tobytes()


def _cells(array: CellArray, topology: Topology, regions: Mapping[str, Indices]) -> _Elements:
    names = np.zeros((len(array), len(regions)), dtype=bool)
    for column, members in enumerate(regions.values()):
        names[:, column] = marked(topology.n_cells, [members])[array.indices]
    return _Elements(array.shape, array.order, array.nodes, array.indices + 1, names)


def _sides(topology: Topology, dim: int, named: Mapping[str, Indices], number: int) -> Iterator[_Elements]:
    """Facets, edges or vertices with a name, once each, with numbers from one on."""
    pairs = np.concatenate([np.empty((0, 2), dtype=np.int64), *named.values()])
    distinct, which = np.unique(pairs, axis=0, return_inverse=True)
    names = np.zeros((len(distinct), len(named)), dtype=bool)
    column = np.repeat(np.arange(len(named)), [len(own) for own in named.values()])
    names[which.ravel(), column] = True
    position_of, row = (own[distinct[:, 0]] for own in topology.locations)
    for position, local, entity in topology.local_entities(dim):
        chosen = np.flatnonzero((position_of == position) & (distinct[:, 1] == local))
        if len(chosen):
            array = topology.cells[position]
            nodes = array.nodes[row[chosen]][:, entity_nodes(array.shape, array.order, dim, local)]
            numbers = np.arange(number, number + len(chosen))
            yield _Elements(entity.shape, array.order if dim else 1, nodes, numbers, names[chosen])
            number += len(chosen)


_Entities = dict[tuple[bool, ...], tuple[int, list[Indices]]]  # names -> tag, nodes of the elements on it


def _entities(elements: Sequence[_Elements]) -> _Entities:
    """An entity for each set of names that elements have, by the last of these names, then by the first."""
    found: dict[tuple[bool, ...], list[Indices]] = {}
    for own in elements:
        distinct, which = own.by_names
        for number, names in enumerate(distinct):
            nodes = np.flatnonzero(marked(int(own.nodes.max()) + 1, [own.nodes[which == number]]))
            found.setdefault(tuple(names.tolist()), []).append(nodes)
    order = sorted(found, key=lambda names: (np.flatnonzero(names).max(initial=-1), np.logical_not(names).tolist()))
    return {names: (tag, found[names]) for tag, names in enumerate(order, start=1)}


def _write_entities(file: BinaryIO, entities: Mapping[int, _Entities], points: Array) -> None:
    file.write(b"$Entities\n" + _size(*(len(entities.get(dim, {})) for dim in range(4))))
    for dim in sorted(entities):
        for names, (tag, nodes) in entities[dim].items():
            own = points[np.concatenate(nodes)]
            corners = np.zeros((2 if dim else 1, 3), dtype="<f8")  # of a box, or a point
            corners[:, : points.shape[1]] = (own.min(axis=0), own.max(axis=0))[: len(corners)]
            groups = [number for number, has in enumerate(names, start=1) if has]
            file.write(_int(tag) + corners.tobytes() + _size(len(groups)) + _int(*groups) + (_size(0) if dim else b""))
    file.write(b"\n$EndEntities\n")


def _write_elements(file: BinaryIO, parts: Sequence[tuple[_Entities, Sequence[_Elements]]]) -> None:
    blocks, total = [], 0
    for entities, elements in parts:
        of_dim = []
        for own in elements:
            number = _NUMBER_OF.get((own.shape.name, own.order))
            if number is None:
                raise ArgumentError(f"the format of gmsh has no {own.shape.name} of order {own.order}, only lower ones")
            nodes = own.nodes
            if own.shape.dim:
                k = own.order
                nodes = nodes[:, permutation(equispaced_nodes(own.shape, k), gmsh_nodes(own.shape, k), k)]
            table = np.column_stack([own.numbers, nodes + 1]).astype("<u8")
            distinct, which = own.by_names
            tags = np.array([entities[tuple(names)][0] for names in distinct.tolist()], dtype=np.int64)[which]
            starts = np.flatnonzero(run_starts(tags))
            for start, end in zip(starts, [*starts[1:], len(tags)], strict=True):
                head = _int(own.shape.dim, tags[start], number) + _size(end - start)
                of_dim.append((tags[start], head, table[start:end]))
            total += len(table)
        blocks += of_dim if entities is parts[-1][0] else sorted(of_dim, key=itemgetter(0))  # cells keep their order
    file.write(b"$Elements\n" + _size(len(blocks), total, 1, total))
    for _, head, table in blocks:
        file.write(head + table.tobytes())
    file.write(b"\n$EndElements\n")
