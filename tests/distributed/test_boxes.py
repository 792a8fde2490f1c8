"""Boxes of which each process makes a block, and the blocks."""

import importlib
import math
import tracemalloc
from itertools import product

import numpy as np
import pytest

from tests.distributed.launch import needs_mpi, run
from tests.samples import long

# Its function has its name.
module = importlib.import_module("hpfem.mesh.box")


def blocks(counts, size):
    """Of all processes, for layers of equal work."""
    return [module._block([np.ones(n) for n in counts], size, rank) for rank in range(size)]


@pytest.mark.parametrize("counts", [(5, 4), (1, 1, 1), (3, 4, 5), (6, 2, 1), (1, 9, 2)])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 12, 64])
def test_blocks_are_the_box(counts, size):
    own = [place for block in blocks(counts, size) for place in product(*block)]
    assert sorted(own) == sorted(product(*map(range, counts)))


@pytest.mark.parametrize(
    ("counts", "size", "wanted"),
    [
        ((32, 32, 32), 8, {(16, 16, 16)}),
        ((30, 10, 10), 3, {(10, 10, 10)}),
        ((30, 20, 20), 12, {(10, 10, 10)}),
        ((50, 20, 10), 10, {(10, 10, 10)}),
        ((8, 64, 64), 64, {(8, 8, 8)}),
        ((100, 100, 100), 3, {(33, 100, 100), (67, 50, 100)}),
    ],
)
def test_blocks_are_compact(counts, size, wanted):
    assert {tuple(map(len, block)) for block in blocks(counts, size)} == wanted


@pytest.mark.parametrize("size", [5, 7, 11, 13, 100, 1000])
def test_blocks_are_balanced(size):
    work = [math.prod(map(len, block)) for block in blocks((120, 120, 120), size)]
    assert max(work) < 1.15 * np.mean(work)


def test_layers_of_different_work():
    work = [np.array([1.0, 1.0, 1.0, 3.0]), np.ones(4), np.ones(2)]
    assert [module._block(work, 8, rank) for rank in range(8)] == [
        [range(4), range(i, i + 1), range(j, j + 1)] for i in range(4) for j in range(2)
    ]
    assert [module._block([work[0], np.ones(1)], 2, rank)[0] for rank in range(2)] == [range(3), range(3, 4)]


def test_a_block_of_what_no_machine_holds(monkeypatch):
    """Two million processes, and 3e10 small boxes."""
    counts, made = (12800, 1600, 1600), []

    class Process:
        size, rank = 2**21, 1234567

        def same(self, value, what):
            pass

    monkeypatch.setattr(module, "communicator", lambda comm: comm)
    monkeypatch.setattr(module.Cells, "mesh", lambda cells, comm, hanging: made.append(cells))
    tracemalloc.start()
    module.box("hex", counts, upper=counts, comm=Process())
    assert tracemalloc.get_traced_memory()[1] < 1e7
    tracemalloc.stop()
    (cells,) = made
    assert len(cells.points) == len(cells.ids) == 26**3 and len(cells.numbers) == 25**3
    first = cells.points[cells.arrays[0].nodes[:, 0]]
    assert np.array_equal(first.T, np.unravel_index(cells.numbers, counts))
    assert np.array_equal(cells.points.T, np.unravel_index(cells.ids, [n + 1 for n in counts]))


@needs_mpi
@pytest.mark.parametrize(
    ("n", "case"),
    # Blocks side by side, or four around an edge.
    [(2, "boxes"), (2, "memory"), (3, "boxes"), (4, "boxes"), *long((3, "operators"), (4, "operators"), (4, "memory"))],
)
def test_boxes_of_processes(n, case):
    run(n, "tests.distributed.box_cases", case)
