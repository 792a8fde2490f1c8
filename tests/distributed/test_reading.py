"""Meshes read by several processes, and parts cut anew."""

import pytest

from tests.distributed.launch import needs_mpi, run
from tests.samples import long


@needs_mpi
@pytest.mark.parametrize("n", [*long(2), 3])
def test_partitioned_files(n):
    run(n, "tests.distributed.reading_cases", "partitions")


@needs_mpi
@pytest.mark.parametrize("n", [*long(2), 3])
def test_pieces(n):
    run(n, "tests.distributed.reading_cases", "pieces")


@needs_mpi
@pytest.mark.parametrize("n", [*long(2), 3])
def test_names_beside_their_cells(n):
    run(n, "tests.distributed.reading_cases", "named_beside")


@needs_mpi
def test_parts_cut_anew():
    run(3, "tests.distributed.reading_cases", "again")
