"""Examples in several processes."""

import pytest

from tests.distributed.launch import needs_mpi, run


@needs_mpi
@pytest.mark.parametrize("case", ["eigenvalues", "wave", "flow"])
def test_examples(case):
    run(2, "tests.distributed.example_cases", case)
