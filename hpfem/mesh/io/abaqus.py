"""Abaqus input files: nodes, elements, sets and surfaces, of a model of one part at most that is not moved.

meshio 5.3.5 gives sets over several tables the wrong cells, keeps only the last table of nodes, and passes over parts
and coordinate systems without a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from hpfem.errors import MeshError
from hpfem.shapes.arguments import shown
from hpfem.shapes.arrays import Indices

from .mesh_file import MeshFile, joined
from .numbered import numbered_mesh, numbers_by_line
from .text import as_integers, as_text, sections_of, within

# Names of element types by dimension; the group is the number of nodes, which lines show by themselves.
_TYPES = {
    3: r"(?:C|AC|DC|DCC|EC|QC|Q)3D(4|5|6|8|10|13|15|20)[A-UW-Z]*|SC([68])[A-Z]*|CSS(8)",
    2: r"(?:CPS|CPEG?|CG?AX|DCC?2D|DCC?AX|AC2D|ACAX|M3D|SFM3D|R3D|WARP2D|D?S|STRI)([34689])[A-Z]*5?",
    1: r"(?:T2D|T3D|DC1D|AC1D|R2D|RAX|RB2D|RB3D|B2|B3|D?SAX|MAX|SFMAX)\d[A-Z]*",
}
# Those of beams whose second node is their end; another one turns them.
_BEAMS = r"B[23][13].*"
_NO_CELLS = r"MASS|ROTARYI|HEATCAP|(?:SPRING|DASHPOT|CONN|GAP|DGAP|JOINT|PIPE|ELBOW|FRAME|DCOUP|IT[ST])\w*"
# Numbers that a range may have.
_MOST = 10**8
# Keywords that have nodes and elements; that make or move them; and that tie nodes together.
_TABLES = ("NODE", "ELEMENT", "NSET", "ELSET", "SURFACE")
_REFUSED = "INCLUDE SYSTEM NGEN NFILL NCOPY NMAP ELGEN ELCOPY IMPERFECTION PARAMETER".split()
_TIES = ("TIE", "MPC", "EQUATION", "EMBEDDED ELEMENT", "SHELL TO SOLID COUPLING")
_FLAT = "write the model without parts and assemblies (Abaqus/CAE: Edit Attributes, Do not use parts and assemblies)"


def read_abaqus(data: bytes) -> MeshFile:
    """Read an Abaqus input file."""
    nodes, points, blocks, told = [], [np.empty((0, 3))], [], dict[str, None]()
    # Numbers by keyword ("NSET", "ELSET") and name in upper case; the names, "" for internal ones, and where they are.
    sets: dict[tuple[str, str], list[Indices]] = {}
    names, owners, seen, assembly = dict[tuple[str, str], str](), dict[tuple[str, str], bool](), set[str](), False
    surfaces: list[tuple[str, str, str]] = []

    def add(keyword: str, members: list[Indices]) -> None:
        if name := options.get(keyword):
            key = (keyword, name.upper())
            if owners.setdefault(key, assembly) is not assembly:
                raise MeshError(f"{shown(name)} is in *PART and in *ASSEMBLY; {_FLAT}")
            sets.setdefault(key, []).extend(members)
            names.setdefault(key, "" if "INTERNAL" in options else name)

    def members(keyword: str, word: str) -> Indices:
        last = word.rpartition(".")[2]  # after the name of the instance
        for own in (word, last):
            if (keyword, own) in sets:
                sets[keyword, own] = [np.unique(joined(sets[keyword, own]))]
                return sets[keyword, own][0]
        if re.fullmatch("[0-9]{1,18}", last):
            return np.array([int(last)])
        raise MeshError(f"*{keyword} {shown(word)} is used, but not defined above")

    for place, keyword, options, body in _keywords(data):
        with within(place):
            given = next((f"{name}=" for name in ("SYSTEM", "INPUT") if name in options), "")
            type_name = options.get("TYPE", "").upper()
            if keyword in _REFUSED or (keyword in _TABLES and given):
                raise MeshError(f"{given or 'it'} is not read; write all nodes and elements out in one file")
            if keyword in ("PART", "INSTANCE") and (keyword in seen or body.strip() or "LIBRARY" in options):
                raise MeshError(f"several *PART or *INSTANCE, or one that is moved, are not read; {_FLAT}")
            seen.add(keyword)
            if keyword in _TIES:
                told[f"*{keyword} is not read; what it ties together is apart in the mesh"] = None
            elif keyword in ("ASSEMBLY", "END ASSEMBLY", "INSTANCE", "END INSTANCE"):
                assembly = keyword in ("ASSEMBLY", "END INSTANCE")
            elif keyword == "NODE" and assembly:
                told["nodes of *ASSEMBLY (reference points) are not read"] = None
            elif keyword == "NODE":
                numbers, counts = numbers_by_line(body)
                first, table = np.cumsum(counts) - counts, np.zeros((4, len(counts)))
                for column in range(4):
                    table[column, counts > column] = numbers[first[counts > column] + column]
                nodes.append(as_integers(table[0]))
                points.append(table[1:].T)
                add("NSET", [nodes[-1]])
            elif keyword == "ELEMENT" and re.fullmatch(_NO_CELLS, type_name):
                told[f"elements of type {type_name} are no cells and are left out"] = None
            elif keyword == "ELEMENT" and assembly:
                raise MeshError(f"elements in *ASSEMBLY are not read; {_FLAT}")
            elif keyword == "ELEMENT":
                blocks.append(_elements(type_name, body))
                add("ELSET", [blocks[-1][1]])
            elif keyword in ("NSET", "ELSET") and keyword in options:
                own = _members("GENERATE" in options, body)
                if {"NSET", "ELSET"} <= set(options):
                    told[f"the nodes of *NSET, ELSET={shown(options['ELSET'])} are not read"] = None
                elif assembly and "INSTANCE" not in options and any(not isinstance(part, str) for part in own):
                    told[
                        f"*{keyword} {shown(options[keyword])} is of nodes or elements of *ASSEMBLY and is not read"
                    ] = None
                else:
                    add(keyword, [members(keyword, part) if isinstance(part, str) else part for part in own])
            elif keyword == "SURFACE" and type_name in ("", "ELEMENT"):
                lines = [line.upper().split(",") for line in as_text(body).splitlines() if line.strip()]
                surfaces += [(options.get("NAME", ""), part[0].strip(), part[-1].strip()) for part in lines]
            elif keyword == "SURFACE":
                told[f"*SURFACE {shown(options.get('NAME', ''))} of type {shown(type_name)} is not read"] = None
    if not nodes:
        raise MeshError("the file has no nodes (*NODE); is it an Abaqus file?")
    sides: dict[tuple[str, int], list[Indices]] = {}
    for name, word, side in surfaces:
        if re.fullmatch("[SE][1-6]", side):
            sides.setdefault((name, int(side[1])), []).append(members("ELSET", word))
        elif side in ("SPOS", "SNEG"):
            sets.setdefault(("ELSET", name.upper()), []).append(members("ELSET", word))
            names["ELSET", name.upper()] = name
        else:
            told[f"*SURFACE {shown(name)}: {shown(word)} has no side (S1, S2, ...) and is not read"] = None
    elements, pins = (
        {name: members(*key) for key, name in names.items() if key[0] == keyword and name}
        for keyword in ("ELSET", "NSET")
    )
    parts = [(name, joined(ids), side) for (name, side), ids in sides.items()]
    return numbered_mesh(joined(nodes), np.concatenate(points), blocks, elements, pins, parts, list(told))


def _keywords(data: bytes) -> Iterator[tuple[str, str, dict[str, str], bytes]]:
    """Keywords: the place in the file, the keyword, its options by name in upper case, and the lines of data below."""
    for line, head, body in sections_of(data, rb"\*[^\n]*?", rb"(?m)^[ \t]*\*\*"):
        while head.endswith(",") and body.strip():
            more, _, body = body.lstrip().partition(b"\n")
            head += as_text(more).strip()
        keyword, *words = re.findall(r'(?:[^,"]|"[^"]*"|")+', head.lstrip("* \t")) or [""]
        pairs = [word.partition("=") for word in words]
        options = {name.strip().upper(): value.strip().strip('"') for name, _, value in pairs}
        keyword = " ".join(keyword.upper().split())
        yield f"line {line}, *{keyword}", keyword, options, body


def _elements(type_name: str, body: bytes) -> tuple[int, Indices, Indices]:
    """Dimension, numbers and nodes of the elements of a table."""
    matches = ((dim, re.fullmatch(pattern, type_name)) for dim, pattern in _TYPES.items())
    dim, match = next(((dim, match) for dim, match in matches if match), (0, None))
    if match is None:
        raise MeshError(f"TYPE={type_name[:40]} cannot be used; solid, plane, shell and truss elements can")
    numbers, counts = numbers_by_line(body)
    width = int(match[match.lastindex]) if match.lastindex else int(counts.max(initial=3)) - 1
    ends = np.arange(width + 1, len(numbers), width + 1)
    if len(numbers) % (width + 1) or not np.isin(ends, np.cumsum(counts)).all() or width < 2:
        raise MeshError(f"an element of TYPE={type_name} does not have {width} nodes")
    table = as_integers(numbers).reshape(-1, width + 1)
    if dim == 1:  # the middle node of three is the second one
        return dim, table[:, 0], table[:, [1, 2 if re.fullmatch(_BEAMS, type_name) else min(width, 3)]]
    return dim, table[:, 0], table[:, 1:]


def _members(ranges: bool, body: bytes) -> list[Indices | str]:
    """Numbers, or names of sets, that a set has."""
    try:
        numbers, counts = numbers_by_line(body)
    except MeshError:
        words = [word.strip().strip('"') for word in as_text(body).upper().replace("\n", ",").split(",")]
        return [word for word in words if word]
    members = as_integers(numbers)
    if not ranges:
        return [members]
    rows = [(*members[end - count : end], 1)[:3] for end, count in zip(np.cumsum(counts), counts, strict=True)]
    if counts.min(initial=2) < 2 or any(step < 1 or last - first > _MOST * step for first, last, step in rows):
        raise MeshError("GENERATE: first, last and step were expected")
    return [np.arange(first, last + 1, step) for first, last, step in rows]
