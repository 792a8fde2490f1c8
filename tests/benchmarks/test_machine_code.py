"""benchmarks/machine_code.py: the kernels are those of the committed reference."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("some", "least"), [(" P=2 ", 700), pytest.param("", 2000, marks=pytest.mark.long)])
def test_kernels_are_those_of_the_reference(some, least):
    """In a process of its own, since the backends' compilers are replaced."""
    command = [sys.executable, "-m", "benchmarks.machine_code", "--check", "--only", some]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    *lines, counts = done.stdout.splitlines() or [done.stderr]
    if done.returncode and lines and all("of the reference would tell" in line for line in lines):
        pytest.skip(f"NVRTC of the reference is absent: {counts}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(counts.split()[0]) > least
