"""Division of a shape into smaller ones of half its size: every edge in two, every tri and every quad in four.

    product:  the pieces of the base, below and above the middle
    cone:     a table of its own

Faces are divided in the same way in all shapes, so that neighbours still share whole sides. The interior can be divided
in several ways: a tet without its corners is an octahedron, which can be cut along each of its three diagonals. Inside
a pyramid there are tets between the smaller pyramids.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np

from .arguments import instance
from .arrays import Indices, frozen
from .errors import ArgumentError
from .shape import Shape, get_shape


@dataclass(frozen=True, eq=False)
class Piece:
    """One of the smaller shapes of a divided shape."""

    shape: Shape
    corners: Indices  # [n_vertices, dim], lattice indices of order 2 of the divided shape

    def __post_init__(self) -> None:
        frozen(self.corners)


def _tets(*words: str) -> tuple[tuple[str, str], ...]:
    return tuple(("tet", own) for own in words)


def _around(diagonal: str, ring: str) -> tuple[tuple[str, str], ...]:
    """The four tets of an octahedron around one of its diagonals."""
    middles = ring.split()
    return _tets(*(f"{diagonal} {a} {b}" for a, b in pairwise([*middles, middles[0]])))


_CORNERS = _tets("0 01 02 03", "01 1 12 13", "02 12 2 23", "03 13 23 3")
_SQUARES = ("0 01 02 0123 04", "01 1 0123 13 14", "02 0123 2 23 24", "0123 13 23 3 34", "04 14 24 34 4")
# For each way, the shapes of the pieces and their vertices: a vertex is the middle of those that its digits name.
_CONES: dict[str, tuple[tuple[tuple[str, str], ...], ...]] = {
    "tri": (tuple(("tri", own) for own in ("0 01 02", "01 1 12", "02 12 2", "12 02 01")),),
    "tet": (
        _CORNERS + _around("02 13", "01 12 23 03"),
        _CORNERS + _around("01 23", "02 03 13 12"),
        _CORNERS + _around("03 12", "01 02 23 13"),
    ),
    "pyramid": (
        tuple(("pyramid", own) for own in (*_SQUARES, "04 24 14 34 0123"))
        + _tets("01 0123 04 14", "13 0123 14 34", "23 0123 34 24", "02 0123 24 04"),
    ),
}


def refinements(shape: Shape) -> tuple[tuple[Piece, ...], ...]:
    """All ways to divide a shape into pieces of half its size."""
    return _refinements(instance(shape, Shape, "the shape that is refined"))


@cache
def _refinements(shape: Shape) -> tuple[tuple[Piece, ...], ...]:
    if shape.base is None:
        return ((Piece(shape, np.zeros((1, 0), dtype=np.int64)),),)
    if not shape.collapsed:
        return tuple(
            tuple(_swept(shape, piece, height) for piece in way for height in (0, 1))
            for way in _refinements(shape.base)
        )
    if shape.name not in _CONES:
        raise ArgumentError(f"there is no way to refine the shape {shape.name!r}; it takes a table of its pieces")
    unit = np.rint(shape.vertices + 1).astype(np.int64)
    return tuple(
        tuple(
            Piece(get_shape(name), np.array([sum(unit[int(v)] for v in word) // len(word) for word in words.split()]))
            for name, words in way
        )
        for way in _CONES[shape.name]
    )


def _swept(shape: Shape, piece: Piece, height: int) -> Piece:
    """The product of a piece of a product's base and one half of the segment."""
    ends = [np.column_stack([piece.corners, np.full(len(piece.corners), height + end)]) for end in (0, 1)]
    # The swept piece has the shape itself: pieces of a segment, a tri or a quad have the same shape.
    return Piece(shape, np.concatenate(ends))
