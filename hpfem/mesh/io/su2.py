"""SU2's grids: cells by VTK's type numbers, boundaries by the names of markers.

meshio 5.3.5 replaces the names by numbers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hpfem.errors import MeshError
from hpfem.shapes.arrays import Array, Indices

from .mesh_file import Elements, MeshFile
from .numbered import numbers_by_line
from .text import as_integers, count_in, sections_of, within
from .vtk_cells import cell_blocks

# Number of nodes by VTK's type; -1 for other types.
_OF_TYPE = {3: 2, 5: 3, 9: 4, 10: 4, 12: 8, 13: 6, 14: 5} | {21: 3, 22: 6, 23: 8, 24: 10, 25: 20, 26: 15, 27: 13}
_WIDTHS = np.array([_OF_TYPE.get(kind, -1) for kind in range(29)])


def read_su2(data: bytes) -> MeshFile:
    """Read an SU2 grid."""
    points, elements, marker, named, told = None, list[Elements](), "", set[str](), []
    stated: dict[str, int | None] = {}
    for line, head, body in sections_of(data, rb"[A-Z_]+[ \t]*=[^\n]*?", rb"%"):
        key, value = (" ".join(part.split()) for part in head.split("=", 1))
        number = count_in(value.partition(" ")[0] if key == "NPOIN" else value)  # and those of this process alone
        with within(f"line {line}, {key}= {value}"):
            if (key == "NZONE" and number != 1) or (key in ("NDIME", "NPOIN", "NELEM", "NMARK") and key in stated):
                raise MeshError("several zones are not read; write one file for each")
            stated[key] = number
            if key == "MARKER_TAG":
                marker = value
            elif key == "NPERIODIC" and number:
                told.append("periodic boundaries (NPERIODIC) are not read")
            if key not in ("NPOIN", "NELEM", "MARKER_ELEMS"):
                continue
            numbers, counts = numbers_by_line(body)
            if len(counts) != number:
                raise MeshError(f"{len(counts)} lines follow")
            if key == "NPOIN":
                points = _points(numbers, counts, stated.get("NDIME"))
                continue
            blocks = _cells(as_integers(numbers), counts, 1 + sum(map(len, elements)))
            if key == "MARKER_ELEMS":
                if not marker:
                    raise MeshError("there is no MARKER_TAG= above")
                named.add(marker)
                blocks = [replace(own, sets={marker: np.arange(len(own))}) for own in blocks]
            elements += blocks
    if points is None:
        raise MeshError("the file has no points (NPOIN)")
    if stated.get("NMARK", len(named)) != len(named):
        raise MeshError(f"NMARK= {stated['NMARK']}, but {len(named)} markers with elements follow")
    return MeshFile(points, elements, warnings=told)


def _points(numbers: Array, counts: Indices, dim: int | None) -> Array:
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
    widths = _WIDTHS[types.clip(0, len(_WIDTHS) - 1)]
    if (wrong := (widths < 0) | ((counts != widths + 1) & (counts != widths + 2))).any():
        place = int(np.argmax(wrong))
        raise MeshError(
            f"element {first + place} of VTK type {types[place]} has {counts[place] - 1} numbers, not its nodes"
        )
    offsets = np.append(0, np.cumsum(widths))
    at = np.repeat(start + 1 - offsets[:-1], widths) + np.arange(offsets[-1])
    return cell_blocks(numbers[at], offsets, types, {}, before_2_1=False, first_number=first)
