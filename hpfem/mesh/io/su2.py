"""SU2's grids: cells by VTK's type numbers, boundaries by the names of markers.

meshio 5.3.5 replaces the names by numbers.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from hpfem.errors import MeshError

from ..cells import Array
from ..symmetry import Indices
from .mesh_file import Elements, MeshFile, as_integers, count_in
from .numbered import numbers_by_line
from .vtk_cells import cell_blocks

# Number of nodes by VTK's type.
_WIDTHS = {3: 2, 5: 3, 9: 4, 10: 4, 12: 8, 13: 6, 14: 5} | {21: 3, 22: 6, 23: 8, 24: 10, 25: 20, 26: 15, 27: 13}


def read_su2(data: bytes) -> MeshFile:
    """Read an SU2 grid."""
    words = re.split(rb"(?m)^[ \t]*([A-Z_]+)[ \t]*=([^\n]*)", re.sub(rb"%[^\n]*", b"", data))
    sections = [
        (key.decode(), value.decode("utf-8", "replace").split(), body)
        for key, value, body in zip(*[iter(words[1:])] * 3)
    ]
    dim, points, elements, marker = 0, None, list[Elements](), ""
    for key, value, body in sections:
        number = count_in(value[0]) if value else None
        if key == "NDIME":
            dim = number or 0
        elif key == "MARKER_TAG":
            marker = value[0] if value else ""
        elif (key == "NZONE" and number != 1) or (key == "NPOIN" and points is not None):
            raise MeshError("several zones are not read; write one file for each")
        elif key in ("NPOIN", "NELEM", "MARKER_ELEMS"):
            numbers, counts = numbers_by_line(body)
            if len(counts) != number:
                raise MeshError(f"{key}= {' '.join(value)}, but {len(counts)} lines follow")
            if key == "NPOIN":
                points = _points(numbers, counts, dim)
                continue
            first = 1 + sum(map(len, elements))
            blocks = _cells(as_integers(numbers), counts, first)
            elements += [replace(own, sets={marker: np.arange(len(own))} if key != "NELEM" else {}) for own in blocks]
    if points is None:
        raise MeshError("the file has no points (NPOIN)")
    return MeshFile(points, elements)


def _points(numbers: Array, counts: Indices, dim: int) -> Array:
    """Coordinates, without the number of the point that may follow them."""
    if dim not in (2, 3) or len(set(counts)) != 1 or counts[0] not in (dim, dim + 1, dim + 2):
        raise MeshError(f"points of {dim} coordinates (NDIME) were expected")
    table = numbers.reshape(len(counts), -1)
    if counts[0] > dim and not np.array_equal(table[:, dim], np.arange(len(table))):
        raise MeshError("the numbers of the points do not count from 0")
    return table[:, :dim]


def _cells(numbers: Indices, counts: Indices, first: int) -> list[Elements]:
    """Elements of lines of a type, nodes, and maybe a number."""
    start = np.cumsum(counts) - counts
    types = numbers[start]
    widths = np.array([_WIDTHS.get(int(kind), -1) for kind in types], dtype=np.int64)
    if (wrong := (widths < 0) | ((counts != widths + 1) & (counts != widths + 2))).any():
        place = int(np.argmax(wrong))
        raise MeshError(
            f"element {first + place} of VTK type {types[place]} has {counts[place] - 1} numbers, not its nodes"
        )
    offsets = np.append(0, np.cumsum(widths))
    within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], widths)
    return cell_blocks(
        numbers[np.repeat(start + 1, widths) + within], offsets, types, {}, before_2_1=False, first_number=first
    )
