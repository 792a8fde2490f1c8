"""Nastran bulk data: grid points and elements; property ids name regions and boundaries.

meshio 5.3.5 passes over coordinate systems (CP), continuation lines without marks, and cards that it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import chain
from operator import itemgetter

import numpy as np

from hpfem.errors import MeshError
from hpfem.shapes.arguments import shown
from hpfem.shapes.arrays import Array, Indices

from .mesh_file import MeshFile, grouped, joined
from .numbered import numbered_mesh
from .text import as_integers

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
# Fields of lines, from the name to the mark of continuation.
_SMALL = itemgetter(*(slice(at, at + 8) for at in range(0, 80, 8)))
_LARGE = itemgetter(slice(0, 8), *(slice(at, at + 16) for at in range(8, 72, 16)), slice(72, 80))


def read_nastran(data: bytes) -> MeshFile:
    """Read Nastran bulk data, with or without the sections before them."""
    cards = _cards(data.decode("latin-1"))
    grid = cards.get("GRID", [])
    if not grid:
        raise MeshError("the file has no points (GRID); is it Nastran bulk data?")
    for own in [*grid, *cards.get("GRDSET", [])]:
        if own[1].strip() not in ("", "0"):
            who = f"GRID {own[0].strip()}" if own[0].strip() else "GRDSET"
            raise MeshError(f"{who} has CP = {own[1].strip()}; write all coordinates in the basic system (CP = 0)")
    points = _table("GRID", [[own[0], *own[2:5], ""][:4] for own in grid], float, _real)
    columns = _COLUMNS | (_GMSH_COLUMNS if data.startswith(_GMSH) else {})
    blocks: list[tuple[int, Indices, Indices]] = []
    sets: dict[str, list[Indices]] = {}
    for name in [name for name in cards if name in _CELLS]:
        dim, widths = _CELLS[name]
        by_width: dict[int, list[list[str]]] = {}
        for own in cards[name]:
            width = widths[0] if len(widths) == 1 else _width(name, own, widths)
            if len(own) < width + 2:
                raise MeshError(f"{name} {own[0].strip()} does not have all its nodes")
            own[1] = own[1].strip() or "0"
            by_width.setdefault(width, []).append(own[: width + 2])
        for width, rows in by_width.items():
            table = as_integers(_table(name, rows, int, int))
            blocks.append((dim, table[:, 0], table[:, 2:][:, columns.get(width, slice(None))]))
            for number, members in grouped(table[:, 1]).items():
                sets.setdefault(str(number), []).append(table[members, 0])
    sets.pop("0", None)
    other = sorted(name for name in cards.keys() - _CELLS.keys() if re.fullmatch(r"C(?!ORD)\w+|RBE\d|RBAR|MPC", name))
    if lost := [name for name in other if re.match("C(I?HEX|TETRA|PENTA|PYR|WEDGE|TRI|QUAD|SHEAR)", name)]:
        raise MeshError(f"{lost[0]} is not read; write the cells as {', '.join(_CELLS)}")
    told = [f"cards that are no cells and are not read: {', '.join(other)}"] if other else []
    named = {name: joined(ids) for name, ids in sets.items()}
    return numbered_mesh(as_integers(points[:, 0]), points[:, 1:], blocks, named, {}, [], told)


def _cards(text: str) -> dict[str, list[list[str]]]:
    """Fields of the cards by name: of all lines of a card, without the name and the marks of continuation."""
    if begin := re.search(r"(?im)^[ \t]*BEGIN[ \t]+BULK.*$", text):
        text = text[begin.end() :]
    cards: dict[str, list[list[str]]] = {}
    card: list[str] | None = None
    mark, ours = "", False
    for line in re.sub(r"\$[^\n]*", "", text).expandtabs(8).splitlines():
        name = line[:8].partition(",")[0].strip().upper()
        if not name and not line.strip():
            continue
        count = 4 if name.endswith("*") else 8
        parts = line.split(",") if "," in line else (_LARGE if count == 4 else _SMALL)(line)
        fields = [*parts[1 : count + 1]]
        fields += [""] * (count - len(fields))
        if name and name[0] not in "+*":
            card, card_name = fields, name.rstrip("*")
            if card_name == "ENDDATA":
                break
            if card_name.startswith(("INCLUDE", "=", "BEGIN ")):
                raise MeshError(f"{card_name.split()[0]} is not read; write all cards out in one file")
            ours = card_name in _CELLS or card_name in ("GRID", "GRDSET")
            cards.setdefault(card_name, []).append(card)
        elif card is None or (ours and name.strip("+*") and mark and name.strip("+*") != mark):
            raise MeshError(f"a line of Nastran continues no card above it: {shown(line)}")
        else:
            card += fields
        if ours and len(parts) > count + 2:
            raise MeshError(f"a line of Nastran has more than {count + 2} fields: {shown(line)}")
        mark = parts[count + 1].strip("+* ").upper() if len(parts) > count + 1 else ""
    return cards


def _width(name: str, fields: list[str], widths: Sequence[int]) -> int:
    """How many nodes an element has."""
    least, most = widths
    middle = fields[2 + least : 2 + most]
    if not "".join(middle).strip(" 0"):
        return least
    if len(middle) < most - least or not all(text.strip(" 0") for text in middle):
        raise MeshError(f"{name} {fields[0].strip()} has some of its middle nodes only")
    return most


def _table(card: str, rows: list[list[str]], quick: Callable[[str], float], convert: Callable[[str], float]) -> Array:
    """Numbers of fields of cards, the first one of which is the card's; converted one by one where that is needed."""
    try:
        return np.fromiter(map(quick, chain.from_iterable(rows)), np.float64).reshape(len(rows), -1)
    except (ValueError, OverflowError):
        result = []
    for row in rows:
        for text in row:
            try:
                result.append(float(convert(text)))
            except (ValueError, OverflowError):
                what = "an integer" if quick is int else "a number"
                raise MeshError(f"{card} {row[0].strip()}: {what} was expected, not {shown(text.strip())}") from None
    return np.array(result).reshape(len(rows), -1)


def _real(text: str) -> float:
    """A number, 0 for a blank field; exponents may have D or no letter."""
    plain = re.sub(r"(?<=[\d.])[DE]?([+-])", r"e\1", text.strip().upper()).replace("D", "e")
    return float(plain or "0")
