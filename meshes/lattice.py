"""Conforming meshes of all shapes on a lattice of cubes (3-D) or squares (2-D), in exact integer coordinates.

Each cube of the lattice becomes cells by its letter:

    H   one hex                                          2-D: one quad
    X Y Z   two prisms extruded along that axis, their ends split along 00-11
    x y z   the same, split along 01-10
    T   six tets around the main diagonal                2-D: two triangles
    S   a star around the centre: a pyramid on each face that is whole, two tets on each that is split
                                                         2-D: four triangles
    P   six pyramids: a star that wants whole faces

Faces are whole or split in two triangles. S takes any and so joins everything, the other letters demand one or the
other of their neighbours. A face that nobody demands anything of is cut by its place, and all three ways occur. The
vertices of a cell are rotated by its place too, so that neighbours meet in many relative orientations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations, product

import numpy as np
from numpy.typing import NDArray

from hpfem.errors import ArgumentError
from hpfem.mesh.node_order import gmsh_nodes
from hpfem.mesh.symmetry import mirrored_vertices, parities, symmetries
from hpfem.shapes import HEX, PRISM, PYRAMID, QUAD, SEGMENT, TET, TRI, Shape

Integers = NDArray[np.int64]
CONES = {SEGMENT: TRI, TRI: TET, QUAD: PYRAMID}
WHOLE, MAIN, OTHER = "whole", "main", "other"  # a face: not split, split along 00-11, split along 01-10


@dataclass
class Cell:
    """A cell or boundary facet: its shape, its vertices in half lattice units, the name of its region or boundary."""

    shape: Shape
    vertices: Integers
    name: str


@dataclass
class LatticeMesh:
    """Cells and facets with shared nodes.

    Attributes
    ----------
    points : ndarray, [n_nodes, dim]
        Nodes in lattice units.
    cells, facets : list of (Shape, name, ndarray of node numbers in gmsh's order)
    order : int
        Geometry order.
    """

    points: NDArray[np.float64]
    cells: list[tuple[Shape, str, Integers]]
    facets: list[tuple[Shape, str, Integers]]
    order: int


def lattice_mesh(
    letters: Mapping[tuple[int, ...], str],
    order: int,
    region: Callable[[tuple[int, ...]], str],
    boundaries: Sequence[tuple[str, str]],
    periodic: int | None = None,
) -> LatticeMesh:
    """Mesh the cubes of a box.

    Parameters
    ----------
    letters
        Cube (i, j, k), or square (i, j), → letter, for every cube of the box.
    order
        Geometry order, at least 1.
    region
        Name of the region of a cube.
    boundaries
        Per axis, the names of the facets at its start and end.
    periodic
        Axis whose end is glued to its start.
    """
    size = tuple(max(axis) + 1 for axis in zip(*letters))
    cells = list(_cells(letters, region, size, periodic))
    facets = list(_boundary(cells, boundaries, size, periodic))
    nodes = [_nodes(cell, order) for cell in (*cells, *facets)]
    stacked = np.concatenate(nodes)
    if periodic is not None:
        stacked[:, periodic] %= 2 * order * size[periodic]
    unique, inverse = np.unique(stacked, axis=0, return_inverse=True)
    shuffled = _shuffle(len(unique))
    points = np.empty(unique.shape)
    points[shuffled] = unique / (2 * order)
    numbers = np.split(shuffled[inverse.ravel()], np.cumsum([len(part) for part in nodes])[:-1])
    listed = [(cell.shape, cell.name, part) for cell, part in zip((*cells, *facets), numbers)]
    return LatticeMesh(points, listed[: len(cells)], listed[len(cells) :], order)


def _cells(
    letters: Mapping[tuple[int, ...], str],
    region: Callable[[tuple[int, ...]], str],
    size: tuple[int, ...],
    periodic: int | None,
) -> Iterator[Cell]:
    """Cells of all cubes, positively oriented, each rotated by its number."""
    splits = _split_faces(letters, size, periodic)
    number = 0
    for cube in sorted(letters):
        for shape, corners in _cells_of_cube(cube, letters[cube], lambda face: splits[_glued(face, size, periodic)]):
            vertices = np.array(corners, dtype=np.int64)
            if np.linalg.det(_axes(shape, vertices)) < 0:
                vertices = vertices[mirrored_vertices(shape)]
            turns = symmetries(shape)[parities(shape) > 0]
            yield Cell(shape, vertices[turns[number % len(turns)]], region(cube))
            number += 1


def _cells_of_cube(
    cube: tuple[int, ...], letter: str, split: Callable[[tuple[int, ...]], str]
) -> Iterator[tuple[Shape, list[Integers]]]:
    """Shapes and vertices of the cells of one cube, in half units; either orientation."""
    dim, origin = len(cube), 2 * np.array(cube, dtype=np.int64)
    axes = 2 * np.eye(dim, dtype=np.int64)
    if letter == "H":
        yield HEX if dim == 3 else QUAD, _parallelotope(origin, axes)
    elif letter == "T":
        for path in permutations(range(dim)):
            corners = [origin + axes[list(path[:steps])].sum(axis=0) for steps in range(dim + 1)]
            yield TET if dim == 3 else TRI, corners
    elif letter in "SP":
        for face in _faces(cube):
            for shape, corners in _halves(face, split(face), axes):
                yield CONES[shape], [*corners, origin + 1]
    else:
        axis = "xyz".index(letter.lower())
        bottom = next(face for face in _faces(cube) if face[axis] == origin[axis])
        for _, corners in _halves(bottom, split(bottom), axes):
            yield PRISM, [*corners, *(corner + axes[axis] for corner in corners)]


def _parallelotope(origin: Integers, axes: Integers) -> list[Integers]:
    """Corners in tensor order, the first axis slowest."""
    return [origin + np.array(steps, dtype=np.int64) @ axes for steps in product((0, 1), repeat=len(axes))]


def _faces(cube: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Faces of a cube, each named by its centre in half units."""
    centre = [2 * index + 1 for index in cube]
    for axis, step in product(range(len(cube)), (-1, 1)):
        yield (*centre[:axis], centre[axis] + step, *centre[axis + 1 :])


def _halves(face: tuple[int, ...], split: str, axes: Integers) -> list[tuple[Shape, list[Integers]]]:
    """A face, or a square's edge, as it is cut: pairs of shape and corners."""
    inside = [axis for axis, centre in enumerate(face) if centre % 2]
    origin = np.array(face, dtype=np.int64) - axes[inside].sum(axis=0) // 2
    corners = _parallelotope(origin, axes[inside])
    if len(inside) == 1:
        return [(SEGMENT, corners)]
    if split == WHOLE:
        return [(QUAD, corners)]
    a, b, c, d = corners
    if split == MAIN:
        return [(TRI, [a, c, d]), (TRI, [a, d, b])]
    return [(TRI, [a, c, b]), (TRI, [d, b, c])]


def _glued(face: tuple[int, ...], size: tuple[int, ...], periodic: int | None) -> tuple[int, ...]:
    """The name of a face where the end of the periodic axis is its start."""
    if periodic is None:
        return face
    return (*face[:periodic], face[periodic] % (2 * size[periodic]), *face[periodic + 1 :])


def _split_faces(
    letters: Mapping[tuple[int, ...], str], size: tuple[int, ...], periodic: int | None
) -> dict[tuple[int, ...], str]:
    """How each face is cut, from what the cubes on its sides demand."""
    demands: dict[tuple[int, ...], str] = {}
    for cube, letter in letters.items():
        for face in _faces(cube):
            demand = _demand(letter, cube, face)
            if demand and demands.setdefault(_glued(face, size, periodic), demand) != demand:
                raise ArgumentError(f"cube {cube} ({letter}) and its neighbour want face {face} cut differently")
    for cube in letters:
        for face in _faces(cube):
            place = sum((2 * axis + 1) * centre for axis, centre in enumerate(face)) // 2
            demands.setdefault(_glued(face, size, periodic), (WHOLE, MAIN, WHOLE, OTHER)[place % 4])
    return demands


def _demand(letter: str, cube: tuple[int, ...], face: tuple[int, ...]) -> str | None:
    """What a cube demands of a face of its; None where it takes any."""
    if letter == "S" or len(cube) == 2:
        return None
    if letter in "HP":
        return WHOLE
    if letter == "T":
        return MAIN
    axis = "xyz".index(letter.lower())
    if face[axis] == 2 * cube[axis] + 1:
        return WHOLE
    return MAIN if letter.isupper() else OTHER


def _boundary(
    cells: list[Cell], boundaries: Sequence[tuple[str, str]], size: tuple[int, ...], periodic: int | None
) -> Iterator[Cell]:
    """Facets of the cells that lie on the box's border."""
    for cell in cells:
        for facet in cell.shape.facets:
            vertices = cell.vertices[list(facet.vertices)]
            for axis, names in enumerate(boundaries):
                for name, place in zip(names, (0, 2 * size[axis])):
                    if axis != periodic and np.all(vertices[:, axis] == place):
                        yield Cell(facet.shape, vertices, name)


def _axes(shape: Shape, vertices: Integers) -> Integers:
    """Steps from the first vertex along the reference axes, [dim, dim in space]; cells of a lattice are affine."""
    along = [_vertex_at(shape, axis) for axis in range(shape.dim)]
    return vertices[along] - vertices[0]


@cache
def _vertex_at(shape: Shape, axis: int) -> int:
    """The vertex at the end of a reference axis."""
    target = -np.ones(shape.dim)
    target[axis] = 1
    [[vertex]] = np.nonzero(np.all(shape.vertices == target, axis=1))
    return int(vertex)


def _nodes(cell: Cell, order: int) -> Integers:
    """Nodes in gmsh's order, in units of 1 / (2 order)."""
    steps = np.rint((gmsh_nodes(cell.shape, order) + 1) * order / 2).astype(np.int64)
    return order * cell.vertices[0] + steps @ _axes(cell.shape, cell.vertices)


def _shuffle(n: int) -> Integers:
    """A fixed permutation of 0..n-1 that scatters neighbours."""
    stride = next(step for step in range(int(0.618 * n) + 1, 2 * n + 2) if np.gcd(step, n) == 1)
    return np.arange(n, dtype=np.int64) * stride % n
