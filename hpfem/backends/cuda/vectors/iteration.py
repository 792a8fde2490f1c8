"""Conjugate gradients without the host: the tools of a GPU, and CUDA graphs of their launches."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ....errors import DeviceError
from ....support.log import report_once
from ...iteration import DeviceIteration
from ...sharing import Sharing
from ..runtime.ahead import loaded
from ..runtime.lazy import cupy
from ..runtime.nccl import nccl_of
from ..runtime.scratch import FIRST, StreamPool, captured
from .conjugate import CudaConjugateVectors, DeviceSharing

# Branches of a graph beside each other, but for one: no mesh has more shapes.
_BRANCHES = 3
# CUDA's flag for graphs.
_OWN_PRIORITIES = 8


class Graph:
    """Launches in a CUDA graph: with the stream of its capture, pools whose scratch it uses, and its steps' memory.

    A launch has the priority of the stream on which it was captured, which CuPy's graphs forget.
    """

    def __init__(self, graph: tuple[int, int], stream: Any, used: list[StreamPool[Any]], memory: Any) -> None:
        (self._graph, self._made), self._stream, self._used, self._memory = graph, stream, used, memory

    def launch(self) -> None:
        """Launch all on the current stream."""
        _call("cuGraphLaunch", self._made, cupy.cuda.get_current_stream().ptr)

    @property
    def nodes(self) -> list[str]:
        """Kernels, by their names, copies and the like that a launch runs."""
        with TemporaryDirectory() as folder:
            file = Path(folder) / "graph.dot"
            _call("cuGraphDebugDotPrint", self._graph, os.fsencode(file), 0)
            return re.findall(r'_node_\d+"\s*\[[^\]]*?label="\d+\s*([^\n"]*)', file.read_text())

    def release(self) -> None:
        """Give back the graph's scratch; see `DeviceIteration.capture`."""
        _call("cuGraphExecDestroy", self._made)
        _call("cuGraphDestroy", self._graph)
        for pool in self._used:
            pool.release(self._stream)


@cache
def _driver() -> Any:
    """CUDA's driver, which CuPy has loaded."""
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")


def _call(name: str, *arguments: Any) -> None:
    """Call a function of the driver; numbers are addresses or flags."""
    status = getattr(_driver(), name)(*(ctypes.c_void_p(own) if isinstance(own, int) else own for own in arguments))
    if status:
        raise DeviceError(f"{name} failed with status {status} of CUDA's driver")


class CudaIteration(DeviceIteration):
    """Scalars of conjugate gradients on the GPU, and CUDA graphs; processes may share the vectors."""

    def __init__(self, sharing: DeviceSharing | None = None) -> None:
        self._sharing = sharing

    def shared(self, sharing: Sharing) -> CudaIteration | None:
        """Iterate with other processes if NCCL connects their GPUs; see `DeviceIteration.shared`."""
        between = nccl_of(sharing.comm)
        return None if between is None else CudaIteration(DeviceSharing(sharing.comm, sharing, between))

    def conjugate_vectors(self, *arguments: Any) -> CudaConjugateVectors:
        """Make the vectors of a solve; see `DeviceIteration.conjugate_vectors`."""
        return CudaConjugateVectors(self._sharing, *arguments)

    def capture(self, step: Callable[[], None], count: int, what: str) -> Graph | None:
        """Capture steps on a stream of their own, all processes or none; see `DeviceIteration.capture`."""
        found = self._captured(step, count, what)
        if self._sharing is None or self._sharing.comm.all(found is not None):
            return found
        if found is not None:
            found.release()
        return None

    def _captured(self, step: Callable[[], None], count: int, what: str) -> Graph | None:
        loaded()
        stream = cupy.cuda.Stream(non_blocking=True)
        beside = [cupy.cuda.Stream(non_blocking=True, priority=FIRST) for _ in range(_BRANCHES)]
        graph, memory = None, cupy.cuda.MemoryPool()
        used: list[StreamPool[Any]] = []
        try:
            # The graph has its own arrays: those of the common pool are reused as soon as they are free.
            with stream, captured(stream, beside) as used, cupy.cuda.using_allocator(memory.malloc):
                try:
                    stream.begin_capture()
                    for _ in range(count):
                        step()
                finally:
                    graph = _ended(stream)
        except BaseException as error:
            for pool in used:
                pool.release(stream)
            if not isinstance(error, (DeviceError, RuntimeError)):
                raise
            # For example, cuBLAS is not found, or another thread's work has ended the capture.
            report_once(f"cg/{error}", f"{what} run without a CUDA graph: {error}")
            return None
        assert graph is not None  # what was begun has ended, or failed
        return Graph(graph, stream, used, memory)


def _ended(stream: Any) -> tuple[int, int] | None:
    """The graph of a stream, which captures no more, and what is launched of it; None if it did not."""
    try:
        if not stream.is_capturing():
            return None
        graph, made = int(cupy.cuda.runtime.streamEndCapture(stream.ptr)), ctypes.c_void_p()
        _call("cuGraphInstantiateWithFlags", ctypes.byref(made), graph, _OWN_PRIORITIES)
        return graph, int(made.value or 0)
    except RuntimeError:
        with suppress(RuntimeError):  # it is invalid, and over
            stream.end_capture()
        raise
