"""Processes with a part of the mesh each solve and integrate as one process does."""

import pytest

from tests.distributed.launch import needs_mpi, run
from tests.samples import long

CASES = [
    ("conditions", 2), ("hidden", 2), ("other_methods", 2), ("failing", 2), ("found_by_all", 3), ("stretched", 4),
    ("thin_pyramids", 2), ("classes", 3), ("start", 3), ("multigrid", 3), ("vertices_everywhere", 3), ("exchanges", 3),
    ("kept", 3), ("any_partition", 3), ("rotated", 3), ("sums", 3), ("lower_sets", 3),
    ("named_sets", 2), ("newtons_method", 3), ("maps", 3), ("marching", 2),
    *long(*((case, 4) for case in ("exchanges", "newtons_method", "marching"))),
]  # fmt: skip


@needs_mpi
@pytest.mark.parametrize(("case", "n"), CASES)
def test_solvers(case, n):
    run(n, "tests.distributed.solver_cases", case)
