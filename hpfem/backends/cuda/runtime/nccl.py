"""Messages and sums between the GPUs of processes, one GPU each: NCCL's, on the current stream."""

from __future__ import annotations

import atexit
import ctypes
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ....support.communicator import Communicator
from ....support.log import report_once
from .lazy import cupy
from .peers import Peers

_MADE: WeakKeyDictionary[Communicator, Nccl | None] = WeakKeyDictionary()


class Nccl:
    """NCCL's communicator of processes with a GPU each, the current one; it is made by all of them together."""

    def __init__(self, comm: Communicator) -> None:
        from cupy.cuda import nccl

        self._nccl = nccl
        number = comm.bcast(nccl.get_unique_id() if comm.rank == 0 else None)
        self._comm, self._peers = nccl.NcclCommunicator(comm.size, number, comm.rank), Peers.of(comm)

    def _type(self, array: Any) -> int:
        """NCCL's number of the type of an array."""
        names = {"f8": "FLOAT64", "f4": "FLOAT32", "i8": "INT64", "i4": "INT32"}
        return int(getattr(self._nccl, f"NCCL_{names[np.dtype(array.dtype).str[1:]]}"))

    def exchanged(self, sent: Any, parts: Mapping[int, slice]) -> Any:
        """Exchange parts of an array with other processes; see `VectorSpace.started`."""
        stream, received = cupy.cuda.get_current_stream().ptr, cupy.empty_like(sent)
        if self._peers is not None:
            parts = self._peers.exchanged(sent, received, parts)
        if not parts:
            return received
        self._nccl.groupStart()
        for rank, part in parts.items():
            own, other = sent[part], received[part]
            self._comm.send(own.data.ptr, own.size, self._type(own), rank, stream)
            self._comm.recv(other.data.ptr, other.size, self._type(other), rank, stream)
        self._nccl.groupEnd()
        return received

    def sum(self, numbers: Any, out: Any = None) -> Any:
        """Sum over processes; see `Communicator.sum`."""
        given = cupy.ascontiguousarray(numbers)
        total, stream = cupy.empty_like(given) if out is None else out, cupy.cuda.get_current_stream().ptr
        operation = self._nccl.NCCL_SUM
        if self._peers is None or not self._peers.sum(given, total):
            self._comm.allReduce(given.data.ptr, total.data.ptr, given.size, self._type(given), operation, stream)
        return total.reshape(numbers.shape)

    def keep(self) -> None:
        """Never destroy it: one more reference, which nobody gives back."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._comm))


def nccl_of(comm: Communicator) -> Nccl | None:
    """NCCL between processes, made at its first use, which is collective."""
    if comm not in _MADE:
        reason = next((own for own in comm.allgather(_missing()) if own), None)
        places = comm.allgather(_place(comm))
        if reason is None and len(set(places)) < len(places):
            reason = f"{len(places)} processes share {len(set(places))} GPU(s); start one for each"
        if reason is not None and comm.rank == 0:
            report_once(f"nccl/{reason}", f"messages between processes go through the host: {reason}")
        _MADE[comm] = Nccl(comm) if reason is None else None
    return _MADE[comm]


@atexit.register
def _keep() -> None:
    """Keep NCCL beyond the end of a script: its own end waits for graphs and for other processes, in Python's order."""
    for between in _MADE.values():
        if between is not None:
            between.keep()


def _missing() -> str | None:
    """The reason why NCCL does not work here; None if it works."""
    from cupy.cuda import nccl

    return None if nccl.available else "CuPy finds no NCCL; pip install nvidia-nccl-cu13 (or -cu12)"


def _place(comm: Communicator) -> tuple[str, str]:
    """Machine and GPU of this process."""
    return comm.host, cupy.cuda.Device().pci_bus_id
