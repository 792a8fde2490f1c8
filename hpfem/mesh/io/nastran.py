"""Nastran bulk data: grid points and elements; property ids name regions and boundaries.

meshio 5.3.5 passes over coordinate systems (CP), continuation lines without marks, and cards that it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from hpfem.errors import MeshError
from hpfem.shapes.arguments import shown

from ..cells import Array
from ..symmetry import Indices
from .mesh_file import MeshFile, grouped, joined
from .numbered import numbered_mesh

# Dimension and possible numbers of nodes of element cards.
_CELLS = {
    **dict.fromkeys(("CBAR", "CBEAM", "CROD", "CTUBE"), (1, (2,))),
    **dict.fromkeys(("CTRIA3", "CTRIAR"), (2, (3,))),
    **dict.fromkeys(("CQUAD4", "CQUADR"), (2, (4,))),
    **{"CTRIA6": (2, (3, 6)), "CQUAD8": (2, (4, 8)), "CQUAD": (2, (4, 9)), "CTETRA": (3, (4, 10))},
    **{"CPYRAM": (3, (5, 13)), "CPYRA": (3, (5, 13)), "CPENTA": (3, (6, 15)), "CHEXA": (3, (8, 20))},
}
# Columns in VTK's order: Nastran has the middles of vertical edges before those of the top. gmsh's own files keep its
# order of pyramids.
_COLUMNS = {15: [*range(9), 12, 13, 14, 9, 10, 11], 20: [*range(12), *range(16, 20), *range(12, 16)]}
_GMSH, _GMSH_COLUMNS = b"$ Created by Gmsh", {13: [*range(6), 8, 10, 6, 7, 9, 11, 12]}


def read_nastran(data: bytes) -> MeshFile:
    """Read Nastran bulk data, with or without the sections before them."""
    cards = _cards(data.decode("latin-1"))
    grid = [own if len(own) > 4 else [*own, ""] for own in cards.get("GRID", [])]
    for own in [*grid, *cards.get("GRDSET", [])]:
        if own[1].strip() not in ("", "0"):
            who = f"GRID {own[0].strip()}" if own[0].strip() else "GRDSET"
            raise MeshError(f"{who} has CP = {own[1].strip()}; write all coordinates in the basic system (CP = 0)")
    points = np.column_stack([_reals([own[axis] for own in grid]) for axis in (2, 3, 4)])
    columns = _COLUMNS | (_GMSH_COLUMNS if data.startswith(_GMSH) else {})
    blocks: list[tuple[int, Indices, Indices]] = []
    sets: dict[str, list[Indices]] = {}
    for name in [name for name in cards if name in _CELLS]:
        dim, widths = _CELLS[name]
        kinds: dict[int, list[list[str]]] = {}
        for own in cards[name]:
            width = widths[0] if len(widths) == 1 else _width(name, own, widths)
            if len(own) < width + 2:
                raise MeshError(f"element {own[0].strip()} ({name}) does not have all its nodes")
            kinds.setdefault(width, []).append(own[: width + 2])
        for width, rows in kinds.items():
            table = _integers([text for own in rows for text in (own[0], own[1].strip() or "0", *own[2:])])
            table = table.reshape(len(rows), width + 2)
            blocks.append((dim, table[:, 0], table[:, 2:][:, columns.get(width, slice(None))]))
            for number, members in grouped(table[:, 1]).items():
                sets.setdefault(str(number), []).append(table[members, 0])
    sets.pop("0", None)
    unknown = sorted(name for name in cards.keys() - _CELLS.keys() if re.fullmatch(r"C(?!ORD)\w+|RBE\d|RBAR|MPC", name))
    told = [f"cards that are no cells and are not read: {', '.join(unknown)}"] if unknown else []
    named = {name: joined(ids) for name, ids in sets.items()}
    return numbered_mesh(_integers([own[0] for own in grid]), points, blocks, named, {}, [], told)


def _cards(text: str) -> dict[str, list[list[str]]]:
    """Fields of the cards by name: of all lines of a card, without the name and the marks of continuation."""
    if begin := re.search(r"(?im)^[ \t]*BEGIN[ \t]+BULK.*$", text):
        text = text[begin.end() :]
    cards: dict[str, list[list[str]]] = {}
    card: list[str] | None = None
    mark, ours = "", False
    for line in text.splitlines():
        line = line.partition("$")[0].rstrip()
        if not line:
            continue
        if "\t" in line:
            line = line.expandtabs(8)
        free = "," in line
        parts = line.split(",") if free else [line[:8]]
        name = parts[0].strip().upper()
        count = 4 if name.endswith("*") or (name == "*") else 8
        if not free:
            size = 64 // count
            parts += [line[at : at + size] for at in range(8, 72, size)] + [line[72:80]]
        if name == "ENDDATA":
            break
        if name.startswith(("INCLUDE", "=", "BEGIN ")):
            raise MeshError(f"{name.split()[0]} is not read; write all cards out in one file")
        fields = parts[1 : count + 1]
        fields += [""] * (count - len(fields))
        if name and name[0] not in "+*":
            card, kind = fields, name.rstrip("*")
            ours = kind in _CELLS or kind in ("GRID", "GRDSET")
            cards.setdefault(kind, []).append(card)
        elif card is None or (ours and name.strip("+*") and mark and name.strip("+*") != mark):
            raise MeshError(f"a line of Nastran continues no card above it: {shown(line)}")
        else:
            card += fields
        if ours and len(parts) > count + 2:
            raise MeshError(f"a line of Nastran has more than {count + 2} fields: {shown(line)}")
        mark = parts[count + 1].strip().upper().strip("+*") if len(parts) > count + 1 else ""
    return cards


def _width(name: str, fields: list[str], widths: Sequence[int]) -> int:
    """How many nodes an element has."""
    least, most = widths
    given = [text.strip() not in ("", "0") for text in fields[2 + least : 2 + most]]
    if any(given) and sum(given) < most - least:
        raise MeshError(f"element {fields[0].strip()} ({name}) has some of its middle nodes only")
    return most if any(given) else least


def _reals(texts: list[str]) -> Array:
    """Numbers, 0 for blank fields; exponents may lack their E."""
    try:
        return np.array(list(map(float, texts)))
    except ValueError:
        plain = [re.sub(r"(?<=[\d.])[dDeE]?([+-])", r"e\1", text.strip()).replace("D", "e") or "0" for text in texts]
    try:
        return np.array(list(map(float, plain)))
    except ValueError as error:
        raise MeshError(f"a number was expected: {error!s:.80}") from None


def _integers(texts: list[str]) -> Indices:
    try:
        return np.array(list(map(int, texts)), dtype=np.int64)
    except (ValueError, OverflowError) as error:
        raise MeshError(f"an integer was expected: {error!s:.80}") from None
