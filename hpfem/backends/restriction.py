"""The element restriction Q: a sparse matrix by blocks, most of whose rows have one entry +-1, and its products.

`ElementRestriction` is for arrays of any library by its sparse products; backends have faster ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array

from hpfem.shapes.cached import cached_property

from ..geometry.element_map import CACHED, chunks
from ..memory import device_of, moved

Indices = NDArray[np.integer[Any]]


# Codes of a block that are kept on a device, at most.
_KEPT = 1 << 24


def row_entries(matrix: csr_array, rows: Indices) -> tuple[Indices, Indices]:
    """Positions of the entries of some rows, one row after the other; rows [n] -> counts [n]."""
    counts = np.diff(matrix.indptr)[rows]
    return np.arange(counts.sum()) + np.repeat(matrix.indptr[rows] - (np.cumsum(counts) - counts), counts), counts


def _taken(whole: Codes, rows: Any, modes: Any, xp: Any) -> Any:
    """Some elements and modes as an array, all where None is given; -> [E, n_modes]."""
    codes = whole.on(xp) if rows is None else whole.on(xp)[moved(rows, xp)]
    return codes if modes is None else codes.take(moved(modes, xp), axis=1)


class Codes:
    """The rows of a block of a `BlockMatrix`, [E, n_modes], written as codes on demand.

    A code is 2 * column, and 1 more where the entry is -1; or -1 - r where the row is one of the matrix' `rows`, which
    is not so if they are `signed`. `modes` [n_modes] are those of an element entity by entity, as their numbers stand
    side by side in vectors, by default in order; `sizes` [entities] are the numbers of modes of these entities.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        make: Callable[[Any], Any],
        signed: bool,
        modes: Indices | None = None,
        sizes: Indices | None = None,
    ) -> None:
        self.shape, self._make, self.signed = shape, make, signed
        self.modes: Indices = np.arange(shape[1]) if modes is None else modes
        self.sizes: Indices = np.array([shape[1]]) if sizes is None else sizes
        self._of: tuple[Codes, Any, Any] | None = None
        self._there = dict[str, Any]()  # on devices

    @property
    def of(self) -> tuple[Codes, Any, Any]:
        """What it is made from, the elements that it takes, and their modes in order; None for all."""
        return self._of or (self, None, None)

    def on(self, xp: Any) -> Any:
        """Codes as an array; -> [E, n_modes]."""
        place = "" if xp is np else device_of(xp)
        if place in self._there:
            return self._there[place]
        codes = self._make(xp)
        if xp is np:
            self._make = partial(moved, codes)
        elif codes.size <= _KEPT:
            self._there[place] = codes
        return codes

    def part(self, rows: Any) -> Codes:
        """Take some elements."""
        if isinstance(rows, slice) and rows == slice(None):
            return self
        shape = len(rows), self.shape[1]
        found = Codes(shape, partial(_taken, self, rows, None), self.signed, self.modes, self.sizes)
        found._of = self, rows, None
        return found

    def by_entity(self) -> Codes:
        """Put the rows of every element in the order of `modes`."""
        found = Codes(self.shape, partial(_taken, self, None, self.modes), self.signed, sizes=self.sizes)
        found._of = *self.of[:2], self.modes
        return found

    def shifted(self, n: int) -> Codes:
        """Shift the numbers of the rows that are given by matrices."""
        if n == 0 or self.signed:
            return self

        def make(xp: Any) -> Any:
            codes = self.on(xp)
            return xp.where(codes < 0, codes - n, codes)

        return Codes(self.shape, make, False, self.modes, self.sizes)


class BlockMatrix:
    """A sparse matrix Q [local, size], mostly one entry +-1 a row; those of `rows` [r, size] have others."""

    def __init__(self, blocks: Sequence[Codes], rows: csr_array) -> None:
        self.blocks, self.rows, self.size = blocks, rows, int(rows.shape[1])
        self.starts = [0, *(int(end) for end in np.cumsum([own.shape[0] * own.shape[1] for own in blocks]))]
        self._there = dict[str, Any]()  # codes on devices

    def with_rows(self, rows: csr_array) -> BlockMatrix:
        """The same codes with other `rows`."""
        found = BlockMatrix(self.blocks, rows)
        found._there = self._there
        return found

    @property
    def signed(self) -> bool:
        """Whether all rows have one entry +-1."""
        return all(own.signed for own in self.blocks)

    @property
    def codes(self) -> list[Indices]:
        """Codes of every block on the host, [E, n_modes] each."""
        return [own.on(np) for own in self.blocks]

    def on(self, xp: Any) -> Any:
        """Codes of all blocks, one after the other; parts of one block that follow each other are taken together. On a
        device they are kept if they are not too many.
        """
        place = "" if xp is np else device_of(xp)
        if place in self._there:
            return self._there[place]
        found = []
        for _, same in groupby(self.blocks, lambda own: id(own.of[0])):
            parts = [own.of for own in same]
            (whole, some, modes), more = parts[0], [rows for _, rows, _ in parts]
            rows = some if some is None else np.concatenate(more)
            found.append(_taken(whole, rows, modes, xp).reshape(-1))
        codes = xp.concatenate(found)
        if xp is not np and len(codes) <= _KEPT:
            self._there[place] = codes
        return codes

    @cached_property
    def matrix(self) -> csr_array:
        """The matrix."""
        return self.of_codes(np.concatenate([own.reshape(-1) for own in self.codes]))

    def of_codes(self, codes: Indices) -> csr_array:
        """Make a matrix of rows that are written as codes; codes [n] -> [n, size]."""
        several = np.flatnonzero(codes < 0)
        entries, n = row_entries(self.rows, -1 - codes[several].astype(np.int64))
        counts = np.ones(len(codes), dtype=np.int64)
        counts[several] = n
        ends = np.concatenate([[0], np.cumsum(counts)])
        columns = np.repeat(codes >> 1, counts)
        values = np.repeat((1 - 2 * (codes & 1)).astype(self.rows.dtype), counts)
        here = np.repeat(ends[several] - (np.cumsum(n) - n), n) + np.arange(n.sum())
        columns[here], values[here] = self.rows.indices[entries], self.rows.data[entries]
        kind = np.int32 if max(ends[-1], self.size) < 2**31 else np.int64
        return csr_array((values, columns.astype(kind), ends.astype(kind)), shape=(len(codes), self.size))

    @cached_property
    def transpose(self) -> csr_array:
        """Q^T, [global, local]."""
        return csr_array(self.matrix.T)

    def gathered(self, local: Sequence[Any]) -> NDArray[np.float64]:
        """Multiply local numbers by the transpose, in float64; local [E, n_modes] -> [global]."""
        numbers = [np.asarray(own, dtype=np.float64).reshape(-1) for own in local]
        found: NDArray[np.float64] = self.transpose @ np.concatenate(numbers)
        return found

    def summed(self, matrix: Any, local: Any, xp: Any = np) -> Any:
        """Multiply by a matrix such as the transpose [size, local]; local [components * rows] -> [components, size]."""
        local, components = local.reshape(-1), max(1, local.size // max(1, self.starts[-1]))
        if components == 1:
            return (matrix @ local)[None]
        ends = zip(self.starts, self.starts[1:])
        blocks = [local[components * a : components * b].reshape(components, b - a) for a, b in ends]
        rows = blocks[0] if len(blocks) == 1 else xp.concatenate(blocks, axis=1)
        return xp.stack([matrix @ row for row in rows])


class ElementRestriction:
    """Q on a device: local numbers from global ones, and their sums; columns that are not kept count as zero."""

    def __init__(self, Q: BlockMatrix, vectors: Any, dtype: DTypeLike, keep: Any = None) -> None:
        self.size = Q.size
        self._Q, self._xp = Q, vectors.xp
        self._vectors, self._chosen = vectors, (keep, dtype)

    def at(self, Q: BlockMatrix, dtype: DTypeLike) -> ElementRestriction:
        """Make the same for numbers of a type, with the rows of Q in that type."""
        made: ElementRestriction = self._vectors.restriction(Q, dtype, self._chosen[0])
        return made

    # Made where they are needed: memory that is used for the first time costs much.
    @cached_property
    def _keep(self) -> Any:
        return None if self._chosen[0] is None else self._vectors.from_host(*self._chosen)

    @cached_property
    def _drop(self) -> Any:
        return 1 - self._keep

    @cached_property
    def _matrix(self) -> Any:
        return self._vectors.sparse(self._Q.matrix)

    @cached_property
    def _transpose(self) -> Any:
        return self._vectors.sparse(self._Q.transpose)

    def scatter(self, vector: Any, targets: Sequence[Any]) -> None:
        """Write Q times global numbers; vector [components, size], targets [components, elements, n_modes]."""
        for c, row in enumerate(vector if self._keep is None else vector * self._keep):
            local = self._matrix @ row
            for start, stop, target in zip(self._Q.starts, self._Q.starts[1:], targets, strict=False):
                target[c] = local[start:stop].reshape(target[c].shape)

    def gather(self, local: Any, vector: Any = None) -> Any:
        """Sum local numbers, Q^T; local [components * rows], vector [components, size] -> [components, size]."""
        if not self.size and vector is not None:
            return self._xp.zeros_like(vector)
        return self._kept(self._Q.summed(self._transpose, local, self._xp), vector)

    def _kept(self, out: Any, vector: Any) -> Any:
        """Sums, with the entries of a vector in columns that are not kept."""
        if vector is not None and self._keep is not None:
            out *= self._keep
            out += vector * self._drop
        return out

    def gather_some(self, columns: Any) -> Callable[..., Any]:
        """Make a function that sums for columns [n] only, with the bits of `gather` without factor."""
        rows = self._vectors.sparse(csr_array(self._Q.transpose[columns]))
        keep = 1 if self._keep is None else self._keep[columns]

        def gather(local: Any, onto: Any = None, factor: float = 1.0) -> Any:
            found = self._Q.summed(rows, local, self._xp) * keep
            return found if onto is None else onto + factor * found

        return gather

    def gather_squares(self, local: Sequence[Any]) -> Any:
        """Sum by squares of Q's entries in rows of one; local [components, elements, n_modes] -> [components, size]."""
        out = np.zeros((len(local[0]), self.size))
        for codes, own in zip(self._Q.codes, local, strict=True):
            numbers, every = np.asarray(own).reshape(len(out), -1), codes.reshape(-1)
            for part in chunks(codes.size, 1, most=CACHED):
                flat, own_numbers = every[part], numbers[:, part]
                known = flat >= 0
                if not known.all():
                    flat, own_numbers = flat[known], own_numbers[:, known]
                places = (flat >> 1).astype(np.intp)
                for total, row in zip(out, own_numbers, strict=True):
                    np.add.at(total, places, row.astype(np.float64, copy=False))
        return out
