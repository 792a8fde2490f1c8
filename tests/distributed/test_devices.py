"""Processes with a GPU each; where they share one, what they exchange goes over the host."""

import pytest

from tests.distributed.launch import needs_mpi, run

MODULE = "tests.distributed.device_cases"


def gpus():
    """How many GPUs there are; so many processes run, and two where there is one."""
    import cupy

    return int(cupy.cuda.runtime.getDeviceCount())


@needs_mpi
@pytest.mark.cuda
@pytest.mark.parametrize("case", ["operators", "iterations", "multigrid", "lacking"])
def test_on_gpus(case):
    run(max(2, gpus()), MODULE, case)


@needs_mpi
@pytest.mark.cuda
def test_nccl():
    if gpus() > 1:
        run(gpus(), MODULE, "between")


@needs_mpi
@pytest.mark.cuda
def test_nccl_over_sockets():
    """As between nodes: neither NVLink nor shared memory of the host."""
    if gpus() > 1:
        sockets = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_NET": "Socket"}
        run(gpus(), MODULE, "iterations", environment=sockets)


@needs_mpi
def test_on_the_host():
    run(2, MODULE, "on_host")
