"""Shared entries on the device: a kernel takes all messages that come (`messages.h`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hpfem.shapes.cached import cached_property

from ...sharing import Messages, Sharing
from ...vectors import VectorSpace
from ..codegen.prelude import source_with
from ..runtime.device import current_device
from ..runtime.kernel import functions
from ..runtime.nccl import nccl_of
from ..runtime.scratch import aside
from .indexed import THREADS


def source(real: DTypeLike, index: DTypeLike) -> str:
    """Source of the kernels."""
    return source_with({"real": real, "Index": index}, {"THREADS": THREADS}, "vectors/messages.h")


class CudaMessages(Messages):
    """See `Messages`; kernels run on the current stream."""

    def __init__(self, sharing: Sharing, vectors: VectorSpace) -> None:
        super().__init__(sharing, vectors)
        self._index = np.int32 if max(sharing.size, sharing.sums.nnz, sharing.sums.shape[1]) < 2**31 else np.int64
        self._m, self._n, self._shared = len(sharing.sent), len(sharing.shared), self._on(sharing.shared)

    def _on(self, array: NDArray[Any]) -> Any:
        return self._vectors.from_host(array, self._index)

    @cached_property
    def _tables(self) -> list[tuple[Any, Any]]:
        """Starts and columns of rows of sums, and of the owners' numbers."""
        both = self._sharing.sums, self._sharing.of_owners
        return [(self._on(own.indptr), self._on(own.indices)) for own in both]

    def combine(self, rows: Any, sent: Any, received: Any, owners: bool = False, scale: Any = None) -> None:
        """Write sums over processes, or the owners' numbers; see `Messages.combine`."""
        if not self._n:
            return
        out = self._vectors.xp.ascontiguousarray(rows)
        sizes = np.int64(self._n), np.int32(len(rows)), np.int64(self._m)
        more = np.uint64(0) if scale is None else scale, np.int64(rows.shape[1])
        given = (*sizes, *self._tables[owners], self._shared, sent, received, *more, out)
        (kernel,) = functions(source(rows.dtype, self._index), current_device().name, "combine")
        kernel((-(-self._n // THREADS),), (THREADS,), given)
        if out is not rows:
            rows[...] = out

    def started(self, make: Callable[[], Any], parts: Mapping[int, slice]) -> Callable[..., None]:
        """Begin to exchange, between GPUs where NCCL can, on a stream of its own; see `Messages.started`."""
        between = nccl_of(self._sharing.comm)
        if between is None:
            return super().started(make, parts)
        cuda, beside = self._vectors.xp.cuda, aside(self._vectors.device.name)
        beside.wait_event(cuda.get_current_stream().record())
        with beside:
            sent = make()
            alive = [sent, between.exchanged(sent, parts)]

        def end(use: Callable[[Any, Any], None], apart: bool = False) -> None:
            # Sent and received arrays live until here, and the next exchange waits for their readers.
            if apart:
                with beside:
                    use(*alive)
            cuda.get_current_stream().wait_event(beside.record())
            if not apart:
                use(*alive)
            alive.clear()

        return end

    def total(self, numbers: Any) -> Any:
        """Sum over processes, between GPUs where NCCL can; see `Messages.total`."""
        between = nccl_of(self._sharing.comm)
        return super().total(numbers) if between is None else between.sum(numbers)
