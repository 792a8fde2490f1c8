"""Sums and messages between the GPUs of a machine: the CUDA kernels run on the CPU, each process in a thread."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np
import pytest

from hpfem.backends.cuda.runtime.peers import PART, THREADS, source
from tests.backends.cuda import host_vectors
from tests.backends.cuda.host_vectors import library, run

PROCESSES, MOST = 3, 2 * THREADS


@pytest.fixture
def processes(tmp_path, monkeypatch, request):
    """Call a function for each process, with a kernels' library and the memory of all, at the same time."""
    monkeypatch.setattr(host_vectors, "_ONE", nullcontext())
    dtype = np.dtype(request.param)
    # Not kept: each has variables of its own.
    own = [library.__wrapped__(source(dtype), ("total", "exchange"), tmp_path) for _ in range(PROCESSES)]
    memory = np.zeros((PROCESSES, 2 * PROCESSES * MOST, 4), np.uint32)
    addresses = np.array([part.ctypes.data for part in memory], np.uint64)

    def call(function):
        with ThreadPoolExecutor(PROCESSES) as pool:
            return list(pool.map(lambda rank: function(rank, own[rank], addresses), range(PROCESSES)))

    yield dtype, call
    assert memory.any()


def numbers(rank, n, dtype):
    return np.random.default_rng(rank).standard_normal(n).astype(dtype)


@pytest.mark.parametrize("processes", ["f8", "f4"], indirect=True)
def test_sums_are_those_in_the_order_of_the_processes(processes):
    dtype, call = processes
    each, counts = 8 // dtype.itemsize, (1, 3, 0, THREADS, 2 * THREADS - 1)

    def sums(rank, own, memory):
        marks, found = np.zeros(MOST // THREADS, np.uint32), []
        for n in counts:
            sizes = np.int64(n), np.int32(rank), np.int32(PROCESSES), np.int64(MOST)
            found.append(np.full(n, np.nan, dtype))
            blocks = -(-(n // each + 1) // THREADS)
            run(
                own, "total", blocks, 0, *sizes, memory, marks, numbers(rank, n, dtype), found[-1], descending=rank == 1
            )
        return found, marks

    for found, marks in call(sums):
        # A block counts the sums in which it has numbers, and has waited for the others.
        assert marks.tolist() == [sum(n > each * first for n in counts) for first in range(0, MOST, THREADS)]
        for n, own in zip(counts, found, strict=True):
            assert np.array_equal(own, sum((numbers(rank, n, dtype) for rank in range(PROCESSES)), np.zeros(n, dtype)))


@pytest.mark.parametrize("processes", ["f8", "f4"], indirect=True)
def test_parts_are_exchanged_in_any_number(processes):
    dtype, call = processes
    # The numbers that each pair exchanges, time after time; one of them exchanges none the second time.
    lengths = [{(0, 1): 5, (0, 2): 200, (1, 2): 31}, {(0, 1): 64}, {(0, 1): 1, (0, 2): 2, (1, 2): 130}]

    def messages(rank, own, memory):
        marks, found = np.zeros(PROCESSES + 1, np.uint32), []
        for of_pairs in lengths:
            others = {a + b - rank: n for (a, b), n in of_pairs.items() if rank in (a, b)}
            ends = np.cumsum([0, *others.values()])
            parts = np.array([(*ends[k : k + 2], other, 0) for k, other in enumerate(others)], PART)
            sent, received = numbers(rank, ends[-1], dtype), np.full(ends[-1], np.nan, dtype)
            more = np.int32(rank), np.int32(PROCESSES), np.int64(MOST), memory, marks, sent, received
            run(own, "exchange", 1, 0, np.int32(len(parts)), parts, *more, descending=rank == 1)
            found.append(
                {other: (sent[a:b], received[a:b]) for other, a, b in zip(others, ends, ends[1:], strict=False)}
            )
        return found

    found = call(messages)
    for time, of_pairs in enumerate(lengths):
        for a, b in of_pairs:
            (sent, received), (other_sent, other_received) = found[a][time][b], found[b][time][a]
            assert np.array_equal(sent, other_received) and np.array_equal(other_sent, received)
