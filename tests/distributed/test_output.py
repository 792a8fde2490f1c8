"""Files, values at points and questions of single processes where the mesh is shared."""

import pytest

from tests.distributed.launch import needs_mpi, run

CASES = [
    ("vtu", 3),
    ("checkpoints", 2),
    ("checkpoints_of_others", 3),
    ("failing", 2),
    ("points", 3),
    ("numbers", 4),
    ("alone", 2),
    ("disagreeing", 2),
]
NEEDS = {"vtu": "vtk", "checkpoints": "h5py", "checkpoints_of_others": "h5py", "failing": "h5py"}


@needs_mpi
@pytest.mark.parametrize(("case", "n"), CASES)
def test_output(case, n):
    if case in NEEDS:
        pytest.importorskip(NEEDS[case])
    run(n, "tests.distributed.output_cases", case)
