"""Few numbers between the GPUs of one machine, which write to each other's memory (`peers.h`)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ....support.communicator import Communicator
from ..codegen.prelude import source_with
from .device import current_device, upload
from .kernel import functions

THREADS = 256
# Eight bytes of a sum or a message at most, processes, and blocks of an exchange: more numbers are for NCCL.
_MOST, _PROCESSES, _BLOCKS = 1 << 16, 8, 48
PART = np.dtype([("first", "i8"), ("last", "i8"), ("process", "i4"), ("", "i4")])


def _bytes(comm: Communicator) -> int:
    return 2 * comm.size * _MOST * 16


def source(real: DTypeLike) -> str:
    """Source of the kernels."""
    return source_with({"real": real}, {"THREADS": THREADS}, "vectors/peers.h")


class Peers:
    """Memory of all processes that the kernels of each write, for sums and then for messages; never freed, as others
    may still read it.
    """

    def __init__(self, comm: Communicator, opened: NDArray[np.uint64]) -> None:
        self._of = np.int32(comm.rank), np.int32(comm.size), np.int64(_MOST)
        self._memory = [upload(opened), upload(opened + np.uint64(_bytes(comm)))]
        self._marks = [upload(np.zeros(_MOST // THREADS, np.uint32)) for _ in range(2)]
        self._parts: dict[Any, Any] = {}
        comm.sum(0.0)  # all of it is zero

    @classmethod
    def of(cls, comm: Communicator) -> Peers | None:
        """Open the memory of all, if all are on one machine whose GPUs can; collective."""
        from cupy.cuda import runtime

        places = comm.allgather((comm.host, os.environ.get("NCCL_P2P_DISABLE", "0")))
        if comm.size > _PROCESSES or len(set(places)) > 1 or places[0][1] != "0":
            return None
        handle, opened = None, None
        with suppress(runtime.CUDARuntimeError):
            address = runtime.malloc(2 * _bytes(comm))
            runtime.memset(address, 0, 2 * _bytes(comm))
            runtime.deviceSynchronize()
            handle = runtime.ipcGetMemHandle(address)
        handles = comm.allgather(handle)
        with suppress(runtime.CUDARuntimeError):
            if None not in handles:
                others = [k != comm.rank and runtime.ipcOpenMemHandle(own) for k, own in enumerate(handles)]
                opened = np.array([other or address for other in others], np.uint64)
        return cls(comm, opened) if comm.all(opened is not None) and opened is not None else None

    def sum(self, given: Any, out: Any) -> bool:
        """Write sums over processes, if these are few floating-point numbers; whether they are."""
        blocks = -(-(given.nbytes // 8 + 1) // THREADS)
        if given.dtype.kind != "f" or blocks * THREADS > _MOST:
            return False
        arguments = np.int64(given.size), *self._of, self._memory[0], self._marks[0], given, out
        functions(source(given.dtype), current_device().name, "total")[0]((blocks,), (THREADS,), arguments)
        return True

    def exchanged(self, sent: Any, received: Any, parts: Mapping[int, slice]) -> dict[int, slice]:
        """Exchange parts of an array that are small enough; the others."""
        if sent.dtype.kind != "f":
            return dict(parts)
        most, width = 8 // sent.itemsize * _MOST, sent[:1].size
        ends = {rank: [width * at for at in own.indices(len(sent))[:2]] for rank, own in parts.items()}
        few = tuple((*own, rank, 0) for rank, own in ends.items() if 0 < own[1] - own[0] < most)
        if few:
            if few not in self._parts:
                self._parts[few] = upload(np.array(list(few), PART).view(np.uint8))
            arguments = np.int32(len(few)), self._parts[few], *self._of, self._memory[1], self._marks[1], sent, received
            threads = max(last - first for first, last, *_ in few) * sent.itemsize // 8 + 1
            grid = (min(_BLOCKS, -(-threads // THREADS)),), (THREADS,)
            functions(source(sent.dtype), current_device().name, "exchange")[0](*grid, arguments)
        return {rank: parts[rank] for rank, own in ends.items() if own[1] - own[0] >= most}
