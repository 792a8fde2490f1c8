"""MFEM's text format .mesh, versions 1.0 and 1.3: cells of all shapes, straight or with `nodes` of any order.

Nodes are values of the coordinates at Gauss-Lobatto points (or equispaced ones, "@U"), numbered by
entities: vertices, edges, faces, cells, each kind in the order in which the cells list them. The nodes inside an edge
go from its lower vertex to the higher one, those inside a face as the first of its cells lists the corners.
"""

from __future__ import annotations

import re

import numpy as np

from hpfem.errors import MeshError
from hpfem.shapes import SHAPES, equispaced_nodes, get_shape, make_basis, make_rule, node_entities
from hpfem.shapes.arguments import shown
from hpfem.shapes.arrays import Array, Indices

from ..node_order import FILE_VERTICES, file_corners, gmsh_nodes, lexicographic
from ..sorting import TupleIndex
from .mesh_file import Elements, MeshFile, canonical, tagged
from .text import as_integers, as_text, count_in, counted_rows, parsed_numbers, sections_by_keyword, within

_GEOMETRIES = ("point", "segment", "tri", "quad", "tet", "hex", "prism", "pyramid")
# Edges and faces of cells, in corners of the file's order.
_ENTITIES = {
    "tri": "01 12 20",
    "quad": "01 12 23 30",
    "tet": "01 02 03 12 13 23  123 032 013 021",
    "hex": "01 12 32 03 45 56 76 47 04 15 26 37  3210 0154 1265 2376 3047 4567",
    "prism": "01 12 20 34 45 53 03 14 25  021 345 0143 1254 2035",
    "pyramid": "01 12 32 03 04 14 24 34  3210 014 124 234 304",
}
_KINDS = {2: "segment", 3: "tri", 4: "quad"}
# How many axes have points of a simplex; how many shrink along the next one.
_SIMPLEX_AXES, _SHRINKING_AXES = {"tri": 2, "tet": 3, "prism": 2}, {"pyramid": 2}
_KNOWN = re.compile(
    r"MFEM mesh .*|dimension|elements|boundary|vertices|nodes|(bdr_)?attribute_sets|FiniteElementSpace|"
    r"FiniteElementCollection: .*|VDim: .*|Ordering: .*"
)
_COLLECTIONS = re.compile(r"(Linear|Quadratic|Cubic)|(H1|H1@[GU])_\dD_P([1-9]|10)")

# Positions, corners and names of the elements of a shape.
_Block = tuple[Indices, Indices, dict[str, Indices]]


def read_mfem(data: bytes) -> MeshFile:
    """Read the content of an MFEM file."""
    title = data.split(b"\n", 1)[0].strip().decode("latin-1")
    if title not in ("MFEM mesh v1.0", "MFEM mesh v1.2", "MFEM mesh v1.3"):
        raise MeshError(f"{title[:40]!r} cannot be read, but 'MFEM mesh v1.0' and 'MFEM mesh v1.3' can")
    sections = sections_by_keyword(data, "mfem_mesh_end" if title.endswith("3") else "")
    for name in sections:
        if name in ("communication_groups", "vertex_parents", "root_state") or name.startswith("MFEM FiniteElementSp"):
            raise MeshError(f"{name!r} says that it is one part of a mesh, not conforming or of several orders")
    for name in ("dimension", "elements", "boundary", "vertices"):
        if name not in sections:
            raise MeshError(f"there is no section {name}")
    if sections["dimension"] not in (b"2", b"3"):
        raise MeshError(f"a mesh needs cells of dimension 2 or 3, not {shown(as_text(sections['dimension'][:20]))}")
    dim = int(sections["dimension"])
    told = [f"section {name[:40]!r} is not known and left out" for name in sections if not _KNOWN.fullmatch(name)]
    blocks = {}
    for name, of_names in (("elements", "attribute_sets"), ("boundary", "bdr_attribute_sets")):
        with within(f"section {of_names}"):
            names = _attribute_sets(sections.get(of_names, b"0"))
        with within(f"section {name}"):
            blocks[name] = _blocks(sections[name], names)
        used = {own for _, _, sets in blocks[name].values() for own in sets}
        told += [f"{of_names} {shown(own)} has no elements" for own in names if own not in used]
    if any(SHAPES[name].dim != dim for name in blocks["elements"]):
        raise MeshError("the elements are not of the dimension that the file states")
    vertices = parsed_numbers(sections["vertices"])[0]
    n_vertices = int(as_integers(vertices[:1])[0]) if len(vertices) else -1
    given = [corners for own in blocks.values() for _, corners, _ in own.values()]
    if any(corners.min() < 0 or corners.max() >= n_vertices for corners in given):
        raise MeshError("an element refers to a vertex that does not exist")
    if "nodes" in sections:
        if n_vertices > sum(corners.size for corners in given):
            raise MeshError(f"there are {n_vertices} vertices, more than the elements have")
        cells, points = _curved(sections, blocks["elements"], n_vertices)
    else:
        points = vertices[2:]
        if len(vertices) < 2 or vertices[1] not in (2, 3) or len(points) != n_vertices * vertices[1]:
            raise MeshError(f"section vertices has not the coordinates of {n_vertices} points")
        points = points.reshape(n_vertices, -1)
        cells = _straight(blocks["elements"])
    return MeshFile(points, cells + _straight(blocks["boundary"]), warnings=told)


def _attribute_sets(section: bytes) -> dict[str, Indices]:
    """Numbers of elements' attributes by name."""
    count, found = section[:20].partition(b"\n")[0], re.findall(rb'"([^"\n]*)"((?:\s+\d{1,9}\b)+)', section)
    if count_in(as_text(count)) != len(found):
        raise MeshError(f"{as_text(count)} rows are announced, {len(found)} found")
    result = {}
    for title, numbers in found:
        stated, *own = map(int, numbers.split())
        if stated != len(own):
            raise MeshError(f"{shown(as_text(title))} has {len(own)} numbers instead of {stated}")
        result[as_text(title)] = np.array(own, dtype=np.int64)
    return result


def _blocks(section: bytes, names: dict[str, Indices]) -> dict[str, _Block]:
    """Positions, corners and names of elements by shape."""
    lengths = {float(geometry): 2 + len(FILE_VERTICES[shape]) for geometry, shape in enumerate(_GEOMETRIES)}
    blocks = {}
    for geometry, (rows, table) in counted_rows(parsed_numbers(section)[0], 1, lengths).items():
        tags = as_integers(table[:, 0])
        sets = {name: found for name, own in names.items() if len(found := np.flatnonzero(np.isin(tags, own)))}
        blocks[_GEOMETRIES[int(geometry)]] = rows, as_integers(table[:, 2:]), tagged(tags, {}) | sets
    return blocks


def _straight(blocks: dict[str, _Block]) -> list[Elements]:
    return [
        canonical(get_shape(name), 1, gmsh_nodes(name, 1), corners, rows + 1, sets)
        for name, (rows, corners, sets) in blocks.items()
    ]


def _curved(sections: dict[str, bytes], blocks: dict[str, _Block], n_vertices: int) -> tuple[list[Elements], Array]:
    """Cells with nodes, and the points at equispaced nodes."""
    title = next((name[25:] for name in sections if name.startswith("FiniteElementCollection: ")), "")
    found, width = _COLLECTIONS.fullmatch(title), next((n for n in (2, 3) if f"VDim: {n}" in sections), 0)
    if not found:
        raise MeshError(
            f"nodes of {title[:40]!r} cannot be read: continuous ones (H1) at Gauss-Lobatto or equispaced points can, "
            "but not separate ones (L2), which periodic meshes have"
        )
    order = ("Linear", "Quadratic", "Cubic").index(found[1]) + 1 if found[1] else int(found[3])
    even, by_point = np.linspace(0, 1, order + 1), "Ordering: 1" in sections
    knots = (1 + make_rule("lobatto", order + 1).points) / 2 if found[2] in ("H1", "H1@G") else even
    dofs, count = _numbered(blocks, n_vertices, even)
    if found[1] == "Cubic" and "hex" in dofs:  # inside it they go around
        dofs["hex"][:, [58, 59, 62, 63]] = dofs["hex"][:, [59, 58, 63, 62]]
    values = parsed_numbers(sections.get(f"Ordering: {int(by_point)}", b""))[0]
    if not width or len(values) != count * width:
        raise MeshError(f"section nodes has {len(values)} numbers, which does not fit cells of order {order}")
    values = values.reshape(-1, width) if by_point else values.reshape(width, -1).T
    points, cells, size = values.copy(), [], np.ptp(values, axis=0).max()
    for name, (rows, _, sets) in blocks.items():
        shape, basis = SHAPES[name], make_basis("orthogonal", SHAPES[name], order)
        # MFEM has more nodes inside a pyramid than we have; elsewhere, for those on the sides, the places are the same.
        inside = np.array([dim == shape.dim for dim, _ in node_entities(shape, order)])
        places = np.concatenate([_nodes(name, even)[: np.sum(~inside)] * 2 - 1, equispaced_nodes(shape, order)[inside]])
        functions, given = basis.evaluate(2 * _nodes(name, knots) - 1).T, values[dofs[name]]
        modes = np.einsum("ij,ejc->eic", np.linalg.pinv(functions), given)
        if np.abs(np.einsum("ij,ejc->eic", functions, modes) - given).max() > 1e-9 * size:
            raise MeshError(f"MFEM's functions on a {name} of order {order} are not ours, and its nodes need them")
        nodes = dofs[name][:, : len(places)]
        if order > 2:
            points[nodes] = np.einsum("ij,ejc->eic", basis.evaluate(places).T, modes)
        cells.append(canonical(shape, order, places, nodes, rows + 1, sets))
    return cells, points


def _numbered(blocks: dict[str, _Block], n_vertices: int, even: Array) -> tuple[dict[str, Indices], int]:
    """Numbers of the nodes of each cell, and how many there are."""
    dofs, total = {name: [corners] for name, (_, corners, _) in blocks.items()}, n_vertices
    for of_faces in (False, True):
        # Shape and corners of the entities of all cells, and their places in the order of the file.
        found = [
            (name, corners[:, entity], 32 * rows + number)
            for name, (rows, corners, _) in blocks.items()
            for number, entity in enumerate(_entities(name))
            if (len(entity) > 2) == of_faces
        ]
        if not found:
            continue
        padded = [np.pad(rows, ((0, 0), (4 - rows.shape[1], 0)), constant_values=-1) for _, rows, _ in found]
        index = TupleIndex(np.sort(np.concatenate(padded), axis=1), n_vertices)
        places = np.concatenate([place for _, _, place in found])
        by_place = np.argsort(-places)
        first = np.empty(index.count, dtype=np.int64)
        first[index.ids[by_place]] = by_place  # the last one that is written
        frames = np.concatenate(padded)[first]
        if not of_faces:
            frames.sort(axis=1)
        sizes = np.array([0, 0, *(len(_inside(_KINDS[n], even)) for n in (2, 3, 4))])[(frames >= 0).sum(axis=1)]
        order_of = np.argsort(places[first])
        starts = np.empty(index.count, dtype=np.int64)
        starts[order_of] = total + np.cumsum(sizes[order_of]) - sizes[order_of]
        total += int(sizes.sum())
        ends = np.cumsum([len(rows) for _, rows, _ in found])
        for (name, rows, _), ids in zip(found, np.split(index.ids, ends[:-1]), strict=True):
            at = np.argmax(frames[ids, None, -rows.shape[1] :] == rows[:, :, None], axis=2)
            dofs[name].append(starts[ids, None] + _turned(at, even))
    # Inside cells, in the order of the file.
    sizes = np.zeros(sum(len(rows) for rows, _, _ in blocks.values()), dtype=np.int64)
    for name, (rows, _, _) in blocks.items():
        sizes[rows] = len(_inside(name, even))
    starts = total + np.cumsum(sizes) - sizes
    for name, (rows, _, _) in blocks.items():
        dofs[name].append(starts[rows, None] + np.arange(len(_inside(name, even))))
    return {name: np.concatenate(parts, axis=1) for name, parts in dofs.items()}, total + int(sizes.sum())


def _turned(at: Indices, even: Array) -> Indices:
    """Positions of the nodes inside entities among those of their frame, from the positions there of their corners."""
    name = _KINDS[at.shape[1]]
    corners = file_corners(name)
    order, inside = len(even) - 1, np.rint((len(even) - 1) * _inside(name, even)).astype(np.int64)
    codes, which = np.unique(at @ 4 ** np.arange(at.shape[1]), return_inverse=True)
    tables = []
    for turn in codes[:, None] // 4 ** np.arange(at.shape[1]) % 4:
        axes = (corners[[turn[1], turn[-1]]] - corners[turn[0]])[: inside.shape[1]]
        moved = order * corners[turn[0]] + inside @ axes
        tables.append(np.argmax((inside == moved[:, None]).all(axis=2), axis=1) if len(inside) else [])
    return np.array(tables, dtype=np.int64)[which]


def _nodes(name: str, knots: Array) -> Array:
    """Nodes of a cell of [0, 1]^d: corners, those inside edges, inside faces, inside the cell."""
    corners = file_corners(name)
    parts = [corners]
    for entity in _entities(name):
        inside = _inside(_KINDS[len(entity)], knots)
        axes = corners[[entity[1], entity[-1]]] - corners[entity[0]]
        parts.append(corners[entity[0]] + inside @ axes[: inside.shape[1]])
    return np.concatenate([*parts, _inside(name, knots)])


def _entities(name: str) -> list[list[int]]:
    """Corners of edges, and of faces of solids."""
    return [[int(digit) for digit in word] for word in _ENTITIES[name].split()]


def _inside(name: str, knots: Array) -> Array:
    """Nodes inside a cell of [0, 1]^d, the first axis fastest."""
    order = len(knots) - 1
    index = 1 + lexicographic(*[order - 1] * SHAPES[name].dim)
    axes = _SIMPLEX_AXES.get(name, 0)
    index = index[index[:, :axes].sum(axis=1) < order]
    nodes = knots[index]
    if axes:
        nodes[:, :axes] /= (
            nodes[:, :axes].sum(axis=1, keepdims=True) + knots[order - index[:, :axes].sum(axis=1)][:, None]
        )
    shrinking = _SHRINKING_AXES.get(name, 0)
    nodes[:, :shrinking] *= 1 - nodes[:, shrinking : shrinking + 1]
    return nodes
