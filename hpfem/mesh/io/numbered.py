"""Nodes, elements and sides of elements by numbers of their own, as Abaqus and Nastran files refer to them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from hpfem.errors import MeshError
from hpfem.shapes import get_shape
from hpfem.shapes.arguments import shown
from hpfem.shapes.arrays import Array, Indices

from ..node_order import serendipity_nodes, vtk_nodes
from .mesh_file import KINDS, Elements, MeshFile, canonical, joined, positions
from .text import parsed_numbers

_INCOMPLETE = (8, 13, 15, 20)
# Corners of the sides S1, S2, ... of Abaqus's elements, in the files' order of corners.
_SIDES = {
    "tri": "01 12 20",
    "quad": "01 12 23 30",
    "tet": "012 031 132 230",
    "pyramid": "0123 014 124 234 304",
    "prism": "012 354 0143 1254 2035",
    "hex": "0123 4765 0154 1265 2376 3047",
}


def numbers_by_line(text: bytes) -> tuple[Array, Indices]:
    """Read numbers separated by white space or commas, an empty field is 0; -> numbers, how many in each line."""
    text = re.sub(rb",(?=[ \t]*,)", b",0", text).translate(bytes.maketrans(b",dD\r", b" ee\n"))
    counts = np.fromiter(map(len, map(bytes.split, text.split(b"\n"))), dtype=np.int64)
    return parsed_numbers(text)[0], counts[counts > 0]


def numbered_mesh(
    nodes: Indices,
    points: Array,
    blocks: Sequence[tuple[int, Indices, Indices]],
    sets: Mapping[str, Indices],
    point_sets: Mapping[str, Indices],
    sides: Sequence[tuple[str, Indices, int]],
    warnings: Sequence[str],
) -> MeshFile:
    """Make a mesh of nodes and elements that have numbers; nodes [n], points [n, 3]."""
    row_of, told = positions(nodes, "node"), list(warnings)
    find = positions(joined([ids for _, ids, _ in blocks]), "element")

    def found(what: str, name: str, rows: Indices) -> Indices:
        if (rows < 0).any():
            told.append(f"{(rows < 0).sum()} {what} of set {shown(name)} are not in the mesh")
        return np.unique(rows[rows >= 0])

    members = {name: found("elements", name, find(ids)) for name, ids in sets.items()}
    with_side = [(name, found("elements", name, find(ids)), side) for name, ids, side in sides]
    elements: list[Elements] = []
    start = 0

    def of_block(rows: Indices) -> Indices:
        low, high = np.searchsorted(rows, [start, start + len(ids)])
        return rows[low:high] - start

    for dim, ids, numbers in blocks:
        width, rows_of_nodes = numbers.shape[1], row_of(numbers)
        cell, order = KINDS[dim][width]
        reference = serendipity_nodes("vtk", cell) if order == 2 and width in _INCOMPLETE else vtk_nodes(cell, order)
        own = {name: here for name, rows in members.items() if len(here := of_block(rows))}
        elements.append(canonical(get_shape(cell), order, reference, rows_of_nodes, ids, own))
        for name, side_rows, side in with_side:
            if not len(rows := of_block(side_rows)):
                continue
            if not (corners := _SIDES.get(cell, "").split()[side - 1 : side]):
                raise MeshError(f"element {ids[rows[0]]} of set {shown(name)} has no side {side}")
            shape = get_shape(("segment", "tri", "quad")[len(corners[0]) - 2])
            ends, named = rows_of_nodes[rows][:, list(map(int, corners[0]))], {name: np.arange(len(rows))}
            elements.append(canonical(shape, 1, vtk_nodes(shape, 1), ends, ids[rows], named))
        start += len(ids)
    pins = {name: found("nodes", name, row_of(ids)) for name, ids in point_sets.items()}
    return MeshFile(points, elements, point_sets=pins, warnings=told)
