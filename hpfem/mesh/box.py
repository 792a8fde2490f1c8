"""Structured meshes of a box: for tests, benchmarks and first experiments.

Each small box is cut into cells the same way, its corners numbered x + 2 y + 4 z, its middle 8. The cuts agree on
their common sides, so that slabs of different shapes can stand beside each other along x:

- 3-D: hex whole; prism along the diagonal 0-3 of the bottom; pyramid six around the middle; tet six along 0-7.
- 2-D: quad whole; tri along the diagonal 0-3.

A slab of tets that meets another shape turns its outermost layer into pyramids around the middle, the one on the
side of the tets cut in two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations, product
from typing import Any

import numpy as np

from hpfem.errors import ArgumentError
from hpfem.shapes import SHAPES, Shape
from hpfem.shapes.arguments import as_array, name_of, reals, shown

from .distribute import made_on_first
from .mesh import Mesh
from .node_order import vertex_positions
from .symmetry import Indices

# Names of shapes, each with the corners of its cells in a small box.
_Cut = tuple[tuple[str, tuple[tuple[int, ...], ...]], ...]

_PYRAMIDS = {
    "zmin": (0, 1, 2, 3, 8),
    "zmax": (4, 6, 5, 7, 8),
    "ymin": (0, 4, 1, 5, 8),
    "ymax": (2, 3, 6, 7, 8),
    "xmin": (0, 2, 4, 6, 8),
    "xmax": (1, 5, 3, 7, 8),
}
# Far beyond what memory holds, and far below what an index does.
_MOST_BOXES = 1e11
_HALVES = {"xmin": ((0, 2, 6, 8), (0, 6, 4, 8)), "xmax": ((1, 5, 7, 8), (1, 7, 3, 8))}


def _tets() -> tuple[tuple[int, ...], ...]:
    """One tet for each order in which a path from corner 0 to corner 7 takes the axes."""
    paths = [((0, 1 << a, (1 << a) | (1 << b), 7), (b - a) % 3 == 1) for a, b, _ in permutations(range(3))]
    return tuple(p if even else (p[0], p[2], p[1], p[3]) for p, even in paths)


_CUTS: dict[str, _Cut] = {
    "quad": (("quad", ((0, 1, 2, 3),)),),
    "tri": (("tri", ((0, 1, 3), (0, 3, 2))),),
    "hex": (("hex", (tuple(range(8)),)),),
    "prism": (("prism", ((0, 1, 3, 4, 5, 7), (0, 3, 2, 4, 7, 6))),),
    "pyramid": (("pyramid", tuple(_PYRAMIDS.values())),),
    "tet": (("tet", _tets()),),
}
# Cut their neighbours' sides in two.
_HALVING = [_CUTS["tet"]]


def _towards_tets(*sides: str) -> _Cut:
    """Pyramids around the middle, those on the sides of tets cut in two."""
    whole = tuple(corners for side, corners in _PYRAMIDS.items() if side not in sides)
    halves = (("tet", tuple(half for side in sides for half in _HALVES[side])),)
    return (("pyramid", whole), *(halves if sides else ()))


def box(
    shapes: str | Sequence[str],
    counts: int | Sequence[int],
    *,
    lower: Sequence[float] | None = None,
    upper: Sequence[float] | None = None,
    periodic: Sequence[str] = (),
    comm: Any = None,
) -> Mesh:
    """Mesh a box with cells of one shape, or with slabs of several along x.

    Parameters
    ----------
    shapes : str or sequence of str
        "quad" and "tri" in 2-D; "hex", "prism", "pyramid" and "tet" in 3-D. Several names share the layers along x.
    counts : int or sequence of int
        Small boxes in each direction: as many numbers as dimensions, or one for all of them.
    lower, upper : sequence of float, optional
        Opposite corners; the unit square or cube by default.
    periodic : sequence of str
        Directions, of "x", "y" and "z", in which what leaves the box on one side enters it on the other: vertices,
        edges and faces there are one, and what lives on them is continuous. Three small boxes at least in such one.
    comm : Communicator or mpi4py.MPI.Comm, optional
        Processes that get a part each (`distribute`); all that `mpirun` has started when left out, `hpfem.ALONE` for
        the whole box.

    Returns
    -------
    Mesh
        Boundaries "xmin", "xmax", "ymin", … in directions that are not periodic; each name of a slab is a region.

    Raises
    ------
    ArgumentError
        For shapes of two dimensions or unknown ones, or counts and corners that do not fit them.
    """
    given = (shapes, counts, lower, upper, periodic)
    return made_on_first(comm, lambda: _whole(*given), given, "the box")


def _whole(
    shapes: str | Sequence[str],
    counts: int | Sequence[int],
    lower: Sequence[float] | None,
    upper: Sequence[float] | None,
    periodic: Sequence[str],
) -> Mesh:
    """The whole box."""
    names = (shapes,) if isinstance(shapes, str) else shapes
    if not isinstance(names, (list, tuple)) or not names:
        raise ArgumentError(f"a box can be made of {', '.join(_CUTS)}, not of {shown(shapes)}")
    names = tuple(name_of(name, _CUTS, "shape of a box") for name in names)
    dim = SHAPES[names[0]].dim
    if any(SHAPES[name].dim != dim for name in names):
        raise ArgumentError(f"shapes {names} are not all of one dimension")
    numbers = as_array(counts, "the counts of a box")
    numbers = np.repeat(numbers, dim) if numbers.ndim == 0 else numbers
    whole = numbers.shape == (dim,) and np.all((numbers >= 1) & (numbers == np.rint(numbers)))
    if not whole or numbers[0] < len(names) or np.prod(numbers.astype(float)) > _MOST_BOXES:
        raise ArgumentError(f"a box of {names} takes {dim} counts >= 1, the first >= {len(names)}, not {shown(counts)}")
    low = np.zeros(dim) if lower is None else reals(lower, "the lower corner")
    high = np.ones(dim) if upper is None else reals(upper, "the upper corner")
    if low.shape != (dim,) or high.shape != (dim,) or not np.all(high > low) or not np.isfinite([low, high]).all():
        raise ArgumentError(f"the box from {shown(low)} to {shown(high)} is not a box of {dim} dimensions")
    sizes = tuple(int(n) for n in numbers)
    joined = _joined(periodic, sizes)
    slab = np.arange(sizes[0]) * len(names) // sizes[0]
    layers = _layers([_CUTS[names[own]] for own in slab], around=0 in joined)
    axes = [np.linspace(a, b, n + 1) for a, b, n in zip(low, high, sizes, strict=True)]
    points = np.stack([g.ravel() for g in np.meshgrid(*axes, indexing="ij")], axis=1)
    corners = _corners(sizes)
    centres = np.array([any(8 in c for _, own in cut for c in own) for cut in layers])
    middle = np.full((1, *sizes), -1)
    if centres.any():
        places = points[corners[:, centres]].mean(axis=0).reshape(-1, dim)
        middle[0, centres] = len(points) + np.arange(len(places)).reshape(-1, *sizes[1:])
        points = np.concatenate([points, places])
    return _assembled(points, np.concatenate([corners, middle]), layers, [names[own] for own in slab], joined)


def _joined(periodic: Sequence[str], sizes: tuple[int, ...]) -> list[int]:
    """The axes of periodic directions."""
    axes = "xyz"[: len(sizes)]
    if isinstance(periodic, str) or not isinstance(periodic, (list, tuple, set, frozenset)):
        raise ArgumentError(f"the periodic directions of a box are a list such as ('x',), got {shown(periodic)}")
    joined = sorted({axes.index(name_of(name, tuple(axes), "direction of a box")) for name in periodic})
    for axis in joined:
        if sizes[axis] < 3:
            raise ArgumentError(
                f"a box takes 3 small boxes at least in a periodic direction, not {sizes[axis]} in {axes[axis]!r}"
            )
    return joined


def _corners(sizes: tuple[int, ...]) -> Indices:
    """Point numbers of the corners of the small boxes, [2^dim, n_x, n_y, ...]."""
    number = np.arange(int(np.prod([n + 1 for n in sizes]))).reshape([n + 1 for n in sizes])
    steps = [[(corner >> axis) & 1 for axis in range(len(sizes))] for corner in range(2 ** len(sizes))]
    return np.stack([number[tuple(slice(s, s + n) for s, n in zip(own, sizes, strict=True))] for own in steps])


def _layers(cuts: list[_Cut], *, around: bool) -> list[_Cut]:
    """The cut of the small boxes of each layer along x: layers of tets beside another shape lead over to it.

    If `around`, the last layer is beside the first one.
    """
    result, last = [], len(cuts) - 1
    for i, cut in enumerate(cuts):
        before, after = (i - 1, (i + 1) % len(cuts)) if around else (max(i - 1, 0), min(i + 1, last))
        beside = {"xmin": cuts[before], "xmax": cuts[after]}
        tets = [side for side, other in beside.items() if other in _HALVING]
        result.append(_towards_tets(*tets) if cut in _HALVING and len(tets) < 2 else cut)
    return result


def _assembled(points: np.ndarray, corners: Indices, layers: list[_Cut], names: list[str], joined: list[int]) -> Mesh:
    """Cells of all layers, those of equal cut and name at once; regions and boundaries."""
    sizes = corners.shape[1:]
    place = np.indices(sizes).reshape(len(sizes), -1)
    boxes = corners.reshape(len(corners), -1)
    cells: list[tuple[str, int, Indices]] = []
    regions: dict[str, list[Indices]] = {name: [] for name in names}
    sides: dict[str, list[Indices]] = {axis + end: [] for axis in "xyz"[: len(sizes)] for end in ("min", "max")}
    start = 0
    of_layer = list(zip(layers, names, strict=True))
    for kind in dict.fromkeys(of_layer):
        cut, name = kind
        chosen = np.flatnonzero(np.array([own == kind for own in of_layer])[place[0]])
        for shape_name, patterns in cut:
            count = len(chosen) * len(patterns)
            from_vertices = np.argsort(vertex_positions(SHAPES[shape_name], 1))
            nodes = boxes[np.array(patterns).T[from_vertices]][:, :, chosen]  # [node, pattern, box]
            cells.append((shape_name, 1, np.ascontiguousarray(nodes.transpose(2, 1, 0).reshape(count, -1))))
            regions[name].append(np.arange(start, start + count))
            for side, outer, number, local in _outer_facets(SHAPES[shape_name], patterns, place[:, chosen], sizes):
                cell = start + outer * len(patterns) + number
                sides[side].append(np.column_stack([cell, np.full(len(cell), local)]))
            start += count
    named = {name: np.concatenate(own) for name, own in regions.items()}
    pairs = {name: np.concatenate(own) for name, own in sides.items() if "xyz".index(name[0]) not in joined}
    images = [_images(sizes, axis) for axis in joined]
    mesh = Mesh.from_cells(points, cells, regions=named, periodic=images, name="box", check=False)
    return mesh.with_sides(pairs)


def _images(sizes: tuple[int, ...], axis: int) -> Indices:
    """Pairs of points on the last and the first side in the direction of an axis, [n, 2]."""
    number = np.arange(int(np.prod([n + 1 for n in sizes]))).reshape([n + 1 for n in sizes])
    return np.column_stack([number.take(end, axis=axis).ravel() for end in (-1, 0)])


def _outer_facets(
    shape: Shape, patterns: tuple[tuple[int, ...], ...], place: Indices, sizes: tuple[int, ...]
) -> Iterator[tuple[str, Indices, int, int]]:
    """Facets on the box's sides: name of the side, rows of the boxes there, number of the pattern and of its facet."""
    for axis, end in product(range(len(sizes)), (0, 1)):
        outer = np.flatnonzero(place[axis] == end * (sizes[axis] - 1))
        for number, pattern in enumerate(patterns):
            for local, facet in enumerate(shape.facets):
                if all(pattern[v] < 8 and (pattern[v] >> axis) & 1 == end for v in facet.vertices):
                    yield "xyz"[axis] + ("min", "max")[end], outer, number, local
