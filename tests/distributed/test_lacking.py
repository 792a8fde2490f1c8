"""Processes that lack cells, facets, regions or shapes take the same way as the others."""

import pytest

from tests.distributed.launch import needs_mpi, run

MODULE = "tests.distributed.lacking_cases"


@needs_mpi
@pytest.mark.parametrize("case", ["each_use", "as_devices", "refused"])
def test_processes_that_lack_something(case):
    run(3, MODULE, case)


@needs_mpi
@pytest.mark.long
@pytest.mark.parametrize("n", [2, 3])
def test_every_use(n):
    run(n, MODULE, "everything", environment={"HPFEM_TEST_LIMIT": "3000"}, limit=3000)
