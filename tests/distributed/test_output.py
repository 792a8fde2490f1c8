"""Files, values at points and questions of single processes where the mesh is shared."""

import pytest

from tests.distributed.launch import needs_mpi, run

CASES = [
    ("checkpoints", 2), ("failing", 2), ("alone", 2), ("disagreeing", 2), ("vtu", 3), ("any_partition_in_vtu", 3),
    ("any_partition_in_checkpoints", 3), ("checkpoints_of_others", 3), ("points", 3), ("numbers", 4),
]  # fmt: skip
VTK, H5PY = (
    ("vtu", "any_partition_in_vtu"),
    ("any_partition_in_checkpoints", "checkpoints", "checkpoints_of_others", "failing"),
)
NEEDS = dict.fromkeys(VTK, "vtk") | dict.fromkeys(H5PY, "h5py")


@needs_mpi
@pytest.mark.parametrize(("case", "n"), CASES)
def test_output(case, n):
    if case in NEEDS:
        pytest.importorskip(NEEDS[case])
    run(n, "tests.distributed.output_cases", case)
