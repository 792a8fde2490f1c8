"""Kernels between pages that may not be touched: a number read or written outside an array ends the process.

On a CPU those that LLVM compiles; those of CUDA through the host shim.
"""

import pytest

from tests.guard import outcome
from tests.samples import long


def check(module, name):
    status, line, errors = outcome(f"tests.backends.{module}.guarded", name)
    assert (status, line) == (0, "done"), f"status {status} at: {line}\n{errors}"


@pytest.mark.parametrize("name", ["segment", "quad", *long("hex", "prism", "pyramid", "tet", "tri")])
def test_kernels_of_the_cpu(name):
    check("cpu", name)


@pytest.mark.parametrize("name", ["vectors", "pyramid", *long("hex", "prism", "quad", "tet", "tri")])
def test_kernels_of_cuda(name):
    check("cuda", name)


@pytest.mark.parametrize("module", ["cpu", "cuda"])
def test_a_number_outside_is_a_fault(module):
    """For every array by itself, on both sides."""
    check(module, "wrong")
