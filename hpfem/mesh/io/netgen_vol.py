"""Netgen's text format .vol: cells of all shapes, straight and of second order, and their names.

A section is a line with its keyword, one with a count, and so many rows. Second-order cells have nodes in the middles
of their edges. meshio 5.3.5 reads no file of today's netgen, which has other sections of segments.
"""

from __future__ import annotations

import numpy as np

from hpfem.errors import MeshError
from hpfem.shapes import get_shape
from hpfem.shapes.arrays import Array

from ..named_sets import looked_up
from ..node_order import gmsh_nodes, serendipity_nodes
from .mesh_file import KINDS, Elements, MeshFile, canonical, tagged
from .text import as_integers, count_in, counted_rows, parsed_numbers, sections_by_keyword, within

_NOT_HERE = (9, 15)  # numbers of nodes that its cells do not have
# Sections of elements: their dimension, columns of the tag and of the first node, number of columns of an element
# beside its nodes, and of each of its nodes.
_ELEMENTS = {
    "pointelements": (0, 1, 0, 1, 1),
    "edgesegments": (1, 0, 2, 2, 1),
    "edgesegmentsgi": (1, 0, 2, 4, 1),
    "edgesegmentsgi2": (1, 0, 2, 10, 1),
    "edgesegmentsgi3": (1, 6, 0, 5, 1),
    "surfaceelements": (2, 1, 5, 5, 1),
    "surfaceelementsgi": (2, 1, 5, 5, 2),
    "surfaceelementsuv": (2, 1, 5, 5, 3),
    "volumeelements": (3, 0, 2, 2, 1),
}
# Other sections of numbers, and their columns.
_TABLES = {"points": 3, "facedescriptors": 5, "identifications": 3, "identificationtypes": 1}
# Names of elements by codimension.
_NAMES = ("materials", "bcnames", "cd2names", "cd3names", "edgedescriptors")
_UNUSED = {"mesh3d", "geomtype", "identificationnames", "face_colours", "face_transparencies", "singular_points"}
_UNUSED |= {f"singular_{side}" for side in ("edge_left", "edge_right", "face_inside", "face_outside")}
_PERIODIC = 2  # a type of identification


def read_vol(data: bytes) -> MeshFile:
    """Read the content of a netgen file."""
    tables: dict[str, Array] = {}
    names: dict[str, dict[int, str]] = {}
    elements: list[Elements] = []
    warnings, dim = [], 3
    sections = sections_by_keyword(data, "endmesh", words="identificationnames")
    if "points" not in sections:
        raise MeshError("there is no section points")
    for name in sorted(sections, key=lambda name: name in _ELEMENTS):  # elements need all others
        section = sections[name]
        with within(f"section {name}"):
            if name in _ELEMENTS:
                elements += _elements(name, section, dim, tables, names)
            elif name in _TABLES:
                values = _numbers(section)
                if values[0] * _TABLES[name] != len(values) - 1:
                    raise MeshError(f"{values[0]:.0f} rows are announced, which is not what there are")
                tables[name] = values[1:].reshape(-1, _TABLES[name])
            elif name in _NAMES:
                names[name] = _names(section, name == "edgedescriptors")
            elif name == "dimension":
                dim = int(as_integers(_numbers(section))[0])
                if dim not in (1, 2, 3):
                    raise MeshError(f"2 or 3 was expected, not {dim}")
            elif name == "curvedelements":
                raise MeshError(
                    "it has functions of netgen's own, which cannot be read; curve the mesh by SecondOrder() in "
                    "netgen, not by Curve(), or export it to gmsh"
                )
            elif name not in _UNUSED:
                warnings.append(f"section {name[:40]!r} is not known and left out")
    pairs = as_integers(tables.get("identifications", np.empty((0, 3))))
    types = as_integers(tables.get("identificationtypes", np.empty((0, 1))))[:, 0]
    periodic = [pairs[pairs[:, 2] == k, :2] - 1 for k in np.flatnonzero(types == _PERIODIC) + 1]
    return MeshFile(tables["points"], elements, periodic, warnings=warnings)


def _numbers(section: bytes) -> Array:
    """At least one number."""
    numbers = parsed_numbers(section)[0]
    if not len(numbers):
        raise MeshError("there is no count")
    return numbers


def _names(section: bytes, by_position: bool) -> dict[int, str]:
    """Names by number, or by position where rows have seven other numbers before the name; names may have spaces."""
    first, *rows = [line for line in section.decode("utf-8", "replace").split("\n") if line.strip()] or [""]
    if count_in(first) != len(rows):
        raise MeshError(f"{first[:20]!r} rows are announced, {len(rows)} found")
    columns = 8 if by_position else 1
    words = [row.split(maxsplit=columns) for row in rows]
    numbers = [position if by_position else count_in(row[0]) for position, row in enumerate(words, start=1)]
    return {number: row[-1] for number, row in zip(numbers, words, strict=True) if number and len(row) > columns}


def _elements(
    name: str, section: bytes, dim: int, tables: dict[str, Array], names: dict[str, dict[int, str]]
) -> list[Elements]:
    """Elements of a section, those with equally many nodes together."""
    of_dim, tag, first, beside, of_node = _ELEMENTS[name]
    # The number of nodes stands before the first one where it is not always the same.
    lengths = {float(size): beside + of_node * size for size in KINDS[of_dim] if size not in _NOT_HERE}
    codim = dim - of_dim
    known = names.get("edgedescriptors" if name == "edgesegmentsgi3" else _NAMES[codim] if 0 <= codim < 4 else "", {})
    if codim == 2 and name == "edgesegmentsgi2":
        tag = 8  # the edge; column 0 has a face
    result = []
    for size, (rows, table) in counted_rows(_numbers(section), first - 1 if of_dim > 1 else -1, lengths).items():
        tags = as_integers(table[:, tag])
        if name == "edgesegmentsgi3":
            tags = tags + 1  # from 0
        elif of_dim == 3:
            tags = np.maximum(tags, 1)
        elif of_dim == dim and "facedescriptors" in tables:
            faces = tables["facedescriptors"][:, [0, 4, 1, 2]] + [1, 0, 0, 0]
            for position, face in enumerate(faces, start=1):
                tags[(table[:, :4] == face).all(axis=1)] = position
        if codim > 1:  # only what has a name is meant
            tags = np.where(np.isin(tags, [tag for tag, text in known.items() if text != "default"]), tags, 0)
        cell, order = KINDS[of_dim][int(size)]
        shape = get_shape(cell)
        reference = gmsh_nodes(shape, 1) if order == 1 else serendipity_nodes("netgen", shape)
        nodes = as_integers(table[:, first : first + int(size)]) - 1
        nodes = looked_up(np.arange(len(tables["points"])), nodes)
        result.append(canonical(shape, order, reference, nodes, rows + 1, tagged(tags, known)))
    return result
