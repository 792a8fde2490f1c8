"""Meshes read by several processes, and parts cut anew."""

import pytest

from tests.distributed.launch import needs_mpi, run


@needs_mpi
@pytest.mark.parametrize("n", [3])
def test_partitioned_files(n):
    run(n, "tests.distributed.reading_cases", "partitions")


@needs_mpi
def test_parts_cut_anew():
    run(3, "tests.distributed.reading_cases", "again")
