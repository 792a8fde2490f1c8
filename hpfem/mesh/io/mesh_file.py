"""What a mesh file says, whatever its format, before anything is made of it; and reading numbers from text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hpfem.errors import MeshError
from hpfem.shapes import POINT, SHAPES, Shape, equispaced_nodes
from hpfem.shapes.arguments import shown

from ..node_order import permutation
from ..symmetry import Indices

Array = NDArray[np.float64]

_TEXT_CHUNK = 1 << 24
_SPACE = re.compile(rb"\s")


@dataclass(frozen=True, eq=False)
class Block:
    """Elements of one shape and order, of any dimension, that follow each other in the file.

    Attributes
    ----------
    shape : Shape
        The reference shape; the point for single nodes.
    order : int
        Geometry order.
    nodes : ndarray of int, [E, n_nodes]
        Rows of the points, in canonical equispaced order; -1 for a node that the file does not have.
    numbers : ndarray of int, [E]
        What the file calls each element.
    sets : dict of str to ndarray of int
        Names, each with the rows that have it.
    """

    shape: Shape
    order: int
    nodes: Indices
    numbers: Indices
    sets: dict[str, Indices] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class MeshFile:
    """Points, elements and names of a file.

    Attributes
    ----------
    points : ndarray, [n, 2 or 3]
        Coordinates.
    blocks : list of Block
        In the order of the file.
    periodic : list of ndarray of int, [n, 2] each
        Pairs of points that are images of each other, one array per pair of sides.
    """

    points: Array
    blocks: list[Block]
    periodic: list[Indices] = field(default_factory=list)


def canonical(shape: Shape, order: int, file_nodes: Array, nodes: Indices) -> Indices:
    """Node columns brought from a file's order, given by reference coordinates, into ours."""
    if shape is POINT:
        return nodes
    return nodes[:, permutation(file_nodes, equispaced_nodes(shape, order), order)]


def shape_named(name: str) -> Shape:
    """A shape with a direction, or the point."""
    return POINT if name == POINT.name else SHAPES[name]


def tagged(tags: Indices, names: dict[int, str]) -> dict[str, Indices]:
    """Rows by the name of their tag; a tag without a name is called by its number, tag 0 by nothing."""
    result: dict[str, list[Indices]] = {}
    for tag in np.unique(tags[tags != 0]):
        result.setdefault(names.get(int(tag), str(tag)), []).append(np.flatnonzero(tags == tag))
    return {name: np.sort(np.concatenate(rows)) for name, rows in result.items()}


def count_in(text: str) -> int | None:
    """A count that a header states, None where it is none."""
    found = re.fullmatch(r"\s*([0-9]{1,18})\s*", text)
    return None if found is None else int(found[1])


def parsed_numbers(text: bytes, most: int | None = None) -> tuple[Array, int]:
    """Numbers of a text, separated by white space.

    Parameters
    ----------
    text : bytes
        Where to read.
    most : int, optional
        How many numbers to take; all by default.

    Returns
    -------
    numbers : ndarray, [n]
        Fewer than `most` if the text ends.
    end : int
        Where the text goes on behind them.

    Raises
    ------
    MeshError
        Where something is not a number; the message quotes it.
    """
    parts, start, left = [np.empty(0)], 0, len(text) if most is None else most
    while start < len(text) and left > 0:
        stop = min(start + min(_TEXT_CHUNK, 32 * left + 64), len(text))
        word_ends = _SPACE.search(text, stop)
        stop = word_ends.start() if word_ends else len(text)
        words = text[start:stop].split(None, left)
        if len(words) > left:
            stop -= len(words.pop())
        if text.find(b"_", start, stop) >= 0:  # which Python allows inside numbers
            word = next(word for word in words if b"_" in word)
            raise MeshError(f"a number was expected, not {shown(word)}")
        try:
            parts.append(np.fromiter(map(float, words), dtype=np.float64, count=len(words)))
        except ValueError as error:
            raise MeshError(f"a number was expected: {str(error)[:80]}") from None
        left -= len(words)
        start = stop
    return np.concatenate(parts), start


def as_integers(values: NDArray[np.generic]) -> Indices:
    """Numbers that must be integers, as integers.

    Raises
    ------
    MeshError
        Where one is not; the message shows it.
    """
    if values.dtype.kind == "f":
        wrong = ~((np.abs(values) < 2.0**53) & (values == np.floor(values)))
    else:
        wrong = values.astype(np.uint64) > 2**62 if values.dtype.kind == "u" else np.zeros(values.shape, dtype=bool)
    if wrong.any():
        raise MeshError(f"an integer was expected, not {values[wrong][0]}")
    return values.astype(np.int64)


def looked_up(ids: Indices, wanted: Indices, what: str) -> Indices:
    """Positions of the wanted ids, -1 for one that is not there.

    Raises
    ------
    MeshError
        If an id is given twice.
    """
    if len(ids) == 0:
        return np.full(wanted.shape, -1, dtype=np.int64)
    low, high = int(ids.min()), int(ids.max())
    if high - low < 8 * len(ids) + 1000:
        table = np.full(high - low + 1, -1, dtype=np.int64)
        table[ids - low] = np.arange(len(ids))
        if np.count_nonzero(table >= 0) != len(ids):
            raise MeshError(f"{what} {_repeated(ids)} is given twice")
        inside = (wanted >= low) & (wanted <= high)
        return np.where(inside, table[np.where(inside, wanted - low, 0)], -1)
    order = np.argsort(ids, kind="stable")
    ascending = ids[order]
    if np.any(ascending[1:] == ascending[:-1]):
        raise MeshError(f"{what} {_repeated(ids)} is given twice")
    where = np.minimum(np.searchsorted(ascending, wanted), len(ids) - 1)
    return np.where(ascending[where] == wanted, order[where], -1)


def _repeated(ids: Indices) -> int:
    ascending = np.sort(ids)
    return int(ascending[1:][ascending[1:] == ascending[:-1]][0])


def joined(rows: Sequence[Indices]) -> Indices:
    """Arrays of indices as one, none of them too."""
    return np.concatenate([np.empty(0, dtype=np.int64), *rows])
