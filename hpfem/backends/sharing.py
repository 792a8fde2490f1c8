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

from hpfem.shapes.cached import cached_property

from ..support.communicator import Communicator
from .vectors import DeviceIteration, VectorSpace

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
    """

    def __init__(self, comm: Communicator, size: int, neighbours: Mapping[int, Indices]) -> None:
        self.comm, self.size = comm, size
        none = np.empty(0, dtype=np.int64)
        self._neighbours = {rank: neighbours[rank] for rank in sorted(neighbours) if len(neighbours[rank])}
        self.shared = np.unique(np.concatenate([none, *self._neighbours.values()]))
        lower = [own for rank, own in self._neighbours.items() if rank < comm.rank]
        self.ghosts = np.unique(np.concatenate([none, *lower]))
        # Positions of each neighbour's things among the shared ones.
        self.places = {rank: np.searchsorted(self.shared, own) for rank, own in self._neighbours.items()}

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

    def combined(self, values: NDArray[Any], operation: Callable[..., Any]) -> NDArray[Any]:
        """Combine the values of all processes for each thing; collective.

        Parameters
        ----------
        values : ndarray, [size]
        operation : ufunc
            Such as `numpy.minimum` or `numpy.logical_or`, whose result does not depend on the order.

        Returns
        -------
        ndarray, [size]
        """
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
    def _here(self) -> tuple[Any, Any, dict[int, Any]]:
        """Shared entries, ghosts and places as arrays of the device."""
        on, own = self.from_host, self.sharing
        return on(own.shared), on(own.ghosts), {rank: on(places) for rank, places in own.places.items()}

    def _by_component(self, vectors: Any) -> Any:
        """Entries of each component, [..., components, size]."""
        return vectors.reshape(*vectors.shape[:-1], -1, max(1, self.sharing.size))

    @property
    def comm(self) -> Communicator:
        """The processes that share vectors; see `VectorSpace.comm`."""
        return self.sharing.comm

    def summed(self, rows: Any) -> Any:
        """Add up the contributions of processes to shared entries, in place; see `VectorSpace.summed`."""
        whole = rows if rows.ndim == 2 else self._by_component(rows)
        self.summing(whole[:, self._here[0]])(whole)
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
        shared, _, places = self._here
        received = self.started(self.comm, {rank: own[:, at] for rank, at in places.items()})

        def end(rows: Any) -> Any:
            total, given = self.xp.zeros_like(own), received()
            for rank in sorted([self.comm.rank, *places]):
                if rank == self.comm.rank:
                    total += own
                else:
                    total[:, places[rank]] += given[rank]
            rows[:, shared] = total
            return rows

        return end

    def agreed(self, rows: Any) -> Any:
        """Take the owners' values, in place; see `VectorSpace.agreed`."""
        shared, _, places = self._here
        whole = rows if rows.ndim == 2 else self._by_component(rows)
        own = whole[:, shared]
        received = self.exchanged(self.comm, {rank: own[:, at] for rank, at in places.items()})
        for rank in sorted(received, reverse=True):
            if rank < self.comm.rank:
                own[:, places[rank]] = received[rank]
        whole[:, shared] = own
        return rows

    def _owned(self, a: Any, b: Any) -> Any:
        """Sum of products over the entries that this process owns."""
        whole, ghosts = a @ b, self._here[1]
        if not len(ghosts):
            return whole
        mine, other = (self._by_component(v)[..., ghosts] for v in (a, b))
        return whole - mine.reshape(*a.shape[:-1], -1) @ other.reshape(-1)

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
    """Vectors with shared entries, on the device of others.

    Parameters
    ----------
    vectors : VectorSpace
        Of one process.
    sharing : Sharing or None

    Returns
    -------
    VectorSpace
        The same vectors if nothing is shared.
    """
    if sharing is None:
        return vectors
    made = _shared_class(type(vectors))(vectors.device)
    made.sharing = sharing
    return made
