"""Processes that work together, each on a part of a mesh: MPI's, or one alone.

All processes run the same script. A collective function is called by all of them, in the same order. How they wait for
each other is in `waiting`, how they end in `ending`.

Decisions that change the sequence of calls rest on facts that all processes have, also those without cells, facets,
regions or shapes (`any`, `all`); an error on one process is raised on all (`together`). Otherwise processes would wait
for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from socket import gethostname
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hpfem.shapes.arguments import reals, shown
from hpfem.shapes.arrays import Array

from ..errors import ArgumentError, DeviceError, HpfemError
from .ending import told
from .waiting import ALL, DEVICES, Done, Meetings, meetings

T = TypeVar("T")

# Number of characters of a value in messages.
_SHOWN = 100
# Work of this process that others do a different number of times, so it must not communicate.
_ALONE_IN: list[str] = []


@contextmanager
def alone_in(what: str) -> Iterator[None]:
    """Raise an error if the body communicates: other processes are doing something else."""
    _ALONE_IN.append(what)
    try:
        yield
    finally:
        _ALONE_IN.pop()


class Communicator:
    """Processes that work together; one process without MPI.

    Parameters
    ----------
    mpi : mpi4py.MPI.Comm, optional
        By default one process.

    Attributes
    ----------
    rank, size : int
        Number of this process, and how many there are.
    host : str
        Name of its machine.
    local_rank : int
        Number of this process among those of its machine.
    """

    def __init__(self, mpi: Any = None) -> None:
        self._given = mpi
        self._meetings: Meetings = meetings(mpi)
        self.rank, self.size = (0, 1) if mpi is None else (int(mpi.rank), int(mpi.size))
        self.host = gethostname()
        self.local_rank = self.allgather(self.host)[: self.rank].count(self.host)

    def __repr__(self) -> str:
        return f"Communicator({self.rank} of {self.size})"

    @property
    def _mpi(self) -> Any:
        """The communicator for messages."""
        if _ALONE_IN:
            raise ArgumentError(
                f"{_ALONE_IN[-1]} is called by each process as often as it has cells, so that it cannot communicate, as"
                " values of a field at points do: use space.interpolate(field) first"
            )
        return self._given

    def _met(self) -> Any:
        """The communicator for a call of all processes, once all have come to it."""
        mpi = self._mpi
        self._meetings.wait([(ALL, mpi.Ibarrier())])
        return mpi

    def print(self, *values: Any) -> None:
        """Print on the first process only.

        Parameters
        ----------
        *values : object
            As for Python's `print`; all processes make them, because for example `summary` is collective.
        """
        if self.rank == 0:
            print(*values, flush=self.size > 1)

    def allgather(self, value: T) -> list[T]:
        """Gather the values of all processes on every process; collective.

        Parameters
        ----------
        value : object
            Of this process.

        Returns
        -------
        list
            By rank.
        """
        return [value] if self.size == 1 else list(self._met().allgather(value))

    def bcast(self, value: T) -> T:
        """Broadcast the first process' value to every process; collective, as for `allgather`."""
        return value if self.size == 1 else self._met().bcast(value)

    def same(self, value: object, what: str) -> None:
        """Raise an error if a value differs between processes; collective.

        Parameters
        ----------
        value : object
            Of numbers and texts.
        what : str
            Name of the value, for the message.

        Raises
        ------
        ArgumentError
            On all of them; the message has the value of the first process and the first other value.
        """
        if self.size == 1:
            return
        given = self.allgather(repr(value))
        for rank, other in enumerate(given):
            if other != given[0]:
                raise ArgumentError(
                    f"processes disagree on {what}: process 0 has {given[0][:_SHOWN]}, process {rank} has"
                    f" {other[:_SHOWN]}; all run the same script with the same arguments"
                )

    def scatter(self, values: Sequence[T] | None) -> T:
        """Scatter the first process' values, one to each process by rank; collective, as for `allgather`."""
        if self.size == 1:
            assert values is not None
            return values[0]
        return self._met().scatter(values)

    def gather(self, value: T) -> list[T] | None:
        """Gather the values of all processes on the first one, None on others; collective, as for `allgather`."""
        return [value] if self.size == 1 else self._met().gather(value)

    def on_first(
        self, given: NDArray[Any], sizes: Sequence[int], function: Callable[[list[NDArray[Any]]], list[NDArray[Any]]]
    ) -> NDArray[Any]:
        """Apply a function to the arrays [n] of all processes, of known sizes, on the first one; see `gather`."""
        if self.rank:
            found = np.empty_like(given)
            self._meetings.wait([(0, self._mpi.Isend(given, 0))])
            self._meetings.wait([(0, self._mpi.Irecv(found, 0, 0))])
            return found
        parts = [given, *(np.empty(n, given.dtype) for n in sizes[1:])]
        mpi, others = self._mpi, range(1, self.size)
        self._meetings.wait([(rank, mpi.Irecv(parts[rank], rank, 0)) for rank in others])
        made = [np.ascontiguousarray(part) for part in function(parts)]
        self._meetings.wait([(rank, mpi.Isend(made[rank], rank)) for rank in others])
        return made[0]

    def alltoall(self, values: Mapping[int, T]) -> dict[int, T]:
        """Send a value to each process in a mapping, and receive those for this one; collective, as for `allgather`."""
        by_rank = [values.get(rank) for rank in range(self.size)]
        found = by_rank if self.size == 1 else self._met().alltoall(by_rank)
        return {rank: value for rank, value in enumerate(found) if value is not None}

    def sum(self, numbers: Any) -> Array:
        """Sums over processes, the same to the last bit on each of them; collective.

        Parameters
        ----------
        numbers : array_like of float

        Returns
        -------
        ndarray of float64

        Raises
        ------
        ArgumentError
            If they are no real numbers.
        """
        return self._allreduce(np.array(reals(numbers, "numbers to add")), "SUM")

    def _allreduce(self, given: Array, operation: str) -> Array:
        if self.size == 1:
            return given
        from mpi4py import MPI

        found = np.empty_like(given)
        mpi = self._mpi
        self._meetings.wait([(ALL, mpi.Iallreduce(given, found, getattr(MPI, operation)))])
        return found

    def max(self, number: float) -> float:
        """The largest number of all processes, NaN if one is NaN; collective, as for `sum`."""
        if self.size == 1:
            return number
        known = not np.isnan(number)
        found, unknown = self._allreduce(np.array([number if known else -np.inf, not known], dtype=np.float64), "MAX")
        return float(found) if unknown == 0 else float("nan")

    def any(self, condition: bool) -> bool:
        """Tell whether a condition holds on some process; collective, see `all`."""
        return condition if self.size == 1 else bool(self.sum(bool(condition)) > 0)

    def all(self, condition: bool) -> bool:
        """Tell whether a condition holds on every process; collective, see `any`."""
        return not self.any(not condition)

    def exchanged(self, given: Mapping[int, NDArray[Any]]) -> dict[int, NDArray[Any]]:
        """Send arrays to neighbours by rank, and receive arrays of the same sizes from them; see `started`."""
        received = {rank: np.empty_like(array) for rank, array in given.items()}
        self.started(given, received)()
        return received

    def started(self, given: Mapping[int, NDArray[Any]], received: Mapping[int, NDArray[Any]]) -> Callable[[], None]:
        """Begin `exchanged`; this process can work while messages are sent.

        Parameters
        ----------
        given : {rank: ndarray}
            As for `exchanged`; not to be changed until the end.
        received : {rank: ndarray}
            Like those; overwritten.

        Returns
        -------
        callable
            A function that waits for the messages.
        """
        requests = [(rank, self._mpi.Irecv(array, rank, 0)) for rank, array in received.items()]
        requests += [(rank, self._mpi.Isend(array, rank)) for rank, array in given.items()]
        return partial(self._meetings.wait, requests)

    def until(self, done: Callable[[], bool]) -> None:
        """Wait for work of this process' device that includes messages to other devices; see `started`."""
        self._meetings.wait([(DEVICES, Done(done))])

    @contextmanager
    def together(self) -> Iterator[None]:
        """Raise an error of hpfem in the body, which is not collective, on all processes; collective.

        Yields
        ------
        None

        Raises
        ------
        HpfemError
            The error of the body, or of another process.
        """
        if self.size == 1:
            yield
            return
        failure: HpfemError | None = None
        try:
            yield
        except HpfemError as error:
            failure = error
        if self.any(failure is not None):
            found = [error for error in self.allgather(failure) if error is not None]
            raise found[0] if failure is None else failure


ALONE = Communicator()


@cache
def world() -> Communicator:
    """All processes that `mpirun` has started; without `mpirun`, this process."""
    count = told()
    if count == 1:
        return ALONE
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise DeviceError(
            f"mpirun has started {count} processes, which cannot work together without mpi4py ({error}); do"
            " pip install 'hpfem[mpi]'"
        ) from error
    if MPI.COMM_WORLD.size == 1:
        raise DeviceError(
            f"mpirun has started {count} processes, but mpi4py sees only one: it uses {MPI.get_vendor()[0]}, and this"
            " mpirun is of another MPI; use the one beside python, or build mpi4py with that MPI"
        )
    return Communicator(MPI.COMM_WORLD)


def communicator(given: Any = None) -> Communicator:
    """Make a `Communicator` of a communicator of hpfem or of mpi4py."""
    if given is None:
        return world()
    if isinstance(given, Communicator):
        return given
    if all(hasattr(given, name) for name in ("Iallreduce", "allgather", "rank", "size")):
        return ALONE if given.size == 1 else Communicator(given)
    raise ArgumentError(f"comm is a communicator of mpi4py, such as MPI.COMM_WORLD, or hpfem.ALONE; got {shown(given)}")
