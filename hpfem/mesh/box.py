"""Structured meshes of a box: for tests, benchmarks and first experiments.

Each small box is cut into cells the same way, its corners numbered x + 2 y + 4 z, its middle 8. The cuts agree on
their common sides, so that slabs of different shapes can stand beside each other along x:

- 3-D: hex whole; prism along the diagonal 0-3 of the bottom; pyramid six around the middle; tet six along 0-7.
- 2-D: quad whole; tri along the diagonal 0-3.

A slab of tets that meets another shape turns its outermost layer into pyramids around the middle, the one on the
side of the tets cut in two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations

import numpy as np

from hpfem.errors import ArgumentError
from hpfem.shapes import SHAPES, Shape
from hpfem.shapes.arguments import as_array, name_of, reals, shown

from .mesh import Mesh
from .node_order import vertex_positions
from .symmetry import Indices

Cut = Mapping[str, tuple[tuple[int, ...], ...]]

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
_HALVES_ITS_SIDES = {"tet"}
_HALVES = {"xmin": ((0, 2, 6, 8), (0, 6, 4, 8)), "xmax": ((1, 5, 7, 8), (1, 7, 3, 8))}


def _tets() -> tuple[tuple[int, ...], ...]:
    """One tet for each order in which a path from corner 0 to corner 7 takes the axes."""
    paths = [((0, 1 << a, (1 << a) | (1 << b), 7), (b - a) % 3 == 1) for a, b, _ in permutations(range(3))]
    return tuple(p if even else (p[0], p[2], p[1], p[3]) for p, even in paths)


_CUTS: dict[str, Cut] = {
    "quad": {"quad": ((0, 1, 2, 3),)},
    "tri": {"tri": ((0, 1, 3), (0, 3, 2))},
    "hex": {"hex": (tuple(range(8)),)},
    "prism": {"prism": ((0, 1, 3, 4, 5, 7), (0, 3, 2, 4, 7, 6))},
    "pyramid": {"pyramid": tuple(_PYRAMIDS.values())},
    "tet": {"tet": _tets()},
}


def _towards_tets(*sides: str) -> Cut:
    """Pyramids around the middle, those on the sides of tets cut in two."""
    whole = tuple(corners for side, corners in _PYRAMIDS.items() if side not in sides)
    return {"pyramid": whole, "tet": tuple(half for side in sides for half in _HALVES[side])}


def box(
    shapes: str | Sequence[str],
    counts: Sequence[int],
    *,
    lower: Sequence[float] | None = None,
    upper: Sequence[float] | None = None,
) -> Mesh:
    """Mesh a box with cells of one shape, or with slabs of several along x.

    Parameters
    ----------
    shapes : str or sequence of str
        "quad" and "tri" in 2-D; "hex", "prism", "pyramid" and "tet" in 3-D. Several names share the layers along x.
    counts : sequence of int
        Small boxes in each direction, as many numbers as dimensions.
    lower, upper : sequence of float, optional
        Opposite corners; the unit square or cube by default.

    Returns
    -------
    Mesh
        Boundaries "xmin", "xmax", "ymin", …; each name of a slab is a region.

    Raises
    ------
    ArgumentError
        For shapes of two dimensions or unknown ones, or counts and corners that do not fit them.
    """
    names = (shapes,) if isinstance(shapes, str) else shapes
    if not isinstance(names, (list, tuple)) or not names:
        raise ArgumentError(f"a box can be made of {', '.join(_CUTS)}, not of {shown(shapes)}")
    names = tuple(name_of(name, _CUTS, "shape of a box") for name in names)
    dim = SHAPES[names[0]].dim
    if any(SHAPES[name].dim != dim for name in names):
        raise ArgumentError(f"shapes {names} are not all of one dimension")
    numbers = as_array(counts, "the counts of a box")
    whole = numbers.shape == (dim,) and np.all((numbers >= 1) & (numbers == np.rint(numbers)))
    if not whole or numbers[0] < len(names) or np.prod(numbers.astype(float)) > _MOST_BOXES:
        raise ArgumentError(f"a box of {names} takes {dim} counts >= 1, the first >= {len(names)}, not {shown(counts)}")
    low = np.zeros(dim) if lower is None else reals(lower, "the lower corner")
    high = np.ones(dim) if upper is None else reals(upper, "the upper corner")
    if low.shape != (dim,) or high.shape != (dim,) or not np.all(high > low) or not np.isfinite([low, high]).all():
        raise ArgumentError(f"the box from {shown(low)} to {shown(high)} is not a box of {dim} dimensions")
    sizes = tuple(int(n) for n in numbers)
    slab = np.arange(sizes[0]) * len(names) // sizes[0]
    corners = _corners(sizes)
    points = _grid(sizes, low, high)
    layers = _layers(names, slab)
    centres = np.concatenate([[False], [any(8 in c for own in cut.values() for c in own) for cut in layers]])[1:]
    middle = np.full(corners.shape[1:], -1)
    if centres.any():
        n_middle = int(centres.sum()) * int(np.prod(sizes[1:]))
        middle[centres] = len(points) + np.arange(n_middle).reshape(middle[centres].shape)
        points = np.concatenate([points, points[corners[:, centres]].mean(axis=0).reshape(-1, dim)])
    corners = np.concatenate([corners, middle[None]]) if dim == 3 else corners
    return _assembled(points, corners, layers, slab, names, dim)


def _grid(sizes: tuple[int, ...], low: np.ndarray, high: np.ndarray) -> np.ndarray:
    axes = [np.linspace(a, b, n + 1) for a, b, n in zip(low, high, sizes, strict=True)]
    return np.stack([g.ravel() for g in np.meshgrid(*axes, indexing="ij")], axis=1)


def _corners(sizes: tuple[int, ...]) -> Indices:
    """Point numbers of the corners of the small boxes, [2^dim, n_x, n_y, ...]."""
    number = np.arange(int(np.prod([n + 1 for n in sizes]))).reshape([n + 1 for n in sizes])
    dim = len(sizes)
    result = []
    for corner in range(2**dim):
        steps = [(corner >> axis) & 1 for axis in range(dim)]
        result.append(number[tuple(slice(s, s + n) for s, n in zip(steps, sizes, strict=True))])
    return np.stack(result)


def _layers(names: tuple[str, ...], slab: np.ndarray) -> list[Cut]:
    """The cut of the small boxes of each layer along x."""
    halved = np.array([name in _HALVES_ITS_SIDES for name in names])[slab]
    # Where a layer of tets has a neighbour of another shape.
    xmin = halved & ~np.append(halved[0], halved[:-1])
    xmax = halved & ~np.append(halved[1:], halved[-1])
    return [
        _towards_tets(*(side for side, other in (("xmin", xmin[i]), ("xmax", xmax[i])) if not other))
        if xmin[i] or xmax[i]
        else _CUTS[names[own]]
        for i, own in enumerate(slab)
    ]


def _assembled(
    points: np.ndarray, corners: Indices, layers: list[Cut], slab: np.ndarray, names: tuple[str, ...], dim: int
) -> Mesh:
    """Cells of all layers, those of equal cut at once; regions and boundaries."""
    sizes = corners.shape[1:]
    place = np.indices(sizes).reshape(dim, -1)
    boxes = corners.reshape(len(corners), -1)
    cells: list[tuple[str, int, Indices]] = []
    regions: dict[str, list[Indices]] = {name: [] for name in names}
    sides: dict[str, list[Indices]] = {axis + end: [] for axis in "xyz"[:dim] for end in ("min", "max")}
    start = 0
    for cut, name in dict.fromkeys((_key(cut), names[own]) for cut, own in zip(layers, slab, strict=True)):
        layer = np.array([_key(c) == cut and names[own] == name for c, own in zip(layers, slab, strict=True)])
        chosen = np.flatnonzero(layer[place[0]])
        for shape_name, patterns in cut:
            count = len(chosen) * len(patterns)
            if not count:
                continue
            from_vertices = np.argsort(vertex_positions(SHAPES[shape_name], 1))
            nodes = boxes[np.array(patterns).T[from_vertices]][:, :, chosen]  # [node, pattern, box]
            cells.append((shape_name, 1, np.ascontiguousarray(nodes.transpose(2, 1, 0).reshape(count, -1))))
            regions[name].append(np.arange(start, start + count))
            _collect_sides(sides, SHAPES[shape_name], patterns, place[:, chosen], sizes, start)
            start += count
    named = {name: np.concatenate(own) for name, own in regions.items()}
    pairs = {name: np.concatenate(own) for name, own in sides.items()}
    return Mesh.from_cells(points, cells, regions=named, name="box", check=False).with_sides(pairs)


def _key(cut: Cut) -> tuple[tuple[str, tuple[tuple[int, ...], ...]], ...]:
    return tuple(cut.items())


def _collect_sides(
    sides: dict[str, list[Indices]],
    shape: Shape,
    patterns: tuple[tuple[int, ...], ...],
    place: Indices,
    sizes: tuple[int, ...],
    start: int,
) -> None:
    """Facets on the box's sides as (cell, local facet)."""
    for axis in range(len(sizes)):
        for end in (0, 1):
            outer = np.flatnonzero(place[axis] == end * (sizes[axis] - 1))
            for number, pattern in enumerate(patterns):
                for local, facet in enumerate(shape.facets):
                    corners = [pattern[v] for v in facet.vertices]
                    if all(c < 8 and (c >> axis) & 1 == end for c in corners):
                        cell = start + outer * len(patterns) + number
                        sides["xyz"[axis] + ("min", "max")[end]].append(
                            np.column_stack([cell, np.full(len(cell), local)])
                        )
