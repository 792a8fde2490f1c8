"""An error of one process ends all of them, with its message and exit code; nothing hangs."""

import sys

import pytest

from tests.distributed.launch import needs_mpi, start

CASES = {
    "all": "must be an integer >= 1 and <= 32, got 99",
    "set-up": "MeshError: this part is bad",
    "raising": "ValueError: the tenth product",
    "killed": "",
}


@needs_mpi
@pytest.mark.parametrize("case", CASES)
def test_all_end(case):
    found = start(3, "tests/distributed/failure_cases.py", case, limit=60)
    assert found.returncode != 0
    assert "never here" not in found.stdout
    assert CASES[case] in found.stderr
    assert case == "killed" or found.returncode == 1
    assert found.stderr.count("Traceback") == (0 if case == "killed" else 1)


@needs_mpi
def test_without_mpi4py_one_line_says_what_to_install():
    code = "import sys; sys.modules['mpi4py'] = None\nimport hpfem as hp\nhp.box('hex', 2)"
    found = start(2, "-c", code, limit=60)
    assert found.returncode != 0
    assert "cannot work together without mpi4py" in found.stderr and "pip install 'hpfem[mpi]'" in found.stderr


def test_an_mpirun_of_another_mpi_is_told(monkeypatch):
    pytest.importorskip("mpi4py", reason="mpi4py or mpiexec is absent")
    import subprocess

    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    code = "import hpfem as hp\nhp.box('hex', 2)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode != 0
    assert "mpi4py sees one alone" in found.stderr
