"""The content of a mesh file of any format, and elements by their numbers and tags."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpfem.errors import ArgumentError, MeshError
from hpfem.shapes import POINT, Shape, equispaced_nodes
from hpfem.shapes.arguments import shown
from hpfem.shapes.arrays import Array, Indices

from ...support.communicator import ALONE, Communicator
from ..cells import CellArray
from ..named_sets import looked_up
from ..node_order import permutation, serendipity_positions
from ..sorting import places

# Shape and order of elements by dimension and number of nodes.
KINDS = {
    0: {1: ("point", 1)},
    1: {2: ("segment", 1)},
    2: {3: ("tri", 1), 4: ("quad", 1), 6: ("tri", 2), 8: ("quad", 2), 9: ("quad", 2)},
    3: {4: ("tet", 1), 5: ("pyramid", 1), 6: ("prism", 1), 8: ("hex", 1)}
    | {10: ("tet", 2), 13: ("pyramid", 2), 15: ("prism", 2), 20: ("hex", 2)},
}


class ForLibrary(MeshError):
    """The error of a file that another library reads: what it is, and "gmsh" or "vtk"."""

    def __init__(self, what: str, library: str) -> None:
        super().__init__(f"{what} is read by means of {library}: pip install {library}")
        self.library = library


@dataclass(frozen=True, eq=False)
class Elements(CellArray):
    """Elements of one shape and order, of any dimension, that follow each other in the file.

    A `CellArray` whose shape may be the point, whose ``nodes`` are -1 where the file has no such node, and whose
    ``indices`` are the file's numbers of the elements.
    """

    sets: dict[str, Indices] = field(default_factory=dict)  # names, each with the rows that have it
    data: dict[str, NDArray[Any]] = field(default_factory=dict)  # values of the file by name, [E, ...]
    columns: Indices | None = None  # where the file's rows have each node; None if their order is ours


@dataclass(frozen=True, eq=False)
class MeshFile:
    """Points, elements and names of a file."""

    points: Array  # [n, 2 or 3]
    elements: list[Elements]  # in the order of the file
    periodic: list[Indices] = field(default_factory=list)  # [n, 2], points that are images, per pair of sides
    point_sets: dict[str, Indices] = field(default_factory=dict)  # names of points, each with the rows that have it
    by_piece: bool = False  # the points of each cell or piece are written anew: coincident ones are the same point
    ids: Indices | None = None  # [n], numbers that tell apart points at one place, if the file has them
    warnings: list[str] = field(default_factory=list)  # what the file has and the mesh will not: what, and what to do


def canonical(
    shape: Shape,
    order: int,
    file_nodes: Array,
    nodes: Indices,
    numbers: Indices,
    sets: dict[str, Indices],
    data: dict[str, NDArray[Any]] | None = None,
) -> Elements:
    """Bring elements from a file's order of nodes into ours, as for `Elements`.

    `file_nodes` [n_nodes, dim] are the reference coordinates of the nodes in the file's order, those at corners and
    edges for a serendipity cell; `completed` adds the rest. `nodes` [E, n_nodes] are rows of the points in that order.
    """
    if shape is not POINT:
        columns = _columns(shape, order, np.ascontiguousarray(file_nodes, np.float64).tobytes())
        return Elements(shape, order, nodes[:, columns], numbers, sets, data or {}, columns)
    return Elements(shape, order, nodes, numbers, sets, data or {})


@cache
def _columns(shape: Shape, order: int, file_nodes: bytes) -> Indices:
    """Where our nodes stand in the file's order; files may have a block for every few elements."""
    ours, theirs = equispaced_nodes(shape, order), np.frombuffer(file_nodes).reshape(-1, shape.dim)
    if order == 2 and len(theirs) < len(ours):
        ours = ours[serendipity_positions(shape)]
    return permutation(theirs, ours, order)


def tagged(tags: Indices, names: dict[int, str]) -> dict[str, Indices]:
    """Group elements by their tags; tags [E]."""
    result: dict[str, list[Indices]] = {}
    for tag, rows in grouped(tags).items():
        if tag:
            result.setdefault(group_name(tag, names), []).append(rows)
    return {name: np.sort(np.concatenate(parts)) for name, parts in result.items()}


def group_name(tag: int, names: dict[int, str]) -> str:
    """The name of a group: without one its number, but where that is the name of another."""
    return names.get(tag) or (f"group {tag}" if str(tag) in names.values() else str(tag))


def grouped(numbers: NDArray[np.generic]) -> dict[int, Indices]:
    """Group elements by a number; numbers [E]."""
    order = np.argsort(numbers, kind="stable")
    found, first = np.unique(numbers[order], return_index=True)
    return dict(zip(map(int, found), np.split(order, first[1:]), strict=False))


def positions(ids: Indices, what: str) -> Callable[[Indices], Indices]:
    """Find ids in a list; ids [n]."""
    if len(ids) == 0:
        return lambda wanted: np.full(wanted.shape, -1, dtype=np.int64)
    low, high = int(ids.min()), int(ids.max())
    if high - low < 8 * len(ids) + 1000:
        table = np.full(high - low + 1, -1, dtype=np.int64)
        table[ids - low] = np.arange(len(ids))
        if np.count_nonzero(table >= 0) != len(ids):
            raise _repeated(np.sort(ids), what)
        return lambda wanted: looked_up(table, wanted - low)
    order = np.argsort(ids, kind="stable")
    ascending = ids[order]
    if np.any(ascending[1:] == ascending[:-1]):
        raise _repeated(ascending, what)
    return lambda wanted: looked_up(order, places(ascending, wanted))


def _repeated(ascending: Indices, what: str) -> MeshError:
    return MeshError(f"{what} {ascending[1:][ascending[1:] == ascending[:-1]][0]} is given twice")


def joined(rows: Sequence[Indices]) -> Indices:
    """Join arrays of indices."""
    return np.concatenate([np.empty(0, dtype=np.int64), *rows])


def regions_by_number(content: MeshFile, name: str | None, comm: Communicator = ALONE) -> MeshFile:
    """Group elements by their integer data; without a name, tell what could and nothing uses; collective."""
    dim = int(comm.max(max((own.shape.dim for own in content.elements), default=0)))
    groups = [{key: rows for key in own.data if (rows := _groups(own, key)) is not None} for own in content.elements]
    able = [(own, found) for own, found in zip(content.elements, groups, strict=True) if own.shape.dim >= dim - 1]
    mixed = set().union(*comm.allgather({key for own, found in able for key in own.data.keys() - found}))
    known = sorted(set().union(*comm.allgather({key for _, found in able for key in found})) - mixed)
    if name is not None:
        if name not in known:
            there = f"there are {', '.join(map(shown, known))}" if known else "there are none"
            raise ArgumentError(f"regions={shown(name)}: the elements have no such integer data; {there}")
        elements = [
            replace(own, sets={str(number): rows for number, rows in found[name].items()}) if name in found else own
            for own, found in zip(content.elements, groups, strict=True)
        ]
        return replace(content, elements=elements)
    unused = [shown(key) for key in known if any(_unused(able, key, level, comm) for level in (dim, dim - 1))]
    if not unused:
        return content
    told = f"integer data of elements that nothing uses: {', '.join(unused)}; regions={unused[0]} makes them regions"
    return replace(content, warnings=[*content.warnings, told])


def _groups(own: Elements, name: str) -> dict[int, Indices] | None:
    """Rows of elements by their integer; None for other data."""
    values = own.data[name]
    if values.dtype.kind not in "iuf" or values.size != len(own) or not (np.abs(values) < 2.0**53).all():
        return None
    return grouped(values.ravel()) if np.array_equal(values, np.rint(values)) else None


def _unused(
    able: list[tuple[Elements, dict[str, dict[int, Indices]]]], name: str, dim: int, comm: Communicator
) -> bool:
    """Whether data group the elements of a dimension as no sets do: neither all in one group, nor each in its own."""
    parts = [(own, found.get(name, {})) for own, found in able if own.shape.dim == dim]
    numbers: set[int] = set().union(*comm.allgather({number for _, rows in parts for number in rows}))
    if not 1 < len(numbers) < comm.sum(sum(len(own) for own, _ in parts)):
        return False
    return not comm.all(
        all(
            any(np.array_equal(rows, other) for other in own.sets.values())
            for own, found in parts
            for rows in found.values()
        )
    )
