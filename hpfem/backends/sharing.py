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
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array

from hpfem.shapes.cached import cached_property

from ..support.communicator import Communicator
from .vectors import DeviceIteration, Messages, VectorSpace

Indices = NDArray[np.int64]


class Sharing:
    """The things of a process that other processes have too.

    Parameters
    ----------
    comm : Communicator
    size : int
        Number of things on this process.
    neighbours : {rank: ndarray of int}
        The things that each neighbour has too, each once; it lists its own in the same order.

    Attributes
    ----------
    comm, size
    shared : ndarray of int, ascending
        Those that any other process has too.
    ghosts : ndarray of int, ascending
        Those that a process of lower rank has too, which owns them.
    sent : ndarray of int, [m]
        Places of neighbours' things among the shared ones, one neighbour after the other.
    parts : {rank: slice}
        Those of each neighbour in `sent`.
    """

    def __init__(self, comm: Communicator, size: int, neighbours: Mapping[int, Indices]) -> None:
        self.comm, self.size = comm, size
        none = np.empty(0, dtype=np.int64)
        self._neighbours = {rank: neighbours[rank] for rank in sorted(neighbours) if len(neighbours[rank])}
        self.shared = np.unique(np.concatenate([none, *self._neighbours.values()]))
        lower = [own for rank, own in self._neighbours.items() if rank < comm.rank]
        self.ghosts = np.unique(np.concatenate([none, *lower]))
        # Positions of each neighbour's things among the shared ones, and of all of them, one neighbour after the other.
        self.places = {rank: np.searchsorted(self.shared, own) for rank, own in self._neighbours.items()}
        self.sent = np.concatenate([none, *self.places.values()])
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
        """Ones where numbers of the m messages and of this process belong to a shared thing, [shared, m + shared].

        The entries of a row are in the order of the processes, so that sums are the same on all of them.
        """
        n, m = len(self.shared), len(self.sent)
        columns = {rank: np.arange(part.start, part.stop) for rank, part in self.parts.items()}
        places, columns = {**self.places, self.comm.rank: np.arange(n)}, {**columns, self.comm.rank: m + np.arange(n)}
        ranks = sorted(places)
        row = np.concatenate([places[rank] for rank in ranks])
        column = np.concatenate([columns[rank] for rank in ranks])[np.argsort(row, kind="stable")]
        starts = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n))])
        return csr_array((np.ones(len(column), np.int8), column, starts), shape=(n, m + n))

    @cached_property
    def of_owners(self) -> csr_array:
        """The first entry of every row of `sums`: the number of the owner."""
        starts, n = self.sums.indptr, len(self.shared)
        first = self.sums.indices[starts[:-1]]
        return csr_array((np.ones(n, np.int8), first, np.arange(n + 1)), shape=self.sums.shape)

    def combined(self, values: NDArray[Any], operation: Callable[..., Any]) -> NDArray[Any]:
        """Combine the values of all processes for each thing; collective; values [size] -> [size]."""
        result, own = values.copy(), values[self.shared]
        total = own.copy()
        for rank, other in self.comm.exchanged({rank: own[at] for rank, at in self.places.items()}).items():
            total[self.places[rank]] = operation(total[self.places[rank]], other)
        result[self.shared] = total
        return result


class SharedVectors(VectorSpace):
    """A mix-in for vector spaces: vectors with shared entries; see the module.

    Attributes
    ----------
    sharing : Sharing
        Sharing of the entries of one component.
    """

    sharing: Sharing

    @cached_property
    def iteration(self) -> DeviceIteration | None:
        """Tools of the device for several processes; collective at its first use; see `VectorSpace`."""
        own = super().iteration
        return None if own is None else own.shared(self.sharing)

    @cached_property
    def _here(self) -> tuple[Any, Any]:
        """Shared entries and ghosts as arrays of the device."""
        return self.from_host(self.sharing.shared), self.from_host(self.sharing.ghosts)

    @cached_property
    def _messages(self) -> Messages:
        return self.messages(self.sharing)

    def _by_component(self, vectors: Any) -> Any:
        """Entries of each component, [..., components, size]."""
        return vectors.reshape(*vectors.shape[:-1], -1, max(1, self.sharing.size))

    def _of_shared(self, rows: Any) -> Any:
        return self.xp.ascontiguousarray(rows[:, self._here[0]])

    @property
    def comm(self) -> Communicator:
        """The processes that share vectors; see `VectorSpace.comm`."""
        return self.sharing.comm

    def summed(self, rows: Any) -> Any:
        """Add up the contributions of processes to shared entries, in place; see `VectorSpace.summed`."""
        whole = rows if rows.ndim == 2 else self._by_component(rows)
        self.summing(self._of_shared(whole))(whole)
        return rows

    @property
    def shared(self) -> NDArray[np.int64]:
        """Entries that other processes have too; see `VectorSpace.shared`."""
        return self.sharing.shared

    @property
    def ghosts(self) -> NDArray[np.int64]:
        """The shared entries that another process owns; see `VectorSpace.ghosts`."""
        return self.sharing.ghosts

    def summing(self, own: Any) -> Callable[[Any], Any]:
        """Begin to add up; see `VectorSpace.summing`."""
        messages = self._messages
        received = self.started(self.comm, messages.packed(own), self.sharing.parts)

        def end(rows: Any) -> Any:
            messages.combine(rows, own, received(), owners=False)
            return rows

        return end

    def agreed(self, rows: Any) -> Any:
        """Take the owners' values, in place; see `VectorSpace.agreed`."""
        whole = rows if rows.ndim == 2 else self._by_component(rows)
        own = self._of_shared(whole)
        received = self.started(self.comm, self._messages.packed(own), self.sharing.parts)
        self._messages.combine(whole, own, received(), owners=True)
        return rows

    def _owned(self, a: Any, b: Any) -> Any:
        """Sum of products over the entries that this process owns."""
        whole, ghosts = super().inner(a, b), self._here[1]
        if not len(ghosts):
            return whole
        mine, other = (self._by_component(v)[..., ghosts] for v in (a, b))
        return whole - super().inner(mine.reshape(*a.shape[:-1], -1), other.reshape(-1))

    def total(self, numbers: Any) -> Any:
        """Sum over processes; see `VectorSpace.total`."""
        return self.sum_over(self.comm, numbers)

    def inner(self, a: Any, b: Any) -> Any:
        """Sums of products; see `VectorSpace.inner`."""
        return self.total(self._owned(a, b))

    def dots(self, *pairs: tuple[Any, Any]) -> list[float]:
        """Sums of products, in one sum over all processes; see `VectorSpace.dots`."""
        own = [self.xp.atleast_1d(self._owned(a, b)).astype(np.float64) for a, b in pairs]
        found: list[float] = self.total(self.xp.concatenate(own)).tolist()
        return found

    def max_norm(self, vector: Any) -> float:
        """Largest absolute value, on the host; see `VectorSpace.max_norm`."""
        return self.comm.max(super().max_norm(vector))

    def count(self, vector: Any) -> int:
        """Number of entries; see `VectorSpace.count`."""
        ghosts = self._by_component(vector)[:, self._here[1]].size
        return int(self.comm.sum(vector.size - ghosts))

    def random_pair(self, n: int, dtype: DTypeLike) -> tuple[Any, Any]:
        """Make two random vectors; see `VectorSpace.random_pair`."""
        u, v = super().random_pair(n, dtype)
        return self.agreed(u), self.agreed(v)


def _shared_class(kind: Any) -> type[SharedVectors]:
    """The class of shared vectors for a kind of device."""
    return type(f"Shared{kind.__name__}", (SharedVectors, kind), {})


def shared_vectors(vectors: VectorSpace, sharing: Sharing | None) -> VectorSpace:
    """Vectors with shared entries, on the device of others."""
    if sharing is None:
        return vectors
    made = _shared_class(type(vectors))(vectors.device)
    made.sharing = sharing
    return made
