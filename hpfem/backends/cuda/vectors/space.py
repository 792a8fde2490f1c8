"""Vectors on a GPU: CuPy's, with kernels of ours for the element restriction and for conjugate gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any

from numpy.typing import DTypeLike
from scipy.sparse import csr_array

from ....errors import DeviceError
from ....support.communicator import Communicator
from ....support.log import report_once
from ...iteration import DeviceIteration
from ...passes import Pass
from ...restriction import BlockMatrix
from ...sharing import Sharing
from ...vectors import VectorSpace
from ..runtime.cublas import multiply
from ..runtime.nccl import nccl_of
from ..runtime.scratch import StreamPool, captured
from .conjugate import CudaConjugateVectors, DeviceSharing
from .indexed import IndexedRestriction, SparseMatrix
from .messages import CudaMessages


@cache
def _kernel(what: Pass) -> tuple[Any, list[int]]:
    """The updates of a pass as a kernel, and the places of its arrays: those that are read only come first."""
    written = dict.fromkeys(target for target, _ in what.updates)
    places = [*(i for i in range(what.arrays) if i not in written), *written]
    names, body = [*(f"x{i}" for i in range(what.arrays)), *(f"a{i}" for i in range(what.numbers))], ""
    for target, terms in what.updates:
        products = [("- " if less else "+ ") + " * ".join(names[i] for i in factors) for less, factors in terms]
        body += f"{names[target]} = {' '.join(products).removeprefix('+ ') or '0'};"
    given = [*names[what.arrays :], *(names[i] for i in places if i not in written)]
    arguments = [", ".join(f"T {name}" for name in some) for some in (given, [names[i] for i in written])]
    return import_module("cupy").ElementwiseKernel(*arguments, body, "hpfem_pass"), places


@cache
def _add_at() -> Any:
    arguments = "I place, T value", "raw T out", "out[place] += value", "hpfem_add_at"
    return import_module("cupy").ElementwiseKernel(*arguments)


@cache
def _sum_of_each() -> Any:
    body = "T sum = 0; for (long long k = starts[i]; k < starts[i + 1]; k++) sum += values[order[k]]; y = sum"
    arguments = "raw T values, raw I order, raw int64 starts", "T y", body, "hpfem_sum_of_each"
    return import_module("cupy").ElementwiseKernel(*arguments)


@cache
def _aside(device: str) -> Any:
    """The stream of a device's exchanges."""
    return import_module("cupy").cuda.Stream(non_blocking=True)


class Graph:
    """Launches in a CUDA graph: with the stream of its capture, pools whose scratch it uses, and its steps' memory."""

    def __init__(self, graph: Any, stream: Any, used: list[StreamPool[Any]], memory: Any) -> None:
        self.launch = graph.launch
        self._stream, self._used, self._memory = stream, used, memory

    def release(self) -> None:
        """Give back the graph's scratch; see `DeviceIteration.capture`."""
        del self.launch
        for pool in self._used:
            pool.release(self._stream)


class CudaIteration(DeviceIteration):
    """Scalars of conjugate gradients on the GPU, and CUDA graphs; processes may share the vectors."""

    def __init__(self, sharing: DeviceSharing | None = None) -> None:
        self._sharing = sharing

    def shared(self, sharing: Sharing) -> CudaIteration | None:
        """Iterate with other processes if NCCL connects their GPUs; see `DeviceIteration.shared`."""
        between = nccl_of(sharing.comm)
        return None if between is None else CudaIteration(DeviceSharing(sharing, between))

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
        import cupy

        stream, graph, memory = cupy.cuda.Stream(non_blocking=True), None, cupy.cuda.MemoryPool()
        used: list[StreamPool[Any]] = []
        try:
            # The graph has its own arrays: those of the common pool are reused as soon as they are free.
            with stream, captured(stream) as used, cupy.cuda.using_allocator(memory.malloc):
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
        return Graph(graph, stream, used, memory)


def _ended(stream: Any) -> Any:
    """The graph of a stream, which captures no more; None if it did not."""
    try:
        return stream.end_capture() if stream.is_capturing() else None
    except RuntimeError:
        with suppress(RuntimeError):  # it is invalid, and over
            stream.end_capture()
        raise


class CudaVectors(VectorSpace):
    """Vectors on a GPU; see `VectorSpace`."""

    iteration = CudaIteration()

    @property
    def xp(self) -> Any:
        """CuPy."""
        return import_module("cupy")

    def messages(self, sharing: Sharing) -> CudaMessages:
        """Make messages by one kernel, and write what comes of them by another; see `VectorSpace.messages`."""
        return CudaMessages(sharing, self)

    def started(self, comm: Communicator, sent: Any, parts: Mapping[int, slice]) -> Callable[[], Any]:
        """Begin to exchange arrays, between GPUs where NCCL can, on a stream of its own; see `VectorSpace.started`."""
        between = nccl_of(comm)
        if between is None:
            return super().started(comm, sent, parts)
        current, aside = self.xp.cuda.get_current_stream(), _aside(self.device.name)
        aside.wait_event(current.record())
        with aside:
            received = between.exchanged(sent, parts)
        alive = [sent]

        def end() -> Any:
            # Sent and received arrays live until here, and the next exchange waits for their readers.
            self.xp.cuda.get_current_stream().wait_event(aside.record())
            alive.clear()
            return received

        return end

    def sum_over(self, comm: Communicator, numbers: Any) -> Any:
        """Sum over processes, between GPUs where NCCL can; see `VectorSpace.sum_over`."""
        between = nccl_of(comm)
        return super().sum_over(comm, numbers) if between is None else between.sum(numbers)

    def has(self, array: Any) -> bool:
        """Tell whether something is an array of CuPy; see `VectorSpace.has`."""
        return type(array).__module__.partition(".")[0] == "cupy"

    def _update(self, what: Pass, arrays: Sequence[Any], numbers: Sequence[float]) -> None:
        kernel, places = _kernel(what)
        kernel(*map(arrays[-1].dtype.type, numbers), *(arrays[place] for place in places))

    def add_at(self, places: Any, values: Any, rows: Any) -> None:
        """Add numbers to some entries in one kernel; see `VectorSpace.add_at`."""
        if isinstance(places, slice):
            super().add_at(places, values, rows)
            return
        for value, row in zip(values, rows, strict=True):
            _add_at()(places, value, row)

    def sparse(self, matrix: csr_array) -> Any:
        """Copy a sparse matrix to the GPU; see `VectorSpace.sparse`."""
        return SparseMatrix(matrix)

    def summed_matrix(self, values: Any, rows: Any, columns: Any, shape: tuple[int, int]) -> csr_array:
        """Sort entries by their places, and sum them up there; see `VectorSpace.summed_matrix`."""
        xp = self.xp
        places = rows.astype(xp.int64) * shape[1] + columns
        order = places.argsort()  # CuPy's is stable
        places = places[order]
        starts = xp.flatnonzero(xp.diff(places, prepend=-1))
        places = places[starts]
        starts = xp.append(starts, len(order))
        data = _sum_of_each()(values, order, starts, xp.empty(len(places), values.dtype))
        ends = xp.searchsorted(places, xp.arange(shape[0] + 1) * shape[1])
        kind = xp.int32 if max(*shape, len(places)) < 2**31 else xp.int64
        parts = data, (places % shape[1]).astype(kind), ends.astype(kind)
        return csr_array(tuple(self.to_host(part) for part in parts), shape=shape)

    def multiply(self, left: Any, matrix: Any, out: Any) -> None:
        """Multiply matrices by cuBLAS, in graphs too; see `VectorSpace.multiply`."""
        multiply(left, matrix, out)

    def restriction(self, Q: BlockMatrix, dtype: DTypeLike, keep: Any = None) -> IndexedRestriction:
        """Make an element restriction by index tables; see `VectorSpace.restriction`."""
        return IndexedRestriction(Q, self, dtype, keep)

    def pool(self) -> StreamPool[Any]:
        """Make a pool of scratch that knows streams; see `VectorSpace.pool`."""
        return StreamPool()

    def linear_operator(self, shape: tuple[int, int], matvec: Callable[[Any], Any], dtype: DTypeLike) -> Any:
        """Make a LinearOperator of CuPy; see `VectorSpace.linear_operator`."""
        return import_module("cupyx.scipy.sparse.linalg").LinearOperator(shape, matvec=matvec, dtype=dtype)
