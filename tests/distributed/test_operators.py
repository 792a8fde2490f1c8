"""Processes with a part of the mesh each compute what one process does."""

import pytest

from tests.distributed.launch import needs_mpi, run
from tests.samples import long

CASES = [
    ("orders", 2), ("generated", 2), ("summaries", 2), ("overlapped", 3), ("curved_and_periodic", 3), ("empty", 3),
    ("boundary_terms", 2), ("linearised", 3), *long(("linearised", 4)), ("unsuitable", 3), ("by_nodes", 3),
    ("any_partition", 3), ("shapes", 4),
]  # fmt: skip


@needs_mpi
@pytest.mark.parametrize(("case", "n"), CASES)
def test_operators(case, n):
    run(n, "tests.distributed.operator_cases", case)
