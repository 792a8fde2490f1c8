"""Entries of vectors that processes share: unknowns on the vertices, edges and faces between their cells.

Every process has all unknowns of its cells, also those that it shares with others. Shared entries are equal on all
processes, to the last bit, because sums are made in the order of the processes. The first process that has an unknown
owns it. So work on single entries needs no communication; sums over cells are exchanged with neighbours (`summed`), and
sums over entries count owned entries only (`inner`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from hpfem.shapes.arrays import Indices
from hpfem.shapes.cached import cached_property

from ..memory import as_numpy
from ..mesh.part import combined
from ..mesh.sorting import unique
from ..support.communicator import ALONE, Communicator

_NONE: Indices = np.empty(0, dtype=np.int64)


class Sharing:
    """The things of a process that other processes have too, and who owns them.

    Each neighbour, by its rank, has some of the `size` things, which it lists in the same order. In ascending order,
    `shared` are those that any other process has, and `ghosts` those that one of lower rank has, which owns them.
    `sent` [m] are the things of messages, those of one neighbour after those of the other, and `parts` those of each.
    """

    def __init__(self, comm: Communicator, size: int, neighbours: Mapping[int, Indices]) -> None:
        self.comm, self.size = comm, size
        self._neighbours = {rank: neighbours[rank] for rank in sorted(neighbours) if len(neighbours[rank])}
        self.shared = unique(np.concatenate([_NONE, *self._neighbours.values()]))
        lower = [own for rank, own in self._neighbours.items() if rank < comm.rank]
        self.ghosts = unique(np.concatenate([_NONE, *lower]))
        # Positions of each neighbour's things among the shared ones.
        self.places = {rank: np.searchsorted(self.shared, own) for rank, own in self._neighbours.items()}
        self.sent = np.concatenate([_NONE, *self._neighbours.values()])
        ends = np.cumsum([0, *map(len, self.places.values())]).tolist()
        self.parts = {rank: slice(*ends[k : k + 2]) for k, rank in enumerate(self.places)}

    @cached_property
    def owned(self) -> NDArray[np.bool_]:
        """Which things this process owns, [size]."""
        result = np.ones(self.size, dtype=bool)
        result[self.ghosts] = False
        return result

    @cached_property
    def count(self) -> int:
        """Number of things on all processes; collective at its first use, as in making a `C0Space`."""
        return int(self.comm.sum(self.size - len(self.ghosts)))

    @cached_property
    def sums(self) -> csr_array:
        """Matrix of ones that sums up received, then sent messages, in the order of processes; -> [shared, 2 m]."""
        n, m = len(self.shared), len(self.sent)
        columns = {rank: np.arange(part.start, part.stop) for rank, part in self.parts.items()}
        own = m + np.unique(self.sent, return_index=True)[1]
        places, columns = {**self.places, self.comm.rank: np.arange(n)}, {**columns, self.comm.rank: own}
        ranks = sorted(places)
        row = np.concatenate([places[rank] for rank in ranks])
        column = np.concatenate([columns[rank] for rank in ranks])[np.argsort(row, kind="stable")]
        starts = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n))])
        return csr_array((np.ones(len(column), np.int8), column, starts), shape=(n, 2 * m))

    @cached_property
    def of_owners(self) -> csr_array:
        """The first entry of every row of `sums`: the number of the owner."""
        starts, n = self.sums.indptr, len(self.shared)
        first = self.sums.indices[starts[:-1]]
        return csr_array((np.ones(n, np.int8), first, np.arange(n + 1)), shape=self.sums.shape)

    def summed_rows(self, own: csr_array) -> csr_array:
        """Sum rows of the shared things over processes that also share their columns; own [shared, size]; as `summed`,
        with neighbours alone.
        """
        entries, place, given = own.tocoo(), np.full(self.size, -1), dict[int, NDArray[np.float64]]()
        for rank, part in self.parts.items():
            place[self.sent[part]] = np.arange(part.stop - part.start)
            row, column = place[self.shared[entries.row]], place[entries.col]
            both = (row >= 0) & (column >= 0)
            given[rank] = np.stack([row[both], column[both], entries.data[both]])
            place[self.sent[part]] = -1
        counts = self.comm.exchanged({rank: np.array([sent.shape[1]]) for rank, sent in given.items()})
        received = {rank: np.empty((3, int(count[0]))) for rank, count in counts.items()}
        self.comm.started(given, received)()
        rows, columns, values = [entries.row], [entries.col], [entries.data]
        for rank, (row, column, value) in received.items():
            rows.append(self.places[rank][row.astype(np.int64)])
            columns.append(self.sent[self.parts[rank]][column.astype(np.int64)])
            values.append(value)
        places = np.concatenate(rows), np.concatenate(columns)
        return csr_array((np.concatenate(values), places), shape=own.shape)

    def with_summed_rows(self, matrix: csr_array) -> csr_array:
        """A matrix [size, size] with its rows of shared things summed up; see `summed_rows`."""
        n, count = self.size, len(self.shared)
        chosen = csr_array((np.ones(count), (np.arange(count), self.shared)), shape=(count, n))
        own = matrix[self.shared]
        return csr_array(matrix + chosen.T @ (self.summed_rows(own) - own))

    def without(self, held: NDArray[np.bool_]) -> Sharing:
        """Sharing of fewer things; held [size], the same on all processes that share a thing."""
        kept = {rank: own[~held[own]] for rank, own in self._neighbours.items()}
        return Sharing(self.comm, self.size, kept)

    def combined(self, values: NDArray[Any], operation: Callable[..., Any]) -> NDArray[Any]:
        """Combine the values of all processes for each thing; collective; values [size] -> [size]."""
        return combined(self.comm, values, self._neighbours, operation)


class Messages:
    """Numbers of shared entries as messages to neighbours, and what is made of those of neighbours; by the host."""

    def __init__(self, sharing: Sharing, vectors: Any) -> None:
        self._sharing, self._vectors = sharing, vectors

    def packed(self, own: Any) -> Any:
        """Make the messages to all neighbours; own [components, m] -> [m, components]."""
        return self._vectors.xp.ascontiguousarray(own.T)

    def combine(self, rows: Any, sent: Any, received: Any, owners: bool = False, scale: Any = None) -> None:
        """Write sums, or the owners' numbers, times `scale` [size], to the shared of rows [components, size]."""
        matrix, shared = self._sharing.of_owners if owners else self._sharing.sums, self._sharing.shared
        found = (matrix @ np.concatenate([received, sent])).T
        if scale is not None:
            found *= scale[shared]
        rows[:, shared] = found

    def started(self, make: Callable[[], Any], parts: Mapping[int, slice]) -> Callable[..., None]:
        """Begin to send each process its parts of what is made, [n] or [n, m]; the end gives that and what they send to
        a function, which a device calls beside other work if it is `apart`.
        """
        sent = make()
        given = self._vectors.to_host(sent)
        received = np.empty_like(given)
        pieces = ({rank: own[part] for rank, part in parts.items()} for own in (given, received))
        end = self._sharing.comm.started(*pieces)

        def finish(use: Callable[[Any, Any], None], apart: bool = False) -> None:
            end()
            use(sent, self._vectors.from_host(received))

        return finish

    def total(self, numbers: Any) -> Any:
        """Sum a few numbers over processes."""
        return self._vectors.xp.asarray(self._sharing.comm.sum(as_numpy(numbers)), numbers.dtype)


class Unshared:
    """What vectors of several processes do together, collective and in place; of one process alone: nothing."""

    sharing: Sharing | None = None

    @property
    def comm(self) -> Communicator:
        """The processes that share vectors."""
        return ALONE if self.sharing is None else self.sharing.comm

    @property
    def sent(self) -> Indices:
        """Entries of a component that are sent to other processes, one neighbour after the other, on the host."""
        return _NONE if self.sharing is None else self.sharing.sent

    @property
    def shared(self) -> Indices:
        """Entries of a component that other processes have too, on the host."""
        return _NONE if self.sharing is None else self.sharing.shared

    @property
    def ghosts(self) -> Indices:
        """The shared entries that another process owns, which counts them in sums."""
        return _NONE if self.sharing is None else self.sharing.ghosts

    def summed(self, rows: Any) -> Any:
        """Add up the contributions of processes to shared entries; rows [components, n] or [components * n]."""
        return rows

    def without(self, held: NDArray[np.bool_]) -> Unshared:
        """Vectors that share fewer entries; held [n], the same on all processes that share an entry."""
        return self

    def summing(self, own: Callable[[], Any]) -> Callable[..., Any]:
        """Begin `summed` with what makes the `sent` [components, m]; the end takes rows, whether nothing else writes
        what is shared there (`apart`), and what `Messages.combine` takes.
        """
        return lambda rows, **more: rows

    def agreed(self, rows: Any) -> Any:
        """Take the owner's values for shared entries; rows as for `summed`."""
        return rows

    def agreeing(self, rows: Any) -> Callable[[], Any]:
        """Begin `agreed`; until the end a process may read what it owns."""
        return lambda: rows

    def owned(self, rows: Any) -> Any:
        """The part of a vector that this process owns, which `summed` makes whole again; rows as for `summed`."""
        return rows

    def total(self, numbers: Any) -> Any:
        """Sum a few numbers on the device over processes."""
        return numbers

    def count(self, vector: Any) -> int:
        """Count the entries that a vector has on all processes."""
        return int(vector.size)
