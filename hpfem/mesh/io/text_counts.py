"""Points, cells and names in the text of files that meshio reads, to compare with what it has read.

None of: tetgen (two files, whose headers its reader checks), and formats that are not text.
"""

from __future__ import annotations

import re
from pathlib import Path

from hpfem.errors import MeshError
from hpfem.shapes.arguments import shown

from ...support.files import read_file
from .text import as_text

_START = rb"\A(?:\s*(?:OFF|#[^\n]*\n))*\s*"
_DOLFIN = rb"<(?:interval|triangle|quadrilateral|tetrahedron|hexahedron)\s"
_MEDIT = rb"(?:Edges|Triangles|Quadrilaterals|Tetrahedra|Prisms|Pyramids|Hexahedra|Hexaedra)"
_MDPA = rb"(?ms)^[ \t]*Begin %s[^\n]*\n(.*?)^[ \t]*End %s"
_PERMAS = rb"(?ms)^\$%s[^\n]*\n(.*?)(?=^\$|\Z)"
_ROW = rb"(?m)^[ \t]*\d+\s"
# Regular expressions of points and of cells: of the part of the text, if two; matches count 1, or the numbers in them.
_COUNTS: dict[str, tuple[tuple[bytes, ...], tuple[bytes, ...]]] = {
    "avsucd": ((_START + rb"(\d+)",), (_START + rb"\d+\s+(\d+)",)),
    "dolfin-xml": ((rb"<vertex\s",), (_DOLFIN,)),
    "flac3d": ((rb"(?m)^[ \t]*G\s",), (rb"(?m)^[ \t]*[ZF]\s",)),
    "mdpa": ((_MDPA % (b"Nodes", b"Nodes"), _ROW), (_MDPA % ((b"(?:Elements|Conditions)",) * 2), _ROW)),
    "medit": ((rb"(?m)^[ \t]*Vertices\s+(\d+)",), (rb"(?m)^[ \t]*" + _MEDIT + rb"\w*\s+(\d+)",)),
    "obj": ((rb"(?m)^[ \t]*v\s",), (rb"(?m)^[ \t]*f\s",)),
    "off": ((_START + rb"(\d+)",), (_START + rb"\d+\s+(\d+)",)),
    "permas": ((_PERMAS % b"COOR", _ROW), (_PERMAS % b"ELEMENT", _ROW)),
    "ply": ((rb"(?m)^element vertex\s+(\d+)",), (rb"(?m)^element face\s+(\d+)",)),
    "stl": ((), (rb"(?m)^[ \t]*facet\s",)),
    "tecplot": ((rb"(?i)\bN(?:ODES)?\s*=\s*(\d+)",), (rb"(?i)\bE(?:LEMENTS)?\s*=\s*(\d+)",)),
    "ugrid": ((rb"\A\s*(\d+)",), (rb"\A\s*\d+((?:\s+\d+){6})",)),
    "wkt": ((), (rb"\(\s*\([^()]*\)\s*\)",)),
}
# Where meshio passes over the numbers of the nodes.
_COUNTED = {"mdpa"}
_NAMES = {
    "mdpa": rb"(?m)^[ \t]*Begin SubModelPart\s+(\S+)",
    "obj": rb"(?m)^[ \t]*[go][ \t]+([^\n]*\S)",
    "permas": rb"(?m)^\$[NE]SET\b.*?=\s*(\S+)",
    "stl": rb"(?m)^[ \t]*solid[ \t]+([^\n]*\S)",
    # A line behind eight numbers that is none itself, as members of groups are.
    ".unv": rb"(?m)^[ \t]*(?:\d+[ \t]+){7}\d+[ \t]*\r?\n(?![ \t\d]+\r?$)[ \t]*(?!-1\b)(\S[^\r\n]*)",
}
# Second-order cells that meshio does not read, or in whose nodes it keeps the format's order.
_NOT_READ = {
    "medit": rb"(?m)^[ \t]*((?:Edges|Triangles|Quadrilaterals|Tetrahedra|Prisms|Pyramids|Hexahedra)[PQ]\d)",
    "permas": rb"(?im)^\$ELEMENT\s+TYPE\s*=\s*(\w*(?:TRIMS6|LOADA[689]|PLOTA[89]|QUAMS[89]|HEXE2[07]|TET10|PENTA15))",
    "tetgen": rb"\A\s*(?:#[^\n]*\n\s*)*\d+[ \t]+(10)[ \t]",
}


def text_of(reader: str, file: Path) -> bytes:
    """The file, if there is something to look for in it; else nothing."""
    return read_file(file) if reader in {*_COUNTS, *_NAMES, *_NOT_READ} else b""


def check_counts(reader: str, text: bytes, n_points: int, n_cells: int) -> list[str]:
    """Compare what meshio has read with the text of the file."""
    if b"\0" in text[:4096] or reader not in _COUNTS:
        return []
    for what, patterns, count in zip(("points", "cells"), _COUNTS[reader], (n_points, n_cells), strict=True):
        if not patterns:
            continue
        *outer, pattern = patterns
        found = re.findall(pattern, b"".join(re.findall(outer[0], text)) if outer else text)
        stated = re.compile(pattern).groups > 0
        there = sum(int(word) for match in found for word in match.split()) if stated else len(found)
        if there != count:
            raise MeshError(f"meshio's reader of {reader} finds {count} {what}, but the file has {there}")
        if reader in _COUNTED and what == "points" and list(map(int, found)) != list(range(1, count + 1)):
            raise MeshError("the nodes do not count from 1, as meshio takes them")
    return [shown(name) for name in names_in(reader, text)]


def names_in(reader: str, text: bytes) -> list[str]:
    """Names of sets that are lost where meshio (its name of the format) or gmsh (a suffix) reads the text."""
    names = dict.fromkeys(re.findall(_NAMES.get(reader, b"(?!)"), text))
    return [as_text(name).strip() for name in names]


def check_second_order(reader: str, text: bytes) -> None:
    """Refuse cells that meshio does not read, or leaves in an order of nodes that is not VTK's."""
    if found := re.search(_NOT_READ.get(reader, b"(?!)"), text):
        raise MeshError(f"second-order cells of {reader} are not read: {found[1].decode()}")
