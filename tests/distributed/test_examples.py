"""Examples in several processes find what one finds, and say it once."""

import pytest

from tests.distributed.launch import needs_mpi, run, start


@needs_mpi
@pytest.mark.parametrize("case", ["eigenvalues", "wave", "flow", "nekbone", "insulation"])
def test_examples(case):
    run(2, "tests.distributed.example_cases", case)


@needs_mpi
def test_an_example_prints_once():
    found = start(2, "examples/helmholtz_manufactured.py", "--orders", "1", "--backend", "numpy")
    assert found.returncode == 0, found.stderr[-2000:]
    lines = found.stdout.splitlines()
    assert len(lines) == len(set(lines)) and sum(line.startswith("P=1 ") for line in lines) == 3
