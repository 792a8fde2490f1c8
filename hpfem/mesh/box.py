"""Structured meshes of a box: for tests, benchmarks and first experiments.

Each small box is cut into cells the same way, its corners numbered x + 2 y + 4 z, its middle 8. The cuts agree on
their common sides, so that slabs of different shapes can stand beside each other along x:

- 3-D: hex whole; prism along the diagonal 0-3 of the bottom; pyramid six around the middle; tet six along 0-7.
- 2-D: quad whole; tri along the diagonal 0-3.

A slab of tets that meets another shape turns its outermost layer into pyramids around the middle, the one on the
side of the tets cut in two.

The same lines make the whole box, or the block of one process and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import permutations, product
from typing import Any

import numpy as np

from hpfem.errors import ArgumentError
from hpfem.shapes import SHAPES, Shape
from hpfem.shapes.arguments import as_array, name_of, reals, shown
from hpfem.shapes.arrays import Array, Indices

from ..geometry.element_map import CACHED, chunks
from ..support.communicator import communicator
from ..support.threads import in_parts
from .cells import CellArray, merged
from .distribute import work_of
from .gathered import Cells
from .hanging import Hanging
from .mesh import Mesh
from .node_order import vertex_positions
from .sorting import MANY, unique

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
        Those of the directions "x", "y" and "z" in which opposite sides of the box are joined: their vertices, edges
        and faces are the same. A periodic direction needs at least three small boxes.
    comm : Communicator or mpi4py.MPI.Comm, optional
        Processes that make one block of the box each: by default all that `mpirun` has started; `hpfem.ALONE` for the
        whole box.

    Returns
    -------
    Mesh
        Boundaries "xmin", "xmax", "ymin", … in directions that are not periodic; each name of a slab is a region.

    Raises
    ------
    ArgumentError
        For unknown shapes, shapes of different dimensions, or counts and corners that do not fit them.
    """
    comm = communicator(comm)
    comm.same((shapes, counts, lower, upper, periodic), "the box")
    names = (shapes,) if isinstance(shapes, str) else shapes
    if not isinstance(names, (list, tuple)) or not names:
        raise ArgumentError(f"a box can be made of {', '.join(_CUTS)}, not of {shown(shapes)}")
    names = tuple(name_of(name, _CUTS, "shape of a box") for name in names)
    dim = SHAPES[names[0]].dim
    if any(SHAPES[name].dim != dim for name in names):
        raise ArgumentError(f"shapes {names} do not have the same dimension")
    numbers = as_array(counts, "the counts of a box")
    numbers = np.repeat(numbers, dim) if numbers.ndim == 0 else numbers
    whole = numbers.shape == (dim,) and np.all((numbers >= 1) & (numbers == np.rint(numbers)))
    if not whole or numbers[0] < len(names) or np.prod(numbers.astype(float)) > _MOST_BOXES:
        what = f"{dim} counts >= 1, the first >= {len(names)} and their product <= {_MOST_BOXES:g}"
        raise ArgumentError(f"a box of {names} takes {what}, not {shown(counts)}")
    low = np.zeros(dim) if lower is None else reals(lower, "the lower corner")
    high = np.ones(dim) if upper is None else reals(upper, "the upper corner")
    if low.shape != (dim,) or high.shape != (dim,) or not np.all(high > low) or not np.isfinite([low, high]).all():
        raise ArgumentError(f"the box from {shown(low)} to {shown(high)} is not a box of {dim} dimensions")
    sizes = tuple(int(n) for n in numbers)
    joined = _joined(periodic, sizes)
    slab = np.arange(sizes[0]) * len(names) // sizes[0]
    layers = _layers([_CUTS[names[own]] for own in slab], around=0 in joined)
    axes = [np.linspace(a, b, n + 1) for a, b, n in zip(low, high, sizes, strict=True)]
    # Each process gets an equal share of every slab, if possible.
    work = [np.array([sum(len(own) * work_of(SHAPES[name]) for name, own in cut) for cut in layers])]
    block = _block([*work, *map(np.ones, sizes[1:])], comm.size, comm.rank)
    cells = _cells(axes, layers, [names[own] for own in slab], joined, block)
    return cells.mesh(comm, Hanging(cells.points[:0], cells.numbers[:0], ""))


def _block(work: Sequence[Array], size: int, rank: int) -> list[range]:
    """The layers of small boxes along each axis that one process has; `work` is the work of each layer."""
    # The longest axis is cut, again and again: into equal pieces if the numbers of processes and layers have a common
    # divisor, else into two. Axes whose layers differ in work are cut last.
    block = [range(len(own)) for own in work]
    while size > 1:
        axis = max(range(len(work)), key=lambda a: (len(block[a]) > 1 and np.ptp(work[a]) == 0, len(block[a])))
        n = _largest_prime(math.gcd(size, len(block[axis])))
        shares = [size // n] * n if n > 1 else [size // 2, size - size // 2]
        ends = np.cumsum([0, *shares])
        piece = int(np.searchsorted(ends, rank, side="right")) - 1
        done = np.cumsum([0.0, *work[axis][block[axis]]])
        first, last = (int(np.argmin(np.abs(done - done[-1] * end / size))) for end in ends[piece : piece + 2])
        block[axis], size, rank = block[axis][first:last], shares[piece], rank - int(ends[piece])
    return block


def _largest_prime(n: int) -> int:
    """The largest prime factor, 1 of 1."""
    factor = 2
    while factor < n:
        if n % factor == 0:
            n //= factor
        else:
            factor += 1
    return n


def _joined(periodic: Sequence[str], sizes: tuple[int, ...]) -> list[int]:
    """The axes of periodic directions."""
    axes = "xyz"[: len(sizes)]
    if isinstance(periodic, str) or not isinstance(periodic, (list, tuple, set, frozenset)):
        raise ArgumentError(f"the periodic directions of a box are a list such as ('x',), got {shown(periodic)}")
    joined = sorted({axes.index(name_of(name, tuple(axes), "direction of a box")) for name in periodic})
    for axis in joined:
        if sizes[axis] < 3:
            raise ArgumentError(
                f"a periodic direction of a box needs at least 3 small boxes, not {sizes[axis]} in {axes[axis]!r}"
            )
    return joined


def _layers(cuts: list[_Cut], *, around: bool) -> list[_Cut]:
    """The cut of the small boxes of each layer along x; if `around`, the last layer is beside the first one."""
    result, last = [], len(cuts) - 1
    for i, cut in enumerate(cuts):
        before, after = (i - 1, (i + 1) % len(cuts)) if around else (max(i - 1, 0), min(i + 1, last))
        beside = {"xmin": cuts[before], "xmax": cuts[after]}
        tets = [side for side, other in beside.items() if other in _HALVING]
        result.append(_towards_tets(*tets) if cut in _HALVING and len(tets) < 2 else cut)
    return result


def _cells(axes: Sequence[Array], layers: list[_Cut], names: list[str], joined: list[int], block: list[range]) -> Cells:
    """Make the cells of a block, with regions and boundaries: all layers of equal cut and name together."""
    sizes, counts = [len(own) - 1 for own in axes], [len(own) for own in block]
    n_boxes, each = math.prod(counts), math.prod(counts[1:])
    lattice = [n + (axis not in joined) for axis, n in enumerate(sizes)]
    along = [np.arange(own.start, own.stop + 1 if n_boxes else own.start) for own in block]
    ends = [len(own) for own in along]
    points = np.stack(np.broadcast_arrays(*np.ix_(*map(np.take, axes, along))), axis=-1).reshape(-1, len(ends))
    images = [np.unique(own % n, return_inverse=True) for own, n in zip(along, lattice, strict=True)]
    vertex_of = _grid([own for _, own in images], [len(own) for own, _ in images])
    ids = _grid([own for own, _ in images], lattice)
    inner = np.zeros(ends, dtype=bool)
    inner[(slice(1, -1),) * len(ends)] = True
    on_surface = unique(vertex_of[~inner.ravel()])

    # The first corner of every small box, and from there to each corner.
    first = np.arange(len(points)).reshape(ends)[tuple(map(slice, counts))].ravel()
    strides = [math.prod(ends[axis + 1 :]) for axis in range(len(ends))]
    steps = np.array([sum(n * (c >> axis & 1) for axis, n in enumerate(strides)) for c in range(2 ** len(ends))])
    # Of the small boxes of a layer: positions, and numbers in the layer of the whole box.
    across = np.indices(counts[1:]).reshape(len(ends) - 1, -1) + np.array([[own.start] for own in block[1:]])
    column = np.ravel_multi_index(tuple(across), sizes[1:])

    def chosen(of_layer: list[bool]) -> tuple[Indices, Indices, Indices, int]:
        """Some layers, their small boxes: rows in the block, numbers in the whole box, and their count there."""
        own = np.array([layer for layer in block[0] if of_layer[layer]], dtype=np.int64)
        rows = (own[:, None] - block[0].start) * each + np.arange(each)
        numbers = (np.cumsum(of_layer) - 1)[own, None] * math.prod(sizes[1:]) + column
        return own, rows.ravel(), numbers.ravel(), sum(of_layer) * math.prod(sizes[1:])

    _, rows, number, _ = chosen([any(8 in c for _, own in cut for c in own) for cut in layers])
    middle = np.full(n_boxes if len(rows) else 0, -1)
    wrapped = any((own[1:] < own[:-1]).any() for _, own in images)
    if len(rows):
        middle[rows] = len(points) + np.arange(len(rows))
        at_corners = (points[first[rows] + step] for step in steps)
        vertex_of, ids = (
            np.append(vertex_of, len(ids) + np.arange(len(rows))),
            np.append(ids, math.prod(lattice) + number),
        )
        points = np.concatenate([points, sum(at_corners) / len(steps)])

    def corners(rows: Indices, patterns: Indices) -> Indices:
        """Points at corners of small boxes, by patterns [n, corners]; -> [rows * n, corners]."""
        found = np.empty((len(rows), *patterns.shape), dtype=np.int64)

        def write(part: slice) -> None:
            here, of_rows, begin = found[part], rows[part], first[rows[part]]
            for place, corner in np.ndenumerate(patterns):
                here[:, *place] = middle[of_rows] if corner == 8 else begin + steps[corner]

        in_parts(write, chunks(len(rows), patterns.size, most=CACHED), found.size >= MANY)
        return found.reshape(-1, patterns.shape[1])

    arrays: list[CellArray] = []
    vertices: dict[str, list[Indices]] = {}
    numbers: list[Indices] = []
    regions: dict[str, list[Indices]] = {name: [] for name in names}
    sides: dict[str, list[Indices]] = {axis + end: [] for axis in "xyz"[: len(sizes)] for end in ("min", "max")}
    start = before = 0  # cells so far, in the block and in the whole box
    of_layer = list(zip(layers, names, strict=True))
    for layer in dict.fromkeys(of_layer):
        cut, name = layer
        own, rows, number, n_whole = chosen([other == layer for other in of_layer])
        for shape_name, patterns in cut:
            n, table = len(patterns), np.array(patterns)
            indices = np.arange(start, start + len(rows) * n)
            from_vertices = np.argsort(vertex_positions(SHAPES[shape_name], 1))
            arrays.append(CellArray(SHAPES[shape_name], 1, corners(rows, table[:, from_vertices]), indices))
            found = corners(rows, table)
            vertices.setdefault(shape_name, []).append(vertex_of[found] if wrapped else found)
            numbers.append((before + number[:, None] * n + np.arange(n)).ravel())
            regions[name].append(indices)
            for side, outer, pattern, local in _outer_facets(SHAPES[shape_name], patterns, own, across, sizes):
                cell = start + outer * n + pattern
                sides[side].append(np.column_stack([cell, np.full(len(cell), local)]))
            start, before = start + len(indices), before + n_whole * n
    return Cells(
        points,
        merged(arrays),
        [_together(own) for own in vertices.values()],
        ids,
        _together(numbers),
        {name: _together(own) for name, own in regions.items()},
        {
            (len(sizes) - 1, name): np.concatenate(own)
            for name, own in sides.items()
            if "xyz".index(name[0]) not in joined
        },
        {"name": "box", "periodic": bool(joined)},
        on_surface,
    )


def _together(parts: list[Indices]) -> Indices:
    """Parts one after the other, a single one as it is."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _grid(along: Sequence[Indices], sizes: Sequence[int]) -> Indices:
    """Numbers that the points of a grid have in a larger grid, from their positions along each axis."""
    return np.asarray(np.ravel_multi_index(np.ix_(*along), sizes)).ravel()


def _outer_facets(
    shape: Shape, patterns: tuple[tuple[int, ...], ...], layers: Indices, across: Indices, sizes: Sequence[int]
) -> Iterator[tuple[str, Indices, int, int]]:
    """Facets on the box's sides: name of the side, rows of the boxes there, number of the pattern and of its facet."""
    rows = np.arange(len(layers) * across.shape[1]).reshape(len(layers), across.shape[1])
    for axis, end in product(range(len(sizes)), (0, 1)):
        at = end * (sizes[axis] - 1)
        outer = rows[(slice(None), across[axis - 1] == at) if axis else layers == at].ravel()
        for number, pattern in enumerate(patterns):
            for local, facet in enumerate(shape.facets):
                if all(pattern[v] < 8 and (pattern[v] >> axis) & 1 == end for v in facet.vertices):
                    yield "xyz"[axis] + ("min", "max")[end], outer, number, local
