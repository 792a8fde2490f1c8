"""Abaqus, Nastran and SU2 files of generated meshes, written from the formats' manuals without the package's tables."""

from dataclasses import dataclass, field

import numpy as np

from hpfem.mesh import Mesh
from tests.mesh.examples import corners_of

# Corners of our cells in the files' order; edges with middle nodes and sides by corners counted from 1.
CORNERS = {"quad": [0, 1, 3, 2], "hex": [0, 1, 3, 2, 4, 5, 7, 6], "pyramid": [0, 1, 3, 2, 4]}
EDGES = {
    "tri": "12 23 31", "quad": "12 23 34 41", "tet": "12 23 31 14 24 34", "pyramid": "12 23 34 41 15 25 35 45",
    "prism": "12 23 31 45 56 64 14 25 36", "hex": "12 23 34 41 56 67 78 85 15 26 37 48",
}  # fmt: skip
NASTRAN_EDGES = EDGES | {"prism": "12 23 31 14 25 36 45 56 64", "hex": "12 23 34 41 15 26 37 48 56 67 78 85"}
SIDES = {
    "tri": "12 23 31", "quad": "12 23 34 41", "tet": "123 142 243 341", "pyramid": "1234 152 253 354 451",
    "prism": "123 465 1254 2365 3146", "hex": "1234 5876 1562 2673 3784 4851",
}  # fmt: skip
ABAQUS = {
    "tri": ("CPS3", "STRI65"), "quad": ("cpe4r", "S8R5"), "tet": ("C3D4", "C3D10M"), "pyramid": ("C3D5", "C3D13"),
    "prism": ("c3d6", "C3D15"), "hex": ("C3D8R", "DC3D20"),
}  # fmt: skip
NASTRAN = {
    "tri": ("CTRIA3", "CTRIA6"), "quad": ("CQUAD4", "CQUAD8"), "tet": ("CTETRA",) * 2, "pyramid": ("CPYRAM",) * 2,
    "prism": ("CPENTA",) * 2, "hex": ("CHEXA",) * 2,
}  # fmt: skip


@dataclass
class Deck:
    """A linear mesh with numbers of nodes and elements, and the names that the file gives."""

    mesh: Mesh
    points: np.ndarray
    node_ids: np.ndarray
    cells: list[tuple[str, int, np.ndarray]]  # shape, element number, node numbers
    regions: dict[str, list[int]] = field(default_factory=dict)  # element numbers
    sides: dict[str, list[tuple[int, int]]] = field(default_factory=dict)  # element number, side from 1 on
    points_of: dict[str, list[int]] = field(default_factory=dict)


def numbered(mesh: Mesh, order: int, rng: np.random.Generator, edges: dict[str, str] = EDGES) -> Deck:
    """Give nodes and elements numbers with gaps in any order; order 2 adds a node in the middle of every edge."""
    points = [*np.pad(mesh.points, ((0, 0), (0, 3 - mesh.dim)))]
    middles: dict[frozenset[int], int] = {}
    rows = []
    for group in mesh.cells:
        for cell, corners in zip(
            group.indices, group.corners[:, CORNERS.get(group.shape.name, slice(None))], strict=True
        ):
            own = list(corners)
            for edge in edges[group.shape.name].split() if order == 2 else ():
                ends = [int(corners[int(digit) - 1]) for digit in edge]
                if frozenset(ends) not in middles:
                    middles[frozenset(ends)] = len(points)
                    points.append((points[ends[0]] + points[ends[1]]) / 2)
                own.append(middles[frozenset(ends)])
            rows.append((cell, group.shape.name, np.array(own)))
    node_ids = rng.choice(np.arange(1, 5 * len(points)), len(points), replace=False)
    element_ids = rng.choice(np.arange(1, 5 * len(rows)), len(rows), replace=False)
    number = dict(zip((cell for cell, _, _ in rows), element_ids, strict=True))
    cells = [(name, int(number[cell]), node_ids[own]) for cell, name, own in rows]
    deck = Deck(mesh, np.array(points), node_ids, cells)
    for name in ("Left", "right-1", "MID"):
        chosen = rng.permutation(mesh.n_cells)[: rng.integers(1, mesh.n_cells + 1)]
        deck.regions[name] = [int(number[cell]) for cell in chosen]
    group_of, row_of = mesh.locations
    for name in ("hot", "COLD"):
        deck.sides[name] = []
        for facet in rng.permutation(mesh.facets.boundary)[:5]:
            cell, local = mesh.facets.cells[facet, 0], mesh.facets.local[facet, 0]
            group = mesh.cells[group_of[cell]]
            vertices = {group.corners[row_of[cell]][vertex] for vertex in group.shape.facets[local].vertices}
            corners = group.corners[row_of[cell]][CORNERS.get(group.shape.name, slice(None))]
            found = [{corners[int(digit) - 1] for digit in side} for side in SIDES[group.shape.name].split()]
            deck.sides[name].append((int(number[cell]), found.index(vertices) + 1))
    deck.points_of = {"pins": [int(own) for own in rng.permutation(node_ids)[:3]]}
    return deck


def centres(deck: Deck, cells: list[int]) -> np.ndarray:
    """Means of the corners of elements, sorted."""
    row = {int(own): place for place, own in enumerate(deck.node_ids)}
    corners = {name: len(set("".join(sides.split()))) for name, sides in SIDES.items()}
    means = [
        deck.points[[row[int(own)] for own in nodes[: corners[name]]]].mean(axis=0)
        for name, number, nodes in deck.cells
        if number in cells
    ]
    return _sorted(np.array(means)[:, : deck.mesh.dim])


def side_centres(deck: Deck, name: str) -> np.ndarray:
    """Means of the corners of named sides, sorted."""
    row = {int(own): place for place, own in enumerate(deck.node_ids)}
    cells = {number: (shape, nodes) for shape, number, nodes in deck.cells}
    means = []
    for number, side in deck.sides[name]:
        shape, nodes = cells[number]
        corners = [row[int(nodes[int(digit) - 1])] for digit in SIDES[shape].split()[side - 1]]
        means.append(deck.points[corners].mean(axis=0))
    return _sorted(np.array(means)[:, : deck.mesh.dim])


def centres_of(mesh: Mesh, cells: np.ndarray) -> np.ndarray:
    """The same of cells of a mesh."""
    means = np.empty((mesh.n_cells, mesh.dim))
    for group in mesh.cells:
        means[group.indices] = mesh.points[group.corners].mean(axis=1)
    return _sorted(means[cells])


def side_centres_of(mesh: Mesh, facets: np.ndarray) -> np.ndarray:
    """The same of facets of a mesh."""
    return _sorted(np.concatenate([mesh.points[rows].mean(axis=1) for rows in corners_of(mesh, facets)]))


def _sorted(points: np.ndarray) -> np.ndarray:
    return points[np.lexsort(np.round(points, 7).T)]


def abaqus(deck: Deck, rng: np.random.Generator) -> str:
    """An input file with tables in any order, and the regions by all ways that there are."""
    names = list(deck.regions)
    parts = []
    by_table = names[0]
    nodes = rng.permutation(len(deck.node_ids))
    pins = set(deck.points_of["pins"])
    for rows in np.array_split(nodes, 3):
        body = ""
        for row in rows:
            x, y, z = (f"{value:.17g}" for value in deck.points[row])
            body += (
                f"{deck.node_ids[row]}, {x}, {y}"
                + ("" if deck.mesh.dim == 2 and rng.random() < 0.5 else f", {z}")
                + "\n"
            )
        parts.append(("*node" if rng.random() < 0.5 else "*NODE, nset=all") + "\n** nodes\n" + body)
    kinds: dict[tuple[str, bool, int], list[str]] = {}
    for name, number, own in deck.cells:
        values = [str(number), *map(str, own)]
        cut = min(len(values), 16)
        line = ", ".join(values[:cut]) + ("" if cut == len(values) else ",\n" + ", ".join(values[cut:]))
        kinds.setdefault((name, number in deck.regions[by_table], int(rng.integers(2))), []).append(line)
    for (name, inside, _), lines in kinds.items():
        second = len(deck.cells[0][2]) > len(CORNERS.get(deck.cells[0][0], deck.cells[0][2])) or lines[0].count(",") > 8
        second = deck_order(deck) == 2
        head = f"*Element, type={ABAQUS[name][second]}" + (f",\n  ELSET = {by_table}" if inside else "")
        parts.append(head + "\n" + "\n".join(lines) + "\n")
    parts = [parts[place] for place in rng.permutation(len(parts))]
    listed, summed = deck.regions[names[1]], deck.regions[names[2]]
    half = len(summed) // 2
    parts += [
        f"*ELSET, ELSET={names[1].upper()}\n"
        + "".join(f"{', '.join(map(str, listed[at : at + 8]))},\n" for at in range(0, len(listed), 8)),
        "*Elset, elset=one, internal, generate\n" + "".join(f"{own}, {own}, 1\n" for own in summed[:half]),
        f"*Elset, elset={names[2]}\nOne, " + ", ".join(map(str, summed[half:])) + "\n"
        if half
        else f"*Elset, elset={names[2]}\n" + ",".join(map(str, summed)) + "\n",
        f"*NSET, NSET=pins\n{', '.join(map(str, pins))}\n",
    ]
    for name, sides in deck.sides.items():
        parts.append(f"*SURFACE, NAME={name}, TYPE=ELEMENT\n" + "".join(f"{own}, S{side}\n" for own, side in sides))
    return "*HEADING\n a deck, with *NODE in its title\n" + "".join(parts) + "*STEP\n*STATIC\n*END STEP\n"


def deck_order(deck: Deck) -> int:
    """Order of the elements."""
    name, _, nodes = deck.cells[0]
    return 1 if len(nodes) == len(set("".join(SIDES[name].split()))) else 2


def nastran(deck: Deck, rng: np.random.Generator) -> str:
    """Bulk data in all formats of fields, cards in any order."""
    second = deck_order(deck) == 2
    cards = []
    for number, point in zip(deck.node_ids, deck.points, strict=True):
        cards.append(("GRID", [str(number), "" if rng.random() < 0.5 else "0", *map(_real, point)]))
    first = set(deck.regions["Left"])
    for name, number, nodes in deck.cells:
        cards.append((NASTRAN[name][second], [str(number), "3" if number in first else "12", *map(str, nodes)]))
    lines = ["$ a deck"]
    if rng.random() < 0.5:
        lines += ["SOL 101", "CEND", "TITLE = BULK", "BEGIN BULK"]
    for place in rng.permutation(len(cards)):
        name, fields = cards[place]
        lines += _card(
            name,
            fields,
            rng.choice(["free", "large", "free large"] if name == "GRID" else ["small", "free", "large"]),
            rng,
        )
    return "\n".join([*lines, "ENDDATA", "GRID,1,7,nothing"]) + "\n"


def _real(value: float) -> str:
    """A number of at most 16 characters, with or without an E."""
    text = f"{value:.9e}"
    mantissa, exponent = text.split("e")
    return f"{mantissa}{int(exponent):+d}" if value and abs(value) < 0.3 else f"{value:.12f}"[:16]


def _card(name: str, fields: list[str], kind: str, rng: np.random.Generator) -> list[str]:
    """Lines of a card."""
    large = "large" in kind
    count, width = (4, 16) if large else (8, 8)
    rows = [fields[at : at + count] for at in range(0, len(fields), count)]
    marked, lines = rng.random() < 0.5, []
    for place, row in enumerate(rows):
        head = (name if place == 0 else ("" if kind == "small" and not marked else "+")) + (
            "*" if large and place == 0 else ""
        )
        head = "*" if large and place else head
        if "free" in kind:
            lines.append(",".join([head, *row]))
        else:
            more = place + 1 < len(rows) and marked
            lines.append(
                f"{head:8}" + "".join(f"{own:<{width}}" if rng.random() < 0.5 else f"{own:>{width}}" for own in row)
            )
            lines[-1] = f"{lines[-1]:72}+" if more else lines[-1]
    return [line.lower() if rng.random() < 0.2 else line for line in lines]


def su2(deck: Deck, rng: np.random.Generator) -> str:
    """A grid with its sides as markers; nodes count from 0."""
    order = np.argsort(deck.node_ids)
    place = {int(deck.node_ids[row]): position for position, row in enumerate(order)}
    types = {"tri": 5, "quad": 9, "tet": 10, "hex": 12, "prism": 13, "pyramid": 14}
    dim = deck.mesh.dim
    gap, index = rng.choice(["= ", "=", " = "]), rng.random() < 0.5
    lines = [f"NDIME{gap}{dim} % dimensions", f"NELEM{gap}{len(deck.cells)}"]
    for number, (name, _, nodes) in enumerate(deck.cells):
        lines.append(
            " ".join(map(str, [types[name], *(place[int(own)] for own in nodes), *([number] if index else [])]))
        )
    lines += ["% points", f"NPOIN{gap}{len(order)}"]
    for number, row in enumerate(order):
        lines.append(
            " ".join([*(f"{value:.17g}" for value in deck.points[row][:dim]), *([str(number)] if index else [])])
        )
    lines.append(f"NMARK{gap}{len(deck.sides)}")
    cells = {number: (shape, nodes) for shape, number, nodes in deck.cells}
    for name, sides in deck.sides.items():
        lines += [f"MARKER_TAG{gap}{name}", f"MARKER_ELEMS{gap}{len(sides)}"]
        for number, side in sides:
            shape, nodes = cells[number]
            corners = [place[int(nodes[int(digit) - 1])] for digit in SIDES[shape].split()[side - 1]]
            lines.append(" ".join(map(str, [{2: 3, 3: 5, 4: 9}[len(corners)], *corners])))
    return "\n".join(lines) + "\n"
