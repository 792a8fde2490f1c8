"""A warning if boundaries meet with different Dirichlet values: a solution can have one of them only."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from ..mesh import Mesh
from ..mesh.node_order import vertex_positions
from ..support.log import warn
from .interpolation import Piece, values_of

# Values that differ by less, relative to the largest, differ by rounding only.
_ROUNDING = 1e-8


def warn_of_conflicts(mesh: Mesh, names: Sequence[str], pieces: Sequence[Piece]) -> None:
    """Warn if two pieces that share vertices have different values there."""
    if len(pieces) < 2:
        return
    place = np.zeros(mesh.n_vertices, dtype=np.int64)
    for cells in mesh.cells:
        place[cells.vertices] = cells.nodes[:, vertex_positions(cells.shape, cells.order)]
    vertices = [np.flatnonzero(piece.masks[0]) if piece.masks else np.arange(len(place)) for piece in pieces]
    with mesh.comm.together():
        found = [
            values_of(piece.function, mesh.points[place[ids]].T, name)
            for piece, ids, name in zip(pieces, vertices, names, strict=True)
        ]
    # The largest value of all pieces: a function may be zero where boundaries meet, but its rounding errors are not.
    largest = max((float(np.abs(values).max()) for values in found if values.size), default=0.0)
    least = _ROUNDING * mesh.comm.max(largest)
    worst, text, count = least, "", 0
    for i, j in combinations(range(len(pieces)), 2):
        shared, in_i, in_j = np.intersect1d(vertices[i], vertices[j], assume_unique=True, return_indices=True)
        a, b = found[i][:, in_i], found[j][:, in_j]
        apart = np.abs(a - b)
        count += int(np.count_nonzero((apart > least).any(axis=0)))
        if apart.size and apart.max() > worst:
            at = np.unravel_index(int(np.argmax(apart)), apart.shape)
            worst, where = float(apart[at]), ", ".join(f"{c:.6g}" for c in mesh.points[place[shared[at[1]]]])
            text = f"{names[i]} and {names[j]} meet at ({where}) with the values {a[at]:.6g} and {b[at]:.6g}"
    worst, text, count = max(mesh.comm.allgather((worst, text, count)))
    if count and mesh.comm.rank == 0:
        others = f" ({count} such vertices, there they differ most)" if count > 1 else ""
        warn(
            f"{text}{others}; the value of the boundary that comes first in the mesh is used. If this is not intended,"
            " give functions that agree where boundaries meet"
        )
